/** The judge of chaos runs of queues finds each kind of violation that is planted, and nothing in a healthy history. */
import { describe, expect, test } from 'vitest'

interface Fact {
  kind: string
  t: number
  [field: string]: unknown
}

interface Verdict {
  checks: { what: string; found: string[] }[]
  causes: Map<string, number>
  redeliveries: number[]
  violations: string[]
}

interface Fairness {
  found: string[]
  arrive(arrivals: [tenant: string, items: number][]): void
  weigh(weights: Record<string, number>): void
  claim(wanted: number, tenants: string[]): number
}

// The harness is plain JavaScript, which has no types to import.
const judge = (name: string) => import(new URL(`../../chaos/checker/${name}.mjs`, import.meta.url).href)
const { checkQueues } = (await judge('queues')) as { checkQueues(facts: readonly Fact[], options: object): Verdict }
const { createFairness } = (await judge('fairness')) as { createFairness(names: string[]): Fairness }

const options = {
  ...{ queues: [{ name: 'mail', types: ['order.paid'] }], handQueue: 'hand', phases: ['idle', 'handler'] },
  ...{ faultNames: ['kill -9', 'Redis restarted', 'out of memory'], killName: 'kill -9' },
  ...{ restartName: 'Redis restarted', memoryName: 'out of memory', redeliveryMs: 2_000, isFull: false },
  ...{ networkFaults: ['reply lost'], scripts: ['claim'], leastClaims: 0, leastKills: 0 },
}

const ms = 1_000
const leaseMs = 1_000
const queue = 'mail'
const idOf = (n: number) => `3-${100 + n}`
const acked = (n: number, t = n * ms): Fact => ({ kind: 'acked', t, type: 'order.paid', tenant: 't1', n, id: idOf(n) })
const granted = (n: number, t: number, worker: string, token = `${worker}.${n}`, attempts = 0): Fact => ({
  ...{ kind: 'granted', t, answeredAt: t + ms, worker, busName: '-', queue, token, leaseMs },
  ...{ now: t / ms, ids: [idOf(n)], attempts: [attempts] },
})
const began = (n: number, t: number, worker: string): Fact => ({
  ...{ kind: 'began', t, worker, queue, id: idOf(n), attempt: 1, tenant: 't1', n },
})
const settled = (n: number, t: number, worker: string, outcome = 'ack', token = `${worker}.${n}`): Fact => ({
  ...{ kind: 'settled', t, answeredAt: t + ms, worker, queue, token, id: idOf(n), outcome, word: 'settled' },
})
const handled = (n: number, t: number, worker = 'w1'): Fact[] => [
  granted(n, t, worker),
  began(n, t + 2 * ms, worker),
  { kind: 'ended', t: t + 3 * ms, worker, queue, id: idOf(n), how: 'done' },
  settled(n, t + 4 * ms, worker),
]
const killed = (t: number, worker: string, phase = 'handler'): Fact => ({
  ...{ kind: 'fault', t, until: t, fault: 'kill -9', worker, role: 'worker', phase, phases: [phase] },
})
const restarted = (t: number): Fact => ({
  ...{ kind: 'fault', t, until: t + 100 * ms, fault: 'Redis restarted', phases: ['idle'] },
})
const look = (t: number, entered: number, out = entered): Fact => ({
  ...{ kind: 'store', t, queue, entered, out, expired: 0, dropped: 0, discarded: 0 },
  ...{ waiting: 0, later: 0, held: 0, dead: 0 },
})

/** w1 does 1 and 2 and is killed in the middle of 3; when its lease has lapsed, w2 does it, and 4. */
function healthy(): Fact[] {
  return [
    { kind: 'clock', t: 0, offsetUs: 0 },
    ...[1, 2, 3, 4].map((n) => acked(n)),
    ...handled(1, 10 * ms),
    ...handled(2, 20 * ms),
    granted(3, 30 * ms, 'w1'),
    began(3, 32 * ms, 'w1'),
    killed(40 * ms, 'w1'),
    ...handled(3, 1_035 * ms, 'w2'),
    ...handled(4, 1_050 * ms, 'w2'),
    look(2_000 * ms, 4),
    { kind: 'fsck', t: 2_000 * ms, findings: [] },
  ]
}

const findings = (facts: readonly Fact[], what: string): string[] =>
  checkQueues(facts, options).checks.find((one) => one.what.includes(what))!.found

test('a healthy history has no violations, and what was given again a cause', () => {
  const { violations, causes, redeliveries } = checkQueues(healthy(), options)
  expect(violations).toEqual([])
  expect([...causes]).toEqual([['lapsed (kill -9)', 1]])
  expect(redeliveries).toEqual([996])
})

describe('planted', () => {
  test('an event that nobody was given, one that was given and never settled', () => {
    expect(findings([...healthy(), acked(5)], 'lost')).toEqual([expect.stringContaining('3-105 (t1 5)')])
    const unsettled = healthy().filter(({ kind, id }) => !(kind === 'settled' && id === idOf(4)))
    expect(findings(unsettled, 'lost')).toHaveLength(1)
  })

  test('dead letters, discarded and popped ones are not lost', () => {
    const more = [5, 6, 7].map((n) => acked(n))
    const ends = [
      { kind: 'dead', t: 0, queue, ids: [idOf(5)] },
      { kind: 'discarded', t: 0, queue, ids: [idOf(6)] },
      granted(7, 1_100 * ms, 'hand', ''),
    ]
    expect(findings([...healthy(), ...more, ...ends], 'lost')).toEqual([])
  })

  test('a loss in the middle, where only a tail may go with Redis', () => {
    const crash = restarted(1_500 * ms)
    expect(findings([...healthy(), acked(5, 1_400 * ms), crash], 'lost')).toEqual([])
    const middle = [acked(5, 1_400 * ms), acked(6, 1_450 * ms), ...handled(6, 1_700 * ms, 'w2'), crash]
    expect(findings([...healthy(), ...middle], 'lost')).toEqual([expect.stringContaining(idOf(5))])
  })

  test('what a pop without an answer took is not lost; no more than it asked for, and nothing that came later', () => {
    const pop = { kind: 'unsure', t: 1_450 * ms, worker: 'hand', queue, script: 'pop', token: '', wanted: 2 }
    const two = [acked(5, 1_400 * ms), acked(6, 1_410 * ms)]
    expect(findings([...healthy(), ...two, pop], 'lost')).toEqual([])
    expect(findings([...healthy(), ...two, { ...pop, wanted: 1 }], 'lost')).toEqual([expect.stringContaining(idOf(6))])
    expect(findings([...healthy(), ...two, { ...pop, script: 'claim' }], 'lost')).toHaveLength(2)
    expect(findings([...healthy(), acked(5, 1_460 * ms), pop], 'lost')).toHaveLength(1)
  })

  test('a pop without an answer, and a tail that Redis lost: the store says how many have entered', () => {
    const pop = { kind: 'unsure', t: 1_450 * ms, worker: 'hand', queue, script: 'pop', token: '', wanted: 2 }
    const before = healthy().filter(({ kind }) => kind !== 'store')
    const struck = [...before, ...[5, 6, 7].map((n) => acked(n, (1_395 + n) * ms)), restarted(1_500 * ms)]
    const wrong = (entered: number, ...more: Fact[]) =>
      findings([...struck, look(2_100 * ms, entered), ...more], 'wrong count')
    expect(wrong(4)).toEqual([])
    expect(wrong(6)).toHaveLength(1)
    expect(wrong(6, pop)).toEqual([])
    expect(wrong(4, pop)).toEqual([])
    expect(wrong(7, pop)).toHaveLength(1)
  })

  test('more that is missing than was counted as dropped, or without Redis having been full', () => {
    const full = { ...restarted(1_500 * ms), fault: 'out of memory' }
    const counted = (dropped: number) => ({ ...look(2_100 * ms, 6, 6 - dropped), dropped })
    const missing = [acked(5, 1_400 * ms), acked(6, 1_450 * ms)]
    expect(findings([...healthy(), ...missing, full, counted(2)], 'lost')).toEqual([])
    const unseen = healthy().filter(({ kind }) => kind !== 'store')
    expect(findings([...unseen, ...missing, full, counted(2)], 'wrong count')).toEqual([])
    expect(findings([...healthy(), ...missing, full, counted(1)], 'lost')).toHaveLength(1)
    expect(findings([...healthy(), ...missing, counted(2)], 'lost')).toHaveLength(2)
    const later = [acked(5, 1_400 * ms), acked(6, 1_700 * ms)]
    expect(findings([...healthy(), ...later, full, counted(2)], 'lost')).toEqual([expect.stringContaining(idOf(6))])
  })

  test('a refused event that was handled', () => {
    const refused = { kind: 'refused', t: 5, type: 'order.paid', tenant: 't1', n: 4, code: 'REDIS_OUT_OF_MEMORY' }
    expect(findings([...healthy(), refused], 'ghosts')).toEqual(['t1 4 was refused, and handled all the same'])
  })

  test('an event that entered twice, a count that does not balance, something left in a quiet moment', () => {
    expect(findings([...healthy(), look(2_001 * ms, 5)], 'wrong count')).toEqual([expect.stringContaining('5 items')])
    expect(findings([...healthy(), look(2_001 * ms, 4, 3)], 'wrong count')).toHaveLength(1)
    expect(findings([...healthy(), { ...look(2_001 * ms, 4, 3), held: 1 }], 'wrong count')).toHaveLength(1)
  })

  test('two live leases', () => {
    const early = [granted(3, 900 * ms, 'w3'), settled(3, 901 * ms, 'w3', 'back')]
    expect(findings([...healthy(), ...early], 'live leases')).toEqual([
      expect.stringMatching(/given to w3 while w1 had it for 130 ms more/),
    ])
  })

  test('a lease that was renewed and given to another all the same', () => {
    const renewed = { kind: 'renewed', t: 38 * ms, answeredAt: 39 * ms, worker: 'w1', queue, tokens: ['w1.3'], leaseMs }
    expect(findings([...healthy(), renewed], 'live leases')).toEqual([])
    expect(findings([...healthy(), { ...renewed, t: 100 * ms }], 'live leases')).toHaveLength(1)
  })

  test('an item that was given again after its ack, its burial or a pop', () => {
    const again = granted(4, 5_000 * ms, 'w3')
    expect(findings([...healthy(), again], 'live leases')).toEqual([expect.stringContaining('after its end')])
    const buried = healthy().map((fact) =>
      fact.kind === 'settled' && fact.id === idOf(4) ? { ...fact, outcome: 'dead' } : fact,
    )
    expect(findings([...buried, again], 'live leases')).toHaveLength(1)
    const redriven = { kind: 'redriven', t: 2_000 * ms, answeredAt: 2_001 * ms, queue, ids: [idOf(4)] }
    expect(findings([...buried, redriven, again], 'live leases')).toEqual([])
    const popped = [acked(5), granted(5, 1_100 * ms, 'hand', ''), granted(5, 5_000 * ms, 'w3')]
    expect(findings([...healthy(), ...popped], 'live leases')).toHaveLength(1)
    expect(findings([...healthy(), restarted(1_500 * ms), again], 'live leases')).toEqual([])
  })

  test('what its holder gave back, or a new start of its name took over, may be given at once', () => {
    const back = [acked(5), granted(5, 1_100 * ms, 'w1'), settled(5, 1_110 * ms, 'w1', 'retry')]
    expect(findings([...healthy(), ...back, ...handled(5, 1_120 * ms, 'w2')], 'live leases')).toEqual([])
    const stale = back.map((fact) => ({ ...fact, ...(fact.kind === 'settled' ? { word: 'stale' } : {}) }))
    expect(findings([...healthy(), ...stale, ...handled(5, 1_120 * ms, 'w2')], 'live leases')).toHaveLength(1)
    const named = [acked(5), { ...granted(5, 1_100 * ms, 'w1'), busName: 'n1' }, ...handled(5, 1_120 * ms, 'w2')]
    const entered = { kind: 'entered', t: 1_110 * ms, answeredAt: 1_111 * ms, worker: 'w2', queue, name: 'n1' }
    expect(findings([...healthy(), ...named, entered], 'live leases')).toEqual([])
    expect(findings([...healthy(), ...named, { ...entered, name: 'n2' }], 'live leases')).toHaveLength(1)
  })

  test('a handling without a lease, an ack without a handling', () => {
    expect(findings([...healthy(), began(4, 1_060 * ms, 'w2')], 'without a lease')).toHaveLength(1)
    expect(findings([...healthy(), began(4, 1_060 * ms, 'w9')], 'without a lease')).toHaveLength(1)
    const noEffect = healthy().filter(({ kind, id }) => !(kind === 'ended' && id === idOf(4)))
    expect(findings(noEffect, 'effects missing')).toHaveLength(1)
  })

  test('first deliveries in the wrong order; a claim that nobody saw answered explains it', () => {
    const swapped = [acked(5), acked(6), ...handled(6, 5_100 * ms, 'w2'), ...handled(5, 5_110 * ms, 'w2')]
    expect(findings([...healthy(), ...swapped], 'out of order')).toEqual([
      expect.stringMatching(/number 5 .* after number 6/),
    ])
    const unseen = { kind: 'unsure', t: 5_090 * ms, worker: 'w1', queue, script: 'claim', token: 'x' }
    expect(findings([...healthy(), ...swapped, unseen], 'out of order')).toEqual([])
  })

  test('a lapsed item that a claim left where it was', () => {
    const short = { kind: 'short', t: 1_033 * ms, worker: 'w2', queue, now: 1_033, isAll: true }
    expect(findings([...healthy(), short], 'left by a claim')).toEqual([
      expect.stringContaining('a claim of w2 left it'),
    ])
    expect(findings([...healthy(), { ...short, isAll: false }], 'left by a claim')).toEqual([])
    const unseen = healthy().map((fact) => (fact.token === 'w2.3' && fact.attempts ? { ...fact, attempts: [2] } : fact))
    expect(findings([...unseen, short], 'left by a claim')).toEqual([])
    expect(findings([...healthy(), { ...short, t: 1_029 * ms, now: 1_029 }], 'left by a claim')).toEqual([])
    // What was seen of w2's claim is its repeat: the first one had it before.
    const first = { kind: 'unsure', t: 1_032 * ms, worker: 'w2', queue, script: 'claim', token: 'w2.3', wanted: 1 }
    expect(findings([...healthy(), first, short], 'left by a claim')).toEqual([])
    expect(findings([...healthy(), { ...first, token: 'other' }, short], 'left by a claim')).toHaveLength(1)
  })

  test('a slow redelivery while someone waited for work', () => {
    const slower = healthy().map((fact) => {
      const isLater = fact.worker === 'w2' && fact.id !== idOf(4) && !String(fact.token).endsWith('4')
      const now = fact.kind === 'granted' && isLater ? { now: 2_535, answeredAt: 2_536 * ms } : {}
      return isLater ? { ...fact, t: fact.t + 1_500 * ms, ...now } : fact
    })
    expect(findings(slower, 'redeliveries above')).toEqual([])
    const waits = { kind: 'short', t: 500 * ms, worker: 'w2', queue, now: 500, isAll: true }
    expect(findings([...slower, waits], 'redeliveries above')).toEqual([expect.stringContaining('2496 ms')])
    expect(findings([...slower, waits, killed(600 * ms, 'w2')], 'redeliveries above')).toEqual([])
    expect(findings([...slower, waits, killed(20 * ms, 'w2')], 'redeliveries above')).toEqual([])
    const late = { kind: 'late', t: 1_200 * ms, until: 1_500 * ms, worker: 'w2' }
    expect(findings([...slower, waits, late], 'redeliveries above')).toEqual([])
  })

  test('what fsck found, memory that was not refused or not drained, leftovers, surprises', () => {
    const drained = {
      kind: 'drained',
      t: 0,
      refused: false,
      drained: false,
      backlog: 7,
      refusals: 0,
      unsent: 0,
      tookMs: 1,
    }
    const facts = [
      { kind: 'fsck', t: 0, findings: ['fsck turns: t1 is missing'] },
      drained,
      { kind: 'left', t: 0, what: 'removed queues', keys: ['a', 'b'] },
      { kind: 'crashed', t: 0, worker: 'w2', code: 1 },
      { kind: 'unsent', t: 0, queue: 'hand', code: 'REDIS_OUT_OF_MEMORY' },
    ]
    expect(checkQueues([...healthy(), ...facts], options).violations).toHaveLength(7)
  })

  test('in a full run: empty cells, too few claims and kills; in any: kills of the idle', () => {
    const full = checkQueues(healthy(), { ...options, isFull: true, leastClaims: 10, leastKills: 2 })
    expect(full.violations).toContainEqual(expect.stringContaining('kill -9 worker never met'))
    expect(full.violations).toContainEqual(expect.stringContaining('claim never met'))
    expect(full.violations).toContainEqual(expect.stringContaining('only 0 claims'))
    expect(full.violations).toContainEqual(expect.stringContaining('only 1 processes were killed'))
    const idle = healthy().map((fact) => (fact.kind === 'fault' ? killed(fact.t, 'w1', 'idle') : fact))
    expect(checkQueues(idle, options).violations).toEqual(['only 0 of 1 kills met work in flight'])
  })
})

describe('fairness', () => {
  const judged = (act: (fairness: Fairness) => void): string[] => {
    const fairness = createFairness(['a', 'b', 'c'])
    act(fairness)
    return fairness.found
  }
  const all = (n: number): [string, number][] => ['a', 'b', 'c'].map((name) => [name, n])

  test('turns by weight, whatever the size of the claims, are fair', () => {
    const found = judged((fairness) => {
      fairness.weigh({ a: 3, b: 2 })
      fairness.arrive(all(12))
      for (const claim of ['aa', 'ab', 'b', 'caa', 'a', 'bbc', 'aaabbc']) fairness.claim(claim.length, [...claim])
    })
    expect(found).toEqual([])
  })

  test('planted: one that is passed over, before its first turn and later', () => {
    const later = judged((fairness) => {
      fairness.arrive(all(9))
      for (const claim of ['abc', 'ab', 'a']) fairness.claim(claim.length, [...claim])
    })
    expect(later).toEqual([expect.stringMatching(/a had another turn while c .* was given 0/)])
    const first = judged((fairness) => {
      fairness.arrive([['a', 9]])
      fairness.arrive([['b', 9]])
      fairness.claim(2, ['a', 'a'])
    })
    expect(first).toContainEqual(expect.stringContaining('b was passed over by a'))
  })

  test('planted: less than its weight, more than its weight', () => {
    const less = judged((fairness) => {
      fairness.weigh({ b: 2 })
      fairness.arrive(all(9))
      fairness.claim(4, [...'abca'])
    })
    expect(less).toEqual([expect.stringMatching(/a had another turn while b \(weight 2\) was given 1/)])
    const more = judged((fairness) => {
      fairness.arrive(all(9))
      fairness.claim(5, [...'abcaa'])
    })
    expect(more).not.toEqual([])
  })

  test('planted: a tenant without a weight that gives, an empty claim while something waits', () => {
    const paused = judged((fairness) => {
      fairness.weigh({ a: 0 })
      fairness.arrive(all(9))
      fairness.claim(1, ['a'])
    })
    expect(paused).toContainEqual(expect.stringContaining('a gave what it could not'))
    const less = judged((fairness) => {
      fairness.arrive(all(1))
      fairness.claim(2, ['a'])
    })
    expect(less).toEqual([expect.stringContaining('given 1 while 2 tenants could give')])
  })
})
