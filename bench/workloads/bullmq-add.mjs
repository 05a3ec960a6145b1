/**
 * BullMQ's add, as its documentation sets up a producer: one Queue on ioredis, its default client.
 *
 * Auto-pipelining stays off on purpose: with it add was slower in every round compared, and so it was on the node-redis
 * adapter. removeOnComplete and removeOnFail concern workers, not add.
 */
import { Queue } from 'bullmq'
import { eventSource } from '../harness/events.mjs'

/** @param {{ keys?: number, jobOptions?: object }} options */
export async function open({ redis, keys, jobOptions }) {
  const queue = new Queue('bench', { connection: { host: redis.host, port: redis.port } })
  await queue.waitUntilReady()
  const nextEvent = eventSource(keys)
  return {
    call: (i) => queue.add('order.paid', nextEvent(i).data, jobOptions),
    stored: () => queue.getWaitingCount(),
    close: () => queue.close(),
  }
}
