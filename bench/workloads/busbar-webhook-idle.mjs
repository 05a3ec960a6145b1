/** Busbar: publish, router and dispatcher in one process, one event at a time, no waiting for others. */
import { setTimeout as sleep } from 'node:timers/promises'
import { busbar } from '../../dist/index.js'
import { Receiver } from '../harness/receiver.mjs'
import { busOptions, leftProblems, publisher, registerAll } from '../harness/webhook.mjs'

const warmEvents = 100
const pauseMs = 3

export async function open({ redis, events }) {
  const shape = { subscriptions: 1, keys: 10 }
  const receiver = await Receiver.start({ ports: 1 })
  const bus = busbar(busOptions(redis, { dispatch: true }))
  await registerAll(bus, receiver, 1, { batch: { maxWait: 0 } })
  await bus.run({ signals: false })
  const publish = publisher(bus, shape)
  const oneByOne = async (count) => {
    await receiver.expect({ count, inOrder: true, ...shape })
    for (let i = 0; i < count; i += 1) {
      await Promise.all([publish(i), receiver.until(i + 1)])
      await sleep(pauseMs)
    }
  }
  return {
    async work() {
      await oneByOne(warmEvents)
      await oneByOne(events)
      const { p50Ms, p99Ms, problems } = await receiver.report()
      return { p50Ms, p99Ms, problems: [...problems, ...(await leftProblems(bus))] }
    },
    async close() {
      await bus.close()
      receiver.stop()
    },
  }
}
