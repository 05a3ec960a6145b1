/** The judge of chaos runs of ordered queues finds each kind of violation that is planted, and nothing in a healthy history. */
import { describe, expect, test } from 'vitest'

interface Fact {
  kind: string
  t: number
  [field: string]: unknown
}

interface Verdict {
  checks: { what: string; among: number; found: string[] }[]
  effects: { applied: number; duplicates: number; overtaken: number }
  hand: { resumed: number; discarded: number; items: number; redriven: number }
  violations: string[]
}

// The harness is plain JavaScript, which has no types to import.
const { checkOrder } = (await import(new URL('../../chaos/checker/order.mjs', import.meta.url).href)) as {
  checkOrder(facts: readonly Fact[], options: object): Verdict
}

const limits = { inFlight: 4, inFlightPerTenant: 2, maxShare: 0.5, rate: { max: 10, per: 1_000 } }
const queueOf = (name: string, onPoison: string) => ({
  ...{ name, types: ['order.paid'] },
  options: { onPoison, retry: { attempts: 2 }, limits: { ...limits, ratePerTenant: { max: 6, per: 1_000 } } },
})
const optionsFor = (onPoison: string) => ({
  ...{ queues: [queueOf('mail', onPoison)], handQueue: 'hand', phases: ['idle', 'handler'], faultNames: ['kill -9'] },
  ...{ killName: 'kill -9', stopName: 'SIGSTOP', networkFaults: ['reply lost'], scripts: ['parked'] },
  ...{ isFull: false, leastKills: 0, leastStops: 0 },
})
const skips = optionsFor('skip')
const parks = optionsFor('park')

const ms = 1_000
const leaseMs = 1_000
const queue = 'mail'
const idOf = (n: number) => `3-${n}`
const acked = (n: number, key = 'k1', tenant = 't1'): Fact => ({
  ...{ kind: 'acked', t: n * ms, type: 'order.paid', tenant, n, key, id: idOf(n) },
})
const granted = (n: number, t: number, worker: string, attempts = 0, token = `${worker}.${n}.${t}`): Fact => ({
  ...{ kind: 'granted', t, answeredAt: t + ms, worker, busName: '-', queue, token, leaseMs, wanted: 1 },
  ...{ now: t / ms, ids: [idOf(n)], attempts: [attempts] },
})
const began = (n: number, t: number, worker: string): Fact => ({
  ...{ kind: 'began', t, worker, queue, id: idOf(n), attempt: 1, tenant: 't1', n },
})
const ended = (n: number, t: number, worker: string, how = 'done'): Fact => ({
  ...{ kind: 'ended', t, worker, queue, id: idOf(n), how },
})
const settled = (n: number, t: number, worker: string, token: string, outcome = 'ack'): Fact => ({
  ...{ kind: 'settled', t, answeredAt: t + ms, worker, queue, token, id: idOf(n), outcome, word: 'settled' },
})
const tried = (n: number, t: number, worker: string, outcome: string, attempts = 0): Fact[] => [
  granted(n, t, worker, attempts),
  began(n, t + 2 * ms, worker),
  ended(n, t + 3 * ms, worker, outcome === 'ack' ? 'done' : 'failed'),
  settled(n, t + 4 * ms, worker, `${worker}.${n}.${t}`, outcome),
]
const done = (n: number, t: number, worker = 'w1', attempts = 0) => tried(n, t, worker, 'ack', attempts)

interface Moment {
  held?: [token: string, items: [id: string, tenant: string][]][]
  line?: [tenant: string, turn: number][]
  counted?: number
}
const snapshot = (t: number, { held = [], line = [], counted }: Moment = {}): Fact => {
  const items = held.flatMap(([, some]) => some)
  const tenants = [...new Set(items.map(([, tenant]) => tenant))]
  return {
    ...{
      kind: 'snapshot',
      t,
      answeredAt: t + 100,
      queue,
      now: t,
      counted: counted ?? items.length,
      leases: held,
      line,
    },
    tenants: tenants.map((tenant) => [tenant, items.filter((one) => one[1] === tenant).length]),
  }
}
const holds = (tenant: string, first: number, count: number): [string, [string, string][]] => [
  `${tenant}.${first}`,
  Array.from({ length: count }, (_, i) => [idOf(first + i), tenant]),
]

/** w1 does 1; w2 has 2 and sleeps past its lease, w3 does it and 3, and then w2 wakes up and does 2 once more. */
function healthy(): Fact[] {
  return [
    { kind: 'clock', t: 0, offsetUs: 0 },
    ...[1, 2, 3].map((n) => acked(n)),
    ...done(1, 10 * ms),
    granted(2, 20 * ms, 'w2'),
    began(2, 22 * ms, 'w2'),
    snapshot(500 * ms, { held: [holds('t1', 2, 1)] }),
    ...done(2, 1_025 * ms, 'w3', 1),
    ...done(3, 1_040 * ms, 'w3'),
    ended(2, 2_000 * ms, 'w2'),
    { ...settled(2, 2_001 * ms, 'w2', `w2.2.${20 * ms}`), word: 'stale' },
    { kind: 'fsck', t: 3_000 * ms, findings: [] },
  ]
}

const without = (facts: readonly Fact[], kind: string, n: number) =>
  facts.filter((fact) => !(fact.kind === kind && fact.id === idOf(n)))
const findings = (facts: readonly Fact[], what: string, options: object = skips): string[] =>
  checkOrder(facts, options).checks.find((one) => one.what.includes(what))!.found

test('a healthy history has no violations: who wakes up late is refused', () => {
  const { violations, effects } = checkOrder(healthy(), skips)
  expect(violations).toEqual([])
  expect(effects).toMatchObject({ applied: 3, duplicates: 1, overtaken: 0 })
})

describe('planted', () => {
  test('an effect out of order, and one that leaves out another', () => {
    const late = [...without(healthy(), 'ended', 1), ended(1, 1_042 * ms, 'w1')]
    expect(findings(late, 'effects out of order')).toEqual([
      expect.stringMatching(/3-2 took effect \(w3\), 3-1 before it had not/),
      expect.stringMatching(/3-1 took effect \(w1\) only after 3-2/),
    ])
  })

  test('an event without an effect: never given, or acked all the same', () => {
    expect(findings([...healthy(), acked(4)], 'without an effect')).toContainEqual(
      expect.stringContaining('3-4 was acknowledged and never took effect'),
    )
    expect(findings(without(healthy(), 'ended', 3), 'without an effect')).toEqual([
      expect.stringContaining('3-3 was acknowledged, acked and never took effect'),
    ])
    expect(findings(without(healthy(), 'ended', 3), 'behind an ack')).toHaveLength(1)
  })

  test('two live leases of one object', () => {
    const early = [...without(healthy(), 'ended', 3), granted(3, 100 * ms, 'w9')]
    expect(findings(early, 'before the one before')).toContainEqual(
      expect.stringMatching(/3-3 was given to w9, but 3-2 of w2 was not over/),
    )
    const together = snapshot(600 * ms, { held: [holds('t1', 1, 2)] })
    expect(findings([...healthy(), together], 'held at once')).toEqual([expect.stringContaining('both 3-1 and 3-2')])
  })

  test('one that was to be tried again and was overtaken', () => {
    const facts = [acked(4), acked(5), ...tried(4, 3_000 * ms, 'w1', 'retry'), ...done(5, 3_010 * ms)]
    expect(findings([...healthy(), ...facts, ...done(4, 3_020 * ms, 'w1', 1)], 'before the one before')).toEqual([
      expect.stringMatching(/3-5 was given to w1, but 3-4 of w1 was not over/),
      expect.stringMatching(/3-4 was given to w1 after 3-5/),
    ])
  })

  test('a dead letter lets the next one pass; when it is redriven its effect comes too late', () => {
    const buried = [
      ...[acked(4), acked(5), ...tried(4, 3_000 * ms, 'w1', 'retry'), ...tried(4, 3_010 * ms, 'w1', 'retry', 1)],
      ...done(5, 3_020 * ms),
    ]
    const letter = { kind: 'dead', t: 4_000 * ms, queue, ids: [idOf(4)] }
    expect(checkOrder([...healthy(), ...buried, letter], skips).violations).toEqual([])
    const unseen = { kind: 'unsure', t: 3_009 * ms, worker: 'w1', queue, script: 'claim', token: 'x' }
    const early = buried.filter(({ t }) => t < 3_010 * ms || t >= 3_020 * ms)
    expect(findings([...healthy(), ...early, letter], 'before the one before')).toHaveLength(1)
    expect(findings([...healthy(), ...early, letter, unseen], 'before the one before')).toEqual([])
    const redriven = { kind: 'redriven', t: 3_100 * ms, answeredAt: 3_101 * ms, queue, ids: [idOf(4)] }
    const again = checkOrder([...healthy(), ...buried, redriven, ...done(4, 3_200 * ms)], skips)
    expect(again.violations).toEqual([])
    expect(again.effects).toMatchObject({ applied: 4, overtaken: 1 })
    expect(findings([...healthy(), ...buried], 'without an effect')).not.toEqual([])
  })

  test('an object that parks: nothing of it is given before it is resumed or discarded', () => {
    const failed = [...tried(4, 3_000 * ms, 'w1', 'retry'), ...tried(4, 3_010 * ms, 'w1', 'retry', 1)]
    const parked = [...[4, 5, 6].map((n) => acked(n)), ...failed]
    const unparked = (act: string, items: number): Fact => ({
      ...{ kind: 'unparked', t: 3_050 * ms, answeredAt: 3_051 * ms, queue, act, objects: ['t1 k1'], items },
    })
    const rest = [...done(5, 3_110 * ms), ...done(6, 3_120 * ms)]
    const resumed = [...parked, unparked('resume', 1), ...done(4, 3_100 * ms), ...rest]
    expect(checkOrder([...healthy(), ...resumed], parks).violations).toEqual([])
    expect(findings([...healthy(), ...parked, ...rest], 'before the one before', parks)).toHaveLength(1)
    const discarded = [...parked, unparked('discard', 3)]
    expect(checkOrder([...healthy(), ...discarded], parks)).toMatchObject({
      ...{ violations: [], hand: { discarded: 1, items: 3 } },
    })
    expect(findings([...healthy(), ...parked, unparked('discard', 2)], 'without an effect', parks)).toEqual([
      'mail: 3 items came to no end, 2 were given up with their objects',
    ])
  })

  test('more held than a cap allows, of a tenant or in all; counters that say something else', () => {
    const all = snapshot(600 * ms, { held: [holds('a', 11, 2), holds('b', 21, 2), holds('c', 31, 1)] })
    expect(findings([...healthy(), all], 'above a cap')).toEqual([expect.stringContaining('5 are held, 4 may be')])
    const one = snapshot(600 * ms, { held: [holds('a', 11, 3)] })
    expect(findings([...healthy(), one], 'above a cap')).toEqual([expect.stringContaining('a holds 3, 2 it may')])
    const miscounted = snapshot(600 * ms, { held: [holds('a', 11, 1)], counted: 2 })
    expect(findings([...healthy(), miscounted], 'above a cap')).toEqual([expect.stringContaining('the store counts 2')])
  })

  test('a share: given more while another waited with nothing, not what is kept or nobody waits for', () => {
    const line: Moment['line'] = [['b', 7]]
    const before = snapshot(600 * ms, { held: [holds('a', 11, 1)], line })
    // Of 1 held and 1 asked for, a may have 1.
    const more = granted(12, 610 * ms, 'w1', 0, 'a.12')
    const later = (line: Moment['line']) => snapshot(620 * ms, { held: [holds('a', 11, 1), holds('a', 12, 1)], line })
    const judged = (...facts: Fact[]) => findings([...healthy(), ...facts], 'above a share')
    expect(judged(before, more, later(line))).toEqual([expect.stringMatching(/a was given more and holds 2, 1 it may/)])
    expect(judged(before, more, later([['b', 8]]))).toEqual([])
    expect(judged(before, more, later([]))).toEqual([])
    expect(judged(before, { ...more, wanted: 3 }, later(line))).toEqual([])
    const unseen = { kind: 'unsure', t: 590 * ms, worker: 'w1', queue, script: 'claim', token: 'x' }
    expect(judged(before, more, later(line), unseen)).toEqual([])
    const kept = snapshot(620 * ms, { held: [holds('a', 11, 1)], line })
    expect(judged(before, kept)).toEqual([])
  })

  test('a rate, in all and of a tenant; a claim that is repeated gives nothing more', () => {
    const burst = (count: number, tenantOf: (i: number) => string) =>
      Array.from({ length: count }, (_, i) => [
        acked(100 + i, `k${i}`, tenantOf(i)),
        ...done(100 + i, (5_000 + i) * ms, 'w1'),
      ]).flat()
    const judged = (facts: Fact[]) => findings([...healthy(), ...facts], 'above a rate')
    expect(judged(burst(10, (i) => `t${i}`))).toEqual([])
    expect(judged(burst(11, (i) => `t${i}`))).toEqual([expect.stringContaining('more than 10 per 1000 ms')])
    expect(judged(burst(7, () => 't5'))).toEqual([expect.stringMatching(/mail t5: .* more than 6 per 1000 ms/)])
    const unseen = {
      kind: 'unsure',
      t: 4_000 * ms,
      worker: 'w1',
      queue,
      script: 'claim',
      token: `w1.106.${5_006 * ms}`,
    }
    expect(judged([...burst(7, () => 't5'), unseen])).toEqual([])
    const repeated = { ...granted(105, 5_300 * ms, 'w1'), token: `w1.105.${5_005 * ms}` }
    expect(judged([...burst(6, () => 't5'), repeated])).toEqual([])
  })

  test('what fsck found, leftovers, surprises; in a full run too few kills, pauses and faults of the network', () => {
    const facts = [
      { kind: 'fsck', t: 0, findings: ['fsck queue-order: it has no owner'] },
      { kind: 'left', t: 0, what: 'removed queues', keys: ['a'] },
      { kind: 'crashed', t: 0, worker: 'w2', code: 1 },
    ]
    expect(checkOrder([...healthy(), ...facts], skips).violations).toHaveLength(3)
    const full = checkOrder(healthy(), { ...skips, isFull: true, leastKills: 1, leastStops: 1 }).violations
    expect(full).toContainEqual('only 0 processes were killed, 1 are needed')
    expect(full).toContainEqual('only 0 processes were paused, 1 are needed')
    expect(full).toContainEqual(expect.stringContaining('parked never met a call that is "reply lost"'))
  })
})
