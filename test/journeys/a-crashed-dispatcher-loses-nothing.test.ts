/** Dispatchers end in every way, deadlines pass while nobody is there: batches are delivered all the same, by whoever is. */
import { describe, expect, onTestFinished, test } from 'vitest'
import type { Bus } from '../../src/bus.ts'
import { workScript } from '../../src/sinks/webhook/scripts.ts'
import { freshNamespace, redisUrl, testBus, urlWithoutHints } from '../support/bus.ts'
import { eventually } from '../support/eventually.ts'
import { type Child, spawnNode } from '../support/process.ts'
import { startProxy } from '../support/proxy.ts'
import { startReceiver, toLoopback } from '../support/receiver.ts'
import { quickGroup } from '../support/workers.ts'

const leaseMs = 1_000
const lenient = { ...toLoopback, lease: leaseMs }

function spawnDispatcher(namespace: string, { clockOffMs = 0 } = {}): Child {
  const args = [redisUrl(), namespace, JSON.stringify(lenient), JSON.stringify(quickGroup)]
  const child = spawnNode('dispatcher.mjs', { args, env: { CLOCK_OFF_MS: String(clockOffMs) } })
  onTestFinished(() => child.kill())
  return child
}

/** A bus that only looks on. */
const watching = (namespace: string) => testBus({ namespace, webhooks: { ...lenient, dispatch: false } }) as Bus

describe('a dispatcher', () => {
  test('[W09] that is killed with a leased batch: another one delivers it within lease + 1 s, the same bytes', async () => {
    const namespace = freshNamespace()
    const bus = watching(namespace)
    const receiver = await startReceiver()
    receiver.next = [() => undefined]
    await bus.webhooks.put('erp', { url: receiver.url, match: 'order.*', batch: { maxEvents: 2, maxWait: '1h' } })
    const first = spawnDispatcher(namespace)
    await first.waitForLine('ready')
    for (const n of [1, 2, 3, 4]) await bus.publish('order.paid', { n }, { key: 'o' })
    await eventually(() => receiver.received.length === 1)
    const { sealed } = await bus.webhooks.batches('erp')
    expect(sealed[0]).toMatchObject({ state: 'leased', id: receiver.received[0]!.id, worker: expect.any(String) })
    const second = spawnDispatcher(namespace)
    await second.waitForLine('ready')
    first.kill()
    const killedAt = performance.now()
    await eventually(() => receiver.received.length > 1)
    expect(receiver.received[1]!.at - killedAt).toBeLessThan(leaseMs + 1_000)
    await eventually(() => receiver.delivered().length === 4)
    expect(receiver.received[1]!.body).toBe(receiver.received[0]!.body)
    expect(receiver.delivered()).toEqual([1, 2, 3, 4])
    for await (const finding of bus.fsck()) expect(finding).toBeUndefined()
  })

  test('[W09] that gets SIGTERM in mid-POST lets it end, exits 0, and nothing is sent twice', async () => {
    const namespace = freshNamespace()
    const bus = watching(namespace)
    const receiver = await startReceiver()
    receiver.next = [
      (response, received) =>
        void setTimeout(() => {
          received.status = 200
          response.writeHead(200).end()
        }, 400),
    ]
    await bus.webhooks.put('erp', { url: receiver.url, match: 'order.*', batch: { maxEvents: 1, maxWait: 0 } })
    const first = spawnDispatcher(namespace)
    await first.waitForLine('ready')
    await bus.publish('order.paid', { n: 1 })
    await eventually(() => receiver.received.length === 1)
    first.kill('SIGTERM')
    expect(await first.exited).toEqual({ code: 0, signal: null })
    expect(await bus.webhooks.get('erp')).toMatchObject({ delivered: 1, backlog: 0 })
    expect(receiver.received).toHaveLength(1)
  })

  test('whose clock is a day off signs and waits by the server all the same', async () => {
    const namespace = freshNamespace()
    const bus = watching(namespace)
    const receiver = await startReceiver()
    receiver.next = [500]
    await bus.webhooks.put('erp', {
      ...{ url: receiver.url, match: 'order.*', batch: { maxEvents: 1, maxWait: 0 } },
      retry: { backoff: ['50ms', '50ms'], giveUpAfter: '1h' },
    })
    const child = spawnDispatcher(namespace, { clockOffMs: 86_400_000 })
    await child.waitForLine('ready')
    await bus.publish('order.paid', { n: 1 })
    await eventually(() => receiver.delivered().length === 1)
    const [first] = receiver.received
    expect(Math.abs(Number(first!.headers['webhook-timestamp']) - Date.now() / 1000)).toBeLessThan(60)
    await eventually(async () => expect(await bus.webhooks.get('erp')).toMatchObject({ delivered: 1, dead: 0 }))
  })
})

describe('[W24] a deadline', () => {
  test('whose hint is lost is noticed within maxWait + 1 s', async () => {
    const namespace = freshNamespace()
    const receiver = await startReceiver()
    const bus = testBus({ redis: await urlWithoutHints(), namespace, webhooks: toLoopback }) as Bus
    const publisher = watching(namespace)
    bus.webhook('erp', { url: receiver.url, match: 'order.*', batch: { maxEvents: 100, maxWait: '400ms' } })
    await bus.run({ signals: false })
    for (let n = 0; n < 5; n += 1) {
      const publishedAt = performance.now()
      await publisher.publish('order.paid', { n }, { key: `o${n}` })
      await eventually(() => receiver.delivered().includes(n))
      // The event itself has no hint either: a second to be routed, one to be sealed.
      expect(receiver.received.at(-1)!.at - publishedAt).toBeLessThan(400 + 2_000 + 300)
    }
  })

  test('that passed while no process was there is kept when one is', async () => {
    const namespace = freshNamespace()
    const bus = watching(namespace)
    const receiver = await startReceiver()
    await bus.webhooks.put('erp', { url: receiver.url, match: 'order.*', batch: { maxEvents: 100, maxWait: '600ms' } })
    const first = spawnDispatcher(namespace)
    await first.waitForLine('ready')
    await bus.publish('order.paid', { n: 1 })
    await eventually(async () => (await bus.webhooks.batches('erp')).open.length === 1)
    first.kill()
    const { dueAt } = (await bus.webhooks.batches('erp')).open[0]!
    await eventually(() => Date.now() > dueAt + 200)
    expect((await bus.webhooks.batches('erp')).open).toMatchObject([{ events: 1, dueAt }])
    const second = spawnDispatcher(namespace)
    await second.waitForLine('ready')
    const readyAt = performance.now()
    await eventually(() => receiver.received.length === 1)
    expect(receiver.received[0]!.at - readyAt).toBeLessThan(1_000)
  })
})

test('[W25] inspect: the open batch with its deadline, the sealed ones by age, leased by whom, attempts', async () => {
  const receiver = await startReceiver()
  const bus = testBus({ worker: 'posty', webhooks: toLoopback }) as Bus
  receiver.next = [500, () => undefined]
  bus.webhook('erp', {
    ...{ url: receiver.url, match: 'order.*', batch: { maxEvents: 2, maxWait: '1h' } },
    retry: { backoff: ['10ms', '10ms'] },
  })
  await bus.run({ signals: false })
  const before = Date.now()
  const published = []
  for (const n of [1, 2, 3, 4, 5]) published.push(await bus.publish('order.paid', { n }, { key: 'o' }))
  await eventually(() => receiver.received.length === 2)
  const { open, sealed } = await eventually(async () => {
    const found = await bus.webhooks.batches('erp')
    return found.open.length === 1 && found
  })
  expect(open).toEqual([
    {
      sequence: 0,
      events: 1,
      bytes: expect.any(Number),
      openedAt: expect.any(Number),
      dueAt: open[0]!.openedAt + 3_600_000,
    },
  ])
  expect(open[0]!.openedAt).toBeGreaterThan(before - 1_000)
  expect(sealed).toMatchObject([
    { id: receiver.received[0]!.id, state: 'leased', worker: 'posty', attempts: 1, events: 2 },
    { state: 'waiting', attempts: 0, events: 2 },
  ])
  expect(sealed.flatMap(({ ids }) => ids)).toEqual(published.slice(0, 4).map(({ id }) => id))
  expect(sealed[0]!.sealedAt).toBeLessThanOrEqual(sealed[1]!.sealedAt)
  expect(sealed[0]!.leasedUntil).toBeGreaterThan(Date.now())
  expect(await bus.webhooks.get('erp')).toMatchObject({ backlog: 5, in: 5, delivered: 0, batches: 2 })
})

test('[O13] trace: an event in an open batch, one that is posted, waits behind, is tried again and why, given up or delivered', async () => {
  const receiver = await startReceiver()
  const bus = testBus({ webhooks: toLoopback }) as Bus
  bus.webhook('erp', {
    ...{ url: receiver.url, match: 'order.*', batch: { maxEvents: 1, maxWait: '1h' } },
    retry: { backoff: ['1h', '1h'], attempts: 2 },
  })
  bus.webhook('slow', { url: receiver.url, match: 'order.*', batch: { maxEvents: 9, maxWait: '1h' } })
  await bus.run({ signals: false })
  receiver.next = [() => undefined]
  const first = await bus.publish('order.paid', { n: 1 }, { key: 'o' })
  await eventually(() => receiver.received.length === 1)
  const second = await bus.publish('order.paid', { n: 2 }, { key: 'o' })
  const placeOf = async (id: string, name: string) =>
    (await bus.trace(id)).places.find((place) => place.name === name) ?? {}
  const batch = receiver.received[0]!.id
  await eventually(async () => expect(await placeOf(first.id, 'slow')).toMatchObject({ state: 'waiting' }))
  expect(await placeOf(first.id, 'erp')).toMatchObject({ kind: 'webhook', state: 'held', batch, attempts: 0 })
  await eventually(async () => expect(await placeOf(second.id, 'erp')).toMatchObject({ state: 'behind' }))
  expect(await placeOf(first.id, 'erp')).not.toHaveProperty('error')
  receiver.otherwise = 500
  receiver.cut()
  const error = 'connection closed without an answer'
  await eventually(async () =>
    expect(await placeOf(first.id, 'erp')).toMatchObject({ state: 'later', attempts: 1, error }),
  )
  // The log's last failure is another batch's.
  expect(await placeOf(second.id, 'erp')).not.toHaveProperty('error')
  await bus.webhooks.resume('erp')
  await eventually(async () =>
    expect(await placeOf(first.id, 'erp')).toMatchObject({ state: 'dead', batch, error: 'it answered 500' }),
  )
  receiver.otherwise = 204
  await bus.webhooks.resume('erp')
  await eventually(async () => expect(await placeOf(second.id, 'erp')).toMatchObject({ state: 'done' }))
})

test('[O13] trace: the error of a batch is that of its own last attempt, also when that disabled the webhook, and none when it is redriven', async () => {
  const receiver = await startReceiver()
  const bus = testBus({ webhooks: toLoopback, partitions: 1 }) as Bus
  bus.webhook('erp', {
    ...{ url: receiver.url, match: 'order.*', batch: { maxEvents: 1 }, parallel: 8 },
    retry: { backoff: ['1h', '1h'], attempts: 2 },
  })
  await bus.run({ signals: false })
  const placeOf = async (id: string) => (await bus.trace(id)).places[0]
  const failWith = async (status: number, key: string) => {
    receiver.next = [status]
    const { length } = receiver.received
    const { id } = await bus.publish('order.paid', 1, { key })
    await eventually(() => receiver.received.length > length)
    await eventually(async () => expect(await placeOf(id)).toMatchObject({ error: `it answered ${status}` }))
    return id
  }
  const first = await failWith(500, 'a')
  const second = await failWith(503, 'b')
  expect(await placeOf(first)).toMatchObject({ state: 'later', attempts: 1, error: 'it answered 500' })
  const third = await failWith(410, 'c')
  expect(await placeOf(third)).toMatchObject({ state: 'waiting', attempts: 0, error: 'it answered 410' })
  receiver.otherwise = 502
  await bus.webhooks.resume('erp')
  const error = 'it answered 502'
  for (const id of [first, second])
    await eventually(async () => expect(await placeOf(id)).toMatchObject({ state: 'dead', error }))
  await eventually(async () => expect(await placeOf(third)).toMatchObject({ state: 'later', attempts: 1, error }))
  await bus.webhooks.resume('erp')
  await eventually(async () => expect(await placeOf(third)).toMatchObject({ state: 'dead', error }))
  await bus.webhooks.pause('erp')
  expect(await bus.webhooks.dead.redrive('erp', 'all')).toBe(3)
  for (const id of [first, second, third]) {
    expect(await placeOf(id)).toMatchObject({ state: 'waiting', attempts: 0 })
    expect(await placeOf(id)).not.toHaveProperty('error')
  }
})

test('every webhook script that has no answer is asked again, and nothing is lost or sent out of order', async () => {
  const proxy = await startProxy({ target: { port: Number(new URL(redisUrl()).port) } })
  onTestFinished(() => proxy.stop())
  const receiver = await startReceiver()
  const bus = testBus({ redis: proxy.url, webhooks: { ...lenient } }) as Bus
  bus.webhook('erp', { url: receiver.url, match: 'order.*', batch: { maxEvents: 3, maxWait: 0 } })
  await bus.run({ signals: false })
  let calls = 0
  proxy.onCommand(({ args }) => {
    if (String(args[0]) !== workScript.sha) return 'forward'
    calls += 1
    return calls % 5 === 0 ? 'drop-reply' : 'forward'
  })
  for (let n = 0; n < 40; n += 1) await bus.publish('order.paid', { n }, { key: 'o', timeout: '20s' })
  await eventually(() => new Set(receiver.delivered()).size === 40, { timeoutMs: 20_000 })
  const firsts = [...new Set(receiver.delivered())]
  expect(firsts).toEqual(Array.from({ length: 40 }, (_, n) => n))
  expect(calls).toBeGreaterThan(10)
})
