/** Limits: what is in flight, how fast, how much may wait; kept through crashes, and nobody asks in vain. */
import { describe, expect, onTestFinished, test } from 'vitest'
import type { Bus } from '../../src/bus.ts'
import type { Queue } from '../../src/bus-types.ts'
import { queueKeys } from '../../src/redis/keys.ts'
import { freshNamespace, plainRedis, redisUrl, testBus } from '../support/bus.ts'
import { eventually } from '../support/eventually.ts'
import { spawnNode } from '../support/process.ts'
import { repeat, sendAll } from '../support/queues.ts'
import { startRedis } from '../support/redis.ts'
import { quickGroup } from '../support/workers.ts'

/** Handlers that end when they are told to, and how many ran at once, in all and of one tenant. */
function gated(queue: Queue, concurrency = 20) {
  const running = new Map<string, number>()
  const most = { inAll: 0, ofOne: 0 }
  const waiting: { tenant: string; end(): void }[] = []
  queue.work(
    async ({ tenant }) => {
      running.set(tenant, (running.get(tenant) ?? 0) + 1)
      most.ofOne = Math.max(most.ofOne, running.get(tenant)!)
      most.inAll = Math.max(
        most.inAll,
        [...running.values()].reduce((sum, n) => sum + n, 0),
      )
      await new Promise<void>((end) => waiting.push({ tenant, end }))
      running.set(tenant, running.get(tenant)! - 1)
    },
    { concurrency },
  )
  return { running, most, waiting, of: (tenant: string) => running.get(tenant) ?? 0 }
}

describe('[Q14] in flight', () => {
  test('per tenant and per queue: never more, over several workers and through a crash', async () => {
    const namespace = freshNamespace()
    const limits = { inFlight: 6, inFlightPerTenant: 4 }
    const options = { lease: '500ms', limits } as const
    const bus = testBus({ namespace }) as Bus
    const queue = bus.queue('mail', options)
    await sendAll(queue, [...repeat('a', 30), ...repeat('b', 30)])
    const args = [redisUrl(), namespace, '-', JSON.stringify(options), JSON.stringify(quickGroup)]
    const crashing = spawnNode('queue-worker.mjs', { args, env: { HANDLE: 'hang', CONCURRENCY: '20' } })
    onTestFinished(() => crashing.kill())
    const { store } = queueKeys(namespace, 'mail')
    const redis = plainRedis()
    const held = async () => Number((await redis.hget(store, 'held')) ?? 0)
    await eventually(async () => (await held()) === 6)
    let most = 0
    const { most: seen, waiting } = gated(queue)
    await bus.run({ signals: false })
    crashing.kill()
    await eventually(
      async () => {
        most = Math.max(most, await held())
        const { tenant: _, end } = waiting.shift() ?? { tenant: '', end: () => undefined }
        end()
        return (await redis.hget(store, 'out')) === '60'
      },
      { timeoutMs: 20_000, everyMs: 2 },
    )
    expect(most).toBeLessThanOrEqual(6)
    expect(seen).toEqual({ inAll: 6, ofOne: expect.any(Number) })
    expect(seen.ofOne).toBeLessThanOrEqual(4)
  })
})

describe('[Q29] a tenant', () => {
  test('has a quota of what waits: send is refused, nothing is stored, others are not concerned', async () => {
    const bus = testBus() as Bus
    const queue = bus.queue('mail', { limits: { backlog: 3 } })
    await sendAll(queue, repeat('a', 3))
    const refused = queue.send(1, { tenant: 'a' })
    await expect(refused).rejects.toMatchObject({
      code: 'BACKLOG_FULL',
      message: /"a" has 3 items waiting.*limits\.backlog/,
    })
    await queue.send(1, { tenant: 'b' })
    expect(await bus.queues.get('mail')).toMatchObject({ in: 4, waiting: 4 })
    await queue.pop()
    expect((await queue.send(1, { tenant: 'a' })).duplicate).toBe(false)
  })

  test('events are held in the log until there is room, in order', async () => {
    const bus = testBus() as Bus
    const queue = bus.queue('mail', { match: 'order.*', limits: { backlog: 2 } })
    await bus.run({ signals: false })
    for (let n = 0; n < 6; n += 1) await bus.publish('order.paid', n, { tenant: 'a', key: 'o' })
    await eventually(async () => (await bus.queues.get('mail')).waiting === 2)
    const seen: unknown[] = []
    await eventually(async () => {
      for (const { data } of await queue.pop()) seen.push(data)
      return seen.length === 6
    })
    expect(seen).toEqual([0, 1, 2, 3, 4, 5])
  })

  test('what was held goes on at the pace of those who work, however little may wait', async () => {
    const bus = testBus() as Bus
    const queue = bus.queue('mail', { match: 'order.*', limits: { backlog: 2 } })
    let seen = 0
    queue.work(() => {
      seen += 1
    })
    await bus.run({ signals: false })
    for (let n = 0; n < 40; n += 1) void bus.publish('order.paid', n, { tenant: 'a', key: 'o' })
    // Twenty times as much as may wait: a wait that doubled each time would be more than a minute.
    await eventually(() => seen === 40, { timeoutMs: 10_000 })
  })

  test.each([
    ['drop-oldest', [4, 5], { dropped: 4, dead: 0 }],
    ['dead', [0, 1], { dropped: 0, dead: 4 }],
  ] as const)('%s: what is over is counted', async (overflow, left, counts) => {
    const bus = testBus() as Bus
    const queue = bus.queue('mail', { match: 'order.*', limits: { backlog: 2, overflow } })
    await bus.run({ signals: false })
    for (let n = 0; n < 6; n += 1) await bus.publish('order.paid', n, { tenant: 'a', key: 'o' })
    await eventually(async () => (await bus.queues.get('mail')).in === 6)
    expect(await bus.queues.get('mail')).toMatchObject(counts)
    expect((await queue.pop({ max: 9 })).map(({ data }) => data)).toEqual(left)
  })

  test('is paused and resumed alone', async () => {
    const bus = testBus() as Bus
    const queue = bus.queue('mail')
    await sendAll(queue, ['a', 'b', 'a'])
    await bus.queues.pause('mail', { tenant: 'a' })
    expect((await queue.pop({ max: 9 })).map(({ tenant }) => tenant)).toEqual(['b'])
    expect(await bus.queues.tenants('mail')).toMatchObject([{ tenant: 'a', waiting: 2, paused: true }])
    const next = queue.claim({ max: 9, wait: '5s' })
    await bus.queues.resume('mail', { tenant: 'a' })
    expect((await next).items).toHaveLength(2)
  })
})

describe('[Q30] a rate', () => {
  test('per queue and per tenant holds, as the server counts it', async () => {
    const bus = testBus() as Bus
    const queue = bus.queue('mail', { limits: { rate: { max: 20, per: '1s' }, ratePerTenant: { max: 15, per: '1s' } } })
    await sendAll(queue, [...repeat('a', 100), ...repeat('b', 5)])
    const at: { tenant: string; ms: number }[] = []
    queue.work(({ tenant }) => void at.push({ tenant, ms: performance.now() }), { concurrency: 50 })
    await bus.run({ signals: false })
    await eventually(() => at.length >= 50)
    const most = (ms: number, rows: typeof at) =>
      Math.max(...rows.map((one, i) => rows.slice(i).filter((other) => other.ms - one.ms < ms).length))
    // So many at once, and so many more within the second: never above that, with a little for the way to here.
    expect(most(950, at)).toBeLessThanOrEqual(2 * 20)
    const ofA = at.filter(({ tenant }) => tenant === 'a')
    expect(most(950, ofA)).toBeLessThanOrEqual(2 * 15)
    const [first, last] = [ofA[0]!.ms, ofA.at(-1)!.ms]
    expect(ofA.length).toBeLessThanOrEqual(15 + Math.ceil(((last - first) / 1000) * 15) + 2)
  })

  test('a handler may ask to be throttled for a time; only its tenant is', async () => {
    const bus = testBus() as Bus
    const queue = bus.queue('mail')
    const at: [string, number][] = []
    let isThrottled = false
    queue.work(({ tenant }, ctx) => {
      at.push([tenant, performance.now()])
      if (tenant !== 'a' || isThrottled) return undefined
      isThrottled = true
      return ctx.throttle('1s')
    })
    await sendAll(queue, ['a'])
    await bus.run({ signals: false })
    await eventually(async () => (await bus.queues.tenants('mail'))[0]?.throttledUntil ?? false)
    await sendAll(queue, ['a', 'b'])
    await eventually(async () => (await bus.queues.get('mail')).out === 3)
    const ofA = at.filter(([tenant]) => tenant === 'a').map(([, ms]) => ms)
    expect(ofA).toHaveLength(3)
    for (const ms of ofA.slice(1)) expect(ms - ofA[0]!).toBeGreaterThan(950)
    const [, ofB] = at.find(([tenant]) => tenant === 'b')!
    expect(ofB - ofA[0]!).toBeLessThan(900)
    expect((await bus.queues.get('mail')).dead).toBe(0)
  })

  test('a limited lane never spins the claim', async () => {
    const server = await startRedis()
    onTestFinished(() => server.stop())
    const bus = testBus({ redis: server.url }) as Bus
    const queue = bus.queue('mail', { limits: { rate: { max: 1, per: '1h' }, ratePerTenant: { max: 1, per: '1h' } } })
    await sendAll(queue, repeat('a', 50))
    queue.work(() => undefined)
    await bus.run({ signals: false })
    await eventually(async () => (await bus.queues.get('mail')).out === 1)
    const redis = plainRedis(server.url)
    const calls = async () => Number(/cmdstat_evalsha:calls=(\d+)/.exec(await redis.info('commandstats'))?.[1] ?? 0)
    const before = await calls()
    await sendAll(queue, repeat('a', 20))
    await new Promise((resolve) => setTimeout(resolve, 2_000)) // nothing is to happen
    // What was sent, one slow look a second, and what the bus does besides.
    expect((await calls()) - before).toBeLessThan(200)
    expect((await bus.queues.get('mail')).out).toBe(1)
  })
})

describe('[Q42] slow jobs of one tenant', () => {
  test('never have more than their share of the slots while others wait', async () => {
    const bus = testBus() as Bus
    const queue = bus.queue('mail', { limits: { maxShare: 0.5 } })
    await sendAll(queue, [...repeat('slow', 40), ...repeat('quick', 40)])
    const { of, waiting } = gated(queue, 8)
    await bus.run({ signals: false })
    for (let n = 0; n < 30; n += 1) {
      await eventually(() => of('slow') + of('quick') === 8)
      // Of the 8 slots and what is claimed ahead: 5 of 10, or 6 of 11, of which somebody has to have more than half.
      expect(of('slow')).toBeLessThanOrEqual(6)
      const at = waiting.findIndex(({ tenant }) => tenant === 'quick')
      waiting.splice(at, 1)[0]!.end()
    }
  })

  test('have all of them when alone, also when the others drain while they hold their share', async () => {
    const bus = testBus() as Bus
    const queue = bus.queue('mail', { limits: { maxShare: 0.25 } })
    await sendAll(queue, [...repeat('slow', 40), ...repeat('quick', 10)])
    const { of, waiting } = gated(queue, 8)
    await bus.run({ signals: false })
    await eventually(() => of('slow') + of('quick') === 8)
    let ended = 0
    await eventually(
      () => {
        const at = waiting.findIndex(({ tenant }) => tenant === 'quick')
        if (at >= 0) waiting.splice(at, 1)[0]!.end()
        if (at >= 0) ended += 1
        return ended === 10
      },
      { everyMs: 1 },
    )
    await eventually(() => of('slow') === 8)
  })
})
