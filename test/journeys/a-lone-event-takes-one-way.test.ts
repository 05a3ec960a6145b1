/** An event of a process whose worker waits goes from the log into its queue in the visit to Redis that stores it. */
import { setTimeout as sleep } from 'node:timers/promises'
import { expect, onTestFinished, test, vi } from 'vitest'
import type { Along } from '../../src/route/sink.ts'
import { QueueSink } from '../../src/sinks/queue/sink.ts'
import { freshNamespace, testBus } from '../support/bus.ts'
import { eventually } from '../support/eventually.ts'

/** How many events were taken with their publish. */
function countTaken(): () => Promise<number> {
  const takeNext = vi.spyOn(QueueSink.prototype, 'takeNext')
  onTestFinished(() => takeNext.mockRestore())
  const seqs = () => Promise.all(takeNext.mock.results.map(({ value }) => (value as Along | undefined)?.taken))
  return async () => (await seqs()).filter(Boolean).length
}

test('by the workers of the process, not by those of others', async () => {
  const namespace = freshNamespace()
  const [here, elsewhere] = [testBus({ namespace, partitions: 1 }), testBus({ namespace, partitions: 1 })]
  const handled: string[] = []
  here.queue('mail', { match: 'order.*' }).work(({ id }) => void handled.push(id), { concurrency: 1 })
  await here.run()
  const taken = countTaken()
  const publishAndWait = async (bus: typeof here) => {
    const { id } = await bus.publish('order.paid', { n: 1 }, { tenant: 'acme', key: 'order:1' })
    await eventually(() => handled.includes(id))
    // The worker has to wait for work again.
    await eventually(async () => expect(await here.queues.get('mail')).toMatchObject({ held: 0 }))
  }
  for (let i = 0; i < 10; i += 1) await publishAndWait(here)
  const before = await taken()
  expect(before).toBeGreaterThan(0)
  for (let i = 0; i < 3; i += 1) await publishAndWait(elsewhere)
  expect(await taken()).toBe(before)
  expect(handled).toEqual([...new Set(handled)])
  expect(handled).toHaveLength(13)
})

test('whoever else publishes, subscribes or changes at the same time: each event comes once', async () => {
  const namespace = freshNamespace()
  const buses = [testBus({ namespace, partitions: 2 }), testBus({ namespace, partitions: 2 })]
  const handled: string[] = []
  const published: string[] = []
  for (const bus of buses) {
    bus.queue('mail', { match: 'order.*' }).work(({ id }) => void handled.push(id), { concurrency: 2 })
    await bus.run()
  }
  const taken = countTaken()
  // On a busy machine no moment may be quiet enough later on.
  await eventually(async () => {
    for (const bus of buses) {
      const { id } = await bus.publish('order.paid', {}, { tenant: 'acme', key: 'order:1' })
      published.push(id)
      await eventually(() => handled.includes(id))
    }
    expect(await taken()).toBeGreaterThan(0)
  })
  const publishing = buses.map(async (bus, of) => {
    for (let i = 0; i < 150; i += 1) {
      const answers = [bus.publish('order.paid', { i }, { tenant: 'acme', key: `order:${i % 3}` })]
      if (i % 7 === of) answers.push(bus.publish('order.sent', { i }, { tenant: 'acme', key: 'order:1' }))
      for (const { id } of await Promise.all(answers)) published.push(id)
      await sleep((i * (of + 3)) % 5)
    }
  })
  const late: string[] = []
  const subscribing = (async () => {
    await sleep(100)
    await buses[0]!.queues.put('audit', { match: 'order.*' })
    const { id } = await buses[0]!.publish('order.paid', { last: true }, { tenant: 'acme', key: 'order:2' })
    published.push(id)
    late.push(id)
  })()
  await Promise.all([...publishing, subscribing])
  await eventually(() => expect(handled.length).toBeGreaterThanOrEqual(published.length))
  expect([...handled].sort()).toEqual([...published].sort())
  // The new one has everything from its answer on.
  const waiting = async () => (await buses[0]!.queues.peek('audit', { max: 1_000 })).map(({ id }) => id)
  await eventually(async () => expect(await waiting()).toContain(late[0]))
  const after = published.slice(published.indexOf(late[0]!))
  await eventually(async () => expect(await waiting()).toEqual(expect.arrayContaining(after)))
})
