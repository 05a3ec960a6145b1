/** Every reply of what fills, changes and removes a store of lanes. The tests set the clock. */
import { describe, expect, onTestFinished, test } from 'vitest'
import { readItem } from '../../src/lanes/item.ts'
import { laneLimits } from '../../src/lanes/scripts.ts'
import { clockedStore, lanesOf } from '../lanes/clocked.ts'
import { keysOf } from '../support/bus.ts'
import { startRedis } from '../support/redis.ts'

const hour = 3_600_000
const names = (count: number): string[] => Array.from({ length: count }, (_, i) => `tenant-${i}`)

describe('make.lua', () => {
  test('made, once; a definition that is known or older is outdated and changes nothing', async () => {
    const store = await clockedStore()
    await store.remove()
    expect(await store.make(3, { applied: [5, 1_763_240_000_000_000], weights: { a: 2 } })).toBe('made')
    const stored = await store.stored()
    expect(stored.store).toEqual({
      ...{ revision: '3', defined: '3', born: '1', attempts: '3', weighted: '1', ordered: '0', parks: '0' },
      ...{ 'applied:0': '5', 'applied:1': '1763240000000000' },
    })
    expect(await store.make(3, { applied: [0, 0], tries: 9 })).toBe('outdated')
    expect(await store.make(2, { applied: [0, 0], tries: 9 })).toBe('outdated')
    expect(await store.stored()).toEqual(stored)
  })

  test('raised: attempts and weights are the new ones, what was applied stays', async () => {
    const store = await clockedStore()
    await store.accept(['a'])
    expect(await store.make(2, { applied: [9, 9], tries: Number.POSITIVE_INFINITY, weights: { a: 3 } })).toBe('raised')
    expect(await store.redis.hgetall(store.keys.store)).toMatchObject({
      attempts: '0',
      'applied:0': '1',
      'applied:1': '0',
    })
    expect(await store.redis.hgetall(store.keys.weights)).toEqual({ a: '3' })
    expect(await store.make(3)).toBe('raised')
    expect(await store.redis.exists(store.keys.weights)).toBe(0)
  })

  test('a store that heard of a higher revision keeps it, and takes the options of the definition in between', async () => {
    const store = await clockedStore()
    await store.accept(['a'], { revision: 7 })
    expect(await store.make(5, { tries: 9 })).toBe('raised')
    expect(await store.redis.hmget(store.keys.store, 'revision', 'defined', 'attempts')).toEqual(['7', '5', '9'])
    expect(await store.accept(['a'], { from: 2, revision: 6 })).toEqual({ kind: 'outdated' })
  })

  test('left: one of an earlier subscription is there, or what its removal has not reached yet', async () => {
    const store = await clockedStore()
    await store.accept(names(2 * laneLimits.removal))
    expect(await store.make(5, { born: 5 })).toBe('left')
    expect(await store.make(4, { born: 0 })).toBe('outdated')
    expect(await store.remove(4)).toBe('more')
    expect(await store.make(5, { born: 5 })).toBe('left')
    while ((await store.remove(4)) === 'more');
    expect(await store.make(5, { born: 5 })).toBe('made')
    expect(await store.counts()).toEqual({})
    expect(await store.take(10)).toMatchObject({ items: [] })
  })

  test('whoever can give now under other weights is heard of', async () => {
    const store = await clockedStore()
    await store.make(2, { weights: { a: 0 } })
    await store.send('a', { times: 3 })
    for (const idleName of ['x', 'y', 'z', 'u']) expect(await store.take(1, { idleName })).toMatchObject({ items: [] })
    const heard = await store.listen()
    await store.make(3)
    expect(await heard()).toEqual(['u x y'])
    expect(lanesOf((await store.take(5)).items)).toBe('aaa')
  })
})

describe('accept.lua', () => {
  test('accepted: each event once, however often and in whatever pieces it comes', async () => {
    const store = await clockedStore()
    expect(await store.accept(['a', 'b', 'a'])).toEqual({ kind: 'accepted', items: 3 })
    expect(await store.accept(['a', 'b', 'a'])).toEqual({ kind: 'accepted', items: 0 })
    expect(await store.accept(['b', 'a', 'b', 'b'], { from: 2 })).toEqual({ kind: 'accepted', items: 2 })
    expect(await store.accept(['a'], { partition: 1 })).toEqual({ kind: 'accepted', items: 1 })
    expect((await store.take(10)).ids).toEqual(['0-1', '0-2', '0-3', '0-4', '1-1', '0-5'])
    expect(await store.counts()).toEqual({ in: 6, held: 6 })
  })

  test('outdated: a router that has not heard of the change; gone: no store, or one of an earlier subscription', async () => {
    const store = await clockedStore()
    await store.make(4)
    const before = await store.stored()
    expect(await store.accept(['a'], { revision: 3 })).toEqual({ kind: 'outdated' })
    expect(await store.accept(['a'], { revision: 9, born: 0 })).toEqual({ kind: 'outdated' })
    expect(await store.accept(['a'], { revision: 9, born: 9 })).toEqual({ kind: 'gone' })
    expect(await store.stored()).toEqual(before)
    await store.remove()
    expect(await store.accept(['a'])).toEqual({ kind: 'gone' })
    expect(await keysOf(store.redis, store.namespace)).toEqual([])
  })

  test('a store adopts a higher revision from any accept, also of what it has already', async () => {
    const store = await clockedStore()
    await store.accept(['a', 'a'])
    expect(await store.accept(['a', 'a'], { revision: 2 })).toEqual({ kind: 'accepted', items: 0 })
    expect(await store.accept(['a'], { from: 3, revision: 1 })).toEqual({ kind: 'outdated' })
  })

  test('seqs of today are told apart to the last digit', async () => {
    const store = await clockedStore()
    const from = 1_763_240_000_000_001
    await store.accept(['a', 'a'], { from })
    expect(await store.redis.hget(store.keys.store, 'applied:0')).toBe(String(from + 1))
    expect(await store.accept(['a', 'a', 'a'], { from })).toEqual({ kind: 'accepted', items: 1 })
    expect((await store.take(5)).ids).toEqual([from, from + 1, from + 2].map((seq) => `0-${seq}`))
  })

  test('as many lanes as a chunk has events', async () => {
    const store = await clockedStore()
    expect(await store.accept(names(10_000))).toEqual({ kind: 'accepted', items: 10_000 })
    expect(await store.redis.zcard(store.keys.turns)).toBe(10_000)
  })

  test('as many as there are items hear of them, who waits longest first', async () => {
    const store = await clockedStore()
    for (const idleName of ['x', 'y', 'z']) {
      await store.take(1, { idleName })
      store.pass(10)
    }
    const heard = await store.listen()
    await store.accept(['a', 'a'])
    await store.accept(['a', 'a'])
    await store.accept(['b'], { from: 3 })
    await store.accept(['b'], { from: 4 })
    expect(await heard()).toEqual(['x y', 'z'])
  })
})

describe('send.lua', () => {
  test('sent: the ids in order; a repeat is answered alike and stores nothing', async () => {
    const store = await clockedStore()
    const items = [store.item('a'), store.item('b'), store.item('a')]
    const sent = { kind: 'sent', nowMs: expect.any(Number), words: items.map(({ id }) => id) }
    expect(await store.sendAll(items, { n: 1 })).toEqual(sent)
    const stored = await store.stored()
    expect(await store.sendAll(items, { n: 1 })).toEqual(sent)
    expect(await store.stored()).toEqual(stored)
    expect((await store.take(5)).ids).toEqual([items[0]!.id, items[1]!.id, items[2]!.id])
    expect(await store.sendAll(items, { n: 1 })).toEqual(sent)
    expect(await store.counts()).toEqual({ in: 3, held: 3 })
  })

  test('late: a flush that comes after a later one of its process; others are not held up', async () => {
    const store = await clockedStore()
    await store.sendAll([store.item('a')], { n: 2 })
    const stored = await store.stored()
    expect(await store.sendAll([store.item('a')], { n: 1 })).toEqual({ kind: 'late' })
    expect(await store.stored()).toEqual(stored)
    expect(await store.sendAll([store.item('a')], { n: 1, process: 'q' })).toMatchObject({ kind: 'sent' })
  })

  test('gone: there is no such store', async () => {
    const store = await clockedStore()
    await store.remove()
    expect(await store.sendAll([store.item('a')])).toEqual({ kind: 'gone' })
    expect(await keysOf(store.redis, store.namespace)).toEqual([])
  })

  test('an answer is kept for an hour after the last flush of its process', async () => {
    const store = await clockedStore()
    await store.sendAll([store.item('a')], { n: 5 })
    store.pass(hour - 1)
    expect(await store.sendAll([store.item('a')], { n: 4 })).toEqual({ kind: 'late' })
    store.pass(1)
    await store.sendAll([], { process: 'q' })
    expect(await store.redis.hkeys(store.keys.remembered)).toEqual(['call:q'])
  })

  test('an idempotency key: duplicate for the same item, reused for another, fresh after 24 hours', async () => {
    const store = await clockedStore()
    const item = (fingerprint: string, once = 'k') => store.item('a', { once, fingerprint })
    const [first, other] = [item('f'), item('f', 'k2')]
    const reply = await store.sendAll([first, item('f'), item('g'), other])
    expect(reply).toEqual({
      kind: 'sent',
      nowMs: expect.any(Number),
      words: [first.id, `duplicate ${first.id}`, 'reused', other.id],
    })
    expect(await store.counts()).toEqual({ in: 2, waiting: 2 })
    store.pass(24 * hour - 1)
    expect(await store.sendAll([item('f'), item('g')])).toMatchObject({ words: [`duplicate ${first.id}`, 'reused'] })
    store.pass(1)
    const again = item('g')
    expect(await store.sendAll([again])).toEqual({ kind: 'sent', nowMs: expect.any(Number), words: [again.id] })
    expect(await store.sendAll([item('g')])).toEqual({
      kind: 'sent',
      nowMs: expect.any(Number),
      words: [`duplicate ${again.id}`],
    })
  })

  test('what is over is swept away faster than new keys come, and is over before it is swept', async () => {
    const store = await clockedStore()
    const keyed = (from: number, count: number) =>
      Array.from({ length: count }, (_, i) => store.item('a', { once: `k${from + i}` }))
    await store.sendAll(keyed(0, 1_000))
    store.pass(24 * hour)
    const again = keyed(999, 1)
    expect(await store.sendAll(again)).toEqual({ kind: 'sent', nowMs: expect.any(Number), words: [again[0]!.id] })
    const left = await store.redis.hlen(store.keys.remembered)
    expect(left).toBeLessThan(1_000)
    await store.sendAll(keyed(2_000, 100))
    expect(await store.redis.hlen(store.keys.remembered)).toBeLessThan(left)
    for (let i = 0; i < 6; i += 1) await store.sendAll(keyed(3_000 + 100 * i, 100))
    expect(await store.redis.hlen(store.keys.remembered)).toBe(1 + 100 + 600 + 1)
    expect(await store.redis.zcard(store.keys.forget)).toBe(1 + 100 + 600 + 1)
    expect(await store.sendAll([store.item('a', { once: 'k999' })])).toMatchObject({
      words: [`duplicate ${again[0]!.id}`],
    })
  })

  test('delayed: not given before its time; ttl: not given after it, and counted', async () => {
    const store = await clockedStore()
    const [late] = await store.send('a', { delayMs: 500 })
    const [short] = await store.send('b', { ttlMs: 100 })
    await store.send('b', { ttlMs: 501 })
    expect(await store.peek(5)).toContain(short)
    store.pass(499)
    const { items, dueInMs } = await store.take(5)
    expect([lanesOf(items), dueInMs]).toEqual(['b', 1])
    store.pass(1)
    expect((await store.take(5)).ids).toEqual([late])
    expect(await store.counts()).toEqual({ in: 3, held: 2, expired: 1 })
  })

  test('priority orders within a lane only; those of one priority keep their order', async () => {
    const store = await clockedStore()
    for (const priority of [0, -3, 5, 0, 100, 5, -100, -3]) await store.send('a', { priority, times: 2 })
    await store.send('b', { priority: -5 })
    const { items } = await store.take(20)
    expect(lanesOf(items)).toBe(`ab${'a'.repeat(15)}`)
    const ofA = items.map(readItem).filter(({ lane }) => lane === 'a')
    expect(ofA.map(({ priority }) => priority)).toEqual(
      [100, 5, 5, 0, 0, -3, -3, -100].flatMap((priority) => [priority, priority]),
    )
    for (const priority of [100, 5, 0, -3, -100]) {
      const ids = ofA.filter((item) => item.priority === priority).map(({ id }) => id)
      expect(ids).toEqual([...ids].sort())
    }
  })

  test('priority holds after five years of a hundred thousand turns a second', async () => {
    const store = await clockedStore()
    await store.redis.hset(store.keys.store, 'turn', String(2 ** 44))
    for (const priority of [-1, 0, 1, 99, 100, -100, -99]) await store.send('a', { priority, times: 2 })
    const first = await store.take(14)
    await store.settle(first.token, first.ids, { kind: 'back' })
    expect((await store.take(14)).ids).toEqual(first.ids)
    expect(first.items.map((item) => readItem(item).priority)).toEqual(
      [100, 99, 1, 0, -1, -99, -100].flatMap((priority) => [priority, priority]),
    )
  })

  test('as many hear as there are items that can be claimed now, and one of what is due before all else', async () => {
    const store = await clockedStore()
    for (const idleName of ['w', 'x', 'y', 'z']) await store.take(1, { idleName })
    const heard = await store.listen()
    await store.send('a', { delayMs: 10 })
    expect(await heard()).toEqual(['w'])
    await store.sendAll([store.item('a'), store.item('b', { delayMs: 11 }), store.item('b')])
    expect(await heard()).toEqual(['x y'])
  })

  test('a tenant may look like anything', async () => {
    const store = await clockedStore()
    const tenants = [
      '@a',
      '@',
      '0-1',
      'i000001',
      '-',
      '+inf',
      '1e3',
      '__index',
      '%1',
      '~',
      '*'.replace('*', '.'),
      'store',
    ]
    for (const tenant of tenants) await store.send(tenant)
    await store.make(2, { weights: Object.fromEntries(tenants.map((tenant) => [tenant, 1])) })
    const { items, token } = await store.take(20)
    expect(items.map((item) => readItem(item).lane)).toEqual(tenants)
    const ids = items.map((item) => readItem(item).id)
    await store.settle(token, ids.slice(0, 6), { kind: 'throttle', forMs: 10 })
    await store.settle(token, ids.slice(6), { kind: 'retry', afterMs: 10, reason: 'r' })
    expect(await store.take(20)).toMatchObject({ items: [], dueInMs: 10 })
    store.pass(10)
    const again = await store.take(20)
    expect(again.items.map((item) => readItem(item).lane).sort()).toEqual([...tenants].sort())
    await store.settle(again.token, again.ids, { kind: 'dead', reason: 'no' })
    expect(await store.redrive(...again.ids)).toBe(tenants.length)
    const last = await store.take(20)
    await store.settle(last.token, last.ids, { kind: 'ack' })
    expect((await keysOf(store.redis, store.namespace)).map((key) => key.split('}:')[1])).toEqual([
      ...['forget', 'remembered', 'store', 'weights'],
    ])
  })
})

describe('remove.lua', () => {
  test('more, then removed: no key is left, and nothing enters or leaves meanwhile', async () => {
    const store = await clockedStore()
    await store.make(2, { weights: { 'tenant-1': 2, 'tenant-2': 0 } })
    await store.accept(names(3_000), { revision: 2 })
    await store.send('b', { delayMs: 10, once: 'k' })
    await store.send('b', { priority: 3 })
    for (let i = 0; i < 600; i += 1) await store.take(1)
    const held = await store.take(3)
    await store.settle(held.token, held.ids.slice(0, 1), { kind: 'dead', reason: 'no' })
    await store.settle(held.token, held.ids.slice(1, 2), { kind: 'throttle', forMs: 10 })
    await store.enter('w', 's')
    await store.take(3_000, { idleName: 'x', leaseMs: 1 }).catch(() => undefined)
    expect(await store.remove()).toBe('more')
    expect(await store.claim(1)).toEqual({ kind: 'gone' })
    expect(await store.accept(['a'], { from: 9_000, revision: 2 })).toEqual({ kind: 'gone' })
    expect(await store.sendAll([store.item('a')])).toEqual({ kind: 'gone' })
    expect(await store.settle(held.token, held.ids, { kind: 'ack' })).toEqual({ kind: 'gone' })
    expect(await store.extend(held.token, held.ids[2]!, 5, 'o')).toEqual({ kind: 'gone' })
    expect(await store.enter('w', 's')).toMatchObject({ kind: 'gone' })
    expect(await store.pause('pause')).toBe('gone')
    expect(await store.peek(1)).toBeUndefined()
    expect(await store.redrive(held.ids[0]!)).toBe(0)
    expect(await store.discard(held.ids[0]!)).toBe(0)
    while ((await store.remove()) === 'more');
    expect(await keysOf(store.redis, store.namespace)).toEqual([])
    expect(await store.remove()).toBe('removed')
  })

  test('no lane is left behind, however many there are', async () => {
    const store = await clockedStore()
    const all = names(20_000)
    for (let from = 0; from < all.length; from += 1_000)
      await store.accept(all.slice(from, from + 1_000), { from: from + 1 })
    let steps = 1
    while ((await store.remove()) === 'more') steps += 1
    expect((await keysOf(store.redis, store.namespace)).length).toBe(0)
    expect(steps).toBeGreaterThanOrEqual(all.length / laneLimits.removal)
    expect(steps).toBeLessThanOrEqual(2 + all.length / laneLimits.removal)
  })

  test('one that is to be made meanwhile waits until nothing is left, also of what was remembered', async () => {
    const store = await clockedStore()
    await store.send('a', { once: 'o' })
    await store.claim(1, { token: undefined })
    for (const name of names(laneLimits.removal + 1)) await store.pause('pause', name)
    while ((await store.remove()) === 'more') expect(await store.make(9, { born: 9 })).toBe('left')
    expect(await keysOf(store.redis, store.namespace)).toEqual([])
  })

  test('a store of a later subscription of that name stays', async () => {
    const store = await clockedStore()
    await store.remove()
    await store.make(9, { born: 9 })
    await store.send('a')
    expect(await store.remove(8)).toBe('removed')
    expect((await store.take(1)).items).toHaveLength(1)
  })
})

test('without memory send and make are refused and write nothing; all else goes on until the store is empty', async () => {
  const server = await startRedis()
  onTestFinished(() => server.stop())
  const store = await clockedStore({ url: server.url })
  await store.send('a', { times: 6 })
  await store.redis.config('SET', 'maxmemory', '1')
  const stored = await store.stored()
  await expect(store.sendAll([store.item('a')])).rejects.toThrow('OOM')
  await expect(store.make(2)).rejects.toThrow('OOM')
  expect(await store.stored()).toEqual(stored)
  expect(await store.accept(['b'])).toEqual({ kind: 'accepted', items: 1 })
  expect(await store.peek(9)).toHaveLength(7)
  await store.enter('w', 's')
  const { token, ids } = await store.take(7)
  expect(await store.renew([token])).toEqual([])
  expect(await store.extend(token, ids[0]!, 100, 'own')).toMatchObject({ kind: 'extended' })
  await store.settle('own', ids.slice(0, 1), { kind: 'ack' })
  await store.settle(token, ids.slice(1, 3), { kind: 'dead', reason: 'r' })
  await store.settle(token, ids.slice(3), { kind: 'retry', afterMs: 0, reason: 'r' })
  expect([await store.redrive(ids[1]!), await store.discard(ids[2]!)]).toEqual([1, 1])
  expect(await store.claim(9, { token: undefined })).toMatchObject({ items: { length: 5 } })
  expect(await store.counts()).toEqual({ in: 7, out: 6, discarded: 1 })
  expect([await store.pause('pause'), await store.remove()]).toEqual(['done', 'removed'])
  expect(await keysOf(store.redis, store.namespace)).toEqual([])
})
