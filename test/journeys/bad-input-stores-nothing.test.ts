import { Redis } from 'ioredis'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { type Bus, busbar } from '../../src/bus.ts'
import type { BusbarError } from '../../src/errors.ts'
import { type BadEvent, badEvents, badTexts, half } from '../support/bad-events.ts'
import { freshNamespace, keysOf, plainRedis, redisUrl, testBus } from '../support/bus.ts'
import { contentsOf, storedEvents } from '../support/stored.ts'

async function errorOf(promise: Promise<unknown>): Promise<BusbarError> {
  return promise.then(
    () => expect.fail('it was accepted'),
    (error) => error,
  )
}

function expectError(error: BusbarError | undefined, { code, says }: BadEvent): void {
  expect(error).toMatchObject({ name: 'BusbarError', code, retryable: false })
  expect(error!.message).toMatch(says)
  // Fit for one line of a log, whatever came in.
  expect(error!.message.length).toBeLessThan(400)
  expect(error!.message).not.toMatch(/[\p{Cc}\p{Cs}\p{Zl}\p{Zp}\p{Bidi_Control}]/u)
}

describe('every rule', () => {
  // One bus for all cases: none of them may leave a trace that the next one could see.
  let bus: Bus
  let redis: Redis
  beforeAll(() => {
    bus = busbar({ redis: redisUrl(), namespace: freshNamespace(), partitions: 1 })
    redis = new Redis(redisUrl())
  })
  afterAll(async () => {
    await bus.close()
    await redis.unlink(...(await keysOf(redis, bus.namespace)))
    redis.disconnect()
  })

  test.each(badEvents)('[P09] $name', async (bad) => {
    const { type, data, ...options } = bad.event
    const known = await bus.publish('known.topic', 0, { key: 'k' })
    const before = await contentsOf(redis, bus.namespace)
    const topics = await bus.topics()

    expectError(await errorOf(bus.publish(type, data, options)), bad)
    expect(await contentsOf(redis, bus.namespace)).toEqual(before)
    expect(await bus.topics()).toEqual(topics)

    // Others of the same tick and of the same call are not disturbed.
    const [alone, fine, all] = await Promise.all([
      errorOf(bus.publish(type, data, options)),
      bus.publish('fine.one', 1, { key: 'k' }),
      bus.publishAll([bad.event, { type: 'fine.two', data: 2, key: 'k' }]),
    ])
    expectError(alone, bad)
    expectError(all[0]!.error, bad)
    expect(fine.prev).toBe(known.seq)
    expect(all[1]).toMatchObject({ prev: fine.seq })
    const stored = await storedEvents(redis, bus.namespace)
    expect(stored.slice(-3).map((event) => event.type)).toEqual(['known.topic', 'fine.one', 'fine.two'])
    expect(await bus.topics()).toEqual(topics.set('fine', (topics.get('fine') ?? 0) + 2))
    expect([...topics.keys()].sort()).toEqual(['fine', 'known'])
  })

  const inCommit = badEvents.filter(({ event }) => !('key' in event) && !('expectPrev' in event))
  test('[P09] the same in a commit: none of it is stored', async () => {
    await bus.publish('known.topic', 0, { key: 'k' })
    const before = await contentsOf(redis, bus.namespace)
    for (const bad of inCommit) {
      const { type, data, time, trace, ...options } = bad.event
      const commit = bus.commit(
        'k',
        [
          ['fine.one', 1],
          [type, data, { time, trace } as never],
        ],
        options,
      )
      expectError(await errorOf(commit), bad)
    }
    for (const { event, ...bad } of badTexts.filter(({ event }) => 'key' in event))
      expectError(await errorOf(bus.commit(event.key!, [['fine.one', 1]])), { event, ...bad })
    expect(await contentsOf(redis, bus.namespace)).toEqual(before)
  })

  test('[P09] 100 MB of data are refused, and cost nobody else anything', async () => {
    const huge = 'x'.repeat(100_000_000)
    const [error, fine] = await Promise.all([errorOf(bus.publish('a.b', huge)), bus.publish('a.b', 1)])
    expect(error).toMatchObject({ code: 'EVENT_TOO_LARGE', details: { bytes: 100_000_002, maxBytes: 262_144 } })
    expect((await bus.log.get(fine.id))?.data).toBe(1)
  })

  test('[P09] an unusable timeout or list of events is an error with a code too', async () => {
    const before = await contentsOf(redis, bus.namespace)
    const calls = [
      () => bus.publish('a.b', 1, { timeout: 'soon' as never }),
      () => bus.publish('a.b', 1, { timeout: -1 }),
      () => bus.publishAll(null as never),
      () => bus.publishAll({ length: 1 } as never),
      () => bus.commit('k', 'ab' as never),
    ]
    for (const call of calls) expect(await errorOf(call())).toMatchObject({ code: 'EVENT_INVALID' })
    expect(await contentsOf(redis, bus.namespace)).toEqual(before)
  })
})

describe('what only looks bad', () => {
  const names = ['__proto__', 'constructor', 'toString', 'hasOwnProperty', '0', '-', '_', 'A'.repeat(200)]
  test.each(names)('[P09] the type %s is a type like any other, and its topic is listed', async (type) => {
    const bus = testBus({ partitions: 3 })
    await Promise.all([1, 2, 3].map((i) => bus.publish(type, i, { key: `${i}` })))
    await bus.publish('other.type')
    expect(await bus.topics()).toEqual(
      new Map([
        ['other', 1],
        [type, 3],
      ] as [string, number][]),
    )
    const live = bus.live(type, { since: 'beginning' })
    expect((await live.next()).value!.type).toBe(type)
  })

  test('[P09] 16 segments, 200 bytes, a tenant of 128 bytes are taken', async () => {
    const bus = testBus()
    const long = Array.from({ length: 16 }, (_, i) => 'abcdefghijkl'.slice(0, i < 9 ? 12 : 11)).join('.')
    expect(long).toHaveLength(200)
    for (const event of [
      { type: long },
      { type: 'a.b', tenant: `${'a'.repeat(121)}.~@+-_Z` },
      { type: 'a.b', tenant: '__proto__', key: '__proto__', idempotencyKey: '__proto__', trace: '__proto__' },
    ]) {
      const { id } = await bus.publish(event.type, 1, event)
      expect((await bus.log.get(id))?.toJSON()).toMatchObject({ type: event.type, tenant: event.tenant ?? 'default' })
    }
  })

  const keys = [
    ':',
    '{',
    '}',
    '{a}',
    '*',
    '|',
    '\n',
    '\0',
    '"',
    '\\',
    ' ',
    '__proto__',
    'constructor',
    '\u2028',
    '😀'.repeat(64),
    'é'.repeat(128),
    'k'.repeat(256),
  ]
  test('[P09] a key is any text: each is an object of its own, none stands in a name in Redis', async () => {
    const bus = testBus()
    for (const key of keys) {
      const options = { key, idempotencyKey: key, trace: key }
      const first = await bus.publish('a.b', key, options)
      expect(await bus.publish('a.b', key, options)).toEqual({ ...first, duplicate: true })
      const [second] = await bus.commit(key, [['a.c', key]], { state: { key } })
      expect([first.prev, second!.prev]).toEqual([null, first.seq])
      expect((await bus.log.history(key)).map((event) => [event.key, event.data])).toEqual([
        [key, key],
        [key, key],
      ])
      expect((await bus.log.get(first.id))!.trace).toBe(key)
      expect(await bus.state(key)).toEqual({ key })
    }
    const names = await keysOf(plainRedis(), bus.namespace)
    const shape =
      /^[a-z0-9_-]+:\{(namespace|\d+\.\d+)\}:(namespace|log|meta|heads|topics|states|call:[\w-]{20}|once:[0-9a-f]{40})$/
    expect(names.filter((name) => !shape.test(name))).toEqual([])
  })

  const values: [string, unknown, string][] = [
    ['undefined', undefined, 'null'],
    ['null', null, 'null'],
    ['a half surrogate pair, escaped', half, '"\\ud83d"'],
    ['toJSON', { toJSON: () => ({ a: 1 }) }, '{"a":1}'],
    ['null beside a number', [null, 1, 'null'], '[null,1,"null"]'],
    ['own property __proto__', JSON.parse('{"__proto__":{"a":null}}'), '{"__proto__":{"a":null}}'],
    ['a long list with a null', [null, ...Array(130_000).fill(0)], `[null${',0'.repeat(130_000)}]`],
    ['exactly 256 KiB', 'x'.repeat(262_142), `"${'x'.repeat(262_142)}"`],
    ['a shared part, twice', ((part) => [part, part, null])({ a: 1 }), '[{"a":1},{"a":1},null]'],
    ['the greatest number', [1.7976931348623157e308, null], '[1.7976931348623157e+308,null]'],
  ]
  test.each(values)('[P09] data: %s is taken', async (_, value, json) => {
    const bus = testBus()
    const { id } = await bus.publish('a.b', value)
    expect((await bus.log.get(id))!.json).toBe(json)
  })
})

test('[P09] what a reader asks for is checked the same way', async () => {
  const bus: Bus = testBus()
  const asked = [
    () => bus.log.history('a'.repeat(257)),
    () => bus.log.history('k', { tenant: 'a:b' }),
    () => bus.state(''),
    () => bus.state('k', { tenant: '*' }),
    () => bus.log.hold(half, 'AA'),
  ]
  for (const ask of asked) expect(await errorOf(ask())).toMatchObject({ code: expect.stringMatching(/INVALID/) })
})
