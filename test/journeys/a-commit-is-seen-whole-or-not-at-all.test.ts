import { describe, expect, test } from 'vitest'
import type { Bus } from '../../src/bus.ts'
import type { CommitEvent } from '../../src/bus-types.ts'
import type { BusbarError } from '../../src/errors.ts'
import type { Event } from '../../src/event.ts'
import type { Registry } from '../../src/registry.ts'
import { plainRedis, take, testBus } from '../support/bus.ts'
import { contentsOf, expectUnbrokenChains, storedEvents, tagsOf } from '../support/stored.ts'

const lines = (count: number, first = 0): CommitEvent<Registry>[] =>
  Array.from({ length: count }, (_, i) => ['order.line', first + i])

describe('commit', () => {
  test('[P04] the events lie side by side in the given order, whatever else is published', async () => {
    const bus = testBus({ partitions: 1 })
    const noise = Array.from({ length: 200 }, (_, i) => bus.publish('noise', i, { key: `n${i % 3}` }))
    const before = await bus.publish('order.opened', 0, { key: 'order:42' })
    const committed = bus.commit('order:42', [
      ['order.paid', { main: true }],
      ['order.line.shipped', 1, { time: 5 }],
      ['order.line.shipped', 2, { trace: 'req-7' }],
    ])
    const more = Array.from({ length: 200 }, (_, i) => bus.publish('noise', i, { key: 'order:42' }))
    const answers = await committed
    await Promise.all([...noise, ...more])

    expect(answers.map(({ seq }) => seq - answers[0]!.seq)).toEqual([0, 1, 2])
    expect(answers.map(({ prev }) => prev)).toEqual([before.seq, answers[0]!.seq, answers[1]!.seq])
    const read = (await Promise.all(answers.map(({ id }) => bus.log.get(id)))) as Event[]
    expect(read.map(({ type, data }) => [type, data])).toEqual([
      ['order.paid', { main: true }],
      ['order.line.shipped', 1],
      ['order.line.shipped', 2],
    ])
    expect([read[1]!.time, read[2]!.trace]).toEqual([5, 'req-7'])
    expect(new Set(read.map(({ key }) => key))).toEqual(new Set(['order:42']))
    expectUnbrokenChains(await storedEvents(plainRedis(), bus.namespace))
  })

  test('[P04] [P05] somebody who looks meanwhile sees each commit and its state whole or not at all', async () => {
    const bus = testBus({ partitions: 1 })
    const reader = testBus({ namespace: bus.namespace })
    const redis = plainRedis()
    const size = 30
    await bus.topics()
    const [tag] = await tagsOf(redis, bus.namespace)
    let round = 0
    const look = async () => {
      const [, [, events], [, state]] = (await redis
        .multi()
        .ping()
        .hget(`${bus.namespace}:{${tag}}:meta`, 'events')
        .hget(`${bus.namespace}:{${tag}}:states`, 'default/order:42')
        .exec()) as [unknown, [null, string | null], [null, string | null]]
      const rounds = state === null ? 0 : JSON.parse(state).rounds
      expect(Number(events)).toBe(rounds * size)
      const seen = await reader.state<{ rounds: number }>('order:42')
      const history = await reader.log.history('order:42', { limit: size })
      expect(history.length % size).toBe(0)
      if (history.length > 0)
        expect((Number(history[0]!.data) % size) + (Number(history.at(-1)!.data) % size)).toBe(size - 1)
      expect(Number(history.at(-1)?.data ?? -1) + 1).toBeGreaterThanOrEqual((seen?.rounds ?? 0) * size)
      return rounds !== round
    }
    let inBetween = 0
    while (round < 40) {
      round += 1
      const first = (round - 1) * size
      const committed = bus.commit('order:42', lines(size, first), { state: { rounds: round } })
      for (const early of await Promise.all([look(), look(), look()])) if (early) inBetween += 1
      await committed
    }
    // Some looks came before the commit they ran beside, so the others could have seen a part of it.
    expect(inBetween).toBeGreaterThan(0)
    expect(await reader.state('order:42')).toEqual({ rounds: 40 })
  })

  test('[P04] 1,000 events are one unit, live too', async () => {
    const bus = testBus()
    const live = bus.live('order.*')
    await live.ready()
    const answers = await bus.commit('order:42', lines(1_000))
    expect(answers).toHaveLength(1_000)
    expect(answers[999]!.seq - answers[0]!.seq).toBe(999)
    const stored = await storedEvents(plainRedis(), bus.namespace)
    expect(stored.map(({ json }) => Number(json))).toEqual(Array.from({ length: 1_000 }, (_, i) => i))
    expectUnbrokenChains(stored)
    const got = await take(live, 1_000)
    expect(got.map(({ id }) => id)).toEqual(answers.map(({ id }) => id))
    const history = await bus.log.history('order:42', { limit: 1_000 })
    expect(history.map(({ id }) => id)).toEqual(answers.map(({ id }) => id))
  })

  const tooLarge: [string, CommitEvent<Registry>[], RegExp][] = [
    ['1,001 events', lines(1_001), /1001 events.*limit is 1000 events/],
    ['over 1 MiB', Array.from({ length: 5 }, () => ['a.b', 'x'.repeat(220_000)] as const), /bytes.*1048576 bytes/],
    ['over 1 MiB of UTF-8', Array.from({ length: 5 }, () => ['a.b', '日'.repeat(80_000)] as const), /1048576 bytes/],
    ['no event', [], /"events" must be a list of at least one/],
  ]
  test.each(tooLarge)('[P04] [P09] %s: refused whole, nothing of it stored', async (_, events, message) => {
    const bus = testBus()
    await bus.publish('a.b', 1, { key: 'order:42' })
    const before = await contentsOf(plainRedis(), bus.namespace)
    await expect(bus.commit('order:42', events, { state: 1 })).rejects.toThrow(message)
    expect(await contentsOf(plainRedis(), bus.namespace)).toEqual(before)
  })

  test('[P04] just below the limits is stored', async () => {
    const bus = testBus()
    const answers = await bus.commit(
      'k',
      [...Array(4)].map(() => ['a.b', 'x'.repeat(262_000)] as const),
    )
    expect(answers).toHaveLength(4)
    expect((await bus.log.get(answers[3]!.id))!.json).toHaveLength(262_002)
  })

  test('[P04] one bad event of a commit and none of it is stored', async () => {
    const bus = testBus()
    await bus.publish('a.b', 1, { key: 'order:42' })
    const before = await contentsOf(plainRedis(), bus.namespace)
    const bad = [
      ['a.b', 1],
      ['not a type', 2],
      ['a.b', 3],
    ] as const
    await expect(bus.commit('order:42', bad, { state: 1 })).rejects.toMatchObject({ code: 'EVENT_INVALID' })
    await expect(
      bus.commit('order:42', [
        ['a.b', 1],
        ['a.b', 1n],
      ]),
    ).rejects.toMatchObject({ code: 'DATA_UNSERIALISABLE' })
    await expect(bus.commit('order:42', [['a.b', 1], null as never])).rejects.toMatchObject({ code: 'EVENT_INVALID' })
    expect(await contentsOf(plainRedis(), bus.namespace)).toEqual(before)
    expect((await bus.commit('order:42', [['a.b', 1]]))[0]!.prev).not.toBeNull()
  })
})

describe('state', () => {
  test('[P05] is readable by key, belongs to the last commit, is left alone by others and removed by null', async () => {
    const bus = testBus()
    const text = { name: 'Zoë 😀', lines: [1, 2.5, null], nested: { __proto__: { x: 1 }, 'a\nb': '' } }
    expect(await bus.state('order:42')).toBeNull()
    await bus.commit('order:42', [['order.placed', 1]], { state: text })
    expect(await bus.state('order:42')).toEqual(text)
    expect(await bus.state('order:43')).toBeNull()
    await bus.commit('order:42', [['order.paid', 2]])
    await bus.publish('order.seen', 3, { key: 'order:42' })
    expect(await bus.state('order:42')).toEqual(text)
    await bus.commit('order:42', [['order.closed', 4]], { state: 0 })
    expect(await bus.state('order:42')).toBe(0)
    await bus.commit('order:42', [['order.gone', 5]], { state: null })
    expect(await bus.state('order:42')).toBeNull()
    expect(await bus.log.history('order:42')).toHaveLength(5)
  })

  const unusable: [string, unknown][] = [
    ['over 256 KiB', 'x'.repeat(262_144)],
    ['not JSON', 1n],
    ['holding NaN', { a: [Number.NaN] }],
  ]
  test.each(unusable)('[P05] %s: neither it nor the events are stored, and the error says state', async (_, state) => {
    const bus = testBus()
    await bus.commit('order:42', [['order.placed', 1]], { state: 'before' })
    const before = await contentsOf(plainRedis(), bus.namespace)
    const error: BusbarError = await bus.commit('order:42', [['order.paid', 2]], { state }).then(
      () => expect.fail('it was stored'),
      (reason) => reason,
    )
    expect(['EVENT_TOO_LARGE', 'DATA_UNSERIALISABLE']).toContain(error.code)
    expect(error.message).toMatch(/state/)
    expect(await contentsOf(plainRedis(), bus.namespace)).toEqual(before)
  })

  test('[P05] with a refused commit neither: conflict, reused idempotency key', async () => {
    const bus = testBus()
    const [first] = await bus.commit('k', [['a.b', 1]], { state: 'before', idempotencyKey: 'one' })
    const before = await contentsOf(plainRedis(), bus.namespace)
    const conflict = bus.commit('k', [['a.b', 2]], { state: 'after', expectPrev: null })
    await expect(conflict).rejects.toMatchObject({ code: 'CONFLICT', details: { head: first!.seq } })
    const reused = bus.commit('k', [['a.b', 1]], { state: 'after', idempotencyKey: 'one' })
    await expect(reused).rejects.toMatchObject({ code: 'IDEMPOTENCY_KEY_REUSED' })
    expect(await contentsOf(plainRedis(), bus.namespace)).toEqual(before)
    expect(await bus.state('k')).toBe('before')
  })
})

describe('publishAll', () => {
  test('[P04] one answer per event in the given order; a bad one fails alone', async () => {
    const bus = testBus()
    const head = await bus.publish('order.placed', 0, { key: 'k0' })
    const once = { type: 'order.placed', data: 'once', key: 'k5', idempotencyKey: 'once' }
    await bus.publish(once.type, once.data, once)
    const answers = await bus.publishAll([
      ...Array.from({ length: 50 }, (_, i) => ({ type: 'order.placed', data: i, key: `k${i % 10}` })),
      { type: 'bad type' },
      { type: 'order.placed', data: 1n, key: 'k1' },
      { type: 'order.placed', data: 'x'.repeat(300_000), key: 'k1' },
      { type: 'order.placed', key: 'k0', expectPrev: head.seq - 1 },
      null as never,
      once,
      { ...once, data: 'other' },
      { type: 'order.placed', data: 'last' },
    ])
    const outcome = answers.map((answer) =>
      answer.error ? answer.error.code : answer.duplicate ? 'duplicate' : 'stored',
    )
    expect(outcome).toEqual([
      ...Array(50).fill('stored'),
      'EVENT_INVALID',
      'DATA_UNSERIALISABLE',
      'EVENT_TOO_LARGE',
      'CONFLICT',
      'EVENT_INVALID',
      'duplicate',
      'IDEMPOTENCY_KEY_REUSED',
      'stored',
    ])
    await expectReadBack(bus, answers.slice(0, 50), (i) => i)
    const stored = await storedEvents(plainRedis(), bus.namespace)
    expect(stored).toHaveLength(53)
    expectUnbrokenChains(stored)
  })

  async function expectReadBack(bus: Bus, answers: readonly unknown[], data: (i: number) => unknown): Promise<void> {
    const read = await Promise.all(answers.map((answer) => bus.log.get((answer as { id: string }).id)))
    expect(read.map((event) => event?.data)).toEqual(answers.map((_, i) => data(i)))
  }

  test('[P04] [P09] 1,000 are taken, 1,001 refused as a whole', async () => {
    const bus = testBus()
    const events = Array.from({ length: 1_000 }, (_, i) => ({ type: 'a.b', data: i, key: `k${i}` }))
    const answers = await bus.publishAll(events)
    await expectReadBack(bus, answers, (i) => i)
    const tooMany = bus.publishAll([...events, { type: 'a.b' }])
    await expect(tooMany).rejects.toMatchObject({
      code: 'CALL_TOO_LARGE',
      message: expect.stringContaining('1000 events'),
    })
    expect(await storedEvents(plainRedis(), bus.namespace)).toHaveLength(1_000)
  })
})
