/** The checker of an operations run finds what is planted for it, and nothing in a sound history. */
import { expect, test } from 'vitest'
// @ts-expect-error plain JavaScript, as all of chaos/
import { checkOperations } from '../../chaos/checker/operations.mjs'

type Fact = Record<string, unknown> & { kind: string }

const options = {
  queues: [
    { name: 'all', types: ['a'], options: { track: true } },
    { name: 'failures', types: ['a'], options: { track: 'failures' } },
  ],
  ...{ handQueue: 'hand', faultNames: [], phases: [], networkFaults: [], scripts: [], killName: 'kill -9' },
  ...{ isFull: false, leastKills: 0 },
}

const total = (succeeded: number, failed: number) => ({ succeeded, failed, cancelled: 0 })
const sound = (): Fact[] => [
  { kind: 'acked', t: 1, type: 'a', id: '0-1' },
  { kind: 'acked', t: 2, type: 'a', id: '0-2' },
  { kind: 'dead', t: 9, queue: 'all', ids: ['0-2'] },
  { kind: 'dead', t: 9, queue: 'failures', ids: ['0-2'] },
  { kind: 'running', t: 5, queue: 'all', now: 1_000, operations: [['0-1', 2_000]] },
  { kind: 'asked', t: 3, queue: 'all', id: '0-1', status: 'OPERATION_NOT_FOUND' },
  { kind: 'asked', t: 4, queue: 'all', id: '0-1', status: 'queued' },
  { kind: 'asked', t: 5, queue: 'all', id: '0-1', status: 'succeeded' },
  { kind: 'asked', t: 6, queue: 'all', id: '0-1', status: 'away' },
  { kind: 'asked', t: 6, queue: 'failures', id: '0-1', status: 'running' },
  { kind: 'asked', t: 7, queue: 'failures', id: '0-1', status: 'OPERATION_NOT_FOUND' },
  {
    ...{ kind: 'operations', t: 9, queue: 'all', track: true, total: total(1, 1), indexed: 2 },
    records: [
      ['0-1', 'succeeded', 1],
      ['0-2', 'failed', 5],
    ],
  },
  {
    kind: 'operations',
    t: 9,
    queue: 'failures',
    track: 'failures',
    total: total(1, 1),
    indexed: 1,
    records: [['0-2', 'failed', 5]],
  },
]

const found = (facts: Fact[]): string[] => checkOperations(facts, options).violations
const changed = (kind: string, queue: string, change: object): Fact[] =>
  sound().map((fact) => (fact.kind === kind && fact.queue === queue ? { ...fact, ...change } : fact))

test('nothing in a sound history', () => {
  expect(found(sound())).toEqual([])
})

test.each<[what: string, facts: Fact[], finding: RegExp]>([
  [
    'an end that is not its item’s',
    changed('operations', 'all', {
      records: [
        ['0-1', 'failed', 1],
        ['0-2', 'failed', 5],
      ],
    }),
    /its item is done, its operation failed/,
  ],
  ['no operation at all', changed('operations', 'all', { records: [['0-2', 'failed', 5]] }), /there is no operation/],
  [
    'one that never ended',
    changed('operations', 'all', {
      records: [
        ['0-1', 'running', 1],
        ['0-2', 'failed', 5],
      ],
    }),
    /its operation running/,
  ],
  [
    'an end without an attempt',
    changed('operations', 'all', {
      records: [
        ['0-1', 'succeeded', 0],
        ['0-2', 'failed', 5],
      ],
    }),
    /without an attempt/,
  ],
  ['an end that was counted twice', changed('operations', 'all', { total: total(2, 1) }), /counted 2 succeeded/],
  ['an end that was not counted', changed('operations', 'failures', { total: total(0, 1) }), /counted 0 succeeded/],
  ['one that is in no index', changed('operations', 'all', { indexed: 1 }), /2 records, but 1 in the indexes/],
  ['one that runs under no lease', changed('running', 'all', { operations: [['0-1', 0]] }), /under no lease/],
  [
    'one that runs long after its lease',
    changed('running', 'all', { now: 9_000 }),
    /7000 ms after its lease had lapsed/,
  ],
  [
    'an end that is undone',
    [...sound(), { kind: 'asked', t: 8, queue: 'all', id: '0-1', status: 'running' }],
    /was succeeded, then running/,
  ],
  [
    'one that is unknown again',
    [
      ...sound().filter(({ t }) => t !== 5),
      { kind: 'asked', t: 8, queue: 'all', id: '0-1', status: 'OPERATION_NOT_FOUND' },
    ],
    /then unknown/,
  ],
  ['what fsck found', [...sound(), { kind: 'fsck', t: 8, findings: ['fsck operations: x'] }], /fsck operations/],
])('%s', (_, facts, finding) => {
  expect(found(facts)).toContainEqual(expect.stringMatching(finding))
})
