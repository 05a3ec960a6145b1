/** How a dispatcher divides its slots among the shards, keeps its leases, and behaves while Redis does not. */
import { expect, onTestFinished, test, vi } from 'vitest'
import { type Bus, busbar } from '../../src/bus.ts'
import { webhookKeys } from '../../src/redis/keys.ts'
import { systemClock } from '../../src/runtime/clock.ts'
import { workScript } from '../../src/sinks/webhook/scripts.ts'
import { Shard, shardOf } from '../../src/sinks/webhook/shard.ts'
import { Slots } from '../../src/sinks/webhook/slots.ts'
import { freshNamespace, plainRedis, redisUrl, testBus, urlWithoutHints } from '../support/bus.ts'
import { eventually } from '../support/eventually.ts'
import { startProxy } from '../support/proxy.ts'
import { startReceiver, toLoopback } from '../support/receiver.ts'
import { setTallies } from '../support/tallies.ts'

const hooks = 40
const rounds = 5

test('however few slots there are, the shards take turns', async () => {
  const namespace = freshNamespace()
  const receiver = await startReceiver()
  const router = testBus({ namespace, partitions: 1, webhooks: { ...toLoopback, dispatch: false } })
  const names = Array.from({ length: hooks }, (_, n) => `hook-${n}`)
  for (const name of names)
    await router.webhooks.put(name, { url: `${receiver.url}/${name}`, match: 'order.>', batch: { maxEvents: 1 } })
  await router.run({ signals: false })
  for (let n = 1; n <= rounds; n += 1) await router.publish('order.paid', { n })
  const isReady = async () => (await router.webhooks.list()).every(({ backlog }) => backlog === rounds)
  await eventually(async () => expect(await isReady()).toBe(true))

  // All shards are asked in the same turn of the event loop, and one of them has the slot.
  const dispatcher = testBus({ namespace, webhooks: { ...toLoopback, dispatch: true, concurrency: 1 } })
  await dispatcher.run({ signals: false })
  await eventually(() => expect(receiver.received.length).toBe(rounds * hooks))
  expect(receiver.most).toBe(1)
  const served = receiver.received.map(({ path }) => shardOf(path.slice(1)))
  const shards = new Set(names.map(shardOf))
  // In the second round at the latest, should a machine without time make an attempt fail in the first.
  expect(new Set(served.slice(0, 2 * shards.size))).toEqual(shards)
})

const alone = { batch: { maxEvents: 1, maxWait: 0 }, retry: { backoff: ['1h', '1h'] } } as const

/** Of a name, or of the next one that lies in that shard. */
function nameIn(shard: number, prefix: string): string {
  for (let n = 0; ; n += 1) if (shardOf(`${prefix}${n}`) === shard) return `${prefix}${n}`
}

async function startedProxy(url = redisUrl()) {
  const proxy = await startProxy({ target: { port: Number(new URL(redisUrl()).port) } })
  onTestFinished(() => proxy.stop())
  const through = new URL(url)
  through.port = new URL(proxy.url).port
  return { proxy, url: through.href }
}

test('a lease that could not be renewed in time is refused', () => {
  const withLease = (lease: number) => () => busbar({ webhooks: { lease } })
  for (const lease of [0, 99]) expect(withLease(lease)).toThrow(`webhooks.lease must be at least 100ms; got ${lease}`)
})

test('who was passed because another one waits is asked when that one takes less than is free', async () => {
  const asked: string[] = []
  const taker = (name: string) => ({ isSpent: false, fill: () => asked.push(name) > 0 })
  const [a, b, c] = [taker('a'), taker('b'), taker('c')]
  const slots = new Slots(3, new Map([a, b, c].map((one, i) => [i, one])), systemClock)
  expect([slots.take(a, 0, 9), slots.take(a, 0, 9), slots.take(a, 0, 9)]).toEqual([1, 1, 1])
  expect(slots.take(b, 0, 9)).toBe(0)
  slots.release(3)
  expect(slots.take(c, 0, 9)).toBe(0)
  await eventually(() => asked.length > 0)
  asked.length = 0
  expect(slots.take(b, 0, 9)).toBe(1)
  await eventually(() => expect(asked).toContain('c'))
})

test('slots that become free while shards wait for them are gathered for a turn, and not for long', async () => {
  const clock = { ...systemClock, ms: 0, monotonicMs: () => clock.ms, after: () => ({ cancel() {} }) }
  const taker = () => ({ isSpent: false, fill: () => true })
  const all = Array.from({ length: 16 }, taker)
  const [first, second] = all as [ReturnType<typeof taker>, ReturnType<typeof taker>]
  const slots = new Slots(100, new Map(all.entries()), clock)
  for (const one of all) slots.take(one, 0, 16)
  expect(slots.free).toBe(0)
  expect([slots.take(first, 0, 16), slots.take(second, 0, 16)]).toEqual([0, 0])
  slots.release(15)
  expect(slots.take(first, 0, 16)).toBe(0)
  slots.release(1)
  expect(slots.take(first, 0, 16)).toBe(16)
  slots.release(3)
  expect(slots.take(second, 0, 16)).toBe(0)
  clock.ms += 5
  expect(slots.take(second, 0, 16)).toBe(3)
})

test('when most slots are taken a shard has no more of them than it is likely to need', () => {
  const taker = { isSpent: false, fill: () => true }
  const slots = new Slots(40, new Map([[0, taker]]), systemClock)
  expect([slots.take(taker, 0, 2), slots.take(taker, 16, 2), slots.take(taker, 18, 3)]).toEqual([16, 16, 3])
})

test('what was delivered is settled although others have all slots', async () => {
  const namespace = freshNamespace()
  const receiver = await startReceiver()
  receiver.otherwise = (response, { path }) => path === '/quick' && response.writeHead(204).end()
  const bus = testBus({ namespace, webhooks: { ...toLoopback, dispatch: true, concurrency: 1 } })
  const [quick, slow] = [nameIn(1, 'quick'), nameIn(2, 'slow')]
  const batch = { maxEvents: 1 }
  await bus.webhooks.put(quick, { url: `${receiver.url}/quick`, match: 'order.*', batch })
  await bus.webhooks.put(slow, { url: `${receiver.url}/slow`, match: 'order.*', batch })
  await bus.run({ signals: false })
  for (let n = 1; n <= 4; n += 1) await bus.publish('order.paid', { n })
  const tried = async () => (await bus.webhooks.get(quick)).attempts
  const posted = () => receiver.received.filter(({ path }) => path === '/quick').length
  await eventually(() => receiver.received.some(({ path }) => path === '/slow'))
  await eventually(async () => expect(await tried()).toBe(posted()))
  expect(receiver.open).toBe(1)
})

test('a claim of which one batch ends at once renews the lease of the others', async () => {
  const namespace = freshNamespace()
  const receiver = await startReceiver()
  receiver.otherwise = () => undefined
  const bus = testBus({ namespace, webhooks: { ...toLoopback, dispatch: true, concurrency: 4, lease: 600 } }) as Bus
  const hung = 'hung'
  const [bad, good] = [nameIn((shardOf(hung) + 1) % 16, 'a'), nameIn((shardOf(hung) + 1) % 16, 'b')]
  for (const name of [hung, bad, good])
    await bus.webhooks.put(name, { ...alone, url: receiver.url, match: name === hung ? 'hung.*' : 'order.*' })
  for (const name of [hung, bad])
    await setTallies(plainRedis(), webhookKeys(namespace, shardOf(name)), name, () => ({ failures: 1 }))
  await bus.run({ signals: false })
  // It has the one slot of those that fail.
  await bus.publish('hung.up', { n: 0 })
  await eventually(() => receiver.open === 1)
  await bus.publish('order.paid', { n: 1 })
  const leased = async () => (await bus.webhooks.batches(good)).sealed[0]?.leasedUntil ?? 0
  const first = await eventually(async () => (await leased()) || false)
  await eventually(async () => expect(await leased()).toBeGreaterThan(first))
  // Without an attempt more: it did not lapse meanwhile.
  expect((await bus.webhooks.batches(good)).sealed).toMatchObject([{ attempts: 0 }])
  expect(await bus.webhooks.get(bad)).toMatchObject({ throttled: expect.any(Number), attempts: 0 })
  expect(receiver.received.filter(({ numbers }) => numbers.includes(1))).toHaveLength(1)
})

test('a lease that ends while Redis is away is given up by its holder: it stops posting', async () => {
  const { proxy, url } = await startedProxy()
  const receiver = await startReceiver()
  receiver.otherwise = () => undefined
  const bus = testBus({ redis: url, webhooks: { ...toLoopback, lease: 600 } }) as Bus
  bus.webhook('erp', { ...alone, url: receiver.url, match: 'order.*' })
  await bus.run({ signals: false })
  await bus.publish('order.paid', { n: 1 })
  await eventually(() => receiver.open === 1)
  proxy.stall()
  const stalledAt = performance.now()
  await eventually(() => receiver.open === 0)
  expect(performance.now() - stalledAt).toBeLessThan(1_500)
  proxy.resume()
})

test('closed in its time, a dispatcher without an answer asks no more', async () => {
  const { proxy, url } = await startedProxy()
  const receiver = await startReceiver()
  const bus = testBus({ redis: url, webhooks: toLoopback }) as Bus
  bus.webhook('erp', { ...alone, url: receiver.url, match: 'order.*' })
  await bus.run({ signals: false })
  const work = vi.spyOn(Shard.prototype, 'work')
  onTestFinished(() => work.mockRestore())
  proxy.onCommand(({ args }) => (String(args[0]) === workScript.sha ? 'cut-before' : 'forward'))
  const publisher = testBus({ namespace: bus.namespace })
  await publisher.publish('order.paid', { n: 1 })
  await eventually(() => work.mock.calls.length > 1)
  await bus.close({ timeout: '300ms' })
  const closedAt = performance.now()
  const calls = await eventually(() => performance.now() > closedAt + 150 && work.mock.calls.length)
  await eventually(() => performance.now() > closedAt + 450)
  expect(work.mock.calls.length).toBe(calls)
})

test('a shard that answers with errors is asked less and less often, and goes on when it is mended', async () => {
  const namespace = freshNamespace()
  const receiver = await startReceiver()
  const redis = plainRedis()
  const bus = testBus({ namespace, webhooks: toLoopback }) as Bus
  bus.webhook('erp', { ...alone, url: receiver.url, match: 'order.*' })
  await bus.run({ signals: false })
  const { deadlines } = webhookKeys(namespace, shardOf('erp'))
  await redis.set(deadlines, 'spoiled')
  const stuck = () => bus.telemetry.counts().get('webhook.stuck') ?? 0
  await eventually(() => stuck() > 0)
  const since = performance.now()
  await eventually(() => performance.now() > since + 1_000)
  expect(stuck()).toBeLessThan(7)
  await redis.del(deadlines)
  await bus.publish('order.paid', { n: 1 })
  await eventually(() => receiver.delivered().length === 1)
})

test('what ends during a claim that comes back with less than it asked for takes the next claim along', async () => {
  // Without hints: nothing but the call itself says that there is more.
  const { proxy, url } = await startedProxy(await urlWithoutHints())
  const receiver = await startReceiver()
  let answer = () => {}
  receiver.next = [
    (response) => {
      answer = () => response.writeHead(204).end()
    },
  ]
  const bus = testBus({ redis: url, webhooks: toLoopback }) as Bus
  bus.webhook('erp', { ...alone, url: receiver.url, match: 'order.*' })
  await bus.run({ signals: false })
  for (const n of [1, 2]) await bus.publish('order.paid', { n }, { key: 'o' })
  await eventually(async () => (await bus.webhooks.batches('erp')).sealed.length === 2)
  await eventually(() => receiver.received.length === 1)
  // The slow look claims.
  proxy.onCommand(({ args }) => (String(args[0]) === workScript.sha ? { delayMs: 200 } : 'forward'))
  const work = vi.spyOn(Shard.prototype, 'work')
  onTestFinished(() => work.mockRestore())
  await eventually(() => work.mock.calls.length === 1)
  answer()
  await eventually(() => receiver.received.length === 2)
  const asked = work.mock.calls.map(([{ ended, claim }]) => [ended.length, claim !== undefined])
  expect(asked.slice(0, 2)).toEqual([
    [0, true],
    [1, true],
  ])
})

test('a batch that finds no free connection is postponed, and no failure of its receiver', async () => {
  const receiver = await startReceiver()
  receiver.otherwise = () => undefined
  const bus = testBus({ webhooks: { ...toLoopback, dispatch: true } }) as Bus
  // All connections to the origin are theirs.
  for (let n = 0; n < 8; n += 1) await bus.webhooks.put(`hung${n}`, { ...alone, url: receiver.url, match: 'hung.*' })
  await bus.webhooks.put('good', { ...alone, url: receiver.url, match: 'order.*', timeout: '100ms' })
  await bus.run({ signals: false })
  await bus.publish('hung.up', { n: 0 })
  await eventually(() => receiver.open === 8)
  await bus.publish('order.paid', { n: 1 })
  await eventually(async () => expect(await bus.webhooks.get('good')).toMatchObject({ throttled: 1 }))
  expect(await bus.webhooks.get('good')).toMatchObject({ state: 'active', failures: 0, attempts: 0, backlog: 1 })
  receiver.otherwise = 204
  receiver.cut()
  await eventually(() => receiver.delivered().includes(1))
})

test('a batch whose webhook has no definition is kept', async () => {
  const namespace = freshNamespace()
  const receiver = await startReceiver()
  const redis = plainRedis()
  const bus = testBus({ namespace, webhooks: toLoopback }) as Bus
  bus.webhook('erp', { ...alone, url: receiver.url, match: 'order.*' })
  await bus.run({ signals: false })
  const { definitions } = webhookKeys(namespace, shardOf('erp'))
  const definition = (await redis.hget(definitions, 'erp'))!
  await redis.hdel(definitions, 'erp')
  await bus.publish('order.paid', { n: 1 })
  await eventually(async () => expect(await bus.webhooks.get('erp')).toMatchObject({ throttled: 1 }))
  expect(await bus.webhooks.get('erp')).toMatchObject({ backlog: 1, delivered: 0 })
  await redis.hset(definitions, { erp: definition })
  await eventually(() => receiver.delivered().length === 1)
})

test('that a webhook was disabled is told once, when it could be published', async () => {
  const { proxy, url } = await startedProxy()
  const receiver = await startReceiver()
  receiver.next = [410]
  const bus = testBus({ redis: url, webhooks: toLoopback }) as Bus
  bus.webhook('erp', { ...alone, url: receiver.url, match: 'order.*' })
  await bus.run({ signals: false })
  proxy.onCommand(({ args }) => (args.some((arg) => String(arg).includes('webhook.disabled')) ? 'hold' : 'forward'))
  const work = vi.spyOn(Shard.prototype, 'work')
  onTestFinished(() => work.mockRestore())
  await bus.publish('order.paid', { n: 1 })
  await eventually(() => proxy.held.length === 1)
  const { length } = work.mock.calls
  await eventually(() => work.mock.calls.length > length + 1)
  expect(bus.telemetry.counts().get('webhook.disabled')).toBeUndefined()
  proxy.release()
  await eventually(() => bus.telemetry.counts().get('webhook.disabled') === 1)
  const { announced } = webhookKeys(bus.namespace, shardOf('erp'))
  await eventually(async () => (await plainRedis().exists(announced)) === 0)
  expect(bus.telemetry.counts().get('webhook.disabled')).toBe(1)
})
