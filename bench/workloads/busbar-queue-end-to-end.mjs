/** Busbar: publish, router and a worker in one process, concurrency 100, 100 tenants. The handler does nothing but count. */
import { eventSource, tenantSource } from '../harness/events.mjs'
import { measureEndToEnd } from '../harness/flow.mjs'
import { Once } from '../harness/once.mjs'
import { left, definition as plain, queueName } from '../harness/queue.mjs'

/** `build`: another one than this project's, for comparison. */
export async function open({ redis, warmMs, measureMs, definition = plain, keys, build = '../../dist/index.js' }) {
  const { busbar } = await import(build)
  const bus = busbar({ redis: redis.url, namespace: 'bench', worker: 'w1' })
  const queue = bus.queue(queueName, definition)
  const once = new Once({ inOrder: definition.ordered, keys })
  queue.work(async ({ data }) => once.saw(data), { concurrency: 100 })
  await bus.run({ signals: false })
  const nextEvent = eventSource(keys)
  const tenantOf = tenantSource()
  const publish = (i) => {
    const { key, data } = nextEvent(i)
    return bus.publish('order.paid', data, { tenant: tenantOf(i), key })
  }
  return {
    work: () => measureEndToEnd({ once, publish, left: () => left(bus), warmMs, measureMs }),
    close: () => bus.close(),
  }
}
