/** The scripts of a queue with limits: what is not given, and when it is. */
import { describe, expect, test } from 'vitest'
import { readLetter } from '../../src/lanes/item.ts'
import { clockedStore, lanesOf } from '../lanes/clocked.ts'

const second = (max: number) => ({ max, perMs: 1_000 })

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

  test('who waits hears of it when there is room', async () => {
    const store = await clockedStore({ limits: { inFlight: 1 } })
    await store.send('a', { times: 2 })
    const { token, ids } = await store.take(1)
    await store.claim(1, { idleName: 'x' })
    const heard = await store.listen()
    await store.settle(token, ids, { kind: 'ack' })
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
