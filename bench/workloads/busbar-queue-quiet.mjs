/** Busbar: a quiet tenant's events in a queue where another tenant's items wait already. */
import { busbar } from '../../dist/index.js'
import { definition, left, queueName } from '../harness/queue.mjs'
import { concurrency, QuietMeter } from '../harness/quiet.mjs'

export async function open({ redis, waiting, quiet }) {
  const bus = busbar({ redis: redis.url, namespace: 'bench', worker: 'w1' })
  const queue = bus.queue(queueName, definition)
  const meter = new QuietMeter({ waiting, quiet })
  queue.work(({ data }) => meter.handle(data), { concurrency })
  await bus.topics() // connects
  return {
    work: () =>
      meter.run({
        start: () => bus.run({ signals: false }),
        publish: ({ key, data }) => bus.publish('order.paid', data, { tenant: 'quiet', key }),
        left: () => left(bus),
      }),
    close: () => bus.close(),
  }
}
