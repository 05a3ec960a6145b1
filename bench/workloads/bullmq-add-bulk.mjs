/** BullMQ's addBulk, its documented way to add many jobs at once: 100 jobs per call, set up as in bullmq-add.mjs. */
import { Queue } from 'bullmq'
import { eventSource } from '../harness/events.mjs'

const eventsPerCall = 100

export async function open({ redis, keys }) {
  const queue = new Queue('bench', { connection: { host: redis.host, port: redis.port } })
  await queue.waitUntilReady()
  const nextEvent = eventSource(keys)
  return {
    eventsPerCall,
    call(call) {
      const first = call * eventsPerCall
      const jobs = Array.from({ length: eventsPerCall }, (_, n) => ({
        name: 'order.paid',
        data: nextEvent(first + n).data,
      }))
      return queue.addBulk(jobs)
    },
    stored: () => queue.getWaitingCount(),
    close: () => queue.close(),
  }
}
