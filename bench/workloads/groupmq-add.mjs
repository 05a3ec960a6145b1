/** groupmq's add, a group per tenant, or, with `keys`, per key. `autoBatch`, which its documentation recommends for volume, sends many at once. */
import { Queue } from 'groupmq'
import { Redis } from 'ioredis'
import { eventSource, tenantSource } from '../harness/events.mjs'

export async function open({ redis, keys }) {
  const client = new Redis({ host: redis.host, port: redis.port })
  const queue = new Queue({ redis: client, namespace: 'bench', autoBatch: { size: 100, maxWaitMs: 1 } })
  const nextEvent = eventSource(keys)
  const tenantOf = tenantSource()
  return {
    call(i) {
      const { key, data } = nextEvent(i)
      return queue.add({ groupId: keys === undefined ? tenantOf(i) : key, data })
    },
    stored: () => queue.getWaitingCount(),
    async close() {
      await queue.close()
      client.disconnect()
    },
  }
}
