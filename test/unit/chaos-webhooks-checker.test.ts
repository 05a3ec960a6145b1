/** The judge of chaos runs of webhooks finds each kind of violation that is planted, and nothing in a healthy history. */
import { describe, expect, test } from 'vitest'

interface Fact {
  kind: string
  t: number
  [field: string]: unknown
}

interface Verdict {
  checks: { what: string; found: string[]; note?: string }[]
  redeliveries: number[]
  violations: string[]
}

// The harness is plain JavaScript, which has no types to import.
const { checkWebhooks } = (await import(new URL('../../chaos/checker/webhooks.mjs', import.meta.url).href)) as {
  checkWebhooks(facts: readonly Fact[], options: object): Verdict
}

const options = {
  hooks: [
    { name: 'erp', types: ['order.paid'], parallel: 1 },
    { name: 'wide', types: ['user.joined'], parallel: 2 },
    { name: 'hand', types: ['order.sent'], parallel: 1, isByHand: true },
  ],
  sequenceOf: (object: string, parallel: number) => object.length % parallel,
  ...{
    phases: ['idle', 'seal', 'lease', 'send', 'answered'],
    faultNames: ['kill -9', 'blocked loop', 'Redis restarted'],
  },
  ...{ killName: 'kill -9', leaseMs: 1_000, redeliveryMs: 2_000, isFull: false, leastKills: 0 },
  ...{ networkFaults: ['reply lost'], scripts: ['hook claim'] },
}

const ms = 1_000
const idOf = (n: number) => `3-${100 + n}`
const acked = (n: number, type = 'order.paid', key = 'k0'): Fact => ({
  ...{ kind: 'acked', t: n * ms, type, tenant: 't1', n, key, id: idOf(n) },
})

interface Sent {
  hook?: string
  batch?: string
  hash?: string
  how?: string
  port?: number
  tookMs?: number
}

/** A request with these events, from its arrival to its end. Without `how` it is never answered. */
function sent(
  t: number,
  numbers: number[],
  { hook = 'erp', batch, hash, how = '204', port = 1, tookMs = 5 }: Sent = {},
) {
  const request = `${hook}.${t}`
  const name = batch ?? `b${numbers.join('.')}`
  const facts: Fact[] = [
    { kind: 'got', t, request, port, hook, batch: name, hash: hash ?? `h${name}`, ids: numbers.map(idOf) },
    { kind: 'answered', t: t + tookMs * ms, request, how },
    { kind: 'closed', t: t + tookMs * ms + ms, request },
  ]
  return facts
}

const dialled = (worker: string, port: number): Fact => ({ kind: 'dialled', t: 0, worker, port })
const killed = (t: number, worker: string, phase = 'send'): Fact => ({
  ...{ kind: 'fault', t, until: t, fault: 'kill -9', worker, role: 'worker', phase, phases: [phase] },
})
const leased = (t: number, worker: string, id: string, hook = 'erp'): Fact => ({
  ...{ kind: 'leased', t, answeredAt: t + ms, worker, token: `${worker}.${id}.${t}`, leaseMs: 1_000 },
  batches: [{ id, hook, sequence: '0' }],
})
const settled = (t: number, worker: string, id: string, grantedAt: number, outcome = 'ack'): Fact => ({
  ...{
    kind: 'settled',
    t,
    answeredAt: t + ms,
    worker,
    token: `${worker}.${id}.${grantedAt}`,
    id,
    outcome,
    word: 'settled',
  },
})
const store = (t: number, hook: string, entered: number, counts: object = {}): Fact => ({
  ...{ kind: 'store', t, hook, part: 'p', entered, delivered: entered, dead: 0, dropped: 0, backlog: 0, ...counts },
})

const joined = (worker: string, t = 0): Fact => ({ kind: 'joined', t, worker, role: 'worker' })
const people = [dialled('w1', 1), dialled('w2', 2), joined('w1'), joined('w2')]
const healthy: Fact[] = [
  ...people,
  ...[acked(1), acked(2), acked(3), acked(4, 'user.joined'), acked(5, 'user.joined', 'k10'), acked(6, 'order.sent')],
  ...sent(100 * ms, [1, 2]),
  ...sent(200 * ms, [3], { how: '500' }),
  ...sent(300 * ms, [3]),
  // Two sequences may be under way at once, and overtake each other.
  ...sent(100 * ms, [5], { hook: 'wide', tookMs: 50 }),
  ...sent(120 * ms, [4], { hook: 'wide', tookMs: 50 }),
  { kind: 'letters', t: 900 * ms, hook: 'hand', ids: [idOf(6)] },
  ...[store(900 * ms, 'erp', 3), store(900 * ms, 'wide', 2), store(900 * ms, 'hand', 1, { delivered: 0, dead: 1 })],
  { kind: 'fsck', t: 900 * ms, part: 'p', findings: [] },
  { kind: 'left', t: 950 * ms, what: 'removed webhooks', keys: [] },
]

const judged = (facts: readonly Fact[], more: object = {}) => checkWebhooks(facts, { ...options, ...more })
const withFacts = (...facts: Fact[]) => judged([...healthy, ...facts]).violations
const without = (unwanted: (fact: Fact) => boolean, ...facts: Fact[]) =>
  judged([...healthy.filter((fact) => !unwanted(fact)), ...facts]).violations
const ofRequest = (request: string) => (fact: Fact) => fact.request === request

test('a healthy history has no violation', () => {
  const { checks, violations } = judged(healthy)
  expect(violations).toEqual([])
  expect(checks.find(({ what }) => what === 'lost')?.note).toBe('1 are dead letters, 0 were given up')
})

describe('what is planted is found:', () => {
  test('an event that never arrived, or only where it was not taken', () => {
    expect(without(ofRequest('erp.300000'))).toEqual(['erp: event 3-103 never arrived'])
    expect(without(({ kind }) => kind === 'letters')).toEqual(['hand: event 3-106 never arrived'])
  })

  test('one that was given up by hand is not lost; of another webhook it is', () => {
    const discarded = { kind: 'discarded', t: 1, ids: [idOf(6), idOf(3)] }
    expect(without(({ kind }) => kind === 'letters', discarded)).toEqual([])
    expect(without(ofRequest('erp.300000'), discarded)).toEqual(['erp: event 3-103 never arrived'])
  })

  test('an event that nobody published', () => {
    expect(withFacts(...sent(400 * ms, [9]))).toContain('erp: event 3-109 arrived but was never acknowledged')
  })

  test('a body that changed, and an event in two batches', () => {
    const after = { how: '500', batch: 'b9', hash: 'first' }
    const changed = [...sent(400 * ms, [7], after), ...sent(500 * ms, [7], { batch: 'b9', hash: 'second' })]
    expect(withFacts(acked(7), ...changed, store(950 * ms, 'erp', 4))).toContain(
      'erp: batch b9 was sent with another body',
    )
    expect(withFacts(...sent(400 * ms, [3], { batch: 'other' }))).toEqual([
      'erp: event 3-103 is in the batches b3 and other',
    ])
  })

  test('events out of order: of a partition, with several sequences of an object', () => {
    const late = [acked(7), acked(8), ...sent(400 * ms, [8]), ...sent(450 * ms, [7])]
    expect(without(({ kind }) => kind === 'store', ...late)).toEqual(['erp: event 3-107 arrived after 3-108'])
    const wide = { hook: 'wide' }
    const swapped = [
      acked(7, 'user.joined'),
      acked(8, 'user.joined'),
      ...sent(400 * ms, [8], wide),
      ...sent(450 * ms, [7], wide),
    ]
    expect(without(({ kind }) => kind === 'store', ...swapped)).toEqual(['wide: event 3-107 arrived after 3-108'])
  })

  test('two requests of a sequence at once, unless the sender of the first was struck', () => {
    const facts = [acked(7), acked(8), ...sent(400 * ms, [7], { tookMs: 50 }), ...sent(420 * ms, [8], { port: 2 })]
    const stores = ({ kind }: Fact) => kind === 'store'
    expect(without(stores, ...facts)).toEqual(['erp: b8 was sent while b7 was under way'])
    expect(without(stores, ...facts, killed(410 * ms, 'w2'))).toEqual(['erp: b8 was sent while b7 was under way'])
    expect(without(stores, ...facts, killed(410 * ms, 'w1'))).toEqual([])
  })

  test('a batch that was sent again although it was taken, unless its sender could not tell', () => {
    const again = sent(400 * ms, [3], { port: 2 })
    expect(withFacts(...again)).toEqual(['erp: batch b3 was sent again although it was taken'])
    expect(withFacts(...again, killed(350 * ms, 'w2'))).toEqual(['erp: batch b3 was sent again although it was taken'])
    expect(withFacts(...again, killed(350 * ms, 'w1'))).toEqual([])
    const lost = {
      kind: 'network',
      t: 310 * ms,
      until: 310 * ms,
      fault: 'reply lost',
      script: 'hook claim',
      worker: 'w1',
    }
    expect(withFacts(...again, lost)).toEqual([])
    // Who was blocked between its claim and its request did not notice that its lease had lapsed.
    expect(withFacts(...again, { ...killed(380 * ms, 'w2'), fault: 'blocked loop', until: 390 * ms })).toEqual([])
  })

  test('a batch of the killed that is given again too late', () => {
    const held = [leased(400 * ms, 'w1', 'b7'), killed(500 * ms, 'w1')]
    const tooLate = 'erp: batch b7 of w1 was given again only after 2001 ms'
    expect(withFacts(...held, leased(2_500 * ms, 'w2', 'b7'))).toEqual([tooLate])
    expect(withFacts(...held)).toHaveLength(1)
    const inTime = judged([...healthy, ...held, leased(1_500 * ms, 'w2', 'b7')])
    expect([inTime.violations, inTime.redeliveries]).toEqual([[], [1_001]])
    expect(withFacts(...held, settled(450 * ms, 'w1', 'b7', 400 * ms))).toEqual([])
    // Nobody was left who could have had it in time.
    expect(withFacts(...held, killed(600 * ms, 'w2'), leased(2_500 * ms, 'w3', 'b7'))).toEqual([])
  })

  test('counts that do not balance', () => {
    expect(withFacts(store(950 * ms, 'erp', 4))).toEqual(['erp: 4 events have entered, 3 match'])
    expect(withFacts(store(950 * ms, 'erp', 3, { backlog: 1 }))).toEqual(['erp: 1 events wait in a quiet moment'])
    expect(withFacts(store(950 * ms, 'erp', 3, { delivered: 2 }))).toEqual([
      'erp: 3 events have entered, 2 are accounted for',
    ])
    expect(withFacts(store(950 * ms, 'hand', 1, { delivered: 0 }))).toHaveLength(1)
  })

  test('findings of fsck, keys that are left, and what should not have happened', () => {
    expect(withFacts({ kind: 'fsck', t: 1, part: 'p', findings: ['fsck x: y'] })).toEqual(['fsck x: y'])
    expect(withFacts({ kind: 'left', t: 1, what: 'removed webhooks', keys: ['a'] })).toEqual([
      'removed webhooks: a is left',
    ])
    expect(withFacts({ kind: 'stalled', t: 1, what: 'nothing', tookMs: 9_000 })).toEqual(['nothing: not within 9 s'])
    expect(withFacts({ kind: 'stuck', t: 1, worker: 'w1', said: 'shard 3' })).toEqual(['w1 was stuck: shard 3'])
    expect(withFacts({ kind: 'surprise', t: 1, code: 'X' })).toEqual(['by hand: X'])
    expect(withFacts({ kind: 'crashed', t: 1, worker: 'w1', code: 1 })).toEqual(['w1 ended by itself with exit 1'])
  })

  test('too few kills in a phase, and a call that the network never met, of a full run', () => {
    const { violations } = judged(healthy, { isFull: true, leastKills: 1 })
    expect(violations).toContain('only 0 kills met a dispatcher in phase "answered", 1 are needed')
    expect(violations).toContain('hook claim never met a call that is "reply lost"')
  })
})
