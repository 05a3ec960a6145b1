/** One publish, 16 Busbar queues that match it, until each of them has accepted every event. Nobody works on them. */
import { setTimeout as sleep } from 'node:timers/promises'
import { busbar } from '../../dist/index.js'
import { eventSource, tenantSource } from '../harness/events.mjs'
import { fanOutProblems, measureFlow } from '../harness/flow.mjs'
import { definition } from '../harness/queue.mjs'

const timeoutMs = 60_000

export async function open({ redis, queues: count, warmMs, measureMs }) {
  const bus = busbar({ redis: redis.url, namespace: 'bench', worker: 'w1' })
  const names = Array.from({ length: count }, (_, n) => `bench-${n}`)
  for (const name of names) bus.queue(name, definition)
  await bus.run({ signals: false })
  const nextEvent = eventSource()
  const tenantOf = tenantSource()
  const publish = (i) => {
    const { key, data } = nextEvent(i)
    return bus.publish('order.paid', data, { tenant: tenantOf(i), key })
  }
  const accepted = () => Promise.all(names.map(async (name) => (await bus.queues.get(name)).waiting))

  async function through(published) {
    const deadline = Date.now() + timeoutMs
    while ((await accepted()).some((waiting) => waiting < published)) {
      if (Date.now() > deadline) throw new Error(`not every queue has accepted ${published} events`)
      await sleep(1)
    }
  }
  return {
    async work() {
      const { perSecond, count } = await measureFlow({ publish, through, warmMs, measureMs })
      return { perSecond, problems: fanOutProblems(await accepted(), count) }
    },
    close: () => bus.close(),
  }
}
