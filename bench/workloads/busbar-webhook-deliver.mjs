/**
 * Busbar's dispatcher over batches that wait already: they are sealed by a bus that posts nothing, and worked off by a second one that is
 * connected before the clock starts. It stops when the last event has arrived.
 */
import { busbar } from '../../dist/index.js'
import { Receiver } from '../harness/receiver.mjs'
import { busOptions, countsOf, leftProblems, nowMs, publisher, registerAll } from '../harness/webhook.mjs'
import { slidingWindow } from '../harness/window.mjs'

const width = 1_000

export async function open({ redis, count, ports, concurrency, batch, ...shape }) {
  const receiver = await Receiver.start({ ports })
  await receiver.expect({ count, inOrder: true, ...shape })
  await seal(redis, receiver, { count, batch, ...shape })
  const bus = busbar(busOptions(redis, { dispatch: true, concurrency }))
  await bus.topics() // connects
  return {
    async work() {
      const startedAt = nowMs()
      await bus.run({ signals: false })
      const { lastAt } = await receiver.until(count)
      const left = await leftProblems(bus)
      const { problems, requests } = await receiver.report()
      const perSecond = (count / (lastAt - startedAt)) * 1000
      return { perSecond, requests, problems: [...problems, ...left] }
    },
    async close() {
      await bus.close()
      receiver.stop()
    },
  }
}

async function seal(redis, receiver, { count, batch, ...shape }) {
  const bus = busbar(busOptions(redis, { dispatch: false }))
  await registerAll(bus, receiver, shape.subscriptions, { batch })
  await bus.run({ signals: false })
  await slidingWindow({ width, count, call: publisher(bus, shape) })
  while ((await countsOf(bus)).in < count);
  await bus.close()
}
