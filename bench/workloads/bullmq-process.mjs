/** BullMQ's Worker over jobs that wait already, concurrency 100; completed jobs are removed at once. */
import { Queue, Worker } from 'bullmq'
import { measureDrain } from '../harness/flow.mjs'
import { Once } from '../harness/once.mjs'

/** Worker options of its guide, "Auto-removal of jobs". */
export const remove = { removeOnComplete: { count: 0 }, removeOnFail: { count: 0 } }

/** Jobs that wait or are being worked on. */
export async function left(queue) {
  const { wait, active } = await queue.getJobCounts('wait', 'active')
  return wait + active
}

export async function open({ redis, count }) {
  const connection = { host: redis.host, port: redis.port }
  const queue = new Queue('bench', { connection })
  const once = new Once()
  const worker = new Worker('bench', async ({ data }) => once.saw(data), {
    connection,
    concurrency: 100,
    autorun: false,
    ...remove,
  })
  await Promise.all([queue.waitUntilReady(), worker.waitUntilReady()])
  const start = () => {
    worker.run() // answers when the worker is closed
  }
  return {
    work: () => measureDrain({ once, count, start, left: () => left(queue) }),
    async close() {
      await worker.close()
      await queue.close()
    },
  }
}
