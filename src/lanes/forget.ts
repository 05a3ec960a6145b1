/**
 * Forgets ended operations before their day is over, the oldest of each queue first: what has ended gives way before what is still to be done.
 *
 * In small steps, and in turn: no queue loses all of its past while another one keeps its own. Who has no time for all of them goes on with those
 * that are left, so that each gets its turn however many there are.
 */
import type { Redis } from 'ioredis'
import { type LaneKeys, operationKeys, queueKeys } from '../redis/keys.ts'
import { runScript } from '../redis/script.ts'
import { forgetScript } from './scripts.ts'

export type Queues = ReadonlyMap<string, LaneKeys>

export interface Forgotten {
  /** Queue → how many. */
  operations: ReadonlyMap<string, number>
  /** Those that may have more, when it was enough before. */
  left: Queues
}

// A record has up to 64 KB with all that its handler said: a step of some MB at most.
const perStep = 100

/** Those of the queues that keep ended operations. Asked all at once: most queues keep none, and a step for each takes long. */
export async function queuesWithEnded(redis: Redis, ns: string, queues: readonly string[]): Promise<Queues> {
  const found = await Promise.all(queues.map((queue) => redis.exists(operationKeys(ns, queue).opsEnded)))
  return new Map(queues.filter((_, i) => found[i] === 1).map((queue) => [queue, queueKeys(ns, queue)]))
}

export async function forgetEnded(redis: Redis, queues: Queues, isEnough: () => Promise<boolean>): Promise<Forgotten> {
  const operations = new Map<string, number>()
  const left = new Map(queues)
  for (const [queue, keys] of left) {
    if (await isEnough()) break
    const forgotten = await runScript(redis, forgetScript, { keys, most: perStep })
    if (forgotten > 0) operations.set(queue, (operations.get(queue) ?? 0) + forgotten)
    left.delete(queue)
    // Behind all others: the loop comes to it again.
    if (forgotten >= perStep) left.set(queue, keys)
  }
  return { operations, left }
}
