/**
 * The leader's duty for memory: Redis must never be so full that nothing can be published or worked off any more.
 *
 *   below    less is used than the high mark: nothing is dropped
 *   above    the log is trimmed of what nobody needs any more; then, as long as the low mark is not reached, the oldest ended
 *            operations are forgotten; then the oldest waiting items of the largest backlog are dropped, never one that is held
 *   closed   above the top mark nothing is published until there is room
 *
 * Each drop is counted where it was, and announced once there is room again. Two leaders at once drop a little more than one.
 */
import type { Redis } from 'ioredis'
import { bytesIn, largestLane } from './lanes/backlog.ts'
import { forgetEnded } from './lanes/forget.ts'
import { dropScript } from './lanes/scripts.ts'
import type { Namespace } from './log/namespace.ts'
import type { Retainer } from './log/retention.ts'
import type { Connection } from './redis/connection.ts'
import { type LaneKeys, queueKeys, routeKeys, webhookKeys, webhookShards } from './redis/keys.ts'
import { runScript } from './redis/script.ts'
import { serverMs } from './redis/server-time.ts'
import { readable } from './route/store-fsck.ts'
import type { Clock } from './runtime/clock.ts'
import type { Telemetry } from './runtime/telemetry.ts'
import { dropScript as dropBatchesScript } from './sinks/webhook/scripts.ts'

export interface GuardContext {
  namespace: Namespace
  connection: Connection
  retainer: Retainer
  telemetry: Telemetry
  clock: Clock
  /** What counts as all, where Redis has no maxmemory; undefined: then nothing is guarded. */
  limitBytes: number | undefined
  announce(dropped: readonly Dropped[]): Promise<void>
}

/** What was given up of one backlog. */
export interface Dropped {
  kind: 'queue' | 'webhook'
  name: string
  /** Of a queue: whose items. */
  tenant?: string
  items: number
  bytes: number
}

interface Store {
  kind: Dropped['kind']
  name: string
  keys: LaneKeys
}

interface Backlog {
  store: Store
  lane: string
  bytes: number
}

/** Shares of the limit. From `near` on it is looked at more often. */
export const marks = { near: 0.5, low: 0.75, high: 0.85, top: 0.95 } as const

const closedMs = 10_000
const lookMs = 5_000
const nearMs = 500
// A step of some ms.
const itemsPerStep = 200
const mostSteps = 1_000

/** As the leader's duties are: see tasks/duty.ts. */
export function memoryDuty(context: GuardContext) {
  let untold: Dropped[] = []
  let isClosed = false

  return {
    waitsForReal: true,
    begin: () => undefined,
    hear: () => false,
    async turn(): Promise<number> {
      const { used, limit } = await memoryOf(context)
      if (limit === undefined) return lookMs
      if (used > limit * marks.top) {
        await close(context)
        isClosed = true
      }
      if (used > limit * marks.high) {
        await trimRetained(context, used - limit * marks.low)
        const dropped = (await forgetOperations(context)) ? [] : await dropBacklogs(context)
        for (const one of dropped) context.telemetry.emit('memory.dropped', { ...one })
        untold.push(...dropped)
      } else if (isClosed) {
        await open(context)
        isClosed = false
      }
      untold = await tell(context, untold)
      return used > limit * marks.near ? nearMs : lookMs
    },
  }
}

async function memoryOf({
  connection,
  limitBytes,
}: GuardContext): Promise<{ used: number; limit: number | undefined }> {
  const info = await connection.redis.info('memory')
  const number = (name: string) => Number(new RegExp(`^${name}:(\\d+)`, 'm').exec(info)?.[1] ?? 0)
  return { used: number('used_memory'), limit: number('maxmemory') || limitBytes }
}

/** A leader that dies leaves it closed for some seconds. */
async function close({ connection, namespace, telemetry, clock }: GuardContext): Promise<void> {
  const until = (await serverMs(connection.redis, clock)) + closedMs
  await Promise.all(namespace.partitions.map(({ meta }) => connection.redis.hset(meta, 'closedUntil', until)))
  telemetry.emit('memory.closed', { forMs: closedMs })
}

/** As soon as there is room. */
async function open({ connection, namespace }: GuardContext): Promise<void> {
  await Promise.all(namespace.partitions.map(({ meta }) => connection.redis.hdel(meta, 'closedUntil')))
}

/** Gives up so many bytes of the log, of all partitions alike, but nothing that someone has still to read. */
async function trimRetained({ connection, namespace, retainer }: GuardContext, bytes: number): Promise<void> {
  const { redis } = connection
  const sizes = await Promise.all(namespace.partitions.map(({ meta }) => redis.hget(meta, 'bytes')))
  const total = sizes.reduce((sum, size) => sum + Number(size ?? 0), 0)
  const kept = total === 0 ? 1 : Math.max(0, 1 - bytes / total)
  for (const [partition, size] of sizes.entries())
    await retainer.trimTo(partition, Math.floor(Number(size ?? 0) * kept))
}

/** Answers whether there are more to forget. */
async function forgetOperations(context: GuardContext): Promise<boolean> {
  const { connection, namespace, telemetry } = context
  const queues = (await storesOf(connection.redis, namespace.name)).filter(({ kind }) => kind === 'queue')
  const isEnough = async () => {
    const { used, limit } = await memoryOf(context)
    return used <= limit! * marks.low
  }
  const keys = new Map(queues.map((queue) => [queue.name, queue.keys]))
  const { operations, isMore } = await forgetEnded(connection.redis, keys, isEnough)
  for (const [queue, forgotten] of operations) telemetry.emit('memory.forgotten', { queue, operations: forgotten })
  return isMore
}

async function dropBacklogs(context: GuardContext): Promise<Dropped[]> {
  const dropped = new Map<string, Dropped>()
  /** Backlogs of which nothing can be dropped: all of it is held, or waits for a time. */
  const passed = new Map<string, Set<string>>()
  for (let step = 0; step < mostSteps; step += 1) {
    const { used, limit } = await memoryOf(context)
    const tooMuch = used - limit! * marks.low
    const backlog = tooMuch > 0 ? await largestBacklog(context, passed) : undefined
    if (!backlog) break
    const some = await dropSome(context, backlog, tooMuch)
    if (some.items === 0) pass(passed, backlog)
    else add(dropped, backlog, some)
  }
  return [...dropped.values()]
}

function pass(passed: Map<string, Set<string>>, { store, lane }: Backlog): void {
  const lanes = passed.get(store.keys.store) ?? new Set()
  passed.set(store.keys.store, lanes.add(lane))
}

function add(dropped: Map<string, Dropped>, { store, lane }: Backlog, some: { items: number; bytes: number }): void {
  const of = `${store.kind} ${store.name} ${lane}`
  const named = store.kind === 'queue' ? { name: store.name, tenant: lane } : { name: lane }
  const known = dropped.get(of) ?? { kind: store.kind, ...named, items: 0, bytes: 0 }
  dropped.set(of, { ...known, items: known.items + some.items, bytes: known.bytes + some.bytes })
}

/** No lane has more than its store: those behind the largest lane so far need not be looked at. */
async function largestBacklog(
  { connection, namespace }: GuardContext,
  passed: ReadonlyMap<string, ReadonlySet<string>>,
): Promise<Backlog | undefined> {
  const { redis } = connection
  const stores = await storesOf(redis, namespace.name)
  const sizes = await Promise.all(stores.map(({ keys }) => bytesIn(redis, keys)))
  const bySize = stores.map((store, i) => ({ store, bytes: sizes[i]! })).sort((a, b) => b.bytes - a.bytes)
  let largest: Backlog | undefined
  for (const { store, bytes } of bySize) {
    if (bytes <= (largest?.bytes ?? 0)) break
    const found = await largestLane(redis, store.keys, passed.get(store.keys.store) ?? new Set())
    if (found && found.bytes > (largest?.bytes ?? 0)) largest = { store, ...found }
  }
  return largest
}

async function storesOf(redis: Redis, ns: string): Promise<Store[]> {
  const stored = Object.entries(await redis.hgetall(routeKeys(ns).subscriptions))
  const queues = stored.filter(([name, text]) => readable(name, text)?.kind === 'queue').map(([name]) => name)
  return [
    ...queues.map((name): Store => ({ kind: 'queue', name, keys: queueKeys(ns, name) })),
    ...Array.from({ length: webhookShards }, (_, shard): Store => {
      return { kind: 'webhook', name: '', keys: webhookKeys(ns, shard) }
    }),
  ]
}

function dropSome({ connection }: GuardContext, { store, lane }: Backlog, bytes: number) {
  const about = { name: lane, bytes: Math.ceil(bytes), most: itemsPerStep }
  const { redis } = connection
  if (store.kind === 'queue') return runScript(redis, dropScript, { keys: store.keys, ...about })
  const keys = store.keys as ReturnType<typeof webhookKeys>
  return runScript(redis, dropBatchesScript, { keys, seed: '', ...about }).then(({ events, bytes: freed }) => ({
    items: events,
    bytes: freed,
  }))
}

/** Answers what could not be told yet. */
async function tell({ announce }: GuardContext, dropped: readonly Dropped[]): Promise<Dropped[]> {
  if (dropped.length === 0) return []
  try {
    await announce(dropped)
    return []
  } catch {
    return [...dropped]
  }
}
