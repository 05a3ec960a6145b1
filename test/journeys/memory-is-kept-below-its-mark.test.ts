/** Redis that fills up: what nobody needs is trimmed, then the oldest of the largest backlog is dropped, and said; below the mark nothing is. */
import { expect, onTestFinished, test } from 'vitest'
import type { Bus } from '../../src/bus.ts'
import type { TelemetryEvent } from '../../src/runtime/telemetry.ts'
import { plainRedis, testBus } from '../support/bus.ts'
import { eventually } from '../support/eventually.ts'
import { startReceiver, toLoopback } from '../support/receiver.ts'
import { startRedis } from '../support/redis.ts'

const kB = 1_000
const text = (bytes: number) => 'x'.repeat(bytes)

async function fullBus() {
  const server = await startRedis({ args: ['--maxmemory', '40mb'] })
  onTestFinished(() => server.stop())
  const events: TelemetryEvent[] = []
  const receiver = await startReceiver()
  const webhooks = { ...toLoopback, concurrency: 2 }
  const bus = testBus({ redis: server.url, webhooks, onTelemetry: (event) => events.push(event) }) as Bus
  const redis = plainRedis(server.url)
  const used = async () => Number(/used_memory:(\d+)/.exec(await redis.info('memory'))![1]) / 40 / 1_048_576
  return { bus, redis, used, receiver, dropped: () => events.filter(({ name }) => name === 'memory.dropped'), events }
}

test('[W17] above the high mark: the retained log first, then the oldest of the largest backlog, never one that is held; counted and announced', async () => {
  const { bus, used, receiver, dropped } = await fullBus()
  // Never answered: its first batch is being posted all the time.
  receiver.otherwise = () => undefined
  bus.webhook('slow', { url: receiver.url, match: 'big.*', batch: { maxEvents: 10, maxWait: '1h' }, timeout: '60s' })
  const small = bus.queue('small', { match: 'small.*' })
  await bus.run({ signals: false })
  for (let n = 0; n < 5; n += 1) await small.send({ n, text: text(10 * kB) }, { tenant: 'modest' })
  // Quicker than the guard looks, it or Redis itself refuses: then there is room again soon.
  const publishBig = (n: number) =>
    eventually(
      async () => {
        await bus.publish('big.one', { n, text: text(50 * kB) }, { key: 'o', timeout: '30s' })
      },
      { timeoutMs: 20_000, everyMs: 50 },
    )
  // A log that nobody has to read any more, then a webhook that takes nothing.
  for (let n = 0; n < 60; n += 1) await bus.publish('log.only', { n, text: text(100 * kB) })
  const logged = await used()
  let n = 0
  for (; (await used()) < 0.86 && n < 600; n += 1) await publishBig(n)
  await eventually(async () => (await used()) < 0.78, { timeoutMs: 20_000 })
  expect(logged).toBeGreaterThan(0.1)
  // Until the webhook's backlog alone is too much.
  for (; dropped().length === 0 && n < 2_000; n += 1) await publishBig(n)
  await eventually(async () => (await used()) < 0.78, { timeoutMs: 20_000 })
  const { fields } = dropped()[0]!
  expect(fields).toMatchObject({ kind: 'webhook', name: 'slow', items: expect.any(Number), bytes: expect.any(Number) })
  const facts = await bus.webhooks.get('slow')
  const told = dropped().reduce((sum, event) => sum + Number(event.fields.items), 0)
  expect(facts.dropped).toBe(told)
  expect(facts.in).toBe(facts.backlog + facts.dropped)
  // What was held stays, what is left is the newest.
  const { sealed } = await bus.webhooks.batches('slow')
  expect(sealed[0]).toMatchObject({ state: 'leased', id: receiver.received[0]!.id })
  expect(receiver.received[0]!.numbers[0]).toBe(0)
  // The smaller backlog is not touched.
  expect(await bus.queues.get('small')).toMatchObject({ waiting: 5, dropped: 0 })
  await bus.publish('still.works', { n })
  const announced = await eventually(async () => {
    const found = []
    for await (const event of bus.log.read({ match: 'busbar.>' })) found.push(event)
    return found.length > 0 && found
  })
  expect(announced[0]).toMatchObject({
    type: 'busbar.memory.dropped',
    data: { dropped: [{ kind: 'webhook', name: 'slow' }] },
  })
  for await (const finding of bus.fsck()) expect(finding).toBeUndefined()
})

test('[W17] the backlog of a queue is dropped where it is the largest, of the tenant that has most', async () => {
  const { bus, used, dropped } = await fullBus()
  const queue = bus.queue('jobs')
  const [held] = await bus.queues.put('jobs', {}).then(async () => {
    await queue.send({ n: -1 }, { tenant: 'greedy' })
    return (await queue.claim({ lease: '5m' })).items
  })
  await bus.run({ signals: false })
  await queue.send({ text: text(100 * kB) }, { tenant: 'modest' })
  // Quicker than the guard looks, Redis itself refuses.
  const full = async (error: { code: string }) => {
    expect(error.code).toBe('REDIS_OUT_OF_MEMORY')
    await eventually(() => dropped().length > 0)
  }
  for (let n = 0; dropped().length === 0 && n < 600; n += 1)
    await queue.send({ n, text: text(100 * kB) }, { tenant: 'greedy', timeout: '30s' }).catch(full)
  await eventually(async () => (await used()) < 0.78, { timeoutMs: 20_000 })
  expect(dropped().every(({ fields }) => fields.kind === 'queue' && fields.tenant === 'greedy')).toBe(true)
  const [greedy, modest] = ['greedy', 'modest'].map(async (name) =>
    (await bus.queues.tenants('jobs')).find(({ tenant }) => tenant === name),
  )
  expect(await modest).toMatchObject({ waiting: 1 })
  expect(await greedy).toMatchObject({ held: 1 })
  expect(await held!.ack()).toBe('settled')
})

test('[W17] a Redis that is above its limit already is brought below the mark: publishing is closed, the stores are looked through once', async () => {
  const { bus, redis, used, events, dropped } = await fullBus()
  const queue = bus.queue('jobs')
  await bus.run({ signals: false })
  // Dead letters go first.
  await queue.send({ text: text(200 * kB) }, { tenant: 'modest' })
  await (await queue.claim()).items[0]!.dead('broken')
  for (let n = 0; (await used()) < 0.55; n += 20)
    await Promise.all(Array.from({ length: 20 }, () => queue.send({ n, text: text(10 * kB) }, { tenant: 'greedy' })))
  await redis.config('RESETSTAT')
  await redis.config('SET', 'maxmemory', '20mb')
  await eventually(async () => (await used()) < 0.38, { timeoutMs: 10_000 })
  expect(events.some(({ name }) => name === 'memory.closed')).toBe(true)
  await eventually(() => dropped().length > 0)
  expect(dropped()[0]!.fields).toMatchObject({ kind: 'queue', name: 'jobs', tenant: 'modest', letters: true, items: 1 })
  expect(await bus.queues.get('jobs')).toMatchObject({ dead: 0 })
  const stats = await redis.info('commandstats')
  const turns = dropped().length + 1
  expect(Number(/cmdstat_hscan:calls=(\d+)/.exec(stats)![1])).toBeLessThanOrEqual(turns)
  await eventually(() => bus.publish('still.works'), { timeoutMs: 15_000, everyMs: 100 })
})

test('[W17] above the top mark publishing is closed, by an error that says so, and opens as soon as there is room', async () => {
  const { bus, redis, used, events } = await fullBus()
  await bus.run({ signals: false })
  await bus.publish('log.only', { n: 0 })
  // Filled by somebody else: nothing of it can be given up.
  let i = 0
  const fill = async () => {
    for (; (await used()) < 0.975; i += 1) await redis.set(`foreign:${i}`, text(100 * kB))
  }
  // Again when buffers have made it seem full.
  await eventually(async () => {
    await fill()
    return events.some(({ name }) => name === 'memory.closed')
  })
  await eventually(() => events.some(({ name }) => name === 'memory.stuck'))
  await expect(bus.publish('log.only', { n: 1 })).rejects.toMatchObject({ code: 'PUBLISHING_CLOSED', retryable: true })
  const foreign = await redis.keys('foreign:*')
  await redis.unlink(...foreign.slice(0, Math.ceil(foreign.length / 4)))
  await eventually(
    async () => {
      await bus.publish('log.only', { n: 2 })
    },
    { timeoutMs: 20_000, everyMs: 100 },
  )
  const logged: unknown[] = []
  for await (const event of bus.log.read({ match: 'log.only' })) logged.push((event.data as { n: number }).n)
  expect(logged).toContain(2)
  expect(logged).not.toContain(1)
})

test('[W17] below the mark nothing is dropped or trimmed', async () => {
  const { bus, used, events } = await fullBus()
  const queue = bus.queue('jobs')
  await bus.run({ signals: false })
  for (let n = 0; (await used()) < 0.7 && n < 600; n += 1) await queue.send({ n, text: text(100 * kB) })
  const { in: entered } = await bus.queues.get('jobs')
  const looks = events.length
  // The guard looks every few seconds: it has looked when the leader has done something after it.
  await bus.publish('log.only', { n: 1 })
  expect(await bus.queues.get('jobs')).toMatchObject({ waiting: entered, dropped: 0 })
  expect(events.slice(looks).filter(({ name }) => /dropped|trimmed/.test(name))).toEqual([])
})

test('[W17] what has ended is forgotten before anything is dropped that is still to be done', async () => {
  const { bus, used, dropped, events } = await fullBus()
  const queue = bus.queue('jobs', { track: true })
  const waiting = bus.queue('waiting')
  await bus.run({ signals: false })
  for (let n = 0; n < 20; n += 1) await waiting.send({ n, text: text(100 * kB) })
  const forgotten = () => events.filter(({ name }) => name === 'memory.forgotten')
  // Just above the mark, where what is refused is another matter, and again when buffers have made it seem so.
  const isForgotten = async () => {
    if (forgotten().length > 0) return (await used()) < 0.78
    if ((await used()) > 0.86) return false
    await Promise.all(Array.from({ length: 20 }, () => queue.send(text(15 * kB))))
    await queue.pop({ max: 20 })
    return false
  }
  await eventually(isForgotten, { timeoutMs: 25_000 })
  expect(forgotten()[0]!.fields).toMatchObject({ queue: 'jobs', operations: expect.any(Number) })
  expect(dropped()).toEqual([])
  expect(await bus.queues.get('waiting')).toMatchObject({ waiting: 20, dropped: 0 })
})
