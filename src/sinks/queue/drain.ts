/**
 * Working until nothing is left: everything that was published before is routed to the queues worked on here, and none of them has
 * an item that waits for its turn or is held, by whomever.
 *
 * What waits for a later time (a delay, a retry, a throttled tenant) is left, and so is what cannot be given: of a paused queue, of a tenant that is
 * paused or has weight 0, of a parked object. What a handler of this process publishes counts as published before.
 */
import type { Redis } from 'ioredis'
import { laneEveryMs } from '../../lanes/limits.ts'
import { throttleMark } from '../../lanes/record.ts'
import { nowMs } from '../../lanes/store.ts'
import type { Namespace } from '../../log/namespace.ts'
import { readLasts } from '../../log/read.ts'
import type { LogSource } from '../../log/view.ts'
import { queueKeys } from '../../redis/keys.ts'
import { isRoutedUpTo } from '../../route/progress.ts'
import type { Clock } from '../../runtime/clock.ts'

/** What is left in a queue. */
export interface Left {
  queue: string
  /** Items that cannot be given now: the queue is paused, or their tenants are. */
  waiting: number
  /** Items that wait for a time, and when the first of them is due: ms; null for none. */
  later: number
  dueAt: number | null
  /** Of an ordered queue: items that wait for another of their object, and objects that are parked. */
  behind: number
  parked: number
  paused: boolean
}

export interface DrainContext {
  source: LogSource
  clock: Clock
  /** For what waits for an answer. */
  network: Clock
  /** The queues that this process works on. */
  queues: readonly string[]
  /** How many handlers have begun so far. */
  begun(): number
  signal: AbortSignal | undefined
}

const lookMs = 50
// Of what waits for a time, so many are looked at together with the rest.
const lookedAt = 100
const perScan = 1_000

/** Resolves with what is left; early, with what there is, when the signal fires. */
export async function whenDrained(context: DrainContext): Promise<Left[]> {
  const { source, network, begun, signal } = context
  let begunBefore = begun()
  let states = await statesOf(context)
  /** Everything up to here is to be routed. */
  let lasts = await source.read(readLasts)
  /** How many had begun when nothing was held, before `lasts` was read: whatever they have published is below it. */
  let restedAt = states.some(({ held }) => held > 0) ? -1 : begunBefore
  for (;;) {
    const isRouted = await source.read((redis, namespace) => isRoutedUpTo(redis, namespace, lasts, context.queues))
    begunBefore = begun()
    states = await statesOf(context)
    if (signal?.aborted) return states.map(leftOf)
    if (!isRouted || states.some(({ isEmpty }) => !isEmpty)) {
      await new Promise<void>((resolve) => network.after(lookMs, resolve))
    } else if (begun() === restedAt) {
      return states.map(leftOf)
    } else {
      lasts = await source.read(readLasts)
      restedAt = begunBefore
    }
  }
}

interface State extends Left {
  held: number
  /** Nothing can be given, and nothing is held. */
  isEmpty: boolean
}

const leftOf = ({ held: _, isEmpty: __, ...left }: State): Left => left

const statesOf = ({ source, clock, queues }: DrainContext): Promise<State[]> =>
  source.read((redis, namespace) => Promise.all(queues.map((queue) => stateOf(redis, namespace, queue, nowMs(clock)))))

async function stateOf(redis: Redis, namespace: Namespace, queue: string, toldMs: number | undefined): Promise<State> {
  const keys = queueKeys(namespace.name, queue)
  const answers = await redis
    .multi()
    .hmget(keys.store, 'waiting', 'held', 'behind', 'paused', 'limits')
    .zcard(keys.turns)
    .hlen(keys.laterItems)
    .hlen(keys.parked)
    .zrange(keys.later, '0', String(lookedAt - 1), 'WITHSCORES')
    .time()
    .exec()
  const [stored, turns, later, parked, due, [seconds, us]] = (answers ?? []).map(([error, answer]) => {
    if (error) throw error
    return answer
  }) as [(string | null)[], number, number, number, string[], [number, number]]
  const [waiting, held, behind] = stored.slice(0, 3).map(Number) as [number, number, number]
  const paused = stored[3] === '1'
  const dueAt = due.length > 0 ? Number(due[1]) : null
  const now = toldMs ?? Number(seconds) * 1_000 + Math.floor(Number(us) / 1_000)
  // The next claim brings back what is due; and whoever has only used up its rate gives more in a while.
  const isReady = turns > 0 || (dueAt !== null && dueAt <= now)
  const pacedAt = now + Math.ceil(laneEveryMs(stored[4] ?? ''))
  const canGive = !paused && (isReady || (waiting > 0 && (await isPaced(redis, keys.later, due, pacedAt))))
  return { queue, waiting, later, dueAt, behind, parked, paused, held, isEmpty: held === 0 && !canGive }
}

/** Whether a tenant waits until then at most; `first` is what comes first of all that waits for a time. */
async function isPaced(redis: Redis, later: string, first: readonly string[], untilMs: number): Promise<boolean> {
  if (hasMark(first, untilMs)) return true
  if (first.length < 2 * lookedAt || Number(first.at(-1)) > untilMs) return false
  // Retries are due before every tenant. Not by rank: what goes meanwhile would move a tenant to where was looked already.
  const pages = redis.zscanStream(later, { match: `${throttleMark}*`, count: perScan }) as AsyncIterable<string[]>
  for await (const page of pages) if (hasMark(page, untilMs)) return true
  return false
}

const hasMark = (scored: readonly string[], untilMs: number): boolean =>
  scored.some((name, i) => name.startsWith(throttleMark) && Number(scored[i + 1]) <= untilMs)
