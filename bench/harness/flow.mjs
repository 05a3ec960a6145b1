/**
 * Drives a queue, the same way for every contender: through it from publish to the last acknowledgement, or out of it
 * when everything waits already. `left` asks the store how many are waiting or held; it is asked only when the last event
 * has been handled, so that asking costs nobody anything.
 */
import { slidingWindow } from './window.mjs'

const defaultWidth = 1_000 // calls in flight, as in the scenario `publish`
const leftTimeoutMs = 60_000

/**
 * Publishes for a time and waits until everything is through; once to warm up, then once for the clock. The clock
 * includes what it takes to get the rest through after the last publish: nobody wins by piling up.
 *
 * @param {{ publish: (i: number) => Promise<unknown>, through: (count: number) => Promise<void>, warmMs: number, measureMs: number, width?: number }} options
 *   through waits until events 0 … count - 1 have arrived
 */
export async function measureFlow({ publish, through, warmMs, measureMs, width = defaultWidth }) {
  const warm = await slidingWindow({ width, forMs: warmMs, call: publish })
  await through(warm.calls)

  const startedAt = performance.now()
  const timed = await slidingWindow({ width, first: warm.calls, forMs: measureMs, call: publish })
  const count = warm.calls + timed.calls
  await through(count)
  const seconds = (performance.now() - startedAt) / 1000
  return { perSecond: timed.calls / seconds, count }
}

/** From publish to acknowledgement, with a handler that tells `once` what it is given. */
export async function measureEndToEnd({ once, publish, left, warmMs, measureMs }) {
  const through = async (count) => {
    await once.until(count)
    await nothingLeft(left)
  }
  const { perSecond, count } = await measureFlow({ publish, through, warmMs, measureMs })
  return { perSecond, count, problems: once.problems(count) }
}

/** How fast `count` waiting events are handled and acknowledged, from `start` on. Nobody is warmed up. */
export async function measureDrain({ once, count, start, left }) {
  const startedAt = performance.now()
  await start()
  await once.until(count)
  await nothingLeft(left)
  const seconds = (performance.now() - startedAt) / 1000
  return { perSecond: count / seconds, problems: once.problems(count) }
}

/** Without a pause it takes a core: for the very end only. */
export async function nothingLeft(left) {
  const deadline = Date.now() + leftTimeoutMs
  for (let count = await left(); count > 0; count = await left())
    if (Date.now() > deadline) throw new Error(`${count} events are handled but not acknowledged`)
}

/** Whether each of several queues has taken each event once. */
export const fanOutProblems = (accepted, count) =>
  accepted.flatMap((taken, n) => (taken === count ? [] : [`queue ${n} has ${taken} of ${count} events`]))
