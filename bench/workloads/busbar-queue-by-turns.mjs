/**
 * Busbar, publish to ack as in busbar-queue-end-to-end.mjs, through two queues that take turns of a quarter of a second in one process: they differ by
 * less than the machine does from one process to the next.
 */
import { nothingLeft } from '../harness/flow.mjs'
import { left } from '../harness/queue.mjs'
import { slidingWindow } from '../harness/window.mjs'
import { openQueue } from './busbar-queue-end-to-end.mjs'

const width = 1_000
const turnMs = 250

/** @param {{ those: { definition?: object, build?: string }[], warmMs: number, measureMs: number }} options  the two queues */
export async function open({ redis, those, warmMs, measureMs }) {
  const [own, other] = [
    { ...(await openQueue({ redis, ...those[0] })), calls: 0 },
    { ...(await openQueue({ redis, namespace: 'other', ...those[1] })), calls: 0 },
  ]
  return {
    async work() {
      for (const one of [own, other]) {
        await flow(one, warmMs)
        Object.assign(one, { timedFrom: one.calls, seconds: 0 })
      }
      // In the order a b b a, so that who comes first gains nothing by it.
      for (let turn = 0; turn * turnMs < 2 * measureMs; turn += 1)
        for (const one of turn % 2 === 0 ? [own, other] : [other, own]) await flow(one, turnMs)
      const rate = ({ calls, timedFrom, seconds }) => (calls - timedFrom) / seconds
      const problems = [own, other].flatMap(({ once, calls }) => once.problems(calls))
      return { perSecond: rate(own), otherPerSecond: rate(other), problems }
    },
    close: () => Promise.all([own.bus.close(), other.bus.close()]),
  }
}

/** Publishes for a time, and waits until everything is through. */
async function flow(one, forMs) {
  const startedAt = performance.now()
  const { calls } = await slidingWindow({ width, first: one.calls, forMs, call: one.publish })
  one.calls += calls
  await one.once.until(one.calls)
  await nothingLeft(() => left(one.bus))
  one.seconds += (performance.now() - startedAt) / 1000
}
