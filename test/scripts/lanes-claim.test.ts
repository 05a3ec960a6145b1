/** Every reply of what gives and settles the items of a store of lanes. The tests set the clock. */
import { describe, expect, test } from 'vitest'
import { readItem, readLetter } from '../../src/lanes/item.ts'
import { clockedStore, idsOf, lanesOf } from '../lanes/clocked.ts'
import { keysOf } from '../support/bus.ts'

describe('claim.lua: turns', () => {
  test('one lane after the other, each up to its weight, the rest of a turn kept over the end of a claim', async () => {
    const store = await clockedStore()
    await store.make(2, { weights: { a: 3, b: 2 } })
    for (const lane of ['a', 'b', 'c']) await store.send(lane, { times: 20 })
    let served = ''
    for (const n of [1, 1, 2, 4, 1, 3, 6, 6]) served += lanesOf((await store.take(n)).items)
    expect(served).toBe('aaabbc'.repeat(4))
    expect(await store.peek(6)).toEqual((await store.take(6)).ids)
  })

  test('weights change while items wait; 0 gives nothing until it has a weight again', async () => {
    const store = await clockedStore()
    for (const lane of ['a', 'b']) await store.send(lane, { times: 10 })
    expect(lanesOf((await store.take(2)).items)).toBe('ab')
    await store.make(2, { weights: { a: 2 } })
    expect(lanesOf((await store.take(4)).items)).toBe('aaba')
    await store.make(3, { weights: { a: 0 } })
    expect(lanesOf((await store.take(3)).items)).toBe('bbb')
    expect(await store.redis.zrange(store.keys.turns, '0', '-1')).toEqual(['b'])
    await store.make(4)
    expect(lanesOf((await store.take(4)).items)).toBe('baba')
  })

  test('a lane that comes is served within one round, however much the others have', async () => {
    const store = await clockedStore()
    for (const lane of ['a', 'b', 'c']) await store.send(lane, { times: 50 })
    await store.take(7)
    await store.send('q')
    expect(lanesOf((await store.take(4)).items)).toContain('q')
  })

  test('expired items cost nobody a turn, also when they are more than one call lets go', async () => {
    const store = await clockedStore()
    await store.make(2, { weights: { a: 2 } })
    await store.send('a')
    await store.send('a', { times: 250, ttlMs: 10 })
    await store.send('a', { times: 3 })
    await store.send('b', { times: 3 })
    await store.send('c', { times: 3 })
    store.pass(10)
    let served = ''
    for (let calls = 0; served.length < 10; calls += 1) {
      expect(calls).toBeLessThan(20)
      served += lanesOf((await store.take(3)).items)
    }
    // Whoever has something gets a turn between any two of another.
    for (const lane of ['a', 'b', 'c'])
      for (const between of served
        .slice(0, 9)
        .split(new RegExp(`${lane}+`))
        .slice(1, -1))
        for (const other of ['a', 'b', 'c'].filter((one) => one !== lane)) expect(between, served).toContain(other)
    expect(await store.counts()).toMatchObject({ expired: 250 })
  })

  test('a lane of nothing but expired items leaves the line', async () => {
    const store = await clockedStore()
    await store.send('a', { times: 30, ttlMs: 10 })
    await store.send('a', { times: 30, ttlMs: 10, priority: 3 })
    store.pass(10)
    expect(await store.take(5)).toMatchObject({ items: [], more: false })
    expect(await store.record('a')).toBeUndefined()
    expect(await store.counts()).toEqual({ in: 60, expired: 60 })
    expect(await store.redis.exists(store.keys.turns, store.keys.lanes)).toBe(0)
  })
})

describe('claim.lua: leases', () => {
  test('repeated under its token it answers what it holds, in order, for a whole lease from now', async () => {
    const store = await clockedStore()
    const sent = await store.send('a', { times: 40, envelope: `{}\n"${'x'.repeat(100)}"` })
    const { token, ids } = await store.take(30, { leaseMs: 1_000 })
    expect(ids).toEqual(sent.slice(0, 30))
    store.pass(900)
    const stored = await store.stored()
    const again = await store.take(30, { token, leaseMs: 1_000 })
    expect([again.ids, again.more, again.dueInMs]).toEqual([ids, false, undefined])
    expect(await store.stored()).toEqual({
      ...stored,
      leases: { [token]: { ...stored.leases[token], ends: store.now() + 1_000 } },
    })
    await store.settle(token, ids.slice(0, 28), { kind: 'ack' })
    expect((await store.take(30, { token })).ids).toEqual(ids.slice(28))
    await store.settle(token, ids.slice(28), { kind: 'ack' })
    expect((await store.take(1, { token })).ids).toEqual(sent.slice(30, 31))
  })

  test('a lapsed lease gives its items back to the heads of their lanes after one more attempt', async () => {
    const store = await clockedStore()
    const a = await store.send('a', { times: 4 })
    const first = await store.take(2, { leaseMs: 1_000 })
    store.pass(999)
    expect((await store.take(1)).ids).toEqual(a.slice(2, 3))
    expect((await store.take(5, { token: 'none' })).dueInMs).toBe(1)
    store.pass(1)
    const again = await store.take(5)
    expect(again.ids).toEqual(first.ids)
    expect(again.items.map(readItem)).toMatchObject([1, 2].map(() => ({ attempts: 1, firstClaimedMs: 1_000_000 })))
    expect(await store.settle(first.token, first.ids, { kind: 'ack' })).toEqual({ kind: 'settled', stale: [0, 1] })
  })

  test('what several leases held comes back in its order', async () => {
    const store = await clockedStore()
    const sent = await store.send('a', { times: 9 })
    for (const leaseMs of [10, 30, 20]) await store.take(3, { leaseMs })
    store.pass(30)
    expect((await store.take(9)).ids).toEqual(sent)
  })

  test('more: at most 100 items of lapsed leases come back per call, in their order once all have', async () => {
    const store = await clockedStore()
    const sent = await store.send('a', { times: 250 })
    await store.take(250, { leaseMs: 10 })
    store.pass(10)
    for (const [more, waiting] of [
      [true, 100],
      [true, 200],
      [false, 250],
    ] as const) {
      expect(await store.take(0)).toMatchObject({ items: [], more })
      expect(await store.counts()).toEqual({ in: 250, waiting, ...(waiting < 250 ? { held: 250 - waiting } : {}) })
    }
    expect((await store.take(250)).ids).toEqual(sent)
  })

  test('what has not come back yet is still held: it can be settled and renewed', async () => {
    const store = await clockedStore()
    await store.send('a', { times: 150 })
    const { token, ids } = await store.take(150, { leaseMs: 10 })
    store.pass(10)
    await store.take(0)
    const reply = await store.settle(token, ids, { kind: 'ack' })
    expect(reply).toMatchObject({ kind: 'settled', stale: { length: 100 } })
    expect(await store.counts()).toEqual({ in: 150, out: 50, waiting: 100 })
    expect((await store.stored()).leases).toEqual({})
  })

  test('a lapsed lease whose text is gone stops nobody', async () => {
    const store = await clockedStore()
    await store.send('a', { times: 2 })
    const { token } = await store.take(1, { leaseMs: 10 })
    await store.redis.del(store.keys.heldPrefix + token)
    store.pass(10)
    expect((await store.take(1)).items).toHaveLength(1)
    expect(Object.keys((await store.stored()).leases)).not.toContain(token)
  })

  test('more: many leases, many due items and many expired ones share the bound', async () => {
    const store = await clockedStore()
    await store.send('a', { times: 120, delayMs: 10 })
    await store.send('b', { times: 30 })
    for (let i = 0; i < 30; i += 1) await store.take(1, { leaseMs: 10 })
    store.pass(10)
    expect(await store.take(0)).toMatchObject({ more: true, dueInMs: 0 })
    expect(await store.counts()).toEqual({ in: 150, waiting: 100 })
    expect(await store.take(0)).toMatchObject({ more: false, dueInMs: undefined })
    expect(await store.counts()).toEqual({ in: 150, waiting: 150 })
    await store.send('c', { times: 300, ttlMs: 5 })
    store.pass(5)
    const { items, more } = await store.take(4)
    expect([lanesOf(items), more]).toEqual(['bab', true])
  })

  test('an item that kills its worker ends with the dead letters', async () => {
    const store = await clockedStore({ attempts: 2 })
    const [id] = await store.send('a')
    for (let i = 0; i < 2; i += 1) {
      expect((await store.take(1, { leaseMs: 10 })).ids).toEqual([id])
      store.pass(10)
    }
    expect((await store.take(1)).ids).toEqual([])
    const { letters } = await store.stored()
    expect(letters).toMatchObject([{ diedMs: store.now(), item: { id, attempts: 2 } }])
    expect(letters[0]!.reason).toContain('lease lapsed')
    expect(await store.record('a')).toMatchObject({ dead: 1, held: 0, waiting: 0 })
  })

  test('attempts without end: it comes back for ever', async () => {
    const store = await clockedStore({ attempts: Number.POSITIVE_INFINITY })
    await store.send('a')
    for (let i = 0; i < 12; i += 1) {
      const [item] = (await store.take(1, { leaseMs: 10 })).items
      expect(readItem(item!).attempts).toBe(i)
      store.pass(10)
    }
  })

  test('pop takes for good', async () => {
    const store = await clockedStore()
    const sent = await store.send('a', { times: 3 })
    expect(await store.claim(2, { token: undefined })).toMatchObject({
      kind: 'claimed',
      more: false,
      dueInMs: undefined,
    })
    expect((await store.stored()).leases).toEqual({})
    expect(await store.counts()).toEqual({ in: 3, out: 2, waiting: 1 })
    expect((await store.take(5)).ids).toEqual(sent.slice(2))
  })
})

describe('claim.lua: replies', () => {
  test('nothing there: empty, and nothing due', async () => {
    const store = await clockedStore()
    expect(await store.claim(5)).toEqual({
      ...{ kind: 'claimed', revision: 1, nowMs: 1_000_000, more: false, dueInMs: undefined, items: [] },
    })
    expect((await keysOf(store.redis, store.namespace)).length).toBe(1)
  })

  test('due: the earliest of leases, delayed items and lanes that wait; unknown when it got enough', async () => {
    const store = await clockedStore()
    await store.send('a', { times: 2 })
    await store.send('b', { delayMs: 700 })
    expect((await store.take(1, { leaseMs: 900 })).dueInMs).toBeUndefined()
    const { token, ids, dueInMs } = await store.take(2, { leaseMs: 800 })
    expect(dueInMs).toBe(700)
    await store.settle(token, ids, { kind: 'throttle', forMs: 300 })
    expect((await store.take(1)).dueInMs).toBe(300)
    store.pass(301)
    expect((await store.take(0)).dueInMs).toBe(399)
  })

  test('paused: nothing is given, what is due comes back all the same; resumed: those who asked hear of it', async () => {
    const store = await clockedStore()
    const sent = await store.send('a', { times: 2 })
    await store.take(1, { leaseMs: 10 })
    expect(await store.pause('pause')).toBe('done')
    store.pass(10)
    expect(await store.pause('pause')).toBe('done')
    expect(await store.redis.hget(store.keys.store, 'pausedAt')).toBe('1000000')
    const heard = await store.listen()
    for (const idleName of ['x', 'y', 'z'])
      expect(await store.claim(1, { idleName })).toEqual({ kind: 'paused', more: false })
    expect(await store.counts()).toEqual({ in: 2, waiting: 2 })
    expect(await store.peek(2)).toEqual(sent)
    expect(await heard()).toEqual([])
    expect(await store.pause('resume')).toBe('done')
    expect(await heard()).toEqual(['x y'])
    expect((await store.take(5)).ids).toEqual(sent)
    expect(await store.redis.hmget(store.keys.store, 'paused', 'pausedAt')).toEqual([null, null])
  })

  test('paused: what arrives wakes nobody', async () => {
    const store = await clockedStore()
    await store.pause('pause')
    await store.claim(1, { idleName: 'x' })
    const heard = await store.listen()
    await store.send('a')
    expect(await heard()).toEqual([])
    await store.pause('resume')
    expect(await heard()).toEqual(['x'])
  })

  test('replaced: another process works under this name; gone: there is no such store', async () => {
    const store = await clockedStore()
    await store.send('a')
    await store.enter('w', 's2')
    expect(await store.claim(1, { start: 's1' })).toEqual({ kind: 'replaced' })
    expect(await store.claim(1, { start: 's1', worker: 'v' })).toMatchObject({ kind: 'claimed' })
    await store.remove()
    expect(await store.claim(1)).toEqual({ kind: 'gone' })
  })
})

describe('claim.lua: who waits', () => {
  test('who got less than asked for is idle; who got enough is not, and is not any more', async () => {
    const store = await clockedStore()
    await store.send('a', { times: 3 })
    await store.take(2, { idleName: 'full' })
    await store.take(2, { idleName: 'short' })
    expect(await store.redis.zrange(store.keys.idle, '0', '-1')).toEqual(['short'])
    await store.send('a', { delayMs: 10 })
    store.pass(10)
    await store.take(1, { idleName: 'short' })
    expect(await store.redis.zrange(store.keys.idle, '0', '-1')).toEqual([])
  })

  test('who has not asked for 3 s is passed over and forgotten', async () => {
    const store = await clockedStore()
    for (const idleName of ['old1', 'old2']) await store.take(1, { idleName })
    store.pass(1)
    await store.take(1, { idleName: 'new' })
    store.pass(3_000)
    const heard = await store.listen()
    await store.send('a')
    expect(await heard()).toEqual(['new'])
    expect(await store.redis.exists(store.keys.idle)).toBe(0)
  })

  test('what a claim brings back and does not take is for the others', async () => {
    const store = await clockedStore()
    await store.send('a', { times: 3, delayMs: 10 })
    for (const idleName of ['x', 'y', 'z']) await store.take(1, { idleName })
    store.pass(10)
    const heard = await store.listen()
    await store.take(1)
    expect(await heard()).toEqual(['x y'])
  })

  test.each([
    ['back', { kind: 'back' }, 2],
    ['retry at once', { kind: 'retry', afterMs: 0, reason: 'r' }, 2],
    ['retry later', { kind: 'retry', afterMs: 10, reason: 'r' }, 0],
    ['ack', { kind: 'ack' }, 0],
    ['throttle', { kind: 'throttle', forMs: 10 }, 0],
  ] as const)('settled by %s: as many hear as became ready', async (_, outcome, ready) => {
    const store = await clockedStore()
    await store.send('a', { times: 2 })
    const { token, ids } = await store.take(2)
    for (const idleName of ['x', 'y', 'z']) await store.take(1, { idleName })
    const heard = await store.listen()
    await store.settle(token, ids, outcome)
    expect((await heard()).join(' ').split(' ').filter(Boolean)).toHaveLength(ready)
  })
})

describe('settle.lua', () => {
  test('settled: each outcome does its own; the lease is over with its last item', async () => {
    const store = await clockedStore({ attempts: 2 })
    await store.send('a', { times: 5 })
    const { token, ids } = await store.take(5)
    await store.settle(token, [ids[0]!], { kind: 'ack' })
    await store.settle(token, [ids[1]!], { kind: 'back' })
    await store.settle(token, [ids[2]!], { kind: 'retry', afterMs: 50, reason: 'busy' })
    expect(Object.keys((await store.stored()).leases)).toEqual([token])
    await store.settle(token, [ids[3]!, ids[4]!], { kind: 'dead', reason: 'poison' })
    const { leases, later, letters, waiting } = await store.stored()
    expect([leases, later]).toEqual([{}, { [ids[2]!]: store.now() + 50 }])
    expect(waiting.a).toMatchObject([{ id: ids[1], attempts: 0, first: 0 }])
    expect(letters.map(({ item, reason }) => [item.id, item.attempts, reason])).toEqual(
      [ids[3], ids[4]].map((id) => [id, 1, 'poison']),
    )
    store.pass(50)
    const again = await store.take(5)
    expect(again.items.map(readItem).map(({ attempts }) => attempts)).toEqual([0, 1])
    await store.settle(again.token, again.ids, { kind: 'retry', afterMs: 0, reason: 'busy' })
    expect((await store.stored()).letters).toHaveLength(3)
    expect(await store.counts()).toEqual({ in: 5, out: 1, waiting: 1 })
  })

  test('stale: of another token, unknown, or said twice; said again after a lost answer it changes nothing', async () => {
    const store = await clockedStore()
    await store.send('a', { times: 3 })
    const { token, ids } = await store.take(3)
    expect(await store.settle('other', ids, { kind: 'dead', reason: 'x' })).toEqual({
      kind: 'settled',
      stale: [0, 1, 2],
    })
    expect(await store.settle(token, [ids[0]!, 'i9', ids[0]!, ids[1]!], { kind: 'ack' })).toEqual({
      ...{ kind: 'settled', stale: [1, 2] },
    })
    const stored = await store.stored()
    for (const kind of ['ack', 'back'] as const)
      expect(await store.settle(token, ids.slice(0, 2), { kind })).toEqual({ kind: 'settled', stale: [0, 1] })
    expect(await store.stored()).toEqual(stored)
  })

  test('all: a whole lease is done without naming its items; one that holds another number, or others, is stale and stays', async () => {
    const store = await clockedStore()
    await store.send('a', { times: 4 })
    const [whole, part] = [await store.take(2), await store.take(2)]
    await store.settle(part.token, [part.ids[0]!], { kind: 'ack' })
    const before = await store.stored()
    expect(await store.settleAll(part.token, part.ids, 2)).toEqual({ kind: 'settled', stale: [0, 1] })
    expect(await store.stored()).toEqual(before)
    expect(await store.settleAll(whole.token, part.ids, 2)).toEqual({ kind: 'settled', stale: [0, 1] })
    expect(await store.stored()).toEqual(before)
    expect(await store.settleAll(whole.token, whole.ids, 2)).toEqual({ kind: 'settled', stale: [] })
    expect(await store.settleAll(part.token, part.ids.slice(1), 1)).toEqual({ kind: 'settled', stale: [] })
    expect(await store.settleAll(whole.token, whole.ids, 2)).toEqual({ kind: 'settled', stale: [0, 1] })
    expect(await store.counts()).toEqual({ in: 4, out: 4 })
    expect((await store.stored()).leases).toEqual({})
  })

  test('throttle: the whole lane waits, the longest time that was said; others go on', async () => {
    const store = await clockedStore()
    await store.send('a', { times: 3 })
    await store.send('b', { times: 2 })
    const { token, ids } = await store.take(4)
    expect(lanesOf((await store.take(0)).items)).toBe('')
    await store.settle(token, [ids[2]!], { kind: 'throttle', forMs: 100 })
    await store.settle(token, [ids[0]!], { kind: 'throttle', forMs: 50 })
    await store.send('a')
    expect((await store.take(5)).dueInMs).toBe(100)
    store.pass(99)
    expect((await store.take(5)).ids).toEqual([])
    store.pass(1)
    const { items } = await store.take(9)
    expect(idsOf(items).slice(0, 2)).toEqual([ids[0], ids[2]])
    expect(items.map(readItem).map(({ attempts }) => attempts)).toEqual([0, 0, 0, 0])
  })

  test('10,000 dead letters are kept: the oldest gives way and is counted', async () => {
    const store = await clockedStore()
    const bury = async (lane: string, times: number) => {
      await store.send(lane, { times })
      for (let left = times; left > 0; left -= 1_000) {
        const { token, ids } = await store.take(Math.min(left, 1_000))
        await store.settle(token, ids, { kind: 'dead', reason: 'no' })
      }
    }
    await bury('old', 2)
    store.pass(1)
    await bury('a', 9_998)
    store.pass(1)
    // Who has most of them pays first.
    await bury('a', 3)
    expect(await store.record('old')).toMatchObject({ dead: 2 })
    expect(await store.record('a')).toMatchObject({ dead: 9_998 })
    await bury('b', 1)
    expect(await store.record('old')).toMatchObject({ dead: 1 })
    await bury('b', 3)
    expect(await store.record('old')).toBeUndefined()
    expect(await store.record('a')).toMatchObject({ dead: 9_996 })
    expect(await store.record('b')).toMatchObject({ dead: 4 })
    expect(await store.redis.hlen(store.keys.dead)).toBe(10_000)
    expect(await store.redis.zcard(store.keys.deadOrder)).toBe(10_000)
    expect(await store.counts()).toEqual({ in: 10_007, dropped: 7 })
  })

  test('64 MiB of dead letters are kept: whose letters are large pays', async () => {
    const store = await clockedStore()
    const bury = async (lane: string, times: number, bytes: number) => {
      for (let i = 0; i < times; i += 1) {
        store.pass(1)
        await store.send(lane, { envelope: `{"type":"mail.sent","tenant":"${lane}"}\n"${'x'.repeat(bytes)}"` })
        const { token, ids } = await store.take(1)
        await store.settle(token, ids, { kind: 'dead', reason: 'no' })
      }
    }
    await bury('modest', 3, 10)
    await bury('big', 34, 2 ** 21)
    expect(await store.record('modest')).toMatchObject({ dead: 3 })
    expect(await store.record('big')).toMatchObject({ dead: 31 })
    expect(await store.counts()).toEqual({ in: 37, dropped: 3 })
    const bytes = Number(await store.redis.hget(store.keys.store, 'deadBytes'))
    expect(bytes).toBeGreaterThan(31 * 2 ** 21)
    expect(bytes).toBeLessThanOrEqual(2 ** 26)
  })
})

describe('what is asked for has a bound', () => {
  test('a claim gives 1,000 items, whatever is asked for', async () => {
    const store = await clockedStore()
    await store.accept(Array.from({ length: 9_000 }, (_, i) => `tenant-${i}`))
    await store.take(5, { leaseMs: 1 })
    store.pass(1)
    expect((await store.take(9_000)).ids).toHaveLength(1_000)
    expect(await store.counts()).toEqual({ in: 9_000, waiting: 8_000, held: 1_000 })
    expect(await store.peek(9_000)).toHaveLength(1_000)
  })

  test('settle takes as many as it is told', async () => {
    const store = await clockedStore()
    await store.send('a', { times: 2 })
    const { token, ids } = await store.take(2)
    const said = [ids[0]!, ...Array.from({ length: 9_000 }, (_, i) => `none-${i}`), ids[1]!]
    expect(await store.settle(token, said, { kind: 'ack' })).toMatchObject({
      kind: 'settled',
      stale: { length: 9_000 },
    })
    expect(await store.counts()).toEqual({ in: 2, out: 2 })
  })
})

describe('renew.lua and extend.lua', () => {
  test('renewed: each lease lasts from now; tokens that hold nothing are named', async () => {
    const store = await clockedStore()
    await store.send('a', { times: 2 })
    const [one, two] = [await store.take(1, { leaseMs: 100 }), await store.take(1, { leaseMs: 100 })]
    await store.settle(two.token, two.ids, { kind: 'ack' })
    store.pass(60)
    expect(await store.renew([one.token, two.token, 'none'], 100)).toEqual([two.token, 'none'])
    store.pass(99)
    expect((await store.take(1)).dueInMs).toBe(1)
    store.pass(1)
    await store.take(0)
    expect(await store.renew([one.token], 100)).toEqual([one.token])
  })

  test('extended: the item has a lease of its own, also when it is said twice', async () => {
    const store = await clockedStore()
    await store.send('a', { times: 2 })
    const { token, ids } = await store.take(2, { leaseMs: 100 })
    const extended = { kind: 'extended', token: 'own', endsMs: store.now() + 500 }
    expect(await store.extend(token, ids[0]!, 500, 'own')).toEqual(extended)
    const stored = await store.stored()
    expect(await store.extend(token, ids[0]!, 500, 'own')).toEqual(extended)
    expect(await store.stored()).toEqual(stored)
    store.pass(100)
    expect((await store.take(5)).ids).toEqual([ids[1]])
    expect(await store.settle(token, [ids[0]!], { kind: 'ack' })).toEqual({ kind: 'settled', stale: [0] })
    expect(await store.settle('own', [ids[0]!], { kind: 'ack' })).toEqual({ kind: 'settled', stale: [] })
    expect(Object.keys((await store.stored()).leases)).toHaveLength(1)
  })

  test('released: at the head of its lane after one more attempt, or dead after its last; stale: not held', async () => {
    const store = await clockedStore({ attempts: 2 })
    await store.send('a', { times: 2 })
    for (const waits of [1, 0]) {
      const { token, ids } = await store.take(1)
      await store.take(0, { idleName: 'x' })
      expect(await store.extend(token, ids[0]!, 0, 'own')).toEqual({ kind: 'released' })
      expect(await store.extend(token, ids[0]!, 0, 'own')).toEqual({ kind: 'stale' })
      expect((await store.peek(1))!.includes(ids[0]!)).toBe(waits === 1)
      expect((await store.stored()).leases).toEqual({})
    }
    expect((await store.stored()).letters).toMatchObject([{ item: { attempts: 2 } }])
  })
})

describe('enter.lua', () => {
  test('entered: what earlier starts of the name hold goes back as if never claimed; it is stale for them', async () => {
    const store = await clockedStore()
    const sent = await store.send('a', { times: 5 })
    expect(await store.enter('w', 's1')).toEqual({ kind: 'entered', handedBack: 0 })
    const old = await store.take(2, { start: 's1' })
    const others = await store.take(1, { worker: 'v', start: 's1' })
    const heard = await store.listen()
    for (const idleName of ['x', 'y', 'z']) await store.take(9, { worker: idleName, idleName, leaseMs: 1 })
    expect(await store.enter('w', 's2')).toEqual({ kind: 'entered', handedBack: 2 })
    expect(await store.enter('w', 's2')).toEqual({ kind: 'entered', handedBack: 0 })
    expect((await heard()).join(' ').split(' ')).toHaveLength(2)
    const again = await store.take(2, { start: 's2' })
    expect(again.ids).toEqual(sent.slice(0, 2))
    expect(again.items.map(readItem)).toMatchObject([{ attempts: 0, firstClaimedMs: 0 }, { attempts: 0 }])
    expect(await store.settle(old.token, old.ids, { kind: 'ack' })).toEqual({ kind: 'settled', stale: [0, 1] })
    expect(await store.renew([old.token, others.token])).toEqual([old.token])
    expect(await store.settle(others.token, others.ids, { kind: 'ack' })).toEqual({ kind: 'settled', stale: [] })
  })

  test('left: the name is free, unless another start has it by now', async () => {
    const store = await clockedStore()
    await store.enter('w', 's2')
    expect(await store.enter('w', 's1', 'leave')).toMatchObject({ kind: 'left' })
    expect(await store.claim(1, { start: 's1' })).toEqual({ kind: 'replaced' })
    expect(await store.enter('w', 's2', 'leave')).toMatchObject({ kind: 'left' })
    expect(await store.claim(1, { start: 's1' })).toMatchObject({ kind: 'claimed' })
  })
})

describe('dead letters', () => {
  test('redriven: to the end of the line, as if never tried, kept for ever; only once', async () => {
    const store = await clockedStore()
    const [id] = await store.send('a', { ttlMs: 100, priority: 3 })
    const { token } = await store.take(1)
    await store.settle(token, [id!], { kind: 'dead', reason: 'no' })
    const [letter] = await store.redis.hvals(store.keys.dead)
    expect(readLetter(letter!)).toMatchObject({ diedMs: store.now(), reason: 'no', item: { id, attempts: 1 } })
    await store.send('a', { priority: 3 })
    store.pass(1_000)
    for (const idleName of ['x', 'y']) await store.claim(1, { token: 'none', idleName })
    await store.redis.zadd(store.keys.idle, store.now(), 'x')
    const heard = await store.listen()
    expect(await store.redrive(id!, 'i9', id!)).toBe(1)
    expect(await store.redrive(id!)).toBe(0)
    expect(await heard()).toEqual(['x'])
    expect((await store.stored()).waiting.a).toMatchObject([{ id, attempts: 0, first: 0, expires: 0, priority: 3 }])
    expect(await store.redis.exists(store.keys.dead, store.keys.deadOrder)).toBe(0)
  })

  test('discarded: gone and counted; only once', async () => {
    const store = await clockedStore()
    await store.send('a', { times: 3 })
    const { token, ids } = await store.take(3)
    await store.settle(token, ids, { kind: 'dead', reason: 'no' })
    expect(await store.discard(ids[0]!, ids[1]!, 'i9')).toBe(2)
    expect(await store.discard(...ids)).toBe(1)
    expect(await store.counts()).toEqual({ in: 3, discarded: 3 })
    expect(await store.record('a')).toBeUndefined()
  })
})

test('peek: what would be given next, by turns and priority, and nothing of it changes', async () => {
  const store = await clockedStore()
  await store.make(2, { weights: { a: 2 } })
  await store.send('a', { times: 3 })
  await store.send('a', { priority: -1 })
  await store.send('a', { priority: 1 })
  await store.send('b', { times: 2 })
  const stored = await store.stored()
  const next = await store.peek(10)
  expect(await store.stored()).toEqual(stored)
  expect((await store.take(10)).ids).toEqual(next)
})

describe('what a claim has to do besides', () => {
  test('does not keep it from giving: 100 pieces are brought back, and something is given', async () => {
    const store = await clockedStore()
    await store.send('a', { times: 5 })
    await store.send('a', { times: 101, delayMs: 10 })
    store.pass(20)
    expect(await store.claim(3, { token: undefined })).toMatchObject({ more: true, items: { length: 3 } })
  })

  test('a lease of which a part was brought back cannot be renewed as if it were whole', async () => {
    const store = await clockedStore()
    await store.send('a', { times: 250 })
    const { token, ids } = await store.take(250, { leaseMs: 1_000 })
    store.pass(1_001)
    await store.take(50)
    expect(await store.renew([token], 10_000)).toEqual([token])
    expect(await store.settle(token, ids, { kind: 'ack' })).toMatchObject({ stale: { length: 100 } })
  })

  test('an item that was claimed in time does not expire any more, retried or lapsed', async () => {
    const store = await clockedStore()
    await store.send('a', { ttlMs: 1_000 })
    const first = await store.take(1, { leaseMs: 500 })
    await store.settle(first.token, first.ids, { kind: 'retry', afterMs: 2_000, reason: 'busy' })
    store.pass(2_001)
    expect((await store.take(1)).ids).toEqual(first.ids)
    await store.send('b', { ttlMs: 1_000 })
    const second = await store.take(1, { leaseMs: 2_000 })
    store.pass(2_001)
    expect((await store.take(1)).ids).toEqual(second.ids)
  })

  test('names of workers that never left are forgotten before there are too many', async () => {
    const store = await clockedStore()
    for (let n = 0; n < 2_000; n += 1) await store.enter(`pod-${n}`, 's')
    expect(await store.redis.hlen(store.keys.store)).toBeLessThan(1_600)
    expect(await store.claim(1, { worker: 'pod-1999', start: 'other' })).toEqual({ kind: 'replaced' })
  })
})
