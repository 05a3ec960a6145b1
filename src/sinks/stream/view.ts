/** Processors as people see them, from any process: how far they are, what they could not handle, and what to do about it. */
import type { Redis } from 'ioredis'
import { BusbarError, shown } from '../../errors.ts'
import { inspectGroup, type MemberFacts } from '../../group/inspect.ts'
import { countEvents } from '../../log/count.ts'
import { dropHold } from '../../log/holds.ts'
import type { Namespace } from '../../log/namespace.ts'
import { readLasts } from '../../log/read.ts'
import type { LogSource } from '../../log/view.ts'
import type { Pattern } from '../../pattern.ts'
import { type ProcessorKeys, processorKeys, processorsKey } from '../../redis/keys.ts'
import { runScript } from '../../redis/script.ts'
import type { Clock } from '../../runtime/clock.ts'
import { createDeadView, type DeadView } from './dead-view.ts'
import { holdName, positionOf } from './declare.ts'
import { createParkedView, type ParkedView } from './parked-view.ts'
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
  readonly dead: DeadView
}

/** A processor that is known to exist. */
export interface Known {
  redis: Redis
  namespace: Namespace
  keys: ProcessorKeys
  definition: { match: Pattern; onPoison: string }
}

export type Ask = <T>(name: string, ask: (known: Known) => Promise<T>) => Promise<T>

// A rate that nobody has renewed is of the past.
const rateHoldsMs = 5_000

export function createStreamsView(source: LogSource, clock: Clock): StreamsView {
  const ask: Ask = (name, work) =>
    source.read(async (redis, namespace) => {
      const definition = await redis.hget(processorsKey(namespace.name), String(name))
      if (definition === null) throw BusbarError.of('STREAM_NOT_FOUND', { name: shown(name) })
      return work({ redis, namespace, keys: processorKeys(namespace.name, name), definition: JSON.parse(definition) })
    })
  return {
    async list() {
      const names = await source.read((redis, namespace) => redis.hkeys(processorsKey(namespace.name)))
      return Promise.all(names.sort().map((name) => ask(name, (known) => factsOf(name, known, clock))))
    },
    get: (name) => ask(name, (known) => factsOf(name, known, clock)),
    reset: (name, to, { preview = false } = {}) => ask(name, (known) => reset(known, to, preview, clock)),
    resume: (name, { partition } = {}) =>
      ask(name, ({ redis, keys }) =>
        partition === undefined
          ? runScript(redis, resumeScript, { keys, scope: 'all', which: [] })
          : runScript(redis, resumeScript, { keys, scope: 'partitions', which: [partition] }),
      ),
    remove: (name) => ask(name, (known) => remove(name, known)),
    parked: createParkedView(ask),
    dead: createDeadView(ask),
  }
}

async function factsOf(
  name: string,
  { redis, namespace, keys, definition }: Known,
  clock: Clock,
): Promise<StreamFacts> {
  const [group, lasts, cursors, rates, blocked, parked, dead, dropped] = await Promise.all([
    inspectGroup(redis, keys),
    readLasts(redis, namespace),
    redis.hgetall(keys.cursors),
    redis.hgetall(keys.rates),
    redis.hgetall(keys.blocked),
    redis.hlen(keys.shelves),
    redis.hlen(keys.dead),
    redis.hget(keys.group, 'deadDropped'),
  ])
  const partitions = await Promise.all(
    lasts.map(async (last, partition): Promise<PartitionFacts> => {
      const cursor = Number(cursors[partition] ?? 0)
      const reason = blocked[partition]
      return {
        partition,
        owner: group.owners[partition]?.owner ?? null,
        epoch: group.owners[partition]?.epoch ?? 0,
        cursor,
        lag: await countEvents(redis, namespace.partitions[partition]!, cursor, last),
        rate: rateOf(rates[partition], clock),
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

async function reset({ redis, namespace, keys }: Known, to: ResetTo, preview: boolean, clock: Clock) {
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
  if (!preview)
    await runScript(redis, resetScript, { keys, cursors: new Map(targets.entries()), nowUs: clock.serverUs?.() })
  const sum = (part: 'again' | 'skipped') => partitions.reduce((total, one) => total + one[part], 0)
  return { again: sum('again'), skipped: sum('skipped'), partitions }
}

async function remove(name: string, { redis, namespace, keys }: Known): Promise<void> {
  const { members } = await inspectGroup(redis, keys)
  if (members.length > 0) throw BusbarError.of('STREAM_IN_USE', { name, workers: members.map((member) => member.name) })
  const shelves = (await redis.hkeys(keys.shelves)).map((object) => shelfKey(keys, object))
  const { groupWake: _channel, shelfPrefix: _prefix, ...stored } = keys
  await redis.unlink(...Object.values(stored), ...shelves)
  await dropHold(redis, namespace, holdName(name))
  await redis.hdel(processorsKey(namespace.name), name)
}
