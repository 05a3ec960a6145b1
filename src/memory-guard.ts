/**
 * The leader's duty for memory: Redis must never be so full that nothing can be published or worked off any more.
 *
 *   below    less is used than the high mark: nothing is dropped
 *   above    the log is trimmed of what nobody needs any more; then, as long as the low mark is not reached, ended operations are
 *            forgotten, then the oldest dead letters of the store that has most are dropped, then the oldest waiting items of the largest backlog, never one that is held
 *   closed   above the top mark nothing is published until there is room
 *   stuck    nothing is left to drop, and the low mark is not reached: others fill this Redis, or what is held does
 *
 * Each drop is counted where it was, and announced once there is room again. Two leaders at once drop a little more than one.
 */
import type { Redis } from 'ioredis'
import { bytesIn, lanesBySize } from './lanes/backlog.ts'
import { forgetEnded, type Queues, queuesWithEnded } from './lanes/forget.ts'
import { dropLettersScript, dropScript } from './lanes/scripts.ts'
import { closeLog, openLog } from './log/closing.ts'
import type { Namespace } from './log/namespace.ts'
import type { Retainer } from './log/retention.ts'
import { type Dropped, DroppedNews, keyOf, merge } from './memory-news.ts'
import type { Connection } from './redis/connection.ts'
import { type LaneKeys, queueKeys, routeKeys, type WebhookKeys, webhookKeys, webhookShards } from './redis/keys.ts'
import { runScript } from './redis/script.ts'
import { serverMs } from './redis/server-time.ts'
import { readable } from './route/store-fsck.ts'
import type { Clock } from './runtime/clock.ts'
import type { Telemetry } from './runtime/telemetry.ts'
import { dropScript as dropBatchesScript, dropLettersScript as dropDeadBatchesScript } from './sinks/webhook/scripts.ts'

export interface GuardContext {
  namespace: Namespace
  connection: Connection
  retainer: Retainer
  telemetry: Telemetry
  /** Of the server, where a test moves it. */
  clock: Clock
  /** Time as it passes: how long a turn may take. */
  network: Clock
  /** What counts as all, where Redis has no maxmemory; undefined: then nothing is guarded. */
  limitBytes: number | undefined
  /** A random text. */
  newKey(): string
  /** Under one key it is told once. */
  announce(dropped: readonly Dropped[], key: string): Promise<void>
}

type Store =
  | { kind: 'queue'; name: string; keys: LaneKeys }
  /** A shard of many. */
  | { kind: 'webhook'; name?: undefined; keys: WebhookKeys }

interface SizedStore {
  store: Store
  /** Bytes. */
  waiting: number
  dead: number
}

interface Backlog {
  store: Store
  /** Undefined: all of the store; its lanes are not known yet. */
  lane: string | undefined
  bytes: number
}

/** Shares of the limit. From `near` on it is looked at more often. */
export const marks = { near: 0.5, low: 0.75, high: 0.85, top: 0.95 } as const

const closedMs = 10_000
/** A closure that is older is made anew while it is needed. */
const renewMs = 3_000
const lookMs = 5_000
const nearMs = 500
/** Forgetting has as long before: then a new look at what is there. */
const dropMs = 1_000
// A step of some ms.
const itemsPerStep = 200
const bytesPerStep = 8 * 1_048_576

/** As the leader's duties are: see tasks/duty.ts. */
export function memoryDuty(context: GuardContext) {
  const guard = new MemoryGuard(context)
  return {
    waitsForReal: true,
    begin: () => guard.begin(),
    hear: () => false,
    turn: () => guard.turn(),
  }
}

class MemoryGuard {
  readonly #context: GuardContext
  readonly #news: DroppedNews
  /** By the clock of this process; undefined: open. */
  #closedAt: number | undefined
  #isAboveTop = false
  #isStuck = false
  /** Queues whose ended operations are still to be forgotten before anything is dropped: there was no time for them in the turn before. */
  #toForget: Queues = new Map()

  constructor(context: GuardContext) {
    this.#context = context
    this.#news = new DroppedNews(context)
  }

  begin(): void {
    this.#toForget = new Map()
  }

  /** Answers in how many ms to look again. */
  async turn(): Promise<number> {
    const { used, limit } = await this.#memory()
    if (limit === undefined) {
      if (this.#closedAt !== undefined) await this.#open()
      return lookMs
    }
    const closing = this.#isAboveTop ? await settled(this.#close()) : undefined
    let isOver = true
    if (used > limit * marks.high) {
      await this.#trimRetained(used - limit * marks.low)
      isOver = await this.#dropBacklogs()
    } else {
      this.#isStuck = false
      this.#toForget = new Map()
      if (this.#closedAt !== undefined) await this.#open()
    }
    await this.#news.tell()
    if (closing?.status === 'rejected') throw closing.reason
    if (!isOver) return 0
    return used > limit * marks.near ? nearMs : lookMs
  }

  async #memory(): Promise<{ used: number; limit: number | undefined }> {
    const { connection, limitBytes } = this.#context
    const { used, limit } = readMemory(await connection.redis.info('memory'), limitBytes)
    this.#isAboveTop = limit !== undefined && used > limit * marks.top
    return { used, limit }
  }

  /** A leader that dies leaves it closed for some seconds. */
  async #close(): Promise<void> {
    const { connection, namespace, telemetry, clock, network } = this.#context
    const atMs = network.monotonicMs()
    await closeLog(connection.redis, namespace, (await serverMs(connection.redis, clock)) + closedMs)
    this.#closedAt = atMs
    telemetry.emit('memory.closed', { forMs: closedMs })
  }

  async #renewClosure(): Promise<void> {
    const isOld = this.#closedAt !== undefined && this.#context.network.monotonicMs() - this.#closedAt > renewMs
    if (isOld && this.#isAboveTop) await this.#close()
  }

  /** As soon as there is room. */
  async #open(): Promise<void> {
    const { connection, namespace } = this.#context
    await openLog(connection.redis, namespace)
    this.#closedAt = undefined
  }

  /** Gives up so many bytes of the log, of all partitions alike, but nothing that someone has still to read. */
  async #trimRetained(bytes: number): Promise<void> {
    const { connection, namespace, retainer } = this.#context
    const { redis } = connection
    const sizes = await Promise.all(namespace.partitions.map(({ meta }) => redis.hget(meta, 'bytes')))
    const total = sizes.reduce((sum, size) => sum + Number(size ?? 0), 0)
    const kept = total === 0 ? 1 : Math.max(0, 1 - bytes / total)
    for (const [partition, size] of sizes.entries()) {
      await retainer.trimTo(partition, Math.floor(Number(size ?? 0) * kept))
      await this.#renewClosure()
    }
  }

  /** Whether there is nothing more to do: enough is dropped, or nothing is left. */
  async #dropBacklogs(): Promise<boolean> {
    const { connection, namespace, network, telemetry } = this.#context
    const stores = await storesOf(connection.redis, namespace.name)
    if (!(await this.#forgetOperations(stores))) return false
    const dropped = new Map<string, Dropped>()
    const isOver = await this.#dropUntil(network.monotonicMs() + dropMs, stores, dropped)
    for (const one of dropped.values()) {
      telemetry.emit('memory.dropped', { ...one })
      this.#news.add(one)
    }
    return isOver
  }

  async #dropUntil(endsMs: number, stores: readonly SizedStore[], dropped: Map<string, Dropped>): Promise<boolean> {
    const { connection, network } = this.#context
    const backlogs = new Backlogs(connection.redis, stores)
    while (network.monotonicMs() < endsMs) {
      const { used, limit } = await this.#memory()
      const tooMuch = used - limit! * marks.low
      if (tooMuch <= 0) return true
      const some = await backlogs.drop(Math.ceil(Math.min(tooMuch, bytesPerStep)))
      // Lanes that were not among the largest may have something still.
      if (!some) return dropped.size === 0 && this.#stuck(used, limit!)
      for (const one of some) merge(dropped, keyOf(one), one)
      await this.#renewClosure()
    }
    return false
  }

  /** What has ended gives way first. Answers whether all queues had their turn; if not, the next call goes on with the others. */
  async #forgetOperations(stores: readonly SizedStore[]): Promise<boolean> {
    const { connection, namespace, network, telemetry } = this.#context
    const { redis } = connection
    const names = stores.flatMap(({ store }) => (store.kind === 'queue' ? [store.name] : []))
    if (this.#toForget.size === 0) this.#toForget = await queuesWithEnded(redis, namespace.name, names)
    const endsMs = network.monotonicMs() + dropMs
    const isEnough = async () => {
      // The time first: however slowly Redis answers, there is one step in each turn.
      if (network.monotonicMs() >= endsMs) return true
      const { used, limit } = await this.#memory()
      return used <= limit! * marks.low
    }
    const { operations, left } = await forgetEnded(redis, this.#toForget, isEnough)
    this.#toForget = left
    for (const [queue, forgotten] of operations) telemetry.emit('memory.forgotten', { queue, operations: forgotten })
    return left.size === 0
  }

  /** Said once, until it is over. */
  #stuck(used: number, limit: number): true {
    if (!this.#isStuck) this.#context.telemetry.emit('memory.stuck', { used, limit })
    this.#isStuck = true
    return true
  }
}

/** Used as Redis counts it when it refuses: without what its replicas and its file are still to be sent. */
export function readMemory(info: string, limitBytes: number | undefined): { used: number; limit: number | undefined } {
  const number = (name: string) => Number(new RegExp(`^${name}:(\\d+)`, 'm').exec(info)?.[1] ?? 0)
  const used = number('used_memory') - number('mem_not_counted_for_evict')
  return { used, limit: number('maxmemory') || limitBytes }
}

/**
 * What can be dropped, as it was found at the beginning of a turn, less what was dropped since: each store is looked through once. Dead
 * letters come first: nobody waits for them.
 */
class Backlogs {
  readonly #redis: Redis
  #dead: SizedStore[]
  /** A store, as long as its lanes are not known; then these. */
  #waiting: Backlog[]

  constructor(redis: Redis, stores: readonly SizedStore[]) {
    this.#redis = redis
    this.#dead = stores.filter(({ dead }) => dead > 0).sort((a, b) => a.dead - b.dead)
    this.#waiting = stores.map(({ store, waiting }) => ({ store, lane: undefined, bytes: waiting }))
  }

  /** One step. Undefined when nothing is left. */
  async drop(bytes: number): Promise<Dropped[] | undefined> {
    const store = this.#dead.at(-1)
    if (store) return await this.#dropLetters(store, bytes)
    const backlog = await this.#largest()
    if (!backlog) return undefined
    const some = await dropWaiting(this.#redis, backlog, bytes)
    // All of it is held or waits for a time: it is passed over.
    backlog.bytes = some.items === 0 ? 0 : backlog.bytes - some.bytes
    return some.items === 0 ? [] : [{ ...named(backlog.store, backlog.lane), ...some }]
  }

  async #dropLetters(largest: SizedStore, bytes: number): Promise<Dropped[]> {
    const dropped = await dropDead(this.#redis, largest.store, bytes)
    largest.dead -= dropped.reduce((sum, { bytes: freed }) => sum + freed, 0)
    if (largest.dead <= 0 || dropped.length === 0) this.#dead.pop()
    this.#dead.sort((a, b) => a.dead - b.dead)
    return dropped.map(({ lane, ...some }) => ({ ...named(largest.store, lane), letters: true, ...some }))
  }

  /** No lane has more than its store: the lanes of a smaller one need not be known. */
  async #largest(): Promise<(Backlog & { lane: string }) | undefined> {
    for (;;) {
      this.#waiting.sort((a, b) => b.bytes - a.bytes)
      const [first] = this.#waiting
      if (!first || first.bytes <= 0) return undefined
      if (first.lane !== undefined) return first as Backlog & { lane: string }
      const lanes = await lanesBySize(this.#redis, first.store.keys)
      this.#waiting.splice(0, 1, ...lanes.map((lane) => ({ store: first.store, ...lane })))
    }
  }
}

const named = ({ kind, name }: Store, lane: string): Pick<Dropped, 'kind' | 'name' | 'tenant'> =>
  kind === 'queue' ? { kind, name, tenant: lane } : { kind, name: lane }

async function storesOf(redis: Redis, ns: string): Promise<SizedStore[]> {
  const stored = Object.entries(await redis.hgetall(routeKeys(ns).subscriptions))
  const queues = stored.filter(([name, text]) => readable(name, text)?.kind === 'queue').map(([name]) => name)
  const stores = [
    ...queues.map((name): Store => ({ kind: 'queue', name, keys: queueKeys(ns, name) })),
    ...Array.from({ length: webhookShards }, (_, shard): Store => ({ kind: 'webhook', keys: webhookKeys(ns, shard) })),
  ]
  const sizes = await Promise.all(stores.map(({ keys }) => bytesIn(redis, keys)))
  return stores.map((store, i) => ({ store, ...sizes[i]! }))
}

async function dropWaiting(redis: Redis, { store, lane }: Backlog & { lane: string }, bytes: number) {
  const about = { name: lane, bytes, most: itemsPerStep }
  if (store.kind === 'queue') return await runScript(redis, dropScript, { keys: store.keys, ...about })
  const { events, bytes: freed } = await runScript(redis, dropBatchesScript, { keys: store.keys, seed: '', ...about })
  return { items: events, bytes: freed }
}

function dropDead(redis: Redis, store: Store, bytes: number) {
  const about = { bytes, most: itemsPerStep }
  return store.kind === 'queue'
    ? runScript(redis, dropLettersScript, { keys: store.keys, ...about })
    : runScript(redis, dropDeadBatchesScript, { keys: store.keys, seed: '', ...about })
}

const settled = async (work: Promise<void>): Promise<PromiseSettledResult<void>> =>
  (await Promise.allSettled([work]))[0]!
