/**
 * BullMQ's add, as its documentation sets up a producer: one Queue on ioredis, its default client.
 *
 * Left at its default on purpose: auto-pipelining. In this window commands already leave together, and with it on add
 * was slower, as was its node-redis adapter. removeOnComplete and removeOnFail concern workers, not add.
 */
import { Queue } from 'bullmq'
import { eventSource } from '../harness/events.mjs'

export async function open({ redis, keys }) {
  const queue = new Queue('bench', { connection: { host: redis.host, port: redis.port } })
  await queue.waitUntilReady()
  const nextEvent = eventSource(keys)
  return {
    call: (i) => queue.add('order.paid', nextEvent(i).data),
    stored: () => queue.getWaitingCount(),
    close: () => queue.close(),
  }
}
