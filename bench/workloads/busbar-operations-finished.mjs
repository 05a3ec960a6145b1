/** Busbar: items sent into a tracked queue and worked off, all in one process: what is left are the operations. */
import { busbar } from '../../dist/index.js'
import { eventSource, tenantSource } from '../harness/events.mjs'
import { nothingLeft } from '../harness/flow.mjs'
import { left, queueName, tracked } from '../harness/queue.mjs'
import { slidingWindow } from '../harness/window.mjs'

/** @param {{ count: number, keys: number, namespace?: string }} options */
export async function open({ redis, count, keys, namespace = 'bench' }) {
  const bus = busbar({ redis: redis.url, namespace, worker: 'w1' })
  const queue = bus.queue(queueName, tracked)
  queue.work(async ({ data }) => ({ ok: data.n }), { concurrency: 100 })
  await bus.run({ signals: false })
  const nextEvent = eventSource(keys)
  const tenantOf = tenantSource(1)
  const send = (i) => {
    const { key, data } = nextEvent(i)
    return queue.send(data, { tenant: tenantOf(i), key })
  }
  return {
    async work() {
      const { calls } = await slidingWindow({ width: 1_000, count, call: send })
      await nothingLeft(() => left(bus))
      const { total } = await bus.operations.stats(queueName)
      const problems = total.succeeded === count ? [] : [`${total.succeeded} of ${count} operations have succeeded`]
      return { events: calls, problems }
    },
    close: () => bus.close(),
  }
}
