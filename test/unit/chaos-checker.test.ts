/** The judge of chaos runs finds each kind of violation that is planted, and nothing in a healthy history. */
import { describe, expect, test } from 'vitest'

interface Fact {
  kind: string
  t: number
  [field: string]: unknown
}

interface Verdict {
  checks: { what: string; found: string[] }[]
  causes: Map<string, number>
  takeovers: number[]
  violations: string[]
}

// The harness is plain JavaScript, which has no types to import.
const { check } = (await import(new URL('../../chaos/checker/check.mjs', import.meta.url).href)) as {
  check(facts: readonly Fact[], options: object): Verdict
}
const phases = ['idle', 'read', 'handler', 'ended', 'commit']
const options = {
  ...{ faultNames: ['kill -9', 'Redis away 30 s'], phases, killName: 'kill -9' },
  ...{ takeoverMs: 2_000, isFull: false, leastTakeovers: 0 },
}

const ms = 1_000
const event = (n: number) => ({ partition: 3, seq: 100 + n, key: 7, n })

function handled(n: number, t: number, worker = 'w1', epoch = 10): Fact[] {
  const { partition, seq } = event(n)
  return [
    { kind: 'began', t, worker, epoch, ...event(n) },
    { kind: 'ended', t: t + ms, worker, epoch, partition, seq },
    {
      ...{ kind: 'commit', t: t + 2 * ms, answeredAt: t + 3 * ms, worker, epoch, partition, cursor: seq },
      word: 'done',
    },
  ]
}

const gained = (t: number, worker: string, epoch: number, cursor: number): Fact => ({
  ...{ kind: 'gained', t, worker, partition: 3, epoch, cursor },
})
const killed = (t: number, worker: string, phase = 'handler'): Fact => ({
  ...{ kind: 'fault', t, until: t, fault: 'kill -9', worker, phase, phases: [phase], held: [3] },
})

/** w1 handles 1 to 3 and is killed in the middle of 4; w2 takes over and goes on. */
function healthy(): Fact[] {
  return [
    ...[1, 2, 3, 4, 5].map((n): Fact => ({ kind: 'acked', t: n * ms, ...event(n) })),
    gained(0, 'w1', 10, 0),
    ...[1, 2, 3].flatMap((n) => handled(n, n * 10 * ms)),
    handled(4, 40 * ms)[0]!,
    killed(41 * ms, 'w1'),
    gained(1_000 * ms, 'w2', 20, 103),
    { kind: 'sample', t: 1_001 * ms, answeredAt: 1_002 * ms, partition: 3, owner: 'w2', epoch: 20, cursor: 103 },
    ...[4, 5].flatMap((n) => handled(n, 1_010 * ms + n * 10 * ms, 'w2', 20)),
  ]
}

const findings = (facts: readonly Fact[], what: string): string[] =>
  check(facts, options).checks.find((one) => one.what.startsWith(what))!.found

test('a healthy history has no violations, and its repeat a cause', () => {
  const { violations, causes, takeovers } = check(healthy(), options)
  expect(violations).toEqual([])
  expect([...causes]).toEqual([['kill -9', 1]])
  expect(takeovers).toEqual([1_009])
})

describe('planted', () => {
  test('an event that nobody handled', () => {
    const facts = [...healthy(), { kind: 'acked', t: 6 * ms, ...event(6) }]
    expect(findings(facts, 'lost')).toEqual([expect.stringContaining('event 3-106 (key 7, number 6)')])
  })

  test('an event that was begun and never ended', () => {
    const facts = healthy().filter(({ kind, seq }) => !(kind === 'ended' && seq === 105))
    expect(findings(facts, 'lost')).toHaveLength(1)
  })

  test('two events in the wrong order', () => {
    const swapped = healthy().map((fact) => {
      if (fact.kind !== 'began' || fact.worker !== 'w1' || (fact.n !== 2 && fact.n !== 3)) return fact
      return { ...fact, t: (fact.n === 2 ? 30 : 20) * ms }
    })
    expect(findings(swapped, 'out of order')).toEqual([expect.stringMatching(/number 2 .* after number 3/)])
  })

  test('a repeat without a cause', () => {
    const facts = [...healthy(), ...handled(5, 2_000 * ms, 'w2', 20)]
    expect(findings(facts, 'repeats')).toEqual([expect.stringContaining('event 3-105 was handled by w2')])
  })

  test("a repeat whose only fault is another worker's, or is over", () => {
    const elsewhere = [...healthy(), killed(1_500 * ms, 'w9'), ...handled(5, 2_000 * ms, 'w2', 20)]
    expect(findings(elsewhere, 'repeats')).toHaveLength(1)
    const over = healthy().map((fact) => (fact.kind === 'fault' ? { ...fact, t: 5 * ms, until: 6 * ms } : fact))
    expect(findings(over, 'repeats')).toHaveLength(1)
  })

  test('a release is a cause on record, an absent Redis too', () => {
    const lost = { kind: 'lost', t: 1_500 * ms, worker: 'w2', partition: 3, epoch: 20, why: 'released' }
    expect(findings([...healthy(), lost, ...handled(5, 2_000 * ms, 'w3', 30)], 'repeats')).toEqual([])
    const away = { kind: 'fault', t: 1_500 * ms, until: 1_600 * ms, fault: 'Redis away 30 s', phases: ['idle'] }
    expect(findings([...healthy(), away, ...handled(5, 2_000 * ms, 'w2', 20)], 'repeats')).toEqual([])
  })

  test('a commit by a stale epoch that was accepted', () => {
    const late = { kind: 'commit', t: 1_005 * ms, answeredAt: 1_006 * ms, worker: 'w1', partition: 3, epoch: 10 }
    const facts = [...healthy(), { ...late, cursor: 104, word: 'done' }]
    expect(findings(facts, 'stale commits')).toEqual([expect.stringContaining('under epoch 10 was accepted')])
    expect(findings([...healthy(), { ...late, cursor: 103, word: 'stale' }], 'stale commits')).toEqual([])
  })

  test('a commit on its way when the epoch changed is nobody’s fault', () => {
    const early = { kind: 'commit', t: 999 * ms, answeredAt: 1_006 * ms, worker: 'w1', partition: 3, epoch: 10 }
    expect(findings([...healthy(), { ...early, cursor: 103, word: 'done' }], 'stale commits')).toEqual([])
  })

  test('a cursor beyond an event that nobody had handled', () => {
    const sample = { kind: 'sample', t: 1_003 * ms, answeredAt: 1_004 * ms, partition: 3, owner: 'w2', epoch: 20 }
    expect(findings([...healthy(), { ...sample, cursor: 104 }], 'cursors')).toEqual([
      expect.stringContaining('but 3-104 was not handled yet'),
    ])
    const jumped = healthy().map((fact) =>
      fact.kind === 'gained' && fact.epoch === 20 ? gained(fact.t, 'w2', 20, 104) : fact,
    )
    expect(findings(jumped, 'cursors')).toHaveLength(1)
  })

  test('a cursor that went back', () => {
    const sample = { kind: 'sample', t: 1_500 * ms, answeredAt: 1_501 * ms, partition: 3, owner: 'w2', epoch: 20 }
    expect(findings([...healthy(), { ...sample, cursor: 102 }], 'cursors')).toEqual([
      expect.stringContaining('went back'),
    ])
  })

  test('a slow takeover', () => {
    const slower = healthy().map((fact) => (fact.worker === 'w2' ? { ...fact, t: fact.t + 1_500 * ms } : fact))
    expect(findings(slower, 'takeovers')).toEqual([expect.stringContaining('2509 ms')])
    const stopped = {
      kind: 'fault',
      t: 500 * ms,
      until: 900 * ms,
      fault: 'kill -9',
      worker: 'w2',
      phase: 'idle',
      phases: [],
    }
    expect(findings([...slower, { ...stopped, held: [] }], 'takeovers')).toEqual([])
  })

  test('a partition that moved while Redis was away, a process that ended by itself', () => {
    const facts = [
      ...healthy(),
      { kind: 'stopped', t: 0, how: 'paused', moved: 2 },
      { kind: 'crashed', t: 0, worker: 'w2' },
    ]
    expect(check(facts, options).violations).toHaveLength(2)
  })

  test('in a full run: empty cells, too few takeovers; in any: kills of the idle', () => {
    const full = check(healthy(), { ...options, isFull: true, leastTakeovers: 50 })
    // Two faults with five phases each, of which one was met.
    expect(full.violations.filter((text) => text.includes('never met'))).toHaveLength(9)
    expect(full.violations).toContainEqual(expect.stringContaining('only 1 takeovers were measured'))
    const idle = healthy().map((fact) => (fact.kind === 'fault' ? killed(fact.t, 'w1', 'idle') : fact))
    expect(check(idle, options).violations).toEqual(['only 0 of 1 kills met work in flight'])
  })
})
