/** Busbar's worker over items that wait already, concurrency 100. It is connected before the clock starts. */
import { busbar } from '../../dist/index.js'
import { measureDrain } from '../harness/flow.mjs'
import { Once } from '../harness/once.mjs'
import { left, definition as plain, queueName } from '../harness/queue.mjs'

export async function open({ redis, count, definition = plain, keys }) {
  const bus = busbar({ redis: redis.url, namespace: 'bench', worker: 'w1' })
  const queue = bus.queue(queueName, definition)
  const once = new Once({ inOrder: definition.ordered, keys })
  queue.work(async ({ data }) => once.saw(data), { concurrency: 100 })
  await bus.topics() // connects
  const start = () => bus.run({ signals: false })
  return { work: () => measureDrain({ once, count, start, left: () => left(bus) }), close: () => bus.close() }
}
