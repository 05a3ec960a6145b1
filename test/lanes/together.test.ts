/** Acts that go in one call do what they do one after the other. */
import fc from 'fast-check'
import { expect, test } from 'vitest'
import {
  type Act,
  acceptAct,
  type Claim,
  claimAct,
  type Outcome,
  runLone,
  settleAct,
  workScript,
} from '../../src/lanes/acts.ts'
import { readItem, routedItem } from '../../src/lanes/item.ts'
import { runScript } from '../../src/redis/script.ts'
import { type Definition, definition } from './steps.ts'
import { storedIn, type TestStore, testStore } from './store.ts'

const lane = fc.constantFrom('a', 'b', 'c')
const outcome = fc.constantFrom<Outcome>(
  { kind: 'ack' },
  { kind: 'ack' },
  { kind: 'back' },
  { kind: 'retry', afterMs: 0, reason: 'busy' },
  { kind: 'retry', afterMs: 50, reason: 'busy' },
  { kind: 'throttle', forMs: 50 },
)
const settle = fc.record({ do: fc.constant('settle' as const), last: fc.nat(6), outcome })
const accept = fc.record({
  do: fc.constant('accept' as const),
  partition: fc.nat(1),
  lanes: fc.array(lane, { minLength: 1, maxLength: 5 }),
})
const claim = fc.record({ do: fc.constant('claim' as const), n: fc.nat(4), idle: fc.boolean() })
const calls = fc.array(
  fc.record({
    ms: fc.constantFrom(0, 10, 60),
    settles: fc.array(settle, { maxLength: 2 }),
    accepts: fc.array(accept, { maxLength: 2 }),
    claims: fc.array(claim, { maxLength: 2 }),
  }),
  { minLength: 3, maxLength: 12 },
)
type Asked = typeof calls extends fc.Arbitrary<(infer One)[]> ? One : never

const comes = (...lanes: ('a' | 'b' | 'c')[]): Asked['accepts'][number] => ({ do: 'accept', partition: 0, lanes })

/** Turns what is asked into acts, the same for the same answers before. */
class Asking {
  #seq = 0
  #tokens = 0
  #held: { token: string; id: string }[] = []
  #token = new Map<Act<unknown>, string>()

  acts({ settles, accepts, claims }: Asked): Act<unknown>[] {
    return [
      ...settles.map(({ last, outcome }) => {
        const said = this.#held.splice(-last, last)
        return settleAct(said.map((held) => ({ ...held, outcome })))
      }),
      ...accepts.map(({ partition, lanes }) => {
        const first = this.#seq + 1
        const items = lanes.map((name) => {
          this.#seq += 1
          const key = this.#seq % 3 === 0 ? '' : 'k'
          return { lane: name, item: routedItem(`${partition}-${this.#seq}`, this.#seq, name, '', '{}\n{}', key) }
        })
        return acceptAct({ revision: 1, born: 1, partition, first, last: this.#seq, items })
      }),
      ...claims.map(({ n, idle }) => {
        this.#tokens += 1
        const token = `t${this.#tokens}`
        const act = claimAct({ token, n, leaseMs: 100, worker: 'w', start: 's', ...(idle ? { idleName: 'x' } : {}) })
        this.#token.set(act, token)
        return act
      }),
    ]
  }

  hear(act: Act<unknown>, reply: { kind: string; items?: unknown }): void {
    const token = this.#token.get(act)
    if (token === undefined || reply.kind !== 'claimed') return
    for (const text of reply.items as string[]) this.#held.push({ token, id: readItem(text).id })
  }
}

async function answers(store: TestStore, nowMs: number, calls: readonly (readonly Act<unknown>[])[]) {
  const found: unknown[] = []
  for (const acts of calls) {
    const input = { keys: store.keys, nowMs, acts }
    const lone = await runLone(store.redis, input)
    const replies = Array.isArray(lone) ? lone : await runScript(store.redis, workScript, input)
    for (const [i, act] of acts.entries()) found.push(act.read(replies[i] as never))
  }
  return found
}

/** A count that is 0 again may be written or not, numbers of turns may be left out, and a lane that was empty for an instant goes on counting. */
async function leftIn(store: TestStore) {
  const {
    store: { turn: _, ...fields },
    records,
    ...rest
  } = await storedIn(store)
  const lanes = Object.fromEntries(Object.entries(records).map(([name, { left: _left, ...record }]) => [name, record]))
  return { ...rest, lanes, store: Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== '0')) }
}

/** What came last drops what waited, and lies behind one that is held: its lane has nothing to give until that one comes back, behind the lane b. */
const emptiedForAnInstant: [Asked[], Definition] = [
  [
    { ms: 0, settles: [], accepts: [comes('a')], claims: [] },
    { ms: 0, settles: [], accepts: [], claims: [{ do: 'claim', n: 1, idle: false }] },
    { ms: 60, settles: [], accepts: [comes('a', 'a', 'a', 'a')], claims: [] },
    { ms: 0, settles: [], accepts: [comes('a')], claims: [] },
    { ms: 60, settles: [], accepts: [comes('a'), comes('b')], claims: [{ do: 'claim', n: 0, idle: false }] },
  ],
  { way: { ordered: true, parks: false }, limits: { maxShare: 0.2, backlog: 4, overflow: 'drop-oldest' } },
]

test('settlements, events and claims in one call answer and leave what they do one by one', async () => {
  await fc.assert(
    fc.asyncProperty(calls, definition, async (asked, { way, limits: { ratePerTenant: _, ...limits } }) => {
      // A lane that is empty for an instant is due, alone, for its rate to be forgotten.
      const [together, alone] = [await testStore({ ...way, limits }), await testStore({ ...way, limits })]
      const asking = new Asking()
      let nowMs = 1_000_000
      for (const one of asked) {
        nowMs += one.ms
        const acts = asking.acts(one)
        if (acts.length === 0) continue
        const replies = await answers(together, nowMs, [acts])
        const oneByOne = acts.map((act) => [act])
        expect(replies).toEqual(await answers(alone, nowMs, oneByOne))
        for (const [i, act] of acts.entries()) asking.hear(act, replies[i] as { kind: string })
        expect(await leftIn(together)).toEqual(await leftIn(alone))
      }
    }),
    // The same every time.
    { numRuns: 100, seed: 7, examples: [emptiedForAnInstant] },
  )
}, 60_000)

const oneEvent = (seq: number, name: string, { revision = 1, born = 1 } = {}) =>
  acceptAct({
    ...{ revision, born, partition: 0, first: seq, last: seq },
    items: [{ lane: name, item: routedItem(`0-${seq}`, seq, name, '', '{}\n{}') }],
  })
const oneClaim = (token: string, said: Partial<Claim> = {}) =>
  claimAct({ token, n: 1, leaseMs: 100, worker: 'w', start: 's', idleName: 'x', ...said })
const settled = (token: string, id: string, outcome: Outcome) => settleAct([{ token, id, outcome }])

type Prepared = [what: string, prepare: (store: TestStore) => Promise<unknown>, said?: Partial<Claim>]
const does = (store: TestStore, ...acts: Act<unknown>[]) => answers(store, 1_000_000, [acts])
const began = (store: TestStore) => does(store, oneEvent(1, 'a'), oneClaim('before'))

/** One was claimed before, and this became of it. */
const became = (outcome: Outcome) => async (store: TestStore) => {
  await began(store)
  return does(store, settled('before', '0-1', outcome))
}

/** The short way is only for a store in which nothing else is to be done. */
const states: Prepared[] = [
  ['nothing was there before', async () => undefined],
  ['more is asked for than there is', async () => undefined, { n: 5 }],
  ['nothing is asked for', async () => undefined, { n: 0 }],
  ['nobody waits', async () => undefined, { idleName: '' }],
  ['it takes for good', async () => undefined, { token: undefined }],
  ['another one is held', began],
  ['another one was done', became({ kind: 'ack' })],
  ['one waits in its lane', (store) => does(store, oneEvent(1, 'a'))],
  ['one waits in another lane', (store) => does(store, oneEvent(1, 'b'))],
  ['one was put back', became({ kind: 'back' })],
  ['one is for later, and due', became({ kind: 'retry', afterMs: 5, reason: 'busy' })],
  ['one is for later, and not due', became({ kind: 'retry', afterMs: 5_000, reason: 'busy' })],
  [
    'one of another lane is due',
    async (store) => {
      await does(store, oneEvent(1, 'b'), oneClaim('before'))
      return does(store, settled('before', '0-1', { kind: 'retry', afterMs: 5, reason: 'busy' }))
    },
  ],
  ['its lane has to wait', became({ kind: 'throttle', forMs: 5_000 })],
  ['a dead letter is in its lane', became({ kind: 'dead', reason: 'x' })],
  ['a lease has lapsed', (store) => does(store, oneEvent(1, 'a'), oneClaim('before', { leaseMs: 5 }))],
  ['the event was taken before', (store) => does(store, oneEvent(9, 'a'), oneClaim('before'))],
  ['the claim was made before', (store) => does(store, oneEvent(1, 'a'), oneClaim('now'))],
  ['it is paused', (store) => store.redis.hset(store.keys.store, 'paused', 1, 'pausedAt', 1)],
  ['its lane has no weight', (store) => store.make(2, { a: 0 })],
  ['the subscription is newer', (store) => store.make(2)],
  ['the worker was replaced', (store) => store.redis.hset(store.keys.store, 'worker:w', 'other')],
  ['the worker has its name', (store) => store.redis.hset(store.keys.store, 'worker:w', 's')],
  ['there is no such store', (store) => store.redis.del(store.keys.store)],
]

test.each(states)('a lone event and a claim behind it, when %s', async (_, prepare, said = {}) => {
  const [together, alone] = [await testStore(), await testStore()]
  for (const store of [together, alone]) await prepare(store)
  const [event, claimed] = [oneEvent(9, 'a'), oneClaim('now', said)]
  const replies = await answers(together, 1_000_010, [[event, claimed]])
  expect(replies).toEqual(await answers(alone, 1_000_010, [[event], [claimed]]))
  expect(await leftIn(together)).toEqual(await leftIn(alone))
  expect(await together.redis.zrange(together.keys.idle, '0', '-1', 'WITHSCORES')).toEqual(
    await alone.redis.zrange(alone.keys.idle, '0', '-1', 'WITHSCORES'),
  )
})
