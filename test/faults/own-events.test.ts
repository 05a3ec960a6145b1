/**
 * Of a lone event no hint goes to the process that published it, while nobody else listens: all in it hear of it by its answer. What is
 * not heard is found by a look once a second: twenty events in a row would take twenty.
 */
import { expect, inject, onTestFinished, test } from 'vitest'
import type { Bus } from '../../src/bus.ts'
import { freshNamespace, plainRedis, testBus } from '../support/bus.ts'
import { eventually } from '../support/eventually.ts'
import { startProxy } from '../support/proxy.ts'
import { nextPublish } from './storm.ts'

const events = 20
const withoutLooksMs = 5_000

/** Publishes one event after the other, each when all have the one before. */
async function publishOneByOne(
  bus: Bus,
  lists: readonly unknown[][],
  before = () => undefined as unknown,
): Promise<number> {
  const startedAt = performance.now()
  for (let n = 0; n < events; n += 1) {
    before()
    await bus.publish('order.paid', n, { key: 'k' })
    await eventually(() => lists.every((list) => list.length === n + 1), { timeoutMs: 5_000 })
  }
  for (const list of lists) expect(list).toEqual(Array.from({ length: events }, (_, n) => n))
  return performance.now() - startedAt
}

function processed(bus: Bus): unknown[] {
  const seen: unknown[] = []
  bus.processor('s', { match: '>' }, async (incoming) => {
    for await (const { data } of incoming) seen.push(data)
  })
  return seen
}

async function readLive(bus: Bus): Promise<unknown[]> {
  const seen: unknown[] = []
  // A pattern that names no topic: the partitions are heard.
  const live = bus.live('/paid$/')
  await live.ready()
  void (async () => {
    for await (const { data } of live) seen.push(data)
  })()
  return seen
}

const answering = async ({ namespace }: Bus): Promise<number> =>
  ((await plainRedis().pubsub('CHANNELS', `${namespace}:answers:*`)) as string[]).length

test('a processor and a live reader of the publishing process hear of lone events at once', async () => {
  const bus = testBus() as Bus
  const worked = processed(bus)
  await bus.run({ signals: false })
  await eventually(async () => (await answering(bus)) === 1)
  expect(await publishOneByOne(bus, [worked, await readLive(bus)])).toBeLessThan(withoutLooksMs)
  await bus.close()
  expect(await answering(bus)).toBe(0)
})

test('so do those of another process, whoever else listens', async () => {
  const namespace = freshNamespace()
  const [bus, other] = [testBus({ namespace }) as Bus, testBus({ namespace }) as Bus]
  const worked = processed(bus)
  await bus.run({ signals: false })
  await eventually(async () => (await answering(bus)) === 1)
  const lists = [worked, await readLive(bus), await readLive(other)]
  expect(await publishOneByOne(bus, lists)).toBeLessThan(withoutLooksMs)
})

test('and of those whose answer got lost', async () => {
  const proxy = await startProxy({ target: { socketPath: inject('redisSocket') } })
  onTestFinished(() => proxy.stop())
  const bus = testBus({ redis: proxy.url }) as Bus
  const worked = processed(bus)
  await bus.run({ signals: false })
  await eventually(async () => (await answering(bus)) === 1)
  const lists = [worked, await readLive(bus)]
  expect(await publishOneByOne(bus, lists, () => nextPublish(proxy, 'drop-reply'))).toBeLessThan(2 * withoutLooksMs)
})
