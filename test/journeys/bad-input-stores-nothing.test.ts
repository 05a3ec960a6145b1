import { Redis } from 'ioredis'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { type Bus, busbar, type PublishAllEvent, rawJson } from '../../src/bus.ts'
import type { BusbarError, ErrorCode } from '../../src/errors.ts'
import { freshNamespace, keysOf, plainRedis, redisUrl, testBus } from '../support/bus.ts'
import { contentsOf, storedEvents } from '../support/stored.ts'

interface Case {
  name: string
  event: PublishAllEvent
  code: ErrorCode
  says: RegExp
}

/** Any value may come from outside; the types are for those who use them. */
const bad = (name: string, event: object, code: ErrorCode, says: RegExp): Case => ({
  name,
  event: { type: 'order.paid', ...event } as PublishAllEvent,
  code,
  says,
})

const half = '\ud83d'
const nested = (depth: number) => {
  let value: unknown = 1
  for (let i = 0; i < depth; i += 1) value = [value]
  return value
}
const cycle: Record<string, unknown> = {}
cycle.self = { deeper: [cycle] }

const unusableNames: [string, unknown][] = [
  ['missing', undefined],
  ['null', null],
  ['a number', 5],
  ['an object', { toString: () => 'order.paid' }],
  ['a list', ['order.paid']],
  ['empty', ''],
  ...[':', '{', '}', '*', '|', '\n', '\0', ' ', '"', '\\', '/', '>', '%', '\u007f', '\u202e'].map(
    (sign): [string, string] => [`with ${JSON.stringify(sign)}`, `order${sign}paid`],
  ),
  ['ending in a line break', 'order.paid\n'],
  ['beyond ASCII', 'bestellung.bezählt'],
  ['half a surrogate pair', `order.${half}`],
  ['10 kB', 'a'.repeat(10_000)],
  ['a 10 kB of signs', '{*}\n'.repeat(2_500)],
]

const types: Case[] = [
  ...unusableNames.map(([name, type]) => bad(`type ${name}`, { type }, 'EVENT_INVALID', /"type" must/)),
  ...['.', 'a.', '.a', 'a..b', 'order.*', 'order.>'].map((type) =>
    bad(`type ${type}`, { type }, 'EVENT_INVALID', /"type" must be segments of A-Z a-z 0-9 _ - joined by dots/),
  ),
  bad('type of 201 bytes', { type: `a.${'b'.repeat(199)}` }, 'EVENT_INVALID', /"type" must have at most 200 bytes/),
  bad('type of 17 segments', { type: `${'a.'.repeat(16)}b` }, 'EVENT_INVALID', /"type" must have at most 16 segments/),
]

const tenants: Case[] = [
  ...unusableNames
    .filter(([name]) => name !== 'missing')
    .map(([name, tenant]) => bad(`tenant ${name}`, { tenant }, 'EVENT_INVALID', /"tenant" must/)),
  bad('tenant of 129 bytes', { tenant: 'a'.repeat(129) }, 'EVENT_INVALID', /"tenant" must have 1 to 128 bytes/),
]

const texts: Case[] = (['key', 'idempotencyKey', 'trace'] as const).flatMap((field) => [
  ...([5, {}, [], true, ''] as unknown[]).map((value) =>
    bad(`${field} ${JSON.stringify(value)}`, { [field]: value }, 'EVENT_INVALID', new RegExp(`"${field}" must`)),
  ),
  ...['a'.repeat(257), 'é'.repeat(129), '😀'.repeat(65), `x${'😀'.repeat(65)}`, 'a'.repeat(10_000)].map((value) =>
    bad(
      `${field} of ${Buffer.byteLength(value)} bytes`,
      { [field]: value },
      'EVENT_INVALID',
      new RegExp(`"${field}" must have 1 to 256 bytes`),
    ),
  ),
  bad(`${field} with half a surrogate pair`, { [field]: `a${half}b` }, 'EVENT_INVALID', /surrogate/),
])

const times: Case[] = [
  -1,
  1.5,
  Number.NaN,
  Number.POSITIVE_INFINITY,
  8.64e15 + 1,
  JSON.parse('1e400'),
  '2024-01-01',
  true,
  {},
  new Date('x'),
].map((time) => bad(`time ${String(time)}`, { time }, 'EVENT_INVALID', /"time" must be .* from 0 to 8640000000000000/))

const others: Case[] = [
  ...[1.5, -1, 0, Number.NaN, '5', {}].map((expectPrev) =>
    bad(`expectPrev ${expectPrev}`, { key: 'k', expectPrev }, 'EVENT_INVALID', /"expectPrev" must be the seq/),
  ),
  bad('expectPrev without key', { expectPrev: null }, 'EVENT_INVALID', /"expectPrev" needs a key/),
]

const throwing = () => {
  throw new TypeError('not this one\nsecond line')
}
const onlyOnce = () => {
  let reads = 0
  return {
    get a() {
      return reads++ === 0 ? null : throwing()
    },
  }
}

const unserialisable: [string, unknown, RegExp][] = [
  ['BigInt', 1n, /BigInt/],
  ['BigInt inside', { a: [{ b: 2n }] }, /BigInt/],
  ['cycle', cycle, /circular/],
  ['function', () => 1, /a function/],
  ['symbol', Symbol('s'), /a symbol/],
  ['NaN', Number.NaN, /NaN/],
  ['Infinity inside', { a: [1, { b: Number.POSITIVE_INFINITY }] }, /Infinity/],
  ['-Infinity in a long list', [...Array(130_000).fill(0), Number.NEGATIVE_INFINITY], /Infinity/],
  ['1e400', JSON.parse('[1e400]'), /Infinity/],
  ['toJSON throws', { a: { toJSON: throwing } }, /not this one\./],
  [
    'getter throws',
    {
      get a() {
        return throwing()
      },
    },
    /not this one\./,
  ],
  ['getter throws the second time', onlyOnce(), /not this one\./],
  [
    'throws what is no error',
    {
      get a() {
        throw 'text'
      },
    },
    /text/,
  ],
  ['nested 20,000 deep', nested(20_000), /stack/],
  ['raw that is no JSON', rawJson('{"a":'), /not JSON text/],
  ['raw that is no text', rawJson(5 as never), /not JSON text|a object/],
  [
    'a 10 kB complaint',
    {
      toJSON: () => {
        throw new Error('no'.repeat(5_000))
      },
    },
    /no/,
  ],
  ['raw that is empty', rawJson(''), /not JSON text/],
  ['raw that is two values', rawJson('1 2'), /not JSON text/],
  ['raw 1e400', rawJson('1e400'), /Infinity/],
  ['raw -1E+0400 inside', rawJson('{"a":[-1E+0400]}'), /Infinity/],
  ['raw 400 digits', rawJson('9'.repeat(400)), /Infinity/],
  ['raw 250 digits e99', rawJson(`${'9'.repeat(250)}e99`), /Infinity/],
  ['raw with half a surrogate pair', rawJson(`"${half}"`), /surrogate/],
]

const data: Case[] = [
  ...unserialisable.map(([name, value, says]) =>
    bad(
      `data ${name}`,
      { data: value },
      'DATA_UNSERIALISABLE',
      new RegExp(`"data" cannot be written as JSON: .*${says.source}`),
    ),
  ),
  ...[
    ['text', 'x'.repeat(262_143)],
    ['Unicode', '日'.repeat(87_381)],
    ['many nulls', Array(200_000).fill(null)],
    ['raw', rawJson(`[${' '.repeat(262_143)}]`)],
  ].map(([name, value]) =>
    bad(`data over 256 KiB of ${name}`, { data: value }, 'EVENT_TOO_LARGE', /"data" is \d+ bytes; the limit is 262144/),
  ),
]

const cases = [...types, ...tenants, ...texts, ...times, ...others, ...data]

async function errorOf(promise: Promise<unknown>): Promise<BusbarError> {
  return promise.then(
    () => expect.fail('it was accepted'),
    (error) => error,
  )
}

function expectError(error: BusbarError | undefined, { code, says }: Case): void {
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

  test.each(cases)('[P09] $name', async (bad) => {
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

  const inCommit = cases.filter(({ event }) => !('key' in event) && !('expectPrev' in event))
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
    for (const { event, ...bad } of texts.filter(({ event }) => 'key' in event))
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
