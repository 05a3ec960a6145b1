/** The scripts of a queue with limits: what is not given, and when it is. */
import { describe, expect, test } from 'vitest'
import { checkStore } from '../../src/lanes/fsck.ts'
import { readLetter } from '../../src/lanes/item.ts'
import { fsckScript } from '../../src/lanes/scripts.ts'
import { runScript } from '../../src/redis/script.ts'
import { type ClockedStore, clockedStore, lanesOf } from '../lanes/clocked.ts'
import { sentEnvelope } from '../lanes/store.ts'
import { collect } from '../support/log.ts'

const second = (max: number) => ({ max, perMs: 1_000 })

const findingsIn = ({ redis, keys }: ClockedStore) =>
  collect(checkStore('mail', (most, asks) => runScript(redis, fsckScript, { keys, most, asks })))

describe('in flight', () => {
  test('per tenant: a lane at its limit is out of line until one of its items is settled', async () => {
    const store = await clockedStore({ limits: { inFlightPerTenant: 2 } })
    await store.send('a', { times: 5 })
    await store.send('b', { times: 1 })
    const { token, ids, items } = await store.take(9)
    expect(lanesOf(items)).toBe('aba')
    expect((await store.stored()).line).toEqual([])
    await store.settle(token, [ids[0]!], { kind: 'ack' })
    expect((await store.stored()).line).toEqual(['a'])
    expect(lanesOf((await store.take(9)).items)).toBe('a')
  })

  test('per tenant: a lapsed lease gives its place back', async () => {
    const store = await clockedStore({ limits: { inFlightPerTenant: 1 }, attempts: 0 })
    const [first, other] = await store.send('a', { times: 2 })
    await store.take(9, { leaseMs: 100 })
    expect((await store.take(9)).ids).toEqual([])
    store.pass(101)
    const again = await store.take(9)
    expect(again.ids).toEqual([first])
    await store.settle(again.token, again.ids, { kind: 'ack' })
    expect((await store.take(9)).ids).toEqual([other])
  })

  test('in all: no more are given than fit', async () => {
    const store = await clockedStore({ limits: { inFlight: 3 } })
    await store.send('a', { times: 5 })
    const { token, ids } = await store.take(9)
    expect(ids).toHaveLength(3)
    expect((await store.take(9)).ids).toEqual([])
    await store.settle(token, ids.slice(0, 2), { kind: 'ack' })
    expect((await store.take(9)).ids).toHaveLength(2)
  })

  test('also of what is taken for good: it counts as long as it is given', async () => {
    const store = await clockedStore({ limits: { inFlightPerTenant: 2 } })
    await store.send('a', { times: 5 })
    await store.send('b', { times: 1 })
    for (const lanes of ['aba', 'aa', 'a']) {
      const reply = await store.claim(9, { token: undefined })
      expect(reply.kind === 'claimed' && lanesOf(reply.items)).toBe(lanes)
    }
  })

  test('who waits hears of it when there is room', async () => {
    const store = await clockedStore({ limits: { inFlight: 1 } })
    await store.send('a', { times: 2 })
    const { token, ids } = await store.take(1)
    await store.claim(1, { idleName: 'x' })
    const heard = await store.listen()
    await store.settle(token, ids, { kind: 'ack' })
    expect(await heard()).toEqual(['x'])
  })

  test('who waits hears of it also when what has lapsed is given up', async () => {
    const store = await clockedStore({ attempts: 1, limits: { inFlight: 1 } })
    await store.send('a', { times: 2 })
    await store.take(1, { leaseMs: 50 })
    const heard = await store.listen()
    await store.claim(1, { idleName: 'x' })
    store.pass(50)
    await store.claim(0)
    expect(await heard()).toEqual(['x'])
  })

  test('who waits hears of it when there may be more, whoever holds what there is', async () => {
    const store = await clockedStore({ limits: { inFlight: 1 } })
    for (const lane of ['a', 'b']) await store.send(lane)
    expect(lanesOf((await store.take(1)).items)).toBe('a')
    await store.claim(1, { idleName: 'x' })
    const heard = await store.listen()
    await store.make(2, { limits: { inFlight: 2 } })
    expect(await heard()).toEqual(['x'])
  })

  test('a raised limit counts at once, a lowered one as soon as there is room', async () => {
    const store = await clockedStore({ limits: { inFlightPerTenant: 1 } })
    await store.send('a', { times: 5 })
    await store.take(9)
    await store.make(2, { limits: { inFlightPerTenant: 3 } })
    expect((await store.stored()).line).toEqual(['a'])
    expect((await store.take(9)).ids).toHaveLength(2)
    await store.make(3, { limits: { inFlightPerTenant: 1 } })
    expect((await store.stored()).line).toEqual([])
    await store.make(4, { limits: {} })
    expect((await store.take(9)).ids).toHaveLength(2)
  })
})

describe('a share', () => {
  test('is all that a tenant has while others wait, and they have theirs', async () => {
    const store = await clockedStore({ limits: { maxShare: 0.5 } })
    await store.send('a', { times: 100 })
    await store.take(1) // one of a is held
    await store.send('b', { times: 100 })
    await store.send('c', { times: 100 })
    const { items } = await store.take(9)
    expect(lanesOf(items)).toBe('abcabcabc')
    // a holds 4 of 10; of the next two it may have one, as 4 < 6.
    expect(lanesOf((await store.take(2)).items)).toBe('ab')
  })

  test('is no limit for one that is alone, also when the others have drained', async () => {
    const store = await clockedStore({ limits: { maxShare: 0.25 } })
    await store.send('a', { times: 20 })
    await store.send('b', { times: 1 })
    const { items } = await store.take(8)
    expect(lanesOf(items)).toBe('abaaaaaa')
    expect((await store.take(8)).ids).toHaveLength(8)
  })

  test('is found below however many have theirs: rounded down it is less than it says', async () => {
    const store = await clockedStore({ limits: { maxShare: 0.3 } })
    for (const lane of 'abcde') await store.send(lane)
    await store.take(5)
    for (const lane of 'abcdef') await store.send(lane)
    // 0.3 of 5 + 1 is 1, which five have.
    expect(lanesOf((await store.take(1)).items)).toBe('f')
  })

  test('is of all that a claim gives, also when it finds some that have expired', async () => {
    const store = await clockedStore({ limits: { maxShare: 0.5 } })
    for (const lane of 'cd') await store.send(lane)
    await store.take(2)
    await store.send('a', { ttlMs: 10 })
    for (const lane of 'bce') await store.send(lane)
    store.pass(11)
    // c holds 1 and may have 2, half of 2 + 2.
    expect(lanesOf((await store.take(2)).items)).toBe('bc')
  })

  test('keeps the place in line of whom it passes over', async () => {
    const store = await clockedStore({ limits: { maxShare: 0.5 } })
    await store.send('a', { times: 10 })
    const held = await store.take(4)
    await store.send('b', { times: 10 })
    // a holds 4; of 4 + 2 it may have 3.
    expect(lanesOf((await store.take(2)).items)).toBe('bb')
    expect((await store.stored()).line[0]).toBe('a')
    await store.settle(held.token, held.ids, { kind: 'ack' })
    // b holds 2 of 2 + 2 now.
    expect(lanesOf((await store.take(2)).items)).toBe('aa')
  })

  test('passes over all that have theirs, however many there are before the one that has not', async () => {
    const store = await clockedStore({ limits: { maxShare: 0.1 } })
    const lanes = [...'abcdefghijklmnopqr']
    for (const lane of lanes) await store.send(lane, { times: 2 })
    expect((await store.take(lanes.length)).ids).toHaveLength(lanes.length)
    await store.send('z', { times: 1 })
    // Of 18 + 1 everyone may have one.
    expect(lanesOf((await store.take(1)).items)).toBe('z')
  })

  test('is exceeded evenly when all have theirs', async () => {
    const store = await clockedStore({ limits: { maxShare: 0.01 } })
    await store.send('a', { times: 9 })
    await store.take(2)
    await store.send('b', { times: 9 })
    await store.send('c', { times: 2 })
    // One each is their share; then a holds 2, b and c are given one each, until c has no more and all go on together.
    expect(lanesOf((await store.take(8)).items)).toBe('bcbcabab')
  })
})

describe('a rate', () => {
  test('of the queue: so many at once, then as time goes by; the answer says when', async () => {
    const store = await clockedStore({ limits: { rate: second(4) } })
    await store.send('a', { times: 10 })
    expect(await store.take(9)).toMatchObject({ items: { length: 4 }, dueInMs: 250 })
    expect(await store.take(9)).toMatchObject({ items: [], dueInMs: 250 })
    store.pass(249)
    expect(await store.take(9)).toMatchObject({ items: [], dueInMs: 1 })
    store.pass(1)
    expect(await store.take(9)).toMatchObject({ items: { length: 1 }, dueInMs: 250 })
    store.pass(10_000)
    expect(await store.take(9)).toMatchObject({ items: { length: 4 } })
  })

  test('of the queue is not waited for longer than it can take, when the clock is set back', async () => {
    const store = await clockedStore({ limits: { rate: { max: 2, perMs: 1_000 } } })
    await store.send('a', { times: 5 })
    expect((await store.take(5)).ids).toHaveLength(2)
    store.pass(-600_000)
    expect((await store.take(5)).ids).toHaveLength(0)
    store.pass(1_000)
    expect((await store.take(5)).ids).toHaveLength(2)
  })

  test('an empty look costs nothing of it', async () => {
    const store = await clockedStore({ limits: { rate: second(2), ratePerTenant: second(2) } })
    for (let n = 0; n < 10; n += 1) expect((await store.take(9)).ids).toEqual([])
    await store.send('a', { times: 2 })
    expect((await store.take(9)).ids).toHaveLength(2)
  })

  test('who waits for it is not woken by what comes', async () => {
    const store = await clockedStore({ limits: { rate: second(1) } })
    await store.send('a', { times: 2 })
    await store.claim(1)
    await store.claim(1, { idleName: 'x' })
    const heard = await store.listen()
    await store.send('a', { times: 3 })
    expect(await heard()).toEqual([])
  })

  test('of a tenant: its lane is out of line until it may give again; others are not', async () => {
    const store = await clockedStore({ limits: { ratePerTenant: second(2) } })
    await store.send('a', { times: 5 })
    await store.send('b', { times: 1 })
    expect(lanesOf((await store.take(9)).items)).toBe('aba')
    expect((await store.stored()).line).toEqual([])
    expect(await store.take(9)).toMatchObject({ items: [], dueInMs: 500 })
    store.pass(500)
    expect(lanesOf((await store.take(9)).items)).toBe('a')
  })

  test("of a tenant counts still when it is paused and resumed, and is in nobody's way", async () => {
    const store = await clockedStore({ limits: { ratePerTenant: second(1) } })
    await store.send('a', { times: 3 })
    expect(lanesOf((await store.take(1)).items)).toBe('a')
    await store.pause('pause', 'a')
    await store.pause('resume', 'a')
    await store.send('b')
    expect(await store.take(1)).toMatchObject({ items: [expect.stringContaining(' b ')] })
    expect((await store.stored()).line).toEqual([])
    expect(await store.take(1)).toMatchObject({ items: [], dueInMs: 1_000 })
    store.pass(1_000)
    expect(lanesOf((await store.take(1)).items)).toBe('a')
  })

  test("of a tenant that was changed: who has used up the new one is in nobody's way", async () => {
    const store = await clockedStore({ limits: { ratePerTenant: { max: 10, perMs: 10_000 } } })
    await store.send('a', { times: 6 })
    await store.send('b', { times: 6 })
    await store.take(10)
    await store.send('c')
    await store.make(2, { limits: { ratePerTenant: second(1) } })
    expect(lanesOf((await store.take(1)).items)).toBe('c')
    expect((await store.take(1)).ids).toEqual([])
    store.pass(5_000)
    expect(lanesOf((await store.take(9)).items)).toBe('ab')
  })

  test('of a tenant outlives an empty lane, and leaves no trace when it is over', async () => {
    const store = await clockedStore({ limits: { ratePerTenant: second(1) } })
    for (let n = 0; n < 2; n += 1) {
      await store.send('a')
      const { token, ids } = await store.take(9)
      expect(ids).toHaveLength(1 - n)
      if (n === 0) await store.settle(token, ids, { kind: 'ack' })
    }
    store.pass(1_000)
    const { token, ids } = await store.take(9)
    await store.settle(token, ids, { kind: 'ack' })
    store.pass(1_000)
    await store.claim(0)
    expect(await store.record('a')).toBeUndefined()
    expect(await store.redis.zcard(store.keys.later)).toBe(0)
  })
})

describe('a rate that is used up', () => {
  test("of a tenant that is resumed: it is in nobody's way, and the answer says when it may give", async () => {
    const store = await clockedStore({ limits: { ratePerTenant: second(1) } })
    await store.send('a', { times: 2 })
    await store.take(1)
    await store.pause('pause', 'a')
    await store.pause('resume', 'a')
    await store.send('b')
    expect(lanesOf((await store.take(1)).items)).toBe('b')
    expect(await store.take(1, { leaseMs: 5_000 })).toMatchObject({ items: [], dueInMs: 1_000 })
  })

  test('counts for another one as far as that has room for it', async () => {
    const hourly = { max: 100, perMs: 3_600_000 }
    for (const name of ['rate', 'ratePerTenant']) {
      const store = await clockedStore({ limits: { [name]: hourly } })
      await store.send('a', { times: 200 })
      expect((await store.take(99)).ids).toHaveLength(99)
      await store.make(2, { limits: { [name]: second(10) } })
      expect(await store.take(9)).toMatchObject({ items: [], dueInMs: 100 })
      store.pass(100)
      expect((await store.take(9)).ids).toHaveLength(1)
    }
  })

  test('is not waited for when it is another now, or none; a throttle is', async () => {
    for (const ratePerTenant of [second(10), undefined]) {
      const store = await clockedStore({ limits: { ratePerTenant: { max: 1, perMs: 3_600_000 } } })
      for (const lane of ['a', 'b', 'c']) await store.send(lane, { times: 3, envelope: sentEnvelope('x', lane) })
      const { token, ids } = await store.take(3)
      await store.settle(token, [ids[2]!], { kind: 'throttle', forMs: 7_200_000 })
      await store.pause('pause', 'b')
      await store.make(2, { limits: ratePerTenant ? { ratePerTenant } : {} })
      if (ratePerTenant) {
        expect(await store.take(9)).toMatchObject({ ids: [], dueInMs: 100 })
        store.pass(100)
      }
      expect(lanesOf((await store.take(1)).items)).toBe('a')
      store.pass(3_000_000)
      expect(lanesOf((await store.take(9)).items)).not.toMatch(/[bc]/)
      expect(await findingsIn(store)).toEqual([])
    }
  })

  test('is nothing that fsck finds wrong, in an empty lane and in one that has something again', async () => {
    const store = await clockedStore({ limits: { ratePerTenant: second(2) } })
    const send = () => store.send('a', { envelope: sentEnvelope('x', 'a') })
    await send()
    const { token, ids } = await store.take(1)
    await store.settle(token, ids, { kind: 'ack' })
    expect(await findingsIn(store)).toEqual([])
    await send()
    expect(await findingsIn(store)).toEqual([])
    store.pass(1_000)
    await send()
    expect(await store.redis.zcard(store.keys.later)).toBe(0)
  })
})

describe('a backlog', () => {
  test('that is full refuses what is sent, and nothing of it is stored', async () => {
    const store = await clockedStore({ limits: { backlog: 2 } })
    await store.send('a', { times: 2 })
    const once = { once: 'h', fingerprint: 'f' }
    expect(await store.sendAll([store.item('a', once), store.item('b')])).toMatchObject({
      words: ['full 2', expect.any(String)],
    })
    const { token, ids } = await store.take(1)
    await store.settle(token, ids, { kind: 'ack' })
    // The refused one has left no idempotency key behind.
    expect(await store.sendAll([store.item('a', once)])).toMatchObject({ words: [expect.stringMatching(/^i/)] })
  })

  test('counts what waits for a time', async () => {
    const store = await clockedStore({ limits: { backlog: 2 } })
    await store.send('a', { times: 2, delayMs: 1_000 })
    expect(await store.sendAll([store.item('a')])).toMatchObject({ words: ['full 2'] })
  })

  test('hold: events stay where they are, in order, until there is room', async () => {
    const store = await clockedStore({ limits: { backlog: 2 } })
    expect(await store.accept(['a', 'a', 'a', 'b'])).toEqual({ kind: 'full', items: 2 })
    expect(await store.accept(['a', 'a', 'a', 'b'])).toEqual({ kind: 'full', items: 0 })
    const { token, ids } = await store.take(1)
    await store.settle(token, ids, { kind: 'ack' })
    expect(await store.accept(['a', 'a', 'a', 'b'])).toEqual({ kind: 'accepted', items: 2 })
    expect((await store.take(9)).ids).toEqual(['0-2', '0-4', '0-3'])
  })

  test('drop-oldest: the first gives way, counted', async () => {
    const store = await clockedStore({ limits: { backlog: 2, overflow: 'drop-oldest' } })
    expect(await store.accept(['a', 'a', 'a', 'b'])).toEqual({ kind: 'accepted', items: 4 })
    expect((await store.take(9)).ids).toEqual(['0-2', '0-4', '0-3'])
    expect(await store.counts()).toMatchObject({ in: 4, dropped: 1 })
  })

  test('dead: the new one is a dead letter that says why', async () => {
    const store = await clockedStore({ limits: { backlog: 2, overflow: 'dead' } })
    expect(await store.accept(['a', 'a', 'a'])).toEqual({ kind: 'accepted', items: 3 })
    const letter = readLetter((await store.redis.hget(store.keys.dead, '0-3'))!)
    expect(letter.reason).toBe('the backlog of its tenant is full: 2')
  })
})

describe('a tenant', () => {
  test('is paused alone, also through a throttle that ends, and resumed', async () => {
    const store = await clockedStore()
    await store.send('a', { times: 3 })
    await store.send('b', { times: 1 })
    const { token, ids } = await store.take(1)
    await store.settle(token, ids, { kind: 'throttle', forMs: 100 })
    await store.pause('pause', 'a')
    store.pass(1_000)
    expect(lanesOf((await store.take(9)).items)).toBe('b')
    await store.pause('resume', 'a')
    expect(lanesOf((await store.take(9)).items)).toBe('aaa')
  })

  test('that is paused with nothing in the queue stays so for what comes', async () => {
    const store = await clockedStore()
    await store.pause('pause', 'a')
    await store.send('a')
    expect((await store.take(9)).ids).toEqual([])
    await store.pause('resume', 'a')
    expect((await store.take(9)).ids).toHaveLength(1)
  })
})
