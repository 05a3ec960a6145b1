/**
 * Forgets ended operations before their day is over, the oldest of each queue first: what has ended gives way before what is still to be done.
 *
 * In small steps, and in turn: no queue loses all of its past while another one keeps its own.
 */
import type { Redis } from 'ioredis'
import type { LaneKeys } from '../redis/keys.ts'
import { runScript } from '../redis/script.ts'
import { forgetScript } from './scripts.ts'

export interface Forgotten {
  /** Queue → how many. */
  operations: ReadonlyMap<string, number>
  /** It is not enough yet, and there are more. */
  isMore: boolean
}

// A record has up to 64 KB with all that its handler said: a step of some MB at most.
const perStep = 100
const mostSteps = 1_000

export async function forgetEnded(
  redis: Redis,
  queues: ReadonlyMap<string, LaneKeys>,
  isEnough: () => Promise<boolean>,
): Promise<Forgotten> {
  const operations = new Map<string, number>()
  let left = [...queues]
  let steps = 0
  while (left.length > 0) {
    const having: typeof left = []
    for (const [queue, keys] of left) {
      if (await isEnough()) return { operations, isMore: false }
      if (steps === mostSteps) return { operations, isMore: true }
      steps += 1
      const forgotten = await runScript(redis, forgetScript, { keys, most: perStep })
      if (forgotten > 0) operations.set(queue, (operations.get(queue) ?? 0) + forgotten)
      if (forgotten >= perStep) having.push([queue, keys])
    }
    left = having
  }
  return { operations, isMore: false }
}
