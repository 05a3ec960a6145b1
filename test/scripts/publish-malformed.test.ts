/** Everything that publish/publish.lua refuses as a whole. */
import { expect, test } from 'vitest'
import { objects, type Partition, stored, testPartition } from '../support/partition.ts'

const one = ['acme/a'] as const
const raw = (envelope: string) => [['acme/a', envelope]] as const
const call = (first: unknown, count: unknown, options: unknown) => ({
  calls: JSON.stringify([[first, count, options]]),
})
const cases: Record<string, () => Parameters<Partition['flush']>> = {
  'no event': () => [[]],
  'an object without envelope': () => [[['acme/a'] as unknown as [string, string]]],
  'an object without envelope after a whole event': () => [['acme/a', ['acme/b'] as unknown as [string, string]]],
  'more than 1,000 events': () => [objects(1_001)],
  'an envelope that is not JSON': () => [raw('hello')],
  'an envelope that begins with the tenant': () => [raw('{"tenant":"acme","type":"a.b"}\n1')],
  'an envelope without tenant': () => [raw('{"type":"a.b"}\n1')],
  'a type of other characters': () => [raw('{"type":"a b","tenant":"acme"}\n1')],
  'an empty type': () => [raw('{"type":"","tenant":"acme"}\n1')],
  'an envelope with a record separator': () => [raw('{"type":"a.b","tenant":"acme"}\n"\x1e"')],
  'an envelope with a record separator after a good one': () => [
    ['acme/a', ['acme/b', '{"type":"a.b","tenant":"acme"}\n"\x1e"']],
  ],
  'a bad envelope after a good one': () => [['acme/a', ['acme/b', '{}\n1']]],
  'a bad envelope in a call with an idempotency key': () => [
    raw('{}'),
    call(1, 1, { once: 'a', scope: 'b', body: 'c' }),
  ],
  'a bad envelope in a later call with an idempotency key': () => [
    ['acme/a', ['acme/b', '{}']],
    call(2, 1, { once: 'a', scope: 'b', body: 'c' }),
  ],
  'options that are not JSON': () => [one, { calls: '[[1,1,{' }],
  'options that are no list': () => [one, { calls: '{"once":"a"}' }],
  'options that are text': () => [one, { calls: '"once"' }],
  'no call in the options': () => [one, { calls: '[]' }],
  'a call that is no list': () => [one, { calls: '[7]' }],
  'a call without numbers': () => [one, { calls: '[["1","1",{}]]' }],
  'half an event': () => [['acme/a', 'acme/a'], call(1.5, 1, {})],
  'a call before the first event': () => [one, call(0, 1, {})],
  'a call of no event': () => [one, call(1, 0, {})],
  'a call beyond the last event': () => [one, call(1, 2, {})],
  'calls that overlap': () => [['acme/a', 'acme/a'], { calls: '[[1,2,{}],[2,1,{}]]' }],
  'calls out of order': () => [['acme/a', 'acme/b'], { calls: '[[2,1,{}],[1,1,{}]]' }],
  'a call without options': () => [one, { calls: '[[1,1]]' }],
  'an idempotency key without scope': () => [one, call(1, 1, { once: 'a', body: 'b' })],
  'an idempotency key without body': () => [one, call(1, 1, { once: 'a', scope: 'b' })],
  'expectPrev as a number': () => [one, call(1, 1, { expectPrev: 7 })],
  'expectPrev null': () => [one, call(1, 1, { expectPrev: null })],
  'a state that is not text': () => [one, call(1, 1, { state: { a: 1 } })],
  'a state without key': () => [[''], call(1, 1, { state: '1' })],
  'expectPrev without key': () => [[''], call(1, 1, { expectPrev: '' })],
}

test.each(Object.keys(cases))('%s: nothing is written, not even the number of the flush', async (name) => {
  const p = testPartition()
  const [events, wish] = cases[name]!()
  expect(await p.flush(events, { process: 'me', n: 1, ...wish })).toEqual({ kind: 'malformed' })
  expect(await p.stored()).toEqual([])
  expect(await p.flush(['acme/a'], { process: 'me', n: 1, nowUs: 100 })).toEqual(stored(100, ['']))
})
