import { describe, expect, onTestFinished, test } from 'vitest'
import { plainRedis, take, testBus } from '../support/bus.ts'
import { startRedis } from '../support/redis.ts'
import { expectUnbrokenChains, storedEvents } from '../support/stored.ts'

async function ownRedis() {
  const server = await startRedis()
  onTestFinished(() => server.stop())
  return server
}

describe('SCRIPT FLUSH', () => {
  test('[P12] every operation succeeds by itself right after it', async () => {
    const { url } = await ownRedis()
    const bus = testBus({ redis: url })
    const redis = plainRedis(url)
    const live = bus.live('a.*')
    await live.ready()
    const { id } = await bus.publish('a.b', 0, { key: 'k' })
    const operations = [
      () => bus.publish('a.b', 1, { key: 'k' }),
      () => bus.commit('k', [['a.c', 2]], { state: { v: 2 } }),
      () => bus.publishAll([{ type: 'a.b', data: 3, key: 'other' }]),
      () => bus.log.get(id),
      () => bus.log.history('k'),
      () => bus.state('k'),
      () => bus.log.hold('reader', live.cursor),
      () => testBus({ redis: url, namespace: bus.namespace }).topics(),
    ]
    for (const operation of operations) {
      await redis.script('FLUSH')
      expect(await operation()).not.toBeNull()
    }
    expect((await take(live, 4)).map((event) => event.data)).toEqual(expect.arrayContaining([0, 1, 2, 3]))
  })

  test('[P12] under load, again and again: nothing is lost, doubled or out of order', async () => {
    const { url } = await ownRedis()
    const bus = testBus({ redis: url })
    const redis = plainRedis(url)
    const live = bus.live('load.test')
    await live.ready()
    const count = 4_000
    let flushes = 0
    let publishing = true
    const flushing = (async () => {
      while (publishing) {
        await redis.script('FLUSH', 'SYNC')
        flushes += 1
      }
    })()
    for (let from = 0; from < count; from += 500)
      await Promise.all(
        Array.from({ length: 500 }, (_, i) => bus.publish('load.test', from + i, { key: `k${(from + i) % 40}` })),
      )
    publishing = false
    await flushing
    expect(flushes).toBeGreaterThan(10)

    const stored = await storedEvents(redis, bus.namespace)
    expect(stored.map(({ json }) => Number(json)).sort((a, b) => a - b)).toEqual(
      Array.from({ length: count }, (_, i) => i),
    )
    expectUnbrokenChains(stored)
    expect(new Set((await take(live, count)).map(({ id }) => id))).toEqual(new Set(stored.map(({ id }) => id)))
  })
})

test('[P12] Redis restarted: publish, read and live go on by themselves, with what was stored', async () => {
  const server = await ownRedis()
  const bus = testBus({ redis: server.url })
  const live = bus.live('a.*')
  const first = await bus.publish('a.b', 1, { key: 'k' })
  await live.ready()
  await bus.commit('k', [['a.c', 2]], { state: 'kept' })
  expect((await live.next()).value!.data).toBe(2)

  await server.restart()
  const [third] = await Promise.all([bus.publish('a.b', 3, { key: 'k' }), bus.topics()])
  expect((await bus.log.history('k')).map((event) => event.data)).toEqual([1, 2, 3])
  expect((await bus.log.get(first.id))!.data).toBe(1)
  expect((await live.next()).value!.id).toBe(third.id)
  expect(await bus.state('k')).toBe('kept')

  await server.restart()
  // A read comes first this time.
  expect(await bus.topics()).toEqual(new Map([['a', 3]]))
  await bus.publish('a.b', 4, { key: 'k' })
  expect((await live.next()).value!.data).toBe(4)
  expectUnbrokenChains(await storedEvents(plainRedis(server.url), bus.namespace))
  expect([...bus.telemetry.counts().keys()]).toContain('redis.lost')
})
