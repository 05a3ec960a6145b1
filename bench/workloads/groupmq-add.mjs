/** groupmq's add, a group per tenant. `autoBatch`, which its documentation recommends for volume, sends many at once. */
import { Queue } from 'groupmq'
import { Redis } from 'ioredis'
import { eventSource, tenantSource } from '../harness/events.mjs'

export async function open({ redis }) {
  const client = new Redis({ host: redis.host, port: redis.port })
  const queue = new Queue({ redis: client, namespace: 'bench', autoBatch: { size: 100, maxWaitMs: 1 } })
  const nextEvent = eventSource()
  const tenantOf = tenantSource()
  return {
    call: (i) => queue.add({ groupId: tenantOf(i), data: nextEvent(i).data }),
    stored: () => queue.getWaitingCount(),
    async close() {
      await queue.close()
      client.disconnect()
    },
  }
}
