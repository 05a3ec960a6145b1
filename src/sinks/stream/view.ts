/** Processors as people see them, from any process: how far they are, what they could not handle, and what to do about it. */
import type { Redis } from 'ioredis'
import { didYouMean } from '../../did-you-mean.ts'
import { BusbarError, shown } from '../../errors.ts'
import { type Hearing, inspectGroup, type MemberFacts } from '../../group/inspect.ts'
import { countAbove, countEvents } from '../../log/count.ts'
import { dropHold, moveHold } from '../../log/holds.ts'
import type { Namespace } from '../../log/namespace.ts'
import { readLasts } from '../../log/read.ts'
import type { LogSource } from '../../log/view.ts'
import type { Pattern } from '../../pattern.ts'
import { type ProcessorKeys, processorKeys, processorsKey } from '../../redis/keys.ts'
import { runScript } from '../../redis/script.ts'
import type { Clock } from '../../runtime/clock.ts'
import { checkKnown } from '../../unknown-name.ts'
import { createDeadView, type StreamDeadView } from './dead-view.ts'
import { type Definition, holdName, positionOf, storeDefinition } from './declare.ts'
import { createParkedView, type ParkedView } from './parked-view.ts'
import { checkPosition } from './position.ts'
import { resetScript, resumeScript, shelfKey } from './scripts.ts'
import type { Reason } from './set-aside.ts'

export interface PartitionFacts {
  partition: number
  owner: string | null
  epoch: number
  /** Everything up to here is done. */
  cursor: number
  /** Events stored above the cursor, wanted or not. */
  lag: number
  /** Events handled a second, over the last seconds. */
  rate: number
  blocked: Reason | null
}

export interface StreamFacts {
  name: string
  match: Pattern
  onPoison: string
  members: MemberFacts[]
  partitions: PartitionFacts[]
  lag: number
  rate: number
  /** Objects set aside, and dead letters. */
  parked: number
  dead: number
  /** Dead letters that gave way to newer ones. */
  deadDropped: number
}

export type ResetTo = 'beginning' | 'now' | number | Date

export interface ResetFacts {
  /** Events that will be handled again. */
  again: number
  /** Events that will never be handled. */
  skipped: number
  partitions: { partition: number; from: number; to: number; again: number; skipped: number }[]
}

export interface StreamsView {
  list(): Promise<StreamFacts[]>
  /** STREAM_NOT_FOUND when there is none of that name. */
  get(name: string): Promise<StreamFacts>
  /** Puts a processor somewhere else; with `preview` it only says what that would mean. */
  reset(name: string, to: ResetTo, options?: { preview?: boolean }): Promise<ResetFacts>
  /** Lets blocked partitions, or one of them, go on; parked objects too, unless a partition is named. */
  resume(name: string, options?: { partition?: number }): Promise<{ partitions: number; objects: number }>
  /** Forgets a processor that nobody runs any more: its cursors, and what it could not handle. */
  remove(name: string): Promise<void>
  readonly parked: ParkedView
  readonly dead: StreamDeadView
}

/** A processor that is known to exist. */
export interface Known {
  redis: Redis
  namespace: Namespace
  keys: ProcessorKeys
  definition: Definition
}

export type Ask = <T>(name: string, ask: (known: Known) => Promise<T>) => Promise<T>

// A rate that nobody has renewed is of the past.
const rateHoldsMs = 5_000

export function createStreamsView(source: LogSource, hearing: Hearing): StreamsView {
  const ask: Ask = (name, work) =>
    source.read(async (redis, namespace) => {
      const definition = await redis.hget(processorsKey(namespace.name), String(name))
      if (definition === null) throw await notFound(redis, namespace, name)
      return work({ redis, namespace, keys: processorKeys(namespace.name, name), definition: JSON.parse(definition) })
    })
  return {
    list: () =>
      source.read(async (redis, namespace) => {
        const definitions = Object.entries(await redis.hgetall(processorsKey(namespace.name)))
        const all = definitions.map(([name, definition]) => {
          const keys = processorKeys(namespace.name, name)
          return factsOf(name, { redis, namespace, keys, definition: JSON.parse(definition) }, hearing)
        })
        return (await Promise.all(all)).sort((a, b) => (a.name < b.name ? -1 : 1))
      }),
    get: (name) => ask(name, (known) => factsOf(name, known, hearing)),
    reset: async (name, to, options = {}) => {
      checkPosition(to)
      checkKnown(options, new Set(['preview']))
      const { preview = false } = options
      return ask(name, (known) => reset(name, known, to, preview ? undefined : hearing))
    },
    resume: async (name, options = {}) => {
      checkKnown(options, new Set(['partition']))
      const { partition } = options
      return ask(name, ({ redis, keys }) =>
        partition === undefined
          ? runScript(redis, resumeScript, { keys, scope: 'all', which: [] })
          : runScript(redis, resumeScript, { keys, scope: 'partitions', which: [partition] }),
      )
    },
    remove: (name) => ask(name, (known) => remove(name, known, hearing)),
    parked: createParkedView(ask),
    dead: createDeadView(ask),
  }
}

async function notFound(redis: Redis, namespace: Namespace, name: string): Promise<BusbarError> {
  const meant = didYouMean(String(name), await redis.hkeys(processorsKey(namespace.name)))
  return BusbarError.of('STREAM_NOT_FOUND', { name: shown(name), namespace: namespace.name, meant })
}

async function factsOf(
  name: string,
  { redis, namespace, keys, definition }: Known,
  hearing: Hearing,
): Promise<StreamFacts> {
  const [group, lasts, cursors, rates, blocked, parked, dead, dropped] = await Promise.all([
    inspectGroup(redis, keys, hearing),
    readLasts(redis, namespace),
    redis.hgetall(keys.cursors),
    redis.hgetall(keys.rates),
    redis.hgetall(keys.blocked),
    redis.hlen(keys.shelves),
    redis.hlen(keys.dead),
    redis.hget(keys.group, 'deadDropped'),
  ])
  const owners = new Map(group.owners.map((one) => [one.partition, one]))
  const partitions = await Promise.all(
    lasts.map(async (last, partition): Promise<PartitionFacts> => {
      const cursor = Number(cursors[partition] ?? 0)
      const reason = blocked[partition]
      return {
        partition,
        owner: owners.get(partition)?.owner ?? null,
        epoch: owners.get(partition)?.epoch ?? 0,
        cursor,
        lag: await countAbove(redis, namespace.partitions[partition]!, cursor, last),
        rate: rateOf(rates[partition], hearing.clock),
        blocked: reason === undefined ? null : (JSON.parse(reason) as Reason),
      }
    }),
  )
  const sum = (part: 'lag' | 'rate') => partitions.reduce((total, one) => total + one[part], 0)
  const { match, onPoison } = definition
  const kept = { parked, dead, deadDropped: Number(dropped ?? 0) }
  return { name, match, onPoison, members: group.members, partitions, lag: sum('lag'), rate: sum('rate'), ...kept }
}

function rateOf(text: string | undefined, clock: Clock): number {
  const [rate, at] = (text ?? '0 0').split(' ')
  return clock.now() - Number(at) > rateHoldsMs ? 0 : Number(rate)
}

/** Without `hearing` it only counts. */
async function reset(name: string, known: Known, to: ResetTo, hearing: Hearing | undefined): Promise<ResetFacts> {
  const { redis, namespace, keys } = known
  const targets = await positionOf(redis, namespace, to)
  const cursors = await redis.hgetall(keys.cursors)
  const partitions = await Promise.all(
    targets.map(async (target, partition) => {
      const from = Number(cursors[partition] ?? 0)
      const log = namespace.partitions[partition]!
      const count = await countEvents(redis, log, Math.min(from, target), Math.max(from, target))
      return { partition, from, to: target, again: target < from ? count : 0, skipped: target > from ? count : 0 }
    }),
  )
  if (hearing) await moveTo(name, known, targets, hearing)
  const sum = (part: 'again' | 'skipped') => partitions.reduce((total, one) => total + one[part], 0)
  return { again: sum('again'), skipped: sum('skipped'), partitions }
}

/** Nobody may run just now, so retention is told here from where on the log is needed, under the owners' new epochs. */
async function moveTo(
  name: string,
  { redis, namespace, keys, definition }: Known,
  targets: readonly number[],
  hearing: Hearing,
): Promise<void> {
  const nowUs = hearing.clock.serverUs?.()
  const trimmed = await Promise.all(namespace.partitions.map((log) => redis.hget(log.meta, 'trimmed')))
  const positions = targets.map((cursor, partition) => ({
    partition,
    cursor,
    trimmed: Number(trimmed[partition] ?? 0),
  }))
  const reply = await runScript(redis, resetScript, { keys, positions, nowUs })
  if (reply === 'unknown') throw await notFound(redis, namespace, name)
  await storeDefinition(redis, namespace, name, { ...definition, starts: targets })
  const { owners } = await inspectGroup(redis, keys, hearing)
  for (const { partition, epoch } of owners)
    await moveHold(redis, namespace, holdName(name), { partition, seq: targets[partition]!, epoch })
}

async function remove(name: string, { redis, namespace, keys }: Known, hearing: Hearing): Promise<void> {
  const { members } = await inspectGroup(redis, keys, hearing)
  if (members.length > 0) throw BusbarError.of('STREAM_IN_USE', { name, workers: members.map((member) => member.name) })
  const shelves = (await redis.hkeys(keys.shelves)).map((object) => shelfKey(keys, object))
  const { groupWake: _channel, shelfPrefix: _prefix, ...stored } = keys
  await redis.unlink(...Object.values(stored), ...shelves)
  await dropHold(redis, namespace, holdName(name))
  await redis.hdel(processorsKey(namespace.name), name)
}
