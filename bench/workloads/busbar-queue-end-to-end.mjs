/** Busbar: publish, router and a worker in one process, concurrency 100, 100 tenants. The handler does nothing but count; of a tracked queue it answers a few bytes. */
import { eventSource, tenantSource } from '../harness/events.mjs'
import { measureEndToEnd } from '../harness/flow.mjs'
import { Once } from '../harness/once.mjs'
import { left, definition as plain, queueName } from '../harness/queue.mjs'

export async function open({ redis, warmMs, measureMs, definition, keys }) {
  const { bus, once, publish } = await openQueue({ redis, definition, keys })
  return {
    work: () => measureEndToEnd({ once, publish, left: () => left(bus), warmMs, measureMs }),
    close: () => bus.close(),
  }
}

/** `build`: another one than this project's, for comparison. */
export async function openQueue({
  redis,
  definition = plain,
  keys,
  build = '../../dist/index.js',
  namespace = 'bench',
}) {
  const { busbar } = await import(build)
  const bus = busbar({ redis: redis.url, namespace, worker: 'w1' })
  const queue = bus.queue(queueName, definition)
  const once = new Once({ inOrder: definition.ordered, keys })
  const handle = async ({ data }) => {
    once.saw(data)
    return definition.track ? { ok: data.i } : undefined
  }
  queue.work(handle, { concurrency: 100 })
  await bus.run({ signals: false })
  const nextEvent = eventSource(keys)
  const tenantOf = tenantSource()
  const publish = (i) => {
    const { key, data } = nextEvent(i)
    return bus.publish('order.paid', data, { tenant: tenantOf(i), key })
  }
  return { bus, once, publish }
}
