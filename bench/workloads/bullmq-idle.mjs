/**
 * BullMQ: add and a Worker in one process, one job at a time; completed jobs are removed at once. Concurrency 1, its
 * default: with 100 it was slower here.
 */
import { Queue, Worker } from 'bullmq'
import { IdleMeter } from '../harness/idle.mjs'
import { remove } from './bullmq-process.mjs'

export async function open({ redis, events: count }) {
  const connection = { host: redis.host, port: redis.port }
  const queue = new Queue('bench', { connection })
  const meter = new IdleMeter(count)
  const worker = new Worker('bench', async ({ data }) => meter.handled(data), { connection, concurrency: 1, ...remove })
  await Promise.all([queue.waitUntilReady(), worker.waitUntilReady()])
  return {
    work: () => meter.run(({ data }) => queue.add('order.paid', data)),
    async close() {
      await worker.close()
      await queue.close()
    },
  }
}
