/**
 * groupmq's Worker over jobs that wait already, a group per tenant or key, concurrency 100. Auto-pipelining on its connection
 * made it slower; four workers of 25 were no faster.
 */
import { Queue, Worker } from 'groupmq'
import { Redis } from 'ioredis'
import { measureDrain } from '../harness/flow.mjs'
import { Once } from '../harness/once.mjs'

export async function open({ redis, count, keys }) {
  const client = new Redis({ host: redis.host, port: redis.port, maxRetriesPerRequest: null })
  const queue = new Queue({ redis: client, namespace: 'bench' })
  const once = new Once({ inOrder: keys !== undefined, keys })
  await client.ping()
  let worker
  async function left() {
    const { waiting, active } = await queue.getJobCounts()
    return waiting + active
  }
  return {
    work: () =>
      measureDrain({
        once,
        count,
        left,
        // It begins as it is made.
        start() {
          worker = new Worker({ queue, concurrency: 100, handler: async ({ data }) => once.saw(data) })
        },
      }),
    async close() {
      await worker.close()
      await queue.close()
      client.disconnect()
    },
  }
}
