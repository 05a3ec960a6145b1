/** bee-queue's save from a pure producer, with everything off that its README says a producer can do without. */
import Queue from 'bee-queue'
import { eventSource } from '../harness/events.mjs'

export async function open({ redis, keys }) {
  const queue = new Queue('bench', {
    redis: { host: redis.host, port: redis.port },
    isWorker: false,
    getEvents: false,
    sendEvents: false,
    storeJobs: false,
  })
  await queue.ready()
  const nextEvent = eventSource(keys)
  return {
    call: (i) => queue.createJob(nextEvent(i).data).save(),
    stored: async () => (await queue.checkHealth()).waiting,
    close: () => queue.close(),
  }
}
