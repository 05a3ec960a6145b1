import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { BusbarError } from '../../src/errors.ts'
import { compilePattern, createPatternTable, type MatchedTypes, type Pattern, parsePattern } from '../../src/pattern.ts'
import { createSegmentTrie } from '../../src/pattern-trie.ts'

type Case = [pattern: Pattern, tenant: string, type: string, wanted: boolean]

const longType = Array.from({ length: 16 }, () => 'seg').join('.')

const cases: Case[] = [
  // literals
  ['order.paid', 'default', 'order.paid', true],
  ['order.paid', 'acme', 'order.paid', true],
  ['order.paid', 'default', 'order.paid.twice', false],
  ['order.paid', 'default', 'order', false],
  ['order.paid', 'default', 'order.Paid', false],
  ['order.paid', 'default', 'xorder.paid', false],
  ['order.paid', 'default', 'order.paidx', false],
  ['order', 'default', 'order', true],
  ['order', 'default', 'order.paid', false],
  ['order-line_2.x', 'default', 'order-line_2.x', true],
  ['order.paid', 'default', 'order_paid', false],
  [longType, 'default', longType, true],
  [longType, 'default', `${longType}.seg`, false],
  // one segment
  ['order.*', 'default', 'order.paid', true],
  ['order.*', 'default', 'order', false],
  ['order.*', 'default', 'order.line.paid', false],
  ['order.*', 'default', 'user.paid', false],
  ['*', 'default', 'order', true],
  ['*', 'default', 'order.paid', false],
  ['*.paid', 'default', 'order.paid', true],
  ['*.paid', 'default', 'order.line.paid', false],
  ['*.paid', 'default', 'paid', false],
  ['order.*.paid', 'default', 'order.line.paid', true],
  ['order.*.paid', 'default', 'order.paid', false],
  ['order.*.paid', 'default', 'order.a.b.paid', false],
  ['*.*', 'default', 'order.paid', true],
  ['*.*', 'default', 'order', false],
  ['*.*.*', 'default', 'a.b.c', true],
  ['a.*.*.d', 'default', 'a.b.c.d', true],
  ['a.*.*.d', 'default', 'a.b.c.e', false],
  // one or more segments
  ['order.>', 'default', 'order.paid', true],
  ['order.>', 'default', 'order.line.item.paid', true],
  ['order.>', 'default', 'order', false],
  ['order.>', 'default', 'orders.paid', false],
  ['>', 'default', 'order', true],
  ['>', 'any tenant at all', longType, true],
  ['order.*.>', 'default', 'order.line.paid', true],
  ['order.*.>', 'default', 'order.line', false],
  ['*.>', 'default', 'order.paid', true],
  ['*.>', 'default', 'order', false],
  // one tenant
  ['acme:order.*', 'acme', 'order.paid', true],
  ['acme:order.*', 'default', 'order.paid', false],
  ['acme:order.*', 'acme2', 'order.paid', false],
  ['acme:order.*', 'Acme', 'order.paid', false],
  ['acme:>', 'acme', 'user.created', true],
  ['acme:>', 'other', 'user.created', false],
  ['acme:order.paid', 'acme', 'order.paid', true],
  ['default:order.paid', 'default', 'order.paid', true],
  ['a.b-c_d~e@f+g:order.paid', 'a.b-c_d~e@f+g', 'order.paid', true],
  ['order:order.paid', 'order', 'order.paid', true],
  ['order:order.paid', 'default', 'order.paid', false],
  ['__proto__:order.paid', '__proto__', 'order.paid', true],
  ['__proto__:order.paid', 'constructor', 'order.paid', false],
  // lists
  [['order.*', 'user.*'], 'default', 'order.paid', true],
  [['order.*', 'user.*'], 'default', 'user.created', true],
  [['order.*', 'user.*'], 'default', 'mail.sent', false],
  [['acme:order.*', '/^bolt:/'], 'bolt', 'mail.sent', true],
  [['acme:order.*', '/^bolt:/'], 'acme', 'mail.sent', false],
  [['order.paid', 'order.paid'], 'default', 'order.paid', true],
  // regexes, unanchored, against tenant:type
  ['/.*:email_event\\..*/', 'default', 'email_event.opened', true],
  ['/.*:email_event\\..*/', 'acme', 'email_event.link.clicked', true],
  ['/.*:email_event\\..*/', 'acme', 'email_event', false],
  ['/.*:email_event\\..*/', 'acme', 'my-email_event.opened', false],
  ['/paid/', 'default', 'order.paid', true],
  ['/paid/', 'paid-up', 'order.created', true],
  ['/paid$/', 'paid-up', 'order.created', false],
  ['/^acme:/', 'acme', 'anything', true],
  ['/^acme:/', 'big-acme', 'anything', false],
  ['/^acme-(eu|us):order\\./', 'acme-eu', 'order.paid', true],
  ['/^acme-(eu|us):order\\./', 'acme-jp', 'order.paid', false],
  ['/PAID/', 'default', 'order.paid', false],
  ['/(?i)PAID/', 'default', 'order.paid', true],
  ['/:[^.]+$/', 'default', 'order', true],
  ['/:[^.]+$/', 'default', 'order.paid', false],
  ['/a/b/', 'a/b', 'order', true],
  ['/\\d{3,}/', 'default', 'order.1234', true],
  ['/\\bline\\b/', 'default', 'order.line.paid', true],
  ['/\\bline\\b/', 'default', 'order.outline.paid', false],
  // our own topic
  ['>', 'default', 'busbar.webhook.disabled', false],
  ['*.>', 'default', 'busbar.webhook.disabled', false],
  ['*', 'default', 'busbar', false],
  ['*.webhook.disabled', 'default', 'busbar.webhook.disabled', false],
  ['acme:>', 'acme', 'busbar.webhook.disabled', false],
  ['/.*/', 'default', 'busbar.webhook.disabled', false],
  ['/webhook/', 'default', 'busbar.webhook.disabled', false],
  ['busbar.>', 'default', 'busbar.webhook.disabled', true],
  ['busbar.webhook.*', 'default', 'busbar.webhook.disabled', true],
  ['busbar.*', 'default', 'busbar.webhook.disabled', false],
  ['busbar', 'default', 'busbar', true],
  ['acme:busbar.>', 'acme', 'busbar.webhook.disabled', true],
  ['acme:busbar.>', 'default', 'busbar.webhook.disabled', false],
  ['/:busbar\\.webhook\\./', 'default', 'busbar.webhook.disabled', true],
  [['>', 'busbar.>'], 'default', 'busbar.webhook.disabled', true],
  ['>', 'default', 'busbars.x', true],
  ['>', 'busbar', 'order.paid', true],
  ['order.>', 'default', 'order.busbar', true],
]

describe('[L04] the pattern table', () => {
  test('has at least 60 cases', () => expect(cases.length).toBeGreaterThanOrEqual(60))

  test.each(cases)('[L04] %j of tenant %s, type %s: %s', (pattern, tenant, type, wanted) => {
    expect(compilePattern(pattern).matches(tenant, type)).toBe(wanted)
    const table = createPatternTable<string>()
    table.add(pattern, 'me')
    const answer = wanted ? ['me'] : []
    expect([table.match(tenant, type), table.match(tenant, type)]).toEqual([answer, answer])
  })
})

const refusals: [pattern: unknown, said: RegExp][] = [
  ['', /is empty/],
  [[], /empty list/],
  [42, /string or a list/],
  [null, /string or a list/],
  [{ length: 1, 0: 'order' }, /string or a list/],
  [['order', 7], /must be a string/],
  [[['order']], /must be a string/],
  ['order..paid', /empty segment/],
  ['.order', /empty segment/],
  ['order.', /empty segment/],
  ['acme:', /empty segment/],
  [':order', /tenant ""/],
  ['order.pa*', /whole segments only/],
  ['order.**', /whole segments only/],
  ['>>', /whole segments only/],
  ['>.order', /before its end/],
  ['order.>.paid', /before its end/],
  ['order paid', /segment "order paid"/],
  ['order.paid\n', /segment "paid\\n"/],
  ['order.\0', /segment "\\u0000"/],
  ['ordér', /segment/],
  ['order#', /segment/],
  ['a:b:order.paid', /names the tenant "a:b", which must/],
  ['*:order.paid', /leave out the tenant/],
  ['>:order.paid', /leave out the tenant/],
  ['/order', /does not end with/],
  ['/order/i', /flags go inside/],
  ['/acme:order.paid', /does not end with/],
  ['/', /does not end with/],
  ['//', /empty regex/],
  ['/(/', /missing closing \) at "\("/],
  ['/[z-a]/', /invalid character class range/],
  ['/(a)\\1/', /no back references/],
  ['/(?=order)/', /no look-around/],
  ['/(?<=order)paid/', /no look-around/],
  ['order.\ud800', /surrogate/],
  ['/\udc00/', /surrogate/],
  [`${longType}.seg`, /17 segments; the limit is 16/],
  [`${longType}.>`, /17 segments; the limit is 16/],
  ['a'.repeat(201), /201 bytes; the limit is 200/],
  [`${'t'.repeat(129)}:order`, /128 bytes/],
  ['é'.repeat(257), /514 bytes; the limit is 512/],
  ['a'.repeat(10_000), /10000 bytes; the limit is 512/],
  [`/${'a'.repeat(257)}/`, /257 bytes; the limit is 256/],
  ['/((a{1000}){1000})/', /invalid repeat count/],
  ['/((a{30}){30})/', /instructions; the limit is 500/],
  ['/\\pL{1000}/', /instructions; the limit is 500/],
  [Array.from({ length: 65 }, (_, i) => `order.n${i}`), /65 members; the limit is 64/],
]

test.each(refusals)('[L04] %j is refused, and the message says why', (pattern, said) => {
  const attempt = () => parsePattern(pattern as Pattern)
  expect(attempt).toThrow(said)
  expect(attempt).toThrow(expect.objectContaining({ code: 'PATTERN_INVALID' }))
  expect(attempt).toThrow(BusbarError)
})

test('[L04] what is exactly at a limit is accepted', () => {
  parsePattern('a'.repeat(200))
  parsePattern(`${'t'.repeat(128)}:${'a'.repeat(200)}`)
  parsePattern(`/${'a'.repeat(256)}/`)
  parsePattern(Array.from({ length: 64 }, (_, i) => `order.n${i}`))
})

test('[L04] a refused list adds nothing to the table', () => {
  const table = createPatternTable<string>()
  expect(() => table.add(['order.*', 'order..'], 'me')).toThrow(/empty segment/)
  expect(table.size).toBe(0)
  expect(table.match('default', 'order.paid')).toEqual([])
})

describe('[L04] hostile patterns take linear time', () => {
  // CPU time, because this process may have to wait for others.
  const cpuMicros = (times: number, work: () => unknown) => {
    const start = process.cpuUsage()
    for (let i = 0; i < times; i++) work()
    const { user, system } = process.cpuUsage(start)
    return user + system + 1
  }
  const lowest = (ratio: () => number) => Math.min(...Array.from({ length: 5 }, ratio))

  // The same amount of text in long and in short pieces: linear is about 1, quadratic 8, exponential never ends.
  test.each(['(x+x+)+y', '(a*)*b', '(a|aa)+$', '((((a*)*)*)*)*b', '(|a){80}x', '(?:.*a){20}z', '(a|b)*a(a|b){12}c'])(
    '[L04] /%s/',
    (source) => {
      const matcher = compilePattern(`/${source}/`)
      const short = 'xa'.repeat(2_000)
      const long = 'xa'.repeat(16_000)
      matcher.matches('default', long)
      const ratio = () =>
        cpuMicros(8, () => matcher.matches('default', long)) / cpuMicros(64, () => matcher.matches('default', short))
      expect(lowest(ratio)).toBeLessThan(4)
    },
  )

  test('[L04] refusing a huge pattern costs no more than reading it', () => {
    const refusal = (text: string) => () => expect(() => parsePattern(text)).toThrow(/limit is 512/)
    const short = refusal(`/${'(a|b)*'.repeat(50_000)}/`)
    const long = refusal(`/${'(a|b)*'.repeat(400_000)}/`)
    expect(lowest(() => cpuMicros(8, long) / cpuMicros(64, short))).toBeLessThan(4)
  })
})

test('[L04] hostile names are only names', () => {
  const names = [
    '__proto__',
    'constructor',
    'toString',
    ': { } | \n \0',
    'x'.repeat(10_000),
    '\ud800',
    '',
    '.',
    '*',
    '>',
  ]
  const table = createPatternTable<string>()
  table.add('order.>', 'orders')
  table.add('__proto__:constructor.*', 'proto')
  table.add('/^x+:/', 'long')
  for (const tenant of names) {
    for (const type of names) {
      const answer = tenant.length === 10_000 ? ['long'] : []
      expect(table.match(tenant, type)).toEqual(answer)
      expect(table.match(tenant, type)).toEqual(answer)
    }
    expect(table.match(tenant, 'order.paid')).toContain('orders')
  }
  expect(table.match('__proto__', 'constructor.valueOf')).toEqual(['proto'])
  expect(table.match('__proto__', '__proto__')).toEqual([])
})

describe('[L04] the table of many wishes', () => {
  test('[L04] gives each value once, in the order added', () => {
    const table = createPatternTable<string>()
    table.add('order.paid', 'first')
    table.add(['order.*', 'order.>', '/paid/', 'acme:>'], 'second')
    table.add('*.paid', 'third')
    table.add('>', 'first')
    expect(table.match('acme', 'order.paid')).toEqual(['first', 'second', 'third'])
    expect(table.size).toBe(4)
  })

  test('[L04] adding and removing holds at once, also for what was asked before', () => {
    const table = createPatternTable<string>()
    expect(table.match('default', 'order.paid')).toEqual([])
    const removeGlob = table.add('order.*', 'glob')
    const removeRegex = table.add('/paid/', 'regex')
    const removeEqual = table.add('/paid/', 'equal regex')
    expect(table.match('default', 'order.paid')).toEqual(['glob', 'regex', 'equal regex'])
    removeRegex()
    removeRegex()
    expect(table.match('default', 'order.paid')).toEqual(['glob', 'equal regex'])
    removeGlob()
    removeEqual()
    expect(table.match('default', 'order.paid')).toEqual([])
    expect(table.size).toBe(0)
  })

  test('[L04] remembers a bounded number of answers', () => {
    const table = createPatternTable<number>({ cacheEntries: 100 })
    table.add('order.*', 1)
    for (let i = 0; i < 1_000; i++) {
      expect(table.match(`tenant-${i % 37}`, `order.n${i}`)).toEqual([1])
      expect(table.cached).toBeLessThanOrEqual(100)
    }
    expect(table.match('default', 'order.paid')).toBe(table.match('default', 'order.paid'))
    table.add('user.*', 2)
    expect(table.cached).toBe(0)
  })

  test('[L04] the default bound is 10,000 answers, and names beyond the limits are not kept', () => {
    const table = createPatternTable<number>()
    for (let i = 0; i < 10_500; i++) table.match('default', `order.n${i}`)
    expect(table.cached).toBe(500)
    table.match('t'.repeat(129), 'order.paid')
    table.match('default', 'o'.repeat(201))
    expect(table.cached).toBe(500)
  })

  test('[L04] the trie is empty again after everything was removed', () => {
    const trie = createSegmentTrie<number>()
    const wishes: [string | undefined, string[]][] = [
      [undefined, ['>']],
      [undefined, ['a', '*', 'b']],
      [undefined, ['a', '*', '>']],
      ['acme', ['a']],
      ['acme', ['a', 'b', 'c']],
      ['__proto__', ['__proto__']],
    ]
    for (const [i, [tenant, segments]] of wishes.entries()) trie.add(tenant, segments, i)
    for (const [i, [tenant, segments]] of wishes.entries()) {
      expect(trie.isEmpty()).toBe(false)
      trie.remove(tenant, segments, i)
    }
    expect(trie.isEmpty()).toBe(true)
  })
})

/** The grammar once more, as plainly as possible and without a line of ours: every pattern becomes a JavaScript RegExp. */
function naive(pattern: Pattern, tenant: string, type: string): boolean {
  const members = typeof pattern === 'string' ? [pattern] : pattern
  return members.some((member) => {
    const isOurs = type === 'busbar' || type.startsWith('busbar.')
    if (member.startsWith('/')) {
      if (isOurs && !member.includes('busbar')) return false
      return new RegExp(member.slice(1, -1)).test(`${tenant}:${type}`)
    }
    const [wantedType, wantedTenant] = member.split(':').reverse()
    if (wantedTenant !== undefined && wantedTenant !== tenant) return false
    if (isOurs && !/^busbar(\.|$)/.test(wantedType!)) return false
    const shape = wantedType!.replaceAll('.', '\\.').replaceAll('*', '[^.]+').replace('>', '.+')
    return new RegExp(`^${shape}$`).test(type)
  })
}

const word = fc.constantFrom('a', 'b', 'order', 'paid', 'busbar', '__proto__', 'x-1')
const type = fc.array(word, { minLength: 1, maxLength: 5 }).map((segments) => segments.join('.'))
const tenant = fc.constantFrom('default', 'acme', 'a', 'order', 'busbar', '__proto__')
const globType = fc
  .tuple(fc.array(fc.oneof(word, fc.constant('*')), { maxLength: 4 }), fc.oneof(word, fc.constantFrom('*', '>')))
  .map(([front, last]) => [...front, last].join('.'))
const glob = fc
  .tuple(fc.option(tenant, { nil: undefined, freq: 2 }), globType)
  .map(([of, wanted]) => (of === undefined ? wanted : `${of}:${wanted}`))
const regexPiece = fc.oneof(word, fc.constantFrom('.*', '\\.', ':', '(a|b)', '[a-p]+', '(?:order)?', '\\w', 'a{1,3}'))
const regex = fc
  .tuple(fc.constantFrom('', '^'), fc.array(regexPiece, { minLength: 1, maxLength: 5 }), fc.constantFrom('', '$'))
  .map(([start, pieces, end]) => `/${start}${pieces.join('')}${end}/`)
const term = fc.oneof({ arbitrary: glob, weight: 3 }, { arbitrary: regex, weight: 1 })
const anyPattern: fc.Arbitrary<Pattern> = fc.oneof(term, fc.array(term, { minLength: 1, maxLength: 4 }))
const subjects = fc.array(fc.tuple(tenant, type), { minLength: 1, maxLength: 10 })

describe('[L04] three ways to the same answer', () => {
  test('[L04] the table, the single matcher and a naive reference agree', () => {
    fc.assert(
      fc.property(fc.array(anyPattern, { minLength: 1, maxLength: 8 }), subjects, (patterns, asked) => {
        const table = createPatternTable<number>({ cacheEntries: 4 })
        for (const [i, pattern] of patterns.entries()) table.add(pattern, i)
        const matchers = patterns.map(compilePattern)
        for (const [tenant, type] of [...asked, ...asked]) {
          const expected = [...patterns.keys()].filter((i) => naive(patterns[i]!, tenant, type))
          expect(table.match(tenant, type)).toEqual(expected)
          expect([...patterns.keys()].filter((i) => matchers[i]!.matches(tenant, type))).toEqual(expected)
        }
      }),
      { numRuns: 1_000 },
    )
  })

  test('[L04] a table after adds and removes equals a fresh one of what remains', () => {
    const steps = fc.array(fc.tuple(anyPattern, fc.boolean(), fc.tuple(tenant, type)), { minLength: 1, maxLength: 20 })
    fc.assert(
      fc.property(steps, (todo) => {
        const table = createPatternTable<number>()
        const standing = new Map<number, { pattern: Pattern; remove: () => void }>()
        for (const [i, [pattern, removesOldest, [tenant, type]]] of todo.entries()) {
          standing.set(i, { pattern, remove: table.add(pattern, i) })
          const oldest = [...standing.keys()][0]!
          if (removesOldest) {
            standing.get(oldest)!.remove()
            standing.delete(oldest)
          }
          const expected = [...standing].filter(([, { pattern }]) => naive(pattern, tenant, type)).map(([i]) => i)
          expect(table.match(tenant, type)).toEqual(expected)
          expect(table.size).toBe(standing.size)
        }
      }),
      { numRuns: 300 },
    )
  })

  test('[L04] any text is accepted or refused as PATTERN_INVALID, and what is accepted never throws', () => {
    const text = fc.oneof(
      fc.string({ unit: 'binary', maxLength: 40 }),
      fc.string({ maxLength: 40 }).map((s) => `/${s}/`),
    )
    fc.assert(
      fc.property(text, fc.string({ unit: 'binary' }), fc.string({ unit: 'binary' }), (pattern, tenant, type) => {
        try {
          compilePattern(pattern).matches(tenant, type)
        } catch (error) {
          expect(error).toMatchObject({ code: 'PATTERN_INVALID' })
        }
      }),
      { numRuns: 2_000 },
    )
  })
})

/** Compiles only if the two types are the same; checked by tsc, which reads the tests too. */
type Equal<A, B> = (<T>() => T extends A ? 1 : 2) extends <T>() => T extends B ? 1 : 2 ? true : false
const isTrue = <_T extends true>() => true

type Known = 'order' | 'order.paid' | 'order.line.shipped' | 'user.created'
type WithOurs = Known | 'busbar.webhook.disabled'

test('[P19] the compiler knows which types a pattern literal matches', () => {
  const list = ['order.*', 'acme:user.>'] as const
  const proofs = [
    isTrue<Equal<MatchedTypes<Known, 'order.paid'>, 'order.paid'>>(),
    isTrue<Equal<MatchedTypes<Known, 'order.*'>, 'order.paid'>>(),
    isTrue<Equal<MatchedTypes<Known, 'order.>'>, 'order.paid' | 'order.line.shipped'>>(),
    isTrue<Equal<MatchedTypes<Known, '>'>, Known>>(),
    isTrue<Equal<MatchedTypes<Known, '*'>, 'order'>>(),
    isTrue<Equal<MatchedTypes<Known, '*.*'>, 'order.paid' | 'user.created'>>(),
    isTrue<Equal<MatchedTypes<Known, '*.created'>, 'user.created'>>(),
    isTrue<Equal<MatchedTypes<Known, 'order.*.shipped'>, 'order.line.shipped'>>(),
    isTrue<Equal<MatchedTypes<Known, 'order.*.>'>, 'order.line.shipped'>>(),
    isTrue<Equal<MatchedTypes<Known, 'acme:order.*'>, 'order.paid'>>(),
    isTrue<Equal<MatchedTypes<Known, 'mail.*'>, never>>(),
    isTrue<Equal<MatchedTypes<Known, typeof list>, 'order.paid' | 'user.created'>>(),
    isTrue<Equal<MatchedTypes<Known, 'order' | 'user.*'>, 'order' | 'user.created'>>(),
    isTrue<Equal<MatchedTypes<Known, '/paid/'>, Known>>(),
    isTrue<Equal<MatchedTypes<Known, string>, Known>>(),
    isTrue<Equal<MatchedTypes<Known, string[]>, Known>>(),
    isTrue<Equal<MatchedTypes<Known, Pattern>, Known>>(),
    isTrue<Equal<MatchedTypes<Known, `order.${string}`>, Known>>(),
    isTrue<Equal<MatchedTypes<string, 'order.*'>, string>>(),
    isTrue<Equal<MatchedTypes<WithOurs, '>'>, Known>>(),
    isTrue<Equal<MatchedTypes<WithOurs, '/./'>, Known>>(),
    isTrue<Equal<MatchedTypes<WithOurs, '/busbar/'>, WithOurs>>(),
    isTrue<Equal<MatchedTypes<WithOurs, 'busbar.>'>, 'busbar.webhook.disabled'>>(),
    isTrue<Equal<MatchedTypes<WithOurs, 'acme:busbar.*.disabled'>, 'busbar.webhook.disabled'>>(),
  ]
  expect(proofs).not.toContain(false)
})
