/** What befalls a handler in the comparison of orders: it takes up to 10 ms, and one in ten fails. */
import { setTimeout as sleep } from 'node:timers/promises'

export const workersPerProcess = 2
export const concurrency = 10
export const retryMs = 10
export const leaseMs = 2_000
const longestMs = 10
const failing = 0.1

/** The effect comes last: what follows it is the acknowledgement. */
export async function handleWithLuck(effect) {
  await sleep(Math.random() * longestMs)
  if (Math.random() < failing) throw new Error('bad luck')
  effect()
}
