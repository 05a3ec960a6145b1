/**
 * Busbar: three tenants with the weights 3, 2 and 1, all with items waiting to the end, claimed by hand one or six at a
 * time; each claim is acknowledged before the next. Counts the windows of six items in a row that are exactly 3, 2, 1.
 */
import { busbar } from '../../dist/index.js'
import { eventSource } from '../harness/events.mjs'
import { definition, queueName } from '../harness/queue.mjs'
import { slidingWindow } from '../harness/window.mjs'
import { countExactWindows } from '../harness/windows.mjs'

const weights = { three: 3, two: 2, one: 1 }
const tenants = Object.keys(weights)

/** @param {{ max: number, items: number }} options  claims of so many, until so many items have been claimed */
export async function open({ redis, max, items: count }) {
  const bus = busbar({ redis: redis.url, namespace: 'bench', worker: 'w1' })
  const queue = bus.queue(queueName, { ...definition, weights })
  await bus.run({ signals: false })

  return {
    async work() {
      await fill(queue, count)
      const items = []
      while (items.length < count) {
        const lease = await queue.claim({ max })
        if (lease.items.length === 0) throw new Error(`nothing to claim after ${items.length} items`)
        items.push(...lease.items)
        await lease.ack()
      }
      const { windows, exact } = countExactWindows(
        items.map(({ event }) => event.tenant),
        weights,
      )
      const different = new Set(items.map(({ event }) => event.data.i)).size
      return {
        windows,
        exact,
        problems: different === items.length ? [] : [`${items.length - different} items were claimed again`],
      }
    },
    close: () => bus.close(),
  }
}

/** Each tenant has as many as all of them claim together: nobody runs out. */
async function fill(queue, count) {
  const nextEvent = eventSource()
  const call = (i) => {
    const { key, data } = nextEvent(i)
    return queue.send(data, { tenant: tenants[i % tenants.length], key })
  }
  await slidingWindow({ width: 1_000, count: count * tenants.length, call })
}
