/** Busbar's send, straight into a queue that nobody works on: what waits there when somebody starts. */
import { busbar } from '../../dist/index.js'
import { eventSource, tenantSource } from '../harness/events.mjs'
import { definition as plain, queueName } from '../harness/queue.mjs'

/** @param {{ tenants?: number, tenant?: string, keys?: number }} options  spread over so many tenants, or all of one */
export async function open({ redis, tenants, tenant, definition = plain, keys }) {
  const bus = busbar({ redis: redis.url, namespace: 'bench' })
  const queue = bus.queue(queueName, definition)
  await bus.run({ signals: false })
  const nextEvent = eventSource(keys)
  const tenantOf = tenant === undefined ? tenantSource(tenants) : () => tenant
  return {
    call(i) {
      const { key, data } = nextEvent(i)
      return queue.send(data, { tenant: tenantOf(i), key })
    },
    async stored() {
      const { waiting, behind } = await bus.queues.get(queueName)
      return waiting + behind
    },
    close: () => bus.close(),
  }
}
