/**
 * BullMQ's add and its Worker in one process, concurrency 100. Completed jobs are removed at once, as its documentation
 * advises to keep Redis small; the handler does nothing but count.
 */
import { Queue, Worker } from 'bullmq'
import { eventSource } from '../harness/events.mjs'
import { measureEndToEnd } from '../harness/flow.mjs'
import { Once } from '../harness/once.mjs'
import { left, remove } from './bullmq-process.mjs'

export async function open({ redis, warmMs, measureMs }) {
  const connection = { host: redis.host, port: redis.port }
  const queue = new Queue('bench', { connection })
  const once = new Once()
  const worker = new Worker('bench', async ({ data }) => once.saw(data), { connection, concurrency: 100, ...remove })
  await Promise.all([queue.waitUntilReady(), worker.waitUntilReady()])
  const nextEvent = eventSource()

  return {
    work: () =>
      measureEndToEnd({
        once,
        publish: (i) => queue.add('order.paid', nextEvent(i).data),
        left: () => left(queue),
        warmMs,
        measureMs,
      }),
    async close() {
      await worker.close()
      await queue.close()
    },
  }
}
