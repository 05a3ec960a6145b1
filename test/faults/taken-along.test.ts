/** An event that is stored and given to a waiting worker by one script, when that goes wrong: it is stored once, handled once, and its publish told so. */
import { expect, inject, onTestFinished, test } from 'vitest'
import type { Bus } from '../../src/bus.ts'
import { queueKeys } from '../../src/redis/keys.ts'
import { nextScript } from '../../src/sinks/queue/next.ts'
import { plainRedis, testBus } from '../support/bus.ts'
import { eventually } from '../support/eventually.ts'
import { type Command, type Decision, startProxy } from '../support/proxy.ts'
import { storedEvents } from '../support/stored.ts'

const { sha, source } = nextScript
const isNext = ({ name, args: [script] }: Command): boolean =>
  (name === 'EVALSHA' && String(script) === sha) || (name === 'EVAL' && String(script) === source)

/** A worker that has handled something, and waits for more. What happens to the next event is decided by `decide`. */
async function waitingWorker() {
  const proxy = await startProxy({ target: { socketPath: inject('redisSocket') } })
  onTestFinished(() => proxy.stop())
  const bus = testBus({ redis: proxy.url, partitions: 1 }) as Bus
  const handled: string[] = []
  bus.queue('mail', { match: 'order.*', lease: '1s' }).work(({ id }) => void handled.push(id), { concurrency: 1 })
  await bus.run({ signals: false })
  let [seen, decision] = [0, 'forward' as Decision]
  proxy.onCommand((command) => {
    if (!isNext(command)) return 'forward'
    seen += 1
    const its = decision
    decision = 'forward'
    return its
  })
  const publish = async () => (await bus.publish('order.paid', { n: 1 }, { tenant: 'acme', key: 'order:1' })).id
  // Until the short way is taken.
  while (seen === 0) {
    const id = await publish()
    await eventually(() => handled.includes(id))
    await eventually(async () => expect(await bus.queues.get('mail')).toMatchObject({ held: 0 }))
  }
  const inLog = async () => (await storedEvents(plainRedis(), bus.namespace)).map(({ id }) => id)
  return { bus, handled, publish, inLog, decide: (next: Decision) => (decision = next), seen: () => seen }
}

test.each(['drop-reply', 'cut-before', 'send-twice'] as const)(
  '%s: repeated by its number, the claim by its token',
  async (what) => {
    const { handled, publish, inLog, decide, seen } = await waitingWorker()
    const before = seen()
    decide(what)
    const id = await publish()
    expect(seen()).toBe(before + 1)
    await eventually(() => handled.includes(id), { timeoutMs: 10_000 })
    const last = await publish()
    await eventually(() => handled.includes(last), { timeoutMs: 10_000 })
    expect(handled).toEqual(await inLog())
  },
)

test('the queue is spoiled: what is stored is told', async () => {
  const { bus, publish, inLog, seen } = await waitingWorker()
  const before = seen()
  const { later } = queueKeys(bus.namespace, 'mail')
  await plainRedis().set(later, 'spoiled')
  const ids = [await publish(), await publish()]
  expect(seen()).toBeGreaterThan(before)
  expect((await inLog()).slice(-2)).toEqual(ids)
  await plainRedis().del(later)
})
