/** Busbar: publish, router and a worker in one process, one event at a time. Concurrency 1, as the peer's. */
import { busbar } from '../../dist/index.js'
import { IdleMeter } from '../harness/idle.mjs'
import { definition, queueName } from '../harness/queue.mjs'

export async function open({ redis, events: count }) {
  const bus = busbar({ redis: redis.url, namespace: 'bench', worker: 'w1' })
  const meter = new IdleMeter(count)
  bus.queue(queueName, definition).work(async ({ data }) => meter.handled(data), { concurrency: 1 })
  await bus.run({ signals: false })
  return {
    work: () => meter.run(({ key, data }) => bus.publish('order.paid', data, { tenant: 'acme', key })),
    close: () => bus.close(),
  }
}
