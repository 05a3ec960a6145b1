/**
 * Busbar: so many events for few subscriptions or for many, from the first publish to the last arrival, and what a subscription that has
 * nothing waiting takes up in Redis: by how much it grows from before they are registered until all is delivered, less what it grows by for
 * as many events that nobody subscribes to.
 */

import { Redis } from 'ioredis'
import { busbar } from '../../dist/index.js'
import { Receiver } from '../harness/receiver.mjs'
import { settle, usedMemory } from '../harness/settle.mjs'
import { busOptions, dataOf, leftProblems, nowMs, publisher, registerAll } from '../harness/webhook.mjs'
import { slidingWindow } from '../harness/window.mjs'

const width = 1_000

export async function open({ redis, events: count, ports, concurrency, subscriptions }) {
  const shape = { subscriptions, keys: 1 }
  const control = new Redis({ host: redis.host, port: redis.port })
  const receiver = await Receiver.start({ ports })
  await receiver.expect({ count, inOrder: true, ...shape })
  const bus = busbar(busOptions(redis, { dispatch: true, concurrency }))
  const memory = async () => {
    await settle(control)
    return usedMemory(control)
  }
  await bus.topics() // connects
  const empty = await memory()
  const unheard = (i) =>
    bus.publish('other.paid', dataOf(i), { tenant: `nobody-${i % subscriptions}`, key: `order:${i}` })
  await slidingWindow({ width, count, call: unheard })
  const log = (await memory()) - empty
  await registerAll(bus, receiver, subscriptions, { batch: { maxEvents: 1 } })
  await bus.run({ signals: false })
  return {
    async work() {
      const startedAt = nowMs()
      await slidingWindow({ width, count, call: publisher(bus, shape) })
      const { lastAt } = await receiver.until(count)
      const left = await leftProblems(bus)
      const bytesPerSubscription = ((await memory()) - empty - 2 * log) / subscriptions
      const { problems } = await receiver.report()
      return { wholeMs: lastAt - startedAt, bytesPerSubscription, problems: [...problems, ...left] }
    },
    async close() {
      await bus.close()
      control.disconnect()
      receiver.stop()
    },
  }
}
