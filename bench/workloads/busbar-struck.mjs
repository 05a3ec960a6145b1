/** Busbar: two workers on an ordered queue, to be killed at any time. */
import { busbar } from '../../dist/index.js'
import { effectWriter } from '../harness/effects.mjs'
import { numberOf } from '../harness/events.mjs'
import { concurrency, handleWithLuck, workersPerProcess } from '../harness/luck.mjs'
import { queueName, struck } from '../harness/queue.mjs'

export async function open({ redis, file }) {
  const write = effectWriter(file)
  const buses = Array.from({ length: workersPerProcess }, () => busbar({ redis: redis.url, namespace: 'bench' }))
  for (const bus of buses) {
    bus.queue(queueName, struck).work(({ data }) => handleWithLuck(() => write(numberOf(data))), { concurrency })
    await bus.run({ signals: false })
  }
  return { close: () => Promise.all(buses.map((bus) => bus.close())) }
}
