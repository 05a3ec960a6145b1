/** What a webhook can be told, and what is said of what it cannot. */
import { describe, expect, test } from 'vitest'
import { BusbarError } from '../../src/errors.ts'
import { checkWebhook, checkWebhookName, type WebhookOptions } from '../../src/sinks/webhook/options.ts'

const base = { url: 'https://a.example/h', match: '>' } as const
const secret = `whsec_${Buffer.alloc(32, 1).toString('base64')}`

const check = (options: object) => checkWebhook({ ...base, ...options } as WebhookOptions)

function errorOf(make: () => unknown): { code: string; problems: string[] } {
  try {
    make()
  } catch (error) {
    if (error instanceof BusbarError) return { code: error.code, problems: (error.details.problems as string[]) ?? [] }
    throw error
  }
  return { code: 'none', problems: [] }
}

const problemsOf = (options: object): string[] => errorOf(() => check(options)).problems

test('what is not said is what suits most', () => {
  expect(check({})).toEqual({
    ...{ match: '>', from: 'now', force: false },
    settings: {
      ...{ url: 'https://a.example/h', format: 'busbar', maxEvents: 100, maxWaitMs: 500, maxBytes: 256_000 },
      ...{ backoffMs: [1_000, 300_000], giveUpAfterMs: 3 * 86_400_000, maxAttempts: 0, parallel: 1, headers: {} },
      ...{ timeoutMs: 20_000, disableAfterMs: 5 * 86_400_000, keepEvents: 100_000 },
    },
  })
})

test('what is said is kept, in ms and bytes', () => {
  const options = {
    ...{
      from: 'beginning',
      force: true,
      format: 'routemaster',
      parallel: 8,
      headers: { 'X-A': 'b' },
      secret,
      basic: 'me',
    },
    ...{ timeout: '3s', disableAfter: '1d', keep: 5_000, retry: { backoff: 'ladder', giveUpAfter: '2h', attempts: 7 } },
    batch: { maxEvents: 10, maxWait: 0, maxBytes: '1MiB' },
  }
  expect(check(options)).toEqual({
    ...{ match: '>', from: 'beginning', force: true },
    settings: {
      ...{ url: base.url, format: 'routemaster', maxEvents: 10, maxWaitMs: 0, maxBytes: 1_048_576, parallel: 8 },
      ...{
        backoffMs: 'ladder',
        giveUpAfterMs: 7_200_000,
        maxAttempts: 7,
        headers: { 'x-a': 'b' },
        secret,
        basic: 'me',
      },
      ...{ timeoutMs: 3_000, disableAfterMs: 86_400_000, keepEvents: 5_000 },
    },
  })
})

test('everything that is wrong is said at once', () => {
  const { code, problems } = errorOf(() =>
    check({
      ...{ url: 1, match: undefined, from: 'soon', force: 'yes', format: 'xml', parallel: 0, basic: 'a:b', urll: 'x' },
      ...{ timeout: '1ms', disableAfter: 'never', keep: 0, headers: {} },
      retry: { backoff: ['5m', '1s'], giveUpAfter: '500d', attempts: 0, backof: 1 },
      batch: { maxEvents: 0, maxWait: '2h', maxBytes: '1GiB', maxEvent: 1 },
    }),
  )
  expect(code).toBe('SETTING_INVALID')
  const about = [
    ...['urll is unknown', 'batch.maxEvent is unknown', 'retry.backof is unknown'],
    ...['url must be', 'match must be', 'from must be', 'force must be', 'format must be', 'basic must be'],
    ...[
      'batch.maxEvents must be',
      'parallel must be',
      'batch.maxWait must be',
      'batch.maxBytes must be',
      'retry.backoff must be',
    ],
    ...['retry.giveUpAfter must be', 'retry.attempts must be', 'timeout must be'],
    ...['disableAfter must be', 'keep must be'],
  ]
  expect(problems.map((problem) => about.find((start) => problem.startsWith(start)))).toEqual(about)
})

describe('limits', () => {
  const ofBatch = (batch: object) => ({ batch })
  const ofRetry = (retry: object) => ({ retry })
  const limits: [what: string, fits: object[], not: object[]][] = [
    [
      'batch.maxEvents',
      [1, 1_000].map((maxEvents) => ofBatch({ maxEvents })),
      [0, 1_001, 1.5, '5', null, Number.NaN].map((maxEvents) => ofBatch({ maxEvents })),
    ],
    [
      'batch.maxWait',
      [0, '1h', 3_600_000].map((maxWait) => ofBatch({ maxWait })),
      [-1, '61m', 'x', null].map((maxWait) => ofBatch({ maxWait })),
    ],
    [
      'batch.maxBytes',
      [1_024, '1KiB', '1MiB', 1_048_576].map((maxBytes) => ofBatch({ maxBytes })),
      [1_023, '1kB', 1_048_577, 'x', null].map((maxBytes) => ofBatch({ maxBytes })),
    ],
    [
      'retry.giveUpAfter',
      [1, '366d'].map((giveUpAfter) => ofRetry({ giveUpAfter })),
      [0, '367d'].map((giveUpAfter) => ofRetry({ giveUpAfter })),
    ],
    [
      'retry.attempts',
      [1, 1_000_000].map((attempts) => ofRetry({ attempts })),
      [0, 1_000_001, 2.5, null].map((attempts) => ofRetry({ attempts })),
    ],
    [
      'retry.backoff',
      [
        ['1s', '1s'],
        [1, '366d'],
      ].map((backoff) => ofRetry({ backoff })),
      [[0, 1], ['1s'], '1s', ['2s', '1s'], [1, '367d'], 7].map((backoff) => ofRetry({ backoff })),
    ],
    ['parallel', [1, 64].map((parallel) => ({ parallel })), [0, 65, 1.5, '2', null].map((parallel) => ({ parallel }))],
    ['timeout', ['100ms', '2m'].map((timeout) => ({ timeout })), ['99ms', '121s', 'x'].map((timeout) => ({ timeout }))],
    [
      'disableAfter',
      [1, '366d'].map((disableAfter) => ({ disableAfter })),
      [0, '367d'].map((disableAfter) => ({ disableAfter })),
    ],
    ['keep', [100, 10_000_000].map((keep) => ({ keep })), [0, 10_000_001, '9', 1.5].map((keep) => ({ keep }))],
    [
      'from',
      ['now', 'beginning', 0, new Date()].map((from) => ({ from })),
      ['x', -1, new Date('x'), Number.NaN].map((from) => ({ from })),
    ],
    [
      'format',
      ['busbar', 'cloudevents-batch', 'routemaster'].map((format) => ({ format })),
      ['x', '', null, 1].map((format) => ({ format })),
    ],
    [
      'basic',
      ['u', 'x'.repeat(200), '550e8400-e29b'].map((basic) => ({ basic })),
      ['', 'a:b', 'x'.repeat(201), 'a b', 'é', 'a\n', 1].map((basic) => ({ basic })),
    ],
  ]
  test.each(limits)('%s', (what, fits, not) => {
    for (const options of fits) expect(problemsOf(options), JSON.stringify(options)).toEqual([])
    for (const options of not)
      expect(problemsOf(options), JSON.stringify(options)).toContainEqual(expect.stringMatching(`^${what}\\b`))
  })

  test.each(['batch', 'retry'])('%s is a group', (group) => {
    for (const value of [1, 'x', null, []])
      expect(problemsOf({ [group]: value })).toContainEqual(expect.stringMatching(`^${group} must be an object`))
  })

  test('keep has room for a full batch of each sequence: they would be dropped as soon as they are sealed', () => {
    expect(problemsOf({ keep: 99 })).toEqual(['keep must be a whole number from 100 to 10000000; got 99'])
    expect(problemsOf({ keep: 0 })).toHaveLength(1)
    expect(problemsOf({ keep: 9, batch: { maxEvents: 9 } })).toEqual([])
    expect(problemsOf({ keep: 26, batch: { maxEvents: 9 }, parallel: 3 })).toEqual([
      expect.stringContaining('from 27 to'),
    ])
    expect(problemsOf({ keep: 27, batch: { maxEvents: 9 }, parallel: 3 })).toEqual([])
    expect(problemsOf({ batch: { maxEvents: 1_000 }, parallel: 64 })).toEqual([])
  })

  test('a size that is too small hears of the least that fits', () => {
    expect(problemsOf({ batch: { maxBytes: '1kB' } })).toEqual(['batch.maxBytes must be from 1KiB to 1MiB; got "1kB"'])
    expect(problemsOf({ batch: { maxBytes: '1KiB' } })).toEqual([])
  })

  test('the ladder needs sequences side by side', () => {
    expect(problemsOf({ retry: { backoff: 'ladder' } })).toEqual([expect.stringContaining('it needs parallel')])
    expect(problemsOf({ retry: { backoff: 'ladder' }, parallel: 2 })).toEqual([])
  })
})

test.each([
  ['headers', { headers: { Host: 'x' } }, 'WEBHOOK_HEADERS_INVALID'],
  ['headers beside basic', { headers: { Authorization: 'x' }, basic: 'me' }, 'WEBHOOK_HEADERS_INVALID'],
  ['a secret', { secret: 'short' }, 'PARAMETER_INVALID'],
  ['a pattern', { match: 'a..b' }, 'PATTERN_INVALID'],
])('%s that cannot be used has an error of its own', (_, options, code) => {
  expect(errorOf(() => check(options)).code).toBe(code)
})

test('no message shows a secret', () => {
  for (const options of [{ secret: 'hush-hush' }, { basic: 'hush hush' }, { headers: { a: 'hush\nhush' } }]) {
    expect(() => check(options)).toThrow(BusbarError)
    expect(() => check(options)).not.toThrow(/hush/)
  }
})

describe('a name', () => {
  test.each(['a', '0', 'acme-erp_2', 'x'.repeat(64)])('%s', (name) => {
    expect(checkWebhookName(name)).toBe(name)
  })

  test.each(['', '-a', '_a', 'A', 'a b', 'a:b', 'a.b', 'a\n', 'é', 'x'.repeat(65), 1, null, undefined])(
    'not %j',
    (name) => {
      expect(errorOf(() => checkWebhookName(name))).toMatchObject({ code: 'SETTING_INVALID', problems: { length: 1 } })
    },
  )
})
