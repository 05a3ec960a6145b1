import { describe, expect, onTestFinished, test } from 'vitest'
import type { Bus } from '../../src/bus.ts'
import type { Event } from '../../src/event.ts'
import { freshNamespace, keysOf, plainRedis, take, testBus } from '../support/bus.ts'
import { eventually } from '../support/eventually.ts'
import { startRedis } from '../support/redis.ts'
import { contentsOf, storedEvents, tagsOf } from '../support/stored.ts'

/** Does everything there is with a bus. */
async function useAll(bus: Bus, mark: string): Promise<void> {
  await bus.publish('order.placed', mark, { tenant: 'acme', key: 'order:42', idempotencyKey: 'once' })
  await bus.commit('order:42', [['order.paid', mark]], { tenant: 'acme', state: { mark } })
  await bus.publishAll([{ type: `${mark}.only`, data: mark }])
  const live = bus.live('>', { since: 'beginning' })
  await take(live, 3)
  await bus.log.hold('somebody', live.cursor)
}

describe('two namespaces on one Redis', () => {
  test('[P13] neither sees the other', async () => {
    const [one, two] = [testBus(), testBus()]
    const tails = [one.live('>'), two.live('>')] as const
    await Promise.all(tails.map((tail) => tail.ready()))
    await Promise.all([useAll(one, 'one'), useAll(two, 'two')])

    for (const [bus, mark, tail] of [
      [one, 'one', tails[0]],
      [two, 'two', tails[1]],
    ] as const) {
      const seen = await take(tail, 3)
      const read: Event[] = []
      for await (const event of bus.log.read()) read.push(event)
      const history = await bus.log.history('order:42', { tenant: 'acme' })
      for (const events of [seen, read]) expect(events.map(({ data }) => data)).toEqual([mark, mark, mark])
      expect(history.map(({ data, prev }) => [data, prev])).toEqual([
        [mark, null],
        [mark, history[0]!.seq],
      ])
      expect(await bus.state('order:42', { tenant: 'acme' })).toEqual({ mark })
      expect(await bus.topics()).toEqual(
        new Map(
          [
            ['order', 2],
            [mark, 1],
          ].sort() as [string, number][],
        ),
      )
      expect(
        await bus.publish('order.placed', mark, { tenant: 'acme', key: 'order:42', idempotencyKey: 'once' }),
      ).toMatchObject({ duplicate: true })
    }
    const foreign = (await two.log.history('order:42', { tenant: 'acme' }))[0]!.id
    expect(await one.log.get(foreign)).toBeUndefined()
  })

  test('[P13] every key and every channel carries its namespace', async () => {
    const server = await startRedis()
    onTestFinished(() => server.stop())
    const redis = plainRedis(server.url)
    const names = ['shop', 'shop-2', 'a', 's:'.slice(0, 1)]
    const channels = plainRedis(server.url)
    const heard = new Set<string>()
    channels.on('pmessage', (_pattern, channel: string) => heard.add(channel))
    await channels.psubscribe('*')
    for (const namespace of names) {
      const bus = testBus({ redis: server.url, namespace, liveChannel: true })
      await useAll(bus, namespace)
    }
    const all = await redis.keys('*')
    const owned = await Promise.all(names.map((namespace) => keysOf(redis, namespace)))
    expect(all.sort()).toEqual(owned.flat().sort())
    for (const keys of owned) expect(keys.length).toBeGreaterThan(5)
    await eventually(() => names.every((name) => heard.has(`${name}:live:acme:order.paid`)))
    const strange = [...heard].filter((channel) => !names.some((name) => channel.startsWith(`${name}:`)))
    expect(strange).toEqual([])
  })

  test.each(['', 'Shop', 'a:b', 'a*', '{a}', 'a b', '-a', 'a'.repeat(65), 'a\n'])(
    '[P13] a name that could meet another one is refused: %j',
    (namespace) => {
      expect(() => testBus({ namespace })).toThrow(/namespace must be/)
    },
  )
})

describe('the partition count', () => {
  test('[P14] is fixed: opened with another one every call is refused, saying both numbers', async () => {
    const namespace = freshNamespace()
    const first = testBus({ namespace, partitions: 4 })
    await first.publish('a.b', 1, { key: 'k' })
    const before = await contentsOf(plainRedis(), namespace)
    const other = testBus({ namespace, partitions: 5 })
    const calls = [
      () => other.publish('a.b', 2),
      () => other.publish('a.b', 2),
      () => other.commit('k', [['a.b', 2]]),
      () => other.topics(),
      () => other.log.get('0-1'),
      () => other.live('>').next(),
      () => other.run(),
    ]
    for (const call of calls) {
      const refused = { code: 'PARTITIONS_MISMATCH', retryable: false, details: { stored: 4, asked: 5 } }
      await expect(call()).rejects.toMatchObject({
        ...refused,
        message: expect.stringMatching(/has 4 partitions, but 5/),
      })
    }
    expect(await contentsOf(plainRedis(), namespace)).toEqual(before)
    // Nothing waits for an answer that cannot come.
    const from = performance.now()
    await other.close({ timeout: '20s' })
    expect(performance.now() - from).toBeLessThan(10_000)
  })

  test('[P14] not given, it is what is stored; given and equal, it is fine; of a new namespace it is 16', async () => {
    const namespace = freshNamespace()
    await testBus({ namespace, partitions: 3 }).publish('a.b', 1)
    await Promise.all(Array.from({ length: 20 }, (_, i) => testBus({ namespace }).publish('a.b', i, { key: `${i}` })))
    await testBus({ namespace, partitions: 3 }).publish('a.b', 1)
    const stored = await storedEvents(plainRedis(), namespace)
    expect(stored).toHaveLength(22)
    expect(Math.max(...stored.map(({ partition }) => partition))).toBe(2)
    const usual = testBus()
    await usual.topics()
    expect(await tagsOf(plainRedis(), usual.namespace)).toHaveLength(16)
  })

  test('[P14] many that create it at once with different counts: one wins, the others are told', async () => {
    const namespace = freshNamespace()
    const counts = [2, 3, 5, 7]
    const settled = await Promise.allSettled(
      counts.map((partitions) => testBus({ namespace, partitions }).publish('a.b', 1)),
    )
    const stored = (await tagsOf(plainRedis(), namespace)).length
    expect(settled.map(({ status }) => status === 'fulfilled')).toEqual(counts.map((count) => count === stored))
  })

  test.each([0, -1, 1.5, 257, '16', Number.NaN])('[P14] %s is no count', (partitions) => {
    expect(() => testBus({ partitions: partitions as number })).toThrow(
      /partitions must be a whole number from 1 to 256/,
    )
  })
})

test('[P28] two namespaces with other partition counts and retention in one process: each keeps its own', async () => {
  const small = testBus({ partitions: 2, retention: { events: 10 } })
  const large = testBus({ partitions: 8, retention: { events: 1_000, age: '1h' } })
  const redis = plainRedis()
  const placesOf = async (bus: Bus) => {
    const places = new Set<string>()
    for (let i = 0; i < 200; i += 1) places.add((await bus.publish('a.b', i, { key: `k${i}` })).id.split('-')[0]!)
    return places.size
  }
  expect(await Promise.all([placesOf(small), placesOf(large)])).toEqual([2, 8])
  await Promise.all([small.run(), large.run()])
  await eventually(async () => expect(await storedEvents(redis, small.namespace)).toHaveLength(20))

  // A tool without a wish of its own leaves both as they are.
  const tools = [small, large].map(({ namespace }) => testBus({ namespace }))
  await Promise.all(tools.map((tool) => tool.run()))
  await eventually(() => tools.every((tool) => tool.telemetry.counts().has('bus.started')))
  expect(await storedEvents(redis, large.namespace)).toHaveLength(200)
  const retentionOf = async (bus: Bus) =>
    JSON.parse((await redis.hget(`${bus.namespace}:{namespace}:namespace`, 'retention'))!)
  expect(await retentionOf(small)).toMatchObject({ events: 10, ageMs: 7 * 86_400_000 })
  expect(await retentionOf(large)).toMatchObject({ events: 1_000, ageMs: 3_600_000 })
})
