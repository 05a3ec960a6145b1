/**
 * Where an event is in the queues: a tracked one knows it by its operation; in any other it is looked for, among 10,000 items at most.
 *
 * Places are looked at in the order in which an item goes through them, so that one which moves on meanwhile is met further on; before it counts as done
 * they are looked at once more, for it may have gone back.
 */
import type { Redis } from 'ioredis'
import { type Item, readItem, readLetter } from '../../lanes/item.ts'
import type { OperationRow, OperationState } from '../../lanes/operation.ts'
import { placeField, readLease, readRecord } from '../../lanes/record.ts'
import { operationsScript } from '../../lanes/scripts.ts'
import { nowMs } from '../../lanes/store.ts'
import type { LogSource } from '../../log/view.ts'
import { compilePattern } from '../../pattern.ts'
import { type LaneKeys, queueKeys } from '../../redis/keys.ts'
import { runScript } from '../../redis/script.ts'
import type { SubscriptionFacts, Subscriptions } from '../../route/subscriptions.ts'
import type { Clock } from '../../runtime/clock.ts'
import type { TracedEvent, TracedPlace, TracedSink, TracedState } from '../../traced.ts'

export interface QueueTraceGround {
  source: LogSource
  subscriptions: Subscriptions
  clock: Clock
}

/** How many items are looked at in one queue. */
const mostLooks = 10_000
const perLook = 500

const stateOf: Readonly<Record<OperationState, TracedState>> = {
  queued: 'waiting',
  running: 'held',
  succeeded: 'done',
  failed: 'done',
  cancelled: 'done',
}

export function queueTrace(ground: QueueTraceGround): TracedSink {
  return {
    async trace(asked) {
      const all = (await ground.subscriptions.list()).filter(({ kind }) => kind === 'queue')
      const places = await Promise.all(all.map((queue) => placeIn(ground, queue, asked)))
      return places.filter((place) => place !== undefined)
    },
  }
}

async function placeIn(
  { source, clock }: QueueTraceGround,
  queue: SubscriptionFacts,
  asked: TracedEvent,
): Promise<TracedPlace | undefined> {
  return source.read(async (redis, { name: ns }) => {
    const keys = queueKeys(ns, queue.name)
    const tracked = async () => {
      const row = await operationOf(redis, keys, asked.id, nowMs(clock))
      return row && trackedPlace(redis, keys, queue.name, row)
    }
    const known = await tracked()
    if (known) return known
    const found =
      (await findItem(redis, keys, asked)) ??
      (await findItem(redis, keys, asked)) ??
      (await stateOfMissing(redis, keys, queue, asked))
    // It may have come, or even gone, since its operation was asked for.
    return found && ((await tracked()) ?? { kind: 'queue', name: queue.name, ...found })
  })
}

async function operationOf(
  redis: Redis,
  keys: LaneKeys,
  name: string,
  atMs: number | undefined,
): Promise<OperationRow | undefined> {
  const ask = { act: 'get' as const, names: [name] }
  const seen = await runScript(redis, operationsScript, { keys, nowMs: atMs, ask, detail: true })
  return seen?.rows[0]
}

async function trackedPlace(redis: Redis, keys: LaneKeys, queue: string, row: OperationRow): Promise<TracedPlace> {
  const { name, state, attempts, detail } = row
  const kept = await whereItLies(redis, keys, name, state)
  return {
    ...{ kind: 'queue', name: queue, state: kept?.state ?? stateOf[state], attempts },
    operation: { id: `${queue}.${name}`, status: state },
    ...(state !== 'succeeded' && detail!.result !== '' ? { error: detail!.result } : {}),
  }
}

/** Where the record does not say it: one that is queued may wait for a time, or for another of its object; one that failed is a dead letter or parked, unless it was dropped or discarded since. */
async function whereItLies(
  redis: Redis,
  keys: LaneKeys,
  id: string,
  state: OperationState,
): Promise<Found | undefined> {
  if (state !== 'queued' && state !== 'failed') return undefined
  const kept = await keptIn(redis, keys, id)
  if (kept) return kept
  if (state === 'failed') return parkedIn(redis, keys, id)
  const looks = new Looks(id)
  return (await laidBehind(redis, keys, looks)) ?? lost(looks)
}

type Found = Pick<TracedPlace, 'state' | 'attempts' | 'error'>

async function findItem(redis: Redis, keys: LaneKeys, asked: TracedEvent): Promise<Found | undefined> {
  const looks = new Looks(asked.id)
  const tenant = asked.event?.tenant
  return (
    (tenant === undefined ? undefined : await waitingIn(redis, keys, tenant, looks)) ??
    (await laidBehind(redis, keys, looks)) ??
    (await heldIn(redis, keys, looks)) ??
    (await keptIn(redis, keys, asked.id)) ??
    (await parkedIn(redis, keys, asked.id)) ??
    lost(looks)
  )
}

/** There was more than may be looked at. */
const lost = (looks: Looks): Found | undefined => (looks.areOver ? { state: 'unknown' } : undefined)

/** What was looked at so far. */
class Looks {
  readonly #id: string
  #left = mostLooks

  constructor(id: string) {
    this.#id = id
  }

  get left(): number {
    return Math.max(0, this.#left)
  }

  get areOver(): boolean {
    return this.#left < 0
  }

  /** The item among these texts. */
  among(texts: readonly (string | null)[]): Item | undefined {
    this.#left -= texts.length
    const found = texts.find((text) => text?.startsWith(`${this.#id} `))
    return found ? readItem(found) : undefined
  }

  passOver(items: number): void {
    this.#left -= items
  }
}

const foundAs = (state: TracedState, { attempts }: Item): Found => ({ state, attempts })

async function waitingIn(redis: Redis, keys: LaneKeys, lane: string, looks: Looks): Promise<Found | undefined> {
  const packed = await redis.hgetBuffer(keys.lanes, lane)
  if (!packed) return undefined
  const { head, tail, ranked } = readRecord(packed)
  const putBack = ranked > 0 ? await redis.zrangeBuffer(keys.rankedPrefix + lane, '0', String(looks.left)) : []
  const fields: Buffer[] = putBack.map((place) => Buffer.concat([Buffer.from(`${lane} `), place]))
  for (let place = head; place < tail && fields.length <= looks.left; place += 1) fields.push(placeField(lane, place))
  const total = ranked + tail - head
  for (let at = 0; at < fields.length; at += perLook) {
    const item = looks.among(await redis.hmget(keys.items, ...fields.slice(at, at + perLook)))
    if (item) return foundAs('waiting', item)
  }
  looks.passOver(total - fields.length)
  return undefined
}

async function laidBehind(redis: Redis, keys: LaneKeys, looks: Looks): Promise<Found | undefined> {
  for (let cursor = '0'; ; ) {
    const [next, page] = await redis.hscan(keys.behind, cursor, 'COUNT', perLook)
    const item = looks.among(page.filter((_, i) => i % 2 === 1))
    if (item) return foundAs('behind', item)
    if (next === '0' || looks.areOver) return undefined
    cursor = next
  }
}

async function heldIn(redis: Redis, keys: LaneKeys, looks: Looks): Promise<Found | undefined> {
  for (const token of await redis.zrange(keys.leases, '0', String(looks.left))) {
    const lease = await redis.getBuffer(keys.heldPrefix + token)
    if (!lease) continue
    const { items } = readLease(lease)
    const item = looks.among(await redis.hmget(keys.items, ...items.map(({ field }) => field)))
    if (item) return { state: 'held', attempts: item.attempts + 1 }
  }
  return undefined
}

/** Under its id. */
async function keptIn(redis: Redis, keys: LaneKeys, id: string): Promise<Found | undefined> {
  const later = await redis.hget(keys.laterItems, id)
  if (later !== null) return foundAs('later', readItem(later))
  const letter = await redis.hget(keys.dead, id)
  if (letter === null) return undefined
  const { reason, item } = readLetter(letter)
  return { state: 'dead', attempts: item.attempts, error: reason }
}

/** There are 10,000 at most. */
async function parkedIn(redis: Redis, keys: LaneKeys, id: string): Promise<Found | undefined> {
  const found = (await redis.hvals(keys.parked)).map(readLetter).find(({ item }) => item.id === id)
  return found && { state: 'parked', attempts: found.item.attempts, error: found.reason }
}

/** It is in no place: not wanted here, still to come, or done. */
async function stateOfMissing(
  redis: Redis,
  keys: LaneKeys,
  { match, revision }: SubscriptionFacts,
  { event, partition, seq }: TracedEvent,
): Promise<Found | undefined> {
  if (match === null) return undefined
  // In which lane it would wait is not known without it.
  if (!event) return Number(await redis.hget(keys.store, 'waiting')) > 0 ? { state: 'unknown' } : undefined
  if (!compilePattern(match).matches(event.tenant, event.type)) return undefined
  const [applied, born] = await redis.hmget(keys.store, `applied:${partition}`, 'born')
  if (applied === null || applied === undefined || Number(applied) < seq) return { state: 'pending' }
  // Before it was created, or had this definition, nobody knows whether it wanted it. Revisions are the server's clock, as seqs are.
  return { state: seq < Math.max(Number(born), revision) ? 'unknown' : 'done' }
}
