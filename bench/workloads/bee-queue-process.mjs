/** bee-queue's process over jobs that wait already, concurrency 100, events off and finished jobs removed, as its README advises. */
import Queue from 'bee-queue'
import { measureDrain } from '../harness/flow.mjs'
import { Once } from '../harness/once.mjs'

export async function open({ redis, count }) {
  const queue = new Queue('bench', {
    redis: { host: redis.host, port: redis.port },
    getEvents: false,
    sendEvents: false,
    storeJobs: false,
    removeOnSuccess: true,
    removeOnFailure: true,
  })
  await queue.ready()
  const once = new Once()
  const start = () => queue.process(100, async ({ data }) => once.saw(data))
  async function left() {
    const { waiting, active } = await queue.checkHealth()
    return waiting + active
  }
  return { work: () => measureDrain({ once, count, start, left }), close: () => queue.close() }
}
