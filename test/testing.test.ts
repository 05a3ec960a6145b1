/** busbar/testing: a namespace of its own, a clock that the test moves, draining, and nothing left behind. */
import { mkdtempSync, readdirSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, expect, onTestFinished, test, vi } from 'vitest'
import { internals } from '../src/bus-internals.ts'
import { type TestBusOptions, testBus } from '../src/testing.ts'
import { appFolder } from './support/app.ts'
import { keysOf, plainRedis, redisUrl, take } from './support/bus.ts'
import { eventually } from './support/eventually.ts'
import { spawnNode } from './support/process.ts'
import { startRedis } from './support/redis.ts'
import { storedEvents } from './support/stored.ts'

async function open(options: TestBusOptions<Record<never, never>> = {}) {
  const bus = await testBus({ redis: redisUrl(), ...options })
  onTestFinished(() => bus.close())
  return bus
}

const minute = 60_000

describe('the clock', () => {
  test('stands still, and events have its time', async () => {
    const bus = await open()
    const start = bus.clock.now()
    const first = await bus.publish('order.placed', 1)
    await bus.advance('5m')
    const second = await bus.publish('order.paid', 2)
    expect(bus.clock.now() - start).toBe(5 * minute)
    expect((await bus.log.get(first.id))?.time).toBe(start)
    expect((await bus.log.get(second.id))?.time).toBe(start + 5 * minute)
    await expect(bus.advance('soon' as never)).rejects.toMatchObject({ code: 'PARAMETER_INVALID' })
  })

  test('timers run in due order, each after the round trips of the one before', async () => {
    const bus = await open()
    const ran: [string, number][] = []
    const start = bus.clock.now()
    const say = (name: string) => ran.push([name, bus.clock.now() - start])
    // A retry that fails twice: each attempt is a round trip, and only then is it known when the next one is due.
    const attempt = async (number: number) => {
      await bus.publish('attempt.made', number, { key: 'order:42' })
      await bus.log.history('order:42')
      say(`attempt ${number}`)
      if (number < 3) bus.clock.after(1_000 * 2 ** number, () => void attempt(number + 1))
    }
    bus.clock.after(1_000, () => void attempt(1))
    bus.clock.after(4_000, () => say('between'))
    bus.clock.after(8_000, () => say('too late'))
    bus.clock.after(10, () => say('never')).cancel()
    await bus.advance('2s')
    expect(ran).toEqual([['attempt 1', 1_000]])
    const before = performance.now()
    await Promise.all([bus.advance(1_000), bus.advance('4500ms'), bus.drain()])
    // Far from the longest time that it waits for what does not come to rest.
    expect(performance.now() - before).toBeLessThan(1_000)
    expect(ran.slice(1)).toEqual([
      ['attempt 2', 3_000],
      ['between', 4_000],
      ['attempt 3', 7_000],
    ])
    expect(bus.clock.now() - start).toBe(7_500)
  })

  test('a hint that a timer causes has arrived before the next timer', async () => {
    const bus = await open()
    const seen: unknown[] = []
    const reader = bus.live('a.b')
    await reader.ready()
    void (async () => {
      for await (const { data } of reader) seen.push(data)
    })()
    for (let i = 1; i <= 20; i += 1) {
      bus.clock.after(i * 1_000, () => void bus.publish('a.b', i))
      bus.clock.after(i * 1_000 + 1, () => seen.push(`after ${i}`))
    }
    await bus.advance('1m')
    expect(seen).toEqual(Array.from({ length: 20 }, (_, i) => [i + 1, `after ${i + 1}`]).flat())
  })

  test('retention by age', async () => {
    const bus = await open({ retention: { age: '1h' }, partitions: 2 })
    await bus.run({ signals: false })
    const old = await bus.publish('order.placed', 1, { key: 'order:1' })
    await bus.advance('59m')
    const young = await bus.publish('order.paid', 2, { key: 'order:1' })
    expect(await bus.log.get(old.id)).toBeDefined()
    await bus.advance('2m')
    expect(await bus.log.get(old.id)).toBeUndefined()
    expect(await bus.log.get(young.id)).toBeDefined()
    const before = performance.now()
    await bus.advance('300d')
    expect(await storedEvents(plainRedis(), bus.namespace)).toEqual([])
    expect(performance.now() - before).toBeLessThan(2_000)
  })
})

describe('what waits for an answer goes on in real time', () => {
  test('deadlines of publishes', async () => {
    const server = await startRedis()
    onTestFinished(() => server.stop())
    const bus = await open({ redis: server.url })
    await bus.publish('a.b', 1)
    server.pause()
    await expect(bus.publish('a.b', 2, { timeout: '200ms' })).rejects.toMatchObject({ code: 'OUTCOME_UNKNOWN' })
    server.resume()
  })

  test('lost connections, hints that were lost with them, and closing', async () => {
    const bus = await open()
    const reader = bus.live('a.b')
    await reader.ready()
    const lost = () => bus.telemetry.counts().get('redis.lost')
    for (const { redis: own } of bus[internals].connections) own.stream.destroy()
    await eventually(() => lost() === 3)
    const { id } = await bus.publish('a.b', 1)
    expect((await take(reader, 1)).map((event) => event.id)).toEqual([id])
    await bus.close()
  })
})

describe('drain', () => {
  test('waits until whoever handles events has nothing left to do, also what handling brings about', async () => {
    const bus = await open()
    await bus.drain()
    const left = { first: 1, second: 0 }
    bus[internals].handling.add({ name: 'first', isIdle: async () => left.first === 0 })
    bus[internals].handling.add({ name: 'second', isIdle: async () => left.second === 0 })
    const published = bus.publish('a.b', 1)
    let isDrained = false
    const drained = bus.drain().then(() => {
      isDrained = true
    })
    await published
    Object.assign(left, { first: 0, second: 1 })
    await bus.publish('a.b', 2)
    expect(isDrained).toBe(false)
    left.second = 0
    await drained
  })

  test('publishes are answered first', async () => {
    const bus = await open()
    let answered = 0
    for (let i = 0; i < 100; i += 1) void bus.publish('a.b', i).then(() => (answered += 1))
    await bus.drain()
    expect(answered).toBe(100)
  })

  test('says who has not finished in time', async () => {
    const bus = await open()
    bus[internals].handling.add({ name: 'search', isIdle: async () => false })
    await expect(bus.drain({ timeout: '50ms' })).rejects.toMatchObject({
      code: 'NOT_DRAINED',
      message: expect.stringContaining('within 50 ms: search had more to do'),
    })
  })
})

describe('its Redis', () => {
  test('two test buses do not meet, and close deletes the keys', async () => {
    const [one, other] = [await open(), await open()]
    await one.publish('a.b', 1)
    await one.commit('k', [['a.b', 1]], { state: { a: 1 } })
    expect([...(await other.topics())]).toEqual([])
    const redis = plainRedis()
    expect((await keysOf(redis, one.namespace)).length).toBeGreaterThan(0)
    await Promise.all([one.close(), one.close()])
    expect(await keysOf(redis, one.namespace)).toEqual([])
    expect((await keysOf(redis, other.namespace)).length).toBeGreaterThan(0)
    {
      await using third = await testBus({ redis: redisUrl() })
      await third.publish('a.b', 1)
    }
    expect((await keysOf(redis, 'test-*')).filter((key) => !key.startsWith(other.namespace))).toEqual([])
  })

  test('BUSBAR_REDIS_URL names it', async () => {
    vi.stubEnv('BUSBAR_REDIS_URL', redisUrl())
    onTestFinished(() => void vi.unstubAllEnvs())
    const bus = await testBus()
    await bus.publish('a.b', 1)
    expect((await keysOf(plainRedis(), bus.namespace)).length).toBeGreaterThan(0)
    await bus.close()
  })

  test('without one it is embedded, shared by all, and gone with the last; a refused bus keeps nothing', async () => {
    const temporary = mkdtempSync(join(tmpdir(), 'busbar-'))
    onTestFinished(() => rmSync(temporary, { recursive: true, force: true }))
    vi.stubEnv('BUSBAR_REDIS_URL', '')
    vi.stubEnv('TMPDIR', temporary)
    onTestFinished(() => void vi.unstubAllEnvs())
    const [one, other] = await Promise.all([testBus(), testBus({ partitions: 1 })])
    await Promise.all([one.publish('a.b', 1), other.publish('a.b', 1)])
    expect(readdirSync(temporary)).toHaveLength(1)
    await expect(testBus({ partitions: 0 })).rejects.toMatchObject({ code: 'SETTING_INVALID' })
    await one.close()
    await other.publish('a.b', 2)
    await other.close()
    expect(readdirSync(temporary)).toEqual([])
  })

  test('a project imports it by name, and nothing keeps the process alive', async () => {
    const text = `import { testBus } from 'busbar/testing'
const bus = await testBus()
await bus.publish('a.b', 1)
await bus.advance('1h')
await bus.drain()
console.log([...(await bus.topics())].join())
await bus.close()`
    const folder = appFolder({ 'test.mjs': text })
    const child = spawnNode(new URL(`file://${folder}/test.mjs`))
    await child.waitForLine('a,1')
    expect(await child.exited).toEqual({ code: 0, signal: null })
  })
})
