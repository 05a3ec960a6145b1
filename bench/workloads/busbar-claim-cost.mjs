/**
 * What a claimed item costs: claims of `max`, one after the other, until 10,000 are held. Redis' own time is that of its
 * scripts in INFO commandstats; the bus does not run, so nothing else does. Acknowledged afterwards, outside the figures.
 */
import { Redis } from 'ioredis'
import { busbar } from '../../dist/index.js'
import { definition, queueName } from '../harness/queue.mjs'
import { scriptMicros } from '../harness/script-micros.mjs'

const claimed = 10_000

/** @param {{ count: number, max: number }} options  items waiting, and per claim */
export async function open({ redis, count, max }) {
  const bus = busbar({ redis: redis.url, namespace: 'bench', worker: 'w1' })
  const queue = bus.queue(queueName, definition)
  const control = new Redis({ host: redis.host, port: redis.port })
  await bus.queues.get(queueName) // connects

  return {
    async work() {
      await control.config('RESETSTAT')
      const startedAt = performance.now()
      const leases = []
      for (let n = 0; n < claimed; n += max) leases.push(await queue.claim({ max }))
      const wallMs = performance.now() - startedAt
      const redisMicros = await scriptMicros(control)

      const items = leases.flatMap((lease) => lease.items)
      for (const lease of leases) await lease.ack()
      const figures = { redisMicros: redisMicros / items.length, wallMicros: (wallMs * 1000) / items.length }
      return { ...figures, problems: await problems(bus, items, count) }
    },
    async close() {
      await bus.close()
      await control.quit()
    },
  }
}

async function problems(bus, items, count) {
  const different = new Set(items.map(({ event }) => event.data.i)).size
  const { waiting, held } = await bus.queues.get(queueName)
  return [
    ...(different === items.length ? [] : [`${items.length - different} items were claimed again`]),
    ...(items.length === claimed ? [] : [`${items.length} of ${claimed} items claimed`]),
    ...(waiting === count - different && held === 0 ? [] : [`${waiting} waiting and ${held} held of ${count}`]),
  ]
}
