/**
 * Busbar: how long events of healthy endpoints take while one endpoint hangs and one is dead, or without those two. They are published at a
 * steady rate, so that nothing but its neighbours can keep one waiting; the two are sent as much as each of the others.
 */
import { createServer } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import { busbar } from '../../dist/index.js'
import { Receiver } from '../harness/receiver.mjs'
import { busOptions, publisher, registerAll } from '../harness/webhook.mjs'

const healthy = 49
const shape = { subscriptions: healthy, keys: 10 }
const perSecond = 1_000
const turnMs = 5

export async function open({ redis, warmMs, measureMs, withBad }) {
  const receiver = await Receiver.start({ ports: 16 })
  const bus = busbar(busOptions(redis, { dispatch: true }))
  const batch = { maxWait: 0 }
  await registerAll(bus, receiver, healthy, { batch })
  const bad = withBad ? await badOnes(receiver) : {}
  for (const [name, url] of Object.entries(bad)) await bus.webhooks.put(name, { url, match: `${name}:order.*`, batch })
  await bus.run({ signals: false })
  const publish = publisher(bus, shape)

  async function steadily(forMs) {
    const count = Math.floor((forMs * perSecond) / 1000 / healthy) * healthy
    await receiver.expect({ count, inOrder: true, ...shape })
    const startedAt = performance.now()
    const sent = []
    for (let i = 0; i < count; await sleep(turnMs)) {
      const due = Math.min(count, ((performance.now() - startedAt) * perSecond) / 1000)
      for (; i < due; i += 1) {
        sent.push(publish(i))
        if (i % healthy === 0)
          for (const name of Object.keys(bad)) sent.push(bus.publish('order.paid', { i }, { tenant: name }))
      }
    }
    await Promise.all(sent)
    await receiver.until(count)
  }
  return {
    async work() {
      await steadily(warmMs)
      await steadily(measureMs)
      const { p50Ms, p99Ms, problems } = await receiver.report()
      const states = await Promise.all(Object.keys(bad).map((name) => bus.webhooks.get(name)))
      const isBad = states.every(({ backlog, delivered }) => backlog > 0 && delivered === 0)
      return { p50Ms, p99Ms, problems: [...problems, ...(isBad ? [] : ['a bad endpoint has taken something'])] }
    },
    async close() {
      await bus.close({ timeout: '1s' })
      receiver.stop()
    },
  }
}

const badOnes = async (receiver) => ({
  hung: `${receiver.origins[0]}/hang`,
  dead: `http://127.0.0.1:${await deadPort()}`,
})

/** Nobody listens there any more. */
function deadPort() {
  return new Promise((resolve) => {
    const server = createServer().listen(0, '127.0.0.1', () => {
      const { port } = server.address()
      server.close(() => resolve(port))
    })
  })
}
