/** Every rule that an event can break: what is wrong, which error it must be, what its message must say. */
import { rawJson } from '../../src/bus.ts'
import type { PublishAllEvent } from '../../src/bus-types.ts'
import type { ErrorCode } from '../../src/errors.ts'

export interface BadEvent {
  name: string
  event: PublishAllEvent
  code: ErrorCode
  says: RegExp
}

/** Any value may come from outside; the types are for those who use them. */
const bad = (name: string, event: object, code: ErrorCode, says: RegExp): BadEvent => ({
  name,
  event: { type: 'order.paid', ...event } as PublishAllEvent,
  code,
  says,
})

export const half = '\ud83d'
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

const types: BadEvent[] = [
  ...unusableNames.map(([name, type]) => bad(`type ${name}`, { type }, 'EVENT_INVALID', /"type" must/)),
  ...['.', 'a.', '.a', 'a..b', 'order.*', 'order.>'].map((type) =>
    bad(`type ${type}`, { type }, 'EVENT_INVALID', /"type" must be segments of A-Z a-z 0-9 _ - joined by dots/),
  ),
  bad('type of 201 bytes', { type: `a.${'b'.repeat(199)}` }, 'EVENT_INVALID', /"type" must have at most 200 bytes/),
  bad('type of 17 segments', { type: `${'a.'.repeat(16)}b` }, 'EVENT_INVALID', /"type" must have at most 16 segments/),
]

const tenants: BadEvent[] = [
  ...unusableNames
    .filter(([name]) => name !== 'missing')
    .map(([name, tenant]) => bad(`tenant ${name}`, { tenant }, 'EVENT_INVALID', /"tenant" must/)),
  bad('tenant of 129 bytes', { tenant: 'a'.repeat(129) }, 'EVENT_INVALID', /"tenant" must have 1 to 128 bytes/),
]

export const badTexts: BadEvent[] = (['key', 'idempotencyKey', 'trace'] as const).flatMap((field) => [
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

const times: BadEvent[] = [
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

const others: BadEvent[] = [
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
  ['raw that is no JSON', rawJson('{"a":'), /is not JSON: /],
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
  ['raw that is empty', rawJson(''), /is not JSON: /],
  ['raw that is two values', rawJson('1 2'), /is not JSON: /],
  ['raw 1e400', rawJson('1e400'), /Infinity/],
  ['raw -1E+0400 inside', rawJson('{"a":[-1E+0400]}'), /Infinity/],
  ['raw 400 digits', rawJson('9'.repeat(400)), /Infinity/],
  ['raw 250 digits e99', rawJson(`${'9'.repeat(250)}e99`), /Infinity/],
  ['raw with half a surrogate pair', rawJson(`"${half}"`), /surrogate/],
]

const data: BadEvent[] = [
  ...unserialisable.map(([name, value, says]) =>
    bad(
      `data ${name}`,
      { data: value },
      'DATA_UNSERIALISABLE',
      new RegExp(`"data" (cannot be written as JSON: .*)?(${says.source})`),
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

export const badEvents = [...types, ...tenants, ...badTexts, ...times, ...others, ...data]
