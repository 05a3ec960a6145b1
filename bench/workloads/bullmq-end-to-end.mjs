/**
 * BullMQ's add and its Worker in one process, concurrency 100. Completed jobs are removed at once, as its documentation
 * advises to keep Redis small, or kept for a day, with an answer of a few bytes; the handler does nothing but count.
 */
import { Queue, Worker } from 'bullmq'
import { eventSource } from '../harness/events.mjs'
import { measureEndToEnd } from '../harness/flow.mjs'
import { Once } from '../harness/once.mjs'
import { left, remove } from './bullmq-process.mjs'

/** As the answer is to be had for a day, at most as many as Busbar keeps. */
export const keep = { removeOnComplete: { age: 86_400, count: 1_000_000 }, removeOnFail: { age: 86_400 } }

export async function open({ redis, warmMs, measureMs, isKept = false }) {
  const connection = { host: redis.host, port: redis.port }
  const queue = new Queue('bench', { connection })
  const once = new Once()
  const handle = async ({ data }) => {
    once.saw(data)
    return isKept ? { ok: data.i } : undefined
  }
  const worker = new Worker('bench', handle, {
    connection,
    concurrency: 100,
    ...(isKept ? keep : remove),
  })
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
