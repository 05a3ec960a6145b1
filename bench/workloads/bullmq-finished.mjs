/** BullMQ: jobs added and worked off in one process, their results kept for a day: what is left are the completed jobs. */
import { Queue, Worker } from 'bullmq'
import { eventSource } from '../harness/events.mjs'
import { nothingLeft } from '../harness/flow.mjs'
import { slidingWindow } from '../harness/window.mjs'
import { keep } from './bullmq-end-to-end.mjs'
import { left } from './bullmq-process.mjs'

export async function open({ redis, count }) {
  const connection = { host: redis.host, port: redis.port }
  // Its stream of events is a bounded log beside the jobs: it is not counted.
  const queue = new Queue('bench', { connection, streams: { events: { maxLen: 0 } } })
  const worker = new Worker('bench', async ({ data }) => ({ ok: data.n }), { connection, concurrency: 100, ...keep })
  await Promise.all([queue.waitUntilReady(), worker.waitUntilReady()])
  const nextEvent = eventSource()
  return {
    async work() {
      const { calls } = await slidingWindow({
        ...{ width: 1_000, count },
        call: (i) => queue.add('order.paid', nextEvent(i).data),
      })
      await nothingLeft(() => left(queue))
      await queue.trimEvents(0)
      const { completed } = await queue.getJobCounts('completed')
      return { events: calls, problems: completed === count ? [] : [`${completed} of ${count} jobs are kept`] }
    },
    async close() {
      await worker.close()
      await queue.close()
    },
  }
}
