/** BullMQ: a quiet tenant's jobs in a queue where another's wait already. First in, first out; it knows no tenants. */
import { Queue, Worker } from 'bullmq'
import { concurrency, QuietMeter } from '../harness/quiet.mjs'
import { left, remove } from './bullmq-process.mjs'

export async function open({ redis, waiting, quiet }) {
  const connection = { host: redis.host, port: redis.port }
  const queue = new Queue('bench', { connection })
  const meter = new QuietMeter({ waiting, quiet })
  const handle = ({ data }) => meter.handle(data)
  const worker = new Worker('bench', handle, { connection, concurrency, autorun: false, ...remove })
  await Promise.all([queue.waitUntilReady(), worker.waitUntilReady()])
  return {
    work: () =>
      meter.run({
        start() {
          worker.run() // answers when the worker is closed
        },
        publish: ({ data }) => queue.add('order.paid', data),
        left: () => left(queue),
      }),
    async close() {
      await worker.close()
      await queue.close()
    },
  }
}
