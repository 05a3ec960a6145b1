/**
 * Each event to 16 BullMQ queues: 16 adds in one go on one connection, none waits for another's answer.
 *
 * A FlowProducer's addBulk (one MULTI) and ioredis' auto-pipelining (one pipeline) were slower by a third, a connection
 * per queue by a tenth. 60 events in flight, so that about 1,000 adds are: with 1,000 events it was slower.
 */
import { Queue } from 'bullmq'
import { Redis } from 'ioredis'
import { eventSource } from '../harness/events.mjs'
import { fanOutProblems, measureFlow } from '../harness/flow.mjs'

export async function open({ redis, queues: count, warmMs, measureMs }) {
  const connection = new Redis({ host: redis.host, port: redis.port, maxRetriesPerRequest: null })
  const queues = Array.from({ length: count }, (_, n) => new Queue(`bench-${n}`, { connection }))
  await Promise.all(queues.map((queue) => queue.waitUntilReady()))
  const nextEvent = eventSource()
  const publish = (i) => {
    const { data } = nextEvent(i)
    return Promise.all(queues.map((queue) => queue.add('order.paid', data)))
  }
  const accepted = () => Promise.all(queues.map((queue) => queue.getWaitingCount()))

  return {
    async work() {
      // An add that is answered is in its queue.
      const through = () => {}
      const { perSecond, count } = await measureFlow({ publish, through, warmMs, measureMs, width: 60 })
      return { perSecond, problems: fanOutProblems(await accepted(), count) }
    },
    async close() {
      await Promise.all(queues.map((queue) => queue.close()))
      connection.disconnect()
    },
  }
}
