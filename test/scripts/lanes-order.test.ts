/** The scripts of an ordered queue: of one key one item at a time, whatever becomes of it. */
import { describe, expect, test } from 'vitest'
import { parkedScript } from '../../src/lanes/scripts.ts'
import { runScript } from '../../src/redis/script.ts'
import { type ClockedStore, clockedStore } from '../lanes/clocked.ts'

const keysLeft = async ({ redis, keys }: ClockedStore) => ({
  objects: await redis.hlen(keys.objects),
  behind: await redis.hlen(keys.behind),
  parked: await redis.hlen(keys.parked),
})
const none = { objects: 0, behind: 0, parked: 0 }

/** Sends one item per key given, in lane a. */
const sendKeys = async (store: ClockedStore, ...keys: string[]) => {
  const ids: string[] = []
  for (const key of keys) ids.push(...(await store.send('a', { key })))
  return ids
}

describe('an owner', () => {
  test('keeps those behind it from being claimed until it is acked', async () => {
    const store = await clockedStore({ ordered: true })
    const [first, second, other] = await sendKeys(store, 'k', 'k', 'l')
    expect(await store.record('a')).toMatchObject({ waiting: 2, behind: 1 })
    const held = await store.take(5)
    expect(held.ids).toEqual([first, other])
    expect((await store.take(5)).ids).toEqual([])
    await store.settle(held.token, [first!], { kind: 'ack' })
    expect((await store.take(5)).ids).toEqual([second])
    expect(await store.counts()).toMatchObject({ in: 3, out: 1, held: 2 })
  })

  test('leaves no trace when nothing is behind it', async () => {
    const store = await clockedStore({ ordered: true })
    const ids = await sendKeys(store, 'k', 'k', 'l')
    for (let n = 0; n < 3; n += 1) {
      const { token, ids: held } = await store.take(5)
      await store.settle(token, held, { kind: 'ack' })
    }
    expect(await store.counts()).toMatchObject({ in: ids.length, out: ids.length })
    expect(await keysLeft(store)).toEqual(none)
    expect(await store.record('a')).toBeUndefined()
  })

  test('keeps its key while it waits to be tried again, when its lease lapses, and when it is handed back', async () => {
    const store = await clockedStore({ ordered: true, attempts: 10 })
    const [first, second] = await sendKeys(store, 'k', 'k')
    const one = await store.take(5)
    await store.settle(one.token, one.ids, { kind: 'retry', afterMs: 100, reason: 'busy' })
    expect((await store.take(5)).ids).toEqual([])
    store.pass(101)
    const two = await store.take(5, { leaseMs: 50 })
    expect(two.ids).toEqual([first])
    store.pass(51)
    const three = await store.take(5)
    expect(three.ids).toEqual([first])
    await store.settle(three.token, three.ids, { kind: 'back' })
    const four = await store.take(5)
    expect(four.ids).toEqual([first])
    await store.settle(four.token, four.ids, { kind: 'throttle', forMs: 10 })
    store.pass(11)
    const five = await store.take(5)
    expect(five.ids).toEqual([first])
    await store.settle(five.token, five.ids, { kind: 'dead', reason: 'no' })
    expect((await store.take(5)).ids).toEqual([second])
  })

  test.each(['pop', 'expired', 'released', 'lapsed'])('that is gone (%s) lets the next one line up', async (how) => {
    const store = await clockedStore({ ordered: true, attempts: 1 })
    const [first] = await store.send('a', { key: 'k', ttlMs: how === 'expired' ? 10 : 0 })
    const [second] = await sendKeys(store, 'k')
    if (how === 'pop') expect(await store.claim(5, { token: undefined })).toMatchObject({ items: { length: 1 } })
    else if (how === 'expired') store.pass(11)
    else {
      const { token, ids } = await store.take(5, { leaseMs: 50 })
      expect(ids).toEqual([first])
      if (how === 'released') expect(await store.extend(token, first!, 0, 'own')).toEqual({ kind: 'released' })
      else store.pass(51)
    }
    if (how === 'expired' || how === 'lapsed') expect((await store.take(5)).ids).toEqual([])
    expect((await store.take(5)).ids).toEqual([second])
  })
})

test('what is routed is ordered like what is sent, also in one call with a claim', async () => {
  const store = await clockedStore({ ordered: true })
  await store.accept(['a', 'a', 'b', 'a'], { keys: ['k', 'k', 'k', 'l'] })
  const { token, ids } = await store.take(9)
  expect(ids).toEqual(['0-1', '0-3', '0-4'])
  await store.settle(token, ids, { kind: 'ack' })
  expect((await store.take(9)).ids).toEqual(['0-2'])
  // A chunk that comes again is not behind itself.
  expect(await store.accept(['a', 'a', 'b', 'a'], { keys: ['k', 'k', 'k', 'l'] })).toEqual({
    kind: 'accepted',
    items: 0,
  })
})

test('a delayed item enters its key when it is due', async () => {
  const store = await clockedStore({ ordered: true })
  const [late] = await store.send('a', { key: 'k', delayMs: 100 })
  const [early] = await sendKeys(store, 'k')
  const held = await store.take(5)
  expect(held.ids).toEqual([early])
  store.pass(101)
  expect((await store.take(5)).ids).toEqual([])
  await store.settle(held.token, held.ids, { kind: 'ack' })
  expect((await store.take(5)).ids).toEqual([late])
})

describe('a claim that finds nothing but what is over says that there is more', () => {
  test('behind one that has expired', async () => {
    const store = await clockedStore({ ordered: true })
    await store.send('a', { key: 'k', ttlMs: 10 })
    const [next] = await sendKeys(store, 'k')
    store.pass(10)
    expect(await store.take(5)).toMatchObject({ ids: [], more: true })
    expect(await store.take(5)).toMatchObject({ ids: [next], more: false })
  })

  test('behind one that had its last attempt', async () => {
    const store = await clockedStore({ ordered: true, attempts: 1 })
    const [, next] = await sendKeys(store, 'k', 'k')
    await store.take(1, { leaseMs: 10 })
    store.pass(10)
    expect(await store.take(5)).toMatchObject({ ids: [], more: true })
    expect(await store.take(5)).toMatchObject({ ids: [next], more: false })
  })

  test('once: also where it cannot be given, and not to a look that wants nothing', async () => {
    const store = await clockedStore({ ordered: true })
    await store.send('a', { key: 'k', ttlMs: 10 })
    await sendKeys(store, 'k')
    store.pass(10)
    expect(await store.take(0)).toMatchObject({ ids: [], more: false })
    expect(await store.take(5)).toMatchObject({ ids: [], more: true })
    await store.pause('pause', 'a')
    expect(await store.take(5)).toMatchObject({ ids: [], more: false })
  })
})

test('items without a key are never in the way', async () => {
  const store = await clockedStore({ ordered: true })
  const ids = await store.send('a', { times: 3 })
  expect((await store.take(5)).ids).toEqual(ids)
})

describe('a parked object', () => {
  const parkedStore = async () => {
    const store = await clockedStore({ ordered: true, parks: true, attempts: 1 })
    const [first, second, other] = await sendKeys(store, 'k', 'k', 'l')
    const { token } = await store.take(5)
    await store.settle(token, [first!], { kind: 'retry', afterMs: 0, reason: 'broken' })
    await store.settle(token, [other!], { kind: 'ack' })
    const act = (what: 'resume' | 'discard', ...objects: string[]) =>
      runScript(store.redis, parkedScript, { ...store.ground(), act: what, objects })
    return { store, act, first, second }
  }

  test('is set aside with all that comes of it', async () => {
    const { store } = await parkedStore()
    await sendKeys(store, 'k')
    expect((await store.take(5)).ids).toEqual([])
    expect(await store.record('a')).toMatchObject({ waiting: 0, parked: 1, behind: 2, dead: 0 })
    expect(await keysLeft(store)).toEqual({ objects: 1, behind: 2, parked: 1 })
  })

  test('goes on where it stood, as if never tried', async () => {
    const { store, act, first, second } = await parkedStore()
    expect(await act('resume', 'a k', 'a unknown')).toEqual({ objects: 1, items: 1, isMore: false })
    const { token, ids } = await store.take(5)
    expect(ids).toEqual([first])
    await store.settle(token, ids, { kind: 'ack' })
    expect((await store.take(5)).ids).toEqual([second])
    expect(await keysLeft(store)).toEqual({ objects: 1, behind: 0, parked: 0 })
  })

  test('is given up with all that lies behind it, in bounded steps', async () => {
    const { store, act } = await parkedStore()
    await store.send('a', { key: 'k', times: 1_500 })
    expect(await act('discard', 'a k')).toEqual({ objects: 0, items: 1_000, isMore: true })
    expect(await act('discard', 'a k')).toEqual({ objects: 1, items: 502, isMore: false })
    expect(await keysLeft(store)).toEqual(none)
    expect(await store.counts()).toEqual({ in: 1_503, out: 1, discarded: 1_502 })
    expect(await store.record('a')).toBeUndefined()
    expect(await store.redis.hget(store.keys.store, 'bytes')).toBe('0')
  })

  test('of which too much lies behind makes dead letters of what comes', async () => {
    const { store } = await parkedStore()
    await store.send('a', { key: 'k', times: 10_000 })
    expect(await store.record('a')).toMatchObject({ behind: 10_000, dead: 1 })
  })
})
