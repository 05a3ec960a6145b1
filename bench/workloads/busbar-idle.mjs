/** Busbar: publish and a processor in one process, one event at a time. */
import { busbar } from '../../dist/index.js'
import { processorName } from '../harness/group.mjs'
import { IdleMeter } from '../harness/idle.mjs'

export async function open({ redis, events: count }) {
  const bus = busbar({ redis: redis.url, namespace: 'bench', worker: 'w1' })
  const meter = new IdleMeter(count)
  // From the beginning of an empty log: an event that is published while the worker still joins is not missed.
  bus.processor(processorName, { match: '>', from: 'beginning', commit: 'each' }, async (events) => {
    for await (const event of events) meter.handled(event.data)
  })
  await bus.run({ signals: false })
  return {
    work: () => meter.run(({ key, data }) => bus.publish('order.paid', data, { tenant: 'acme', key })),
    close: () => bus.close(),
  }
}
