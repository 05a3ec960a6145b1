/** Every reply of sinks/stream/*.lua and log/count.lua, and every fate of an event. The tests set the clock. */
import { describe, expect, onTestFinished, test } from 'vitest'
import { countAbove, countEvents, countScript } from '../../src/log/count.ts'
import { processorKeys } from '../../src/redis/keys.ts'
import { runScript } from '../../src/redis/script.ts'
import {
  declareScript,
  discardScript,
  type Fate,
  keepLimits,
  redriveScript,
  resetScript,
  resumeScript,
  settleScript,
  shelfKey,
} from '../../src/sinks/stream/scripts.ts'
import { freshNamespace, keysOf, plainRedis } from '../support/bus.ts'
import { objects, testPartition } from '../support/partition.ts'

const nowUs = 5_000_000
const epoch = 1_000

/** A processor of its own whose partition 0 is held by w under epoch 1,000, and what its members hear. */
async function testStream() {
  const redis = plainRedis()
  const namespace = freshNamespace()
  const keys = processorKeys(namespace, 'search')
  onTestFinished(async () => {
    const left = await keysOf(redis, namespace)
    if (left.length > 0) await redis.unlink(...left)
  })
  await redis.hset(keys.owners, '0', `w ${epoch} 0 w`)
  const listener = plainRedis()
  const woken: string[] = []
  await listener.subscribe(keys.groupWake)
  listener.on('message', (_, names) => woken.push(names))
  const shelf = (object: string) => redis.lrange(shelfKey(keys, object), 0, -1)
  return {
    redis,
    keys,
    shelf,
    settle: (fates: readonly Fate[], { cursor = 10, under = epoch } = {}) =>
      runScript(redis, settleScript, { keys, partition: 0, epoch: under, cursor, nowUs, fates }),
    resume: (scope: 'all' | 'partitions' | 'objects', ...which: (string | number)[]) =>
      runScript(redis, resumeScript, { keys, scope, which }),
    redrive: (object: string, ...seqs: number[]) =>
      runScript(redis, redriveScript, { keys, partition: 0, object, letters: seqs.map(letterOf) }),
    discard: (scope: 'letters' | 'objects', ...which: string[]) =>
      runScript(redis, discardScript, { keys, scope, which }),
    /** What everyone was told so far: a message of our own comes after all of them. */
    async woken() {
      await redis.publish(keys.groupWake, 'end')
      await expect.poll(() => woken.at(-1)).toBe('end')
      return woken.splice(0).slice(0, -1)
    },
    /** The whole record: every key of the processor but its owners. */
    async stored() {
      const { blocked, dead, shelves, group, cursors } = keys
      const [a, b, c, d, e] = await Promise.all(
        [blocked, dead, shelves, group, cursors].map((key) => redis.hgetall(key)),
      )
      return { blocked: a, dead: b, shelves: c, group: d, cursors: e }
    },
  }
}

const onShelf = (seq: number) => `{"seq":${seq},"prev":null,"envelope":"e"}`
const letterOf = (seq: number) => ({ id: `0-${seq}`, event: onShelf(seq) })
const shelve = (object: string, seq: number): Fate => ['shelve', object, String(seq), onShelf(seq)]
const park = (object: string, reason = '{"error":"no"}'): Fate => ['park', object, reason]
const bury = (seq: number): Fate => ['dead', `0-${seq}`, `letter ${seq}`]

describe('declare.lua', () => {
  test('created: all cursors at once; known: they stay as they are', async () => {
    const { redis, keys } = await testStream()
    const declare = (...cursors: number[]) =>
      runScript(redis, declareScript, { keys, cursors: new Map(cursors.entries()) })
    expect(await declare(5, 1_763_240_000_000_000)).toBe('created')
    expect(await declare(7, 8, 9)).toBe('known')
    expect(await redis.hgetall(keys.cursors)).toEqual({ 0: '5', 1: '1763240000000000' })
  })
})

describe('settle.lua', () => {
  test('settled: the cursor moves forward, never back', async () => {
    const { settle, stored } = await testStream()
    expect(await settle([], { cursor: 20 })).toBe('settled')
    expect(await settle([], { cursor: 10 })).toBe('settled')
    expect((await stored()).cursors).toEqual({ 0: '20' })
  })

  test.each([
    ['another epoch', { under: epoch + 1 }, `w ${epoch} 0 w`],
    ['nobody holds it', {}, `- ${epoch} 0 w`],
    ['no owner yet', {}, undefined],
  ])('stale: %s; nothing is written', async (_, options, owner) => {
    const { redis, keys, settle, stored } = await testStream()
    if (owner === undefined) await redis.del(keys.owners)
    else await redis.hset(keys.owners, '0', owner)
    expect(await settle([bury(1), park('a/b'), shelve('a/b', 1), ['block', '{}']], options)).toBe('stale')
    expect(await stored()).toEqual({ blocked: {}, dead: {}, shelves: {}, group: {}, cursors: {} })
  })

  test('dead: kept under its id and by its time; the same again is one letter', async () => {
    const { redis, keys, settle, stored } = await testStream()
    await settle([bury(1)])
    await settle([bury(1), bury(2)])
    expect((await stored()).dead).toEqual({ '0-1': 'letter 1', '0-2': 'letter 2' })
    expect(await redis.zrange(keys.deadOrder, '0', '-1', 'WITHSCORES')).toEqual(['0-1', '5000000', '0-2', '5000000'])
  })

  test('dead: above the limit the oldest give way, and are counted', async () => {
    const { redis, keys, settle, stored } = await testStream()
    const old = Array.from({ length: keepLimits.dead }, (_, i) => `0-${String(i).padStart(6, '0')}`)
    await redis.hset(keys.dead, ...old.flatMap((id) => [id, 'old']))
    await redis.zadd(keys.deadOrder, ...old.flatMap((id, i) => [i, id]))
    expect(await settle([bury(1), bury(2)])).toBe('settled')
    const { dead, group } = await stored()
    expect([Object.keys(dead!).length, await redis.zcard(keys.deadOrder)]).toEqual([keepLimits.dead, keepLimits.dead])
    expect([dead![old[1]!], dead![old[2]!], dead!['0-1']]).toEqual([undefined, 'old', 'letter 1'])
    expect(group).toEqual({ deadDropped: '2' })
  })

  test('park and shelve: an object is set aside, its events in order, each once', async () => {
    const { settle, shelf, stored } = await testStream()
    const object = 'acme/a key: with {any} text\n'
    await settle([park(object), shelve(object, 11), shelve(object, 12)])
    await settle([shelve(object, 12), shelve(object, 13)])
    expect(await shelf(object)).toEqual([11, 12, 13].map(onShelf))
    const { shelves, group } = await stored()
    expect([shelves, group]).toEqual([{ [object]: '0 parked 13 {"error":"no"}' }, { shelved: '3' }])
    await settle([park(object, '{"error":"again"}')])
    expect((await stored()).shelves).toEqual({ [object]: '0 parked 13 {"error":"again"}' })
  })

  test('shelve: a shelf that is gone is made anew, released', async () => {
    const { settle, shelf, stored } = await testStream()
    expect(await settle([shelve('a/b', 1)])).toBe('settled')
    expect(await shelf('a/b')).toEqual([onShelf(1)])
    expect(await stored()).toMatchObject({ shelves: { 'a/b': '0 released 1 {}' }, group: { shelved: '1' } })
  })

  test('unshelve: taken off; the shelf goes with its last event; the same again changes nothing', async () => {
    const { settle, shelf, stored } = await testStream()
    await settle([park('a/b'), shelve('a/b', 1), shelve('a/b', 2)])
    await settle([['unshelve', 'a/b', onShelf(1)]])
    await settle([['unshelve', 'a/b', onShelf(1)]])
    expect([await shelf('a/b'), (await stored()).group]).toEqual([[onShelf(2)], { shelved: '1' }])
    await settle([['unshelve', 'a/b', onShelf(2)]])
    expect(await stored()).toMatchObject({ shelves: {}, group: { shelved: '0' } })
  })

  test('close: a shelf with nothing on it goes, one with something stays', async () => {
    const { settle, stored } = await testStream()
    await settle([park('a/empty'), park('a/full'), shelve('a/full', 1)])
    await settle([
      ['close', 'a/empty'],
      ['close', 'a/full'],
      ['close', 'a/unknown'],
    ])
    expect(Object.keys((await stored()).shelves!)).toEqual(['a/full'])
  })

  test('block: says why', async () => {
    const { settle, stored } = await testStream()
    await settle([['block', '{"error":"no"}']])
    expect((await stored()).blocked).toEqual({ 0: '{"error":"no"}' })
  })

  test('full: no room for another event; what takes off at least as much goes through', async () => {
    const { redis, keys, settle, stored } = await testStream()
    await settle([park('a/b'), shelve('a/b', 1)])
    await redis.hset(keys.group, 'shelved', keepLimits.shelved)
    expect(await settle([bury(9), shelve('a/b', 2)], { cursor: 99 })).toBe('full')
    expect(await stored()).toMatchObject({ dead: {}, cursors: { 0: '10' } })
    expect(await settle([['unshelve', 'a/b', onShelf(1)]])).toBe('settled')
  })

  test('full: no room for another object; one that is known needs none', async () => {
    const { redis, keys, settle, stored } = await testStream()
    const known = Array.from({ length: keepLimits.shelves }, (_, i) => `a/${i}`)
    await redis.hset(keys.shelves, ...known.flatMap((object) => [object, '0 parked 0 {}']))
    expect(await settle([bury(9), park('a/b')], { cursor: 99 })).toBe('full')
    expect(await stored()).toMatchObject({ dead: {}, cursors: {} })
    expect(await settle([park('a/1'), shelve('a/1', 1)])).toBe('settled')
  })
})

describe('reset.lua', () => {
  const reset = ({ redis, keys }: Awaited<ReturnType<typeof testStream>>, ...cursors: number[]) =>
    runScript(redis, resetScript, {
      keys,
      positions: cursors.map((cursor, partition) => ({ partition, cursor, trimmed: 0 })),
      nowUs,
    })

  test('unknown: no cursors; nothing is written', async () => {
    const stream = await testStream()
    expect(await reset(stream, 1)).toBe('unknown')
    expect(await stream.stored()).toMatchObject({ cursors: {}, group: {} })
    expect(await stream.woken()).toEqual([])
  })

  test('reset: forwards and back, under higher epochs, unblocked, and everyone hears of it', async () => {
    const stream = await testStream()
    const { redis, keys, settle } = stream
    await redis.hset(keys.owners, { 1: '- 9000000 7 x', 2: 'x 10 0 x' })
    await redis.hset(keys.cursors, { 0: '10', 1: '20', 2: '30', 3: '40' })
    await redis.hset(keys.blocked, { 0: '{}', 3: '{}' })
    expect(await reset(stream, 5, 25, 30)).toBe('reset')
    expect(await stream.stored()).toMatchObject({
      cursors: { 0: '5', 1: '25', 2: '30', 3: '40' },
      blocked: { 3: '{}' },
      group: { revision: '1' },
    })
    expect(await redis.hgetall(keys.owners)).toEqual({ 0: 'w 5000000 0 w', 1: '- 9000001 7 x', 2: 'x 5000000 0 x' })
    expect(await stream.woken()).toEqual(['*'])
    expect(await settle([], { cursor: 99 })).toBe('stale')
  })
})

describe('resume.lua', () => {
  async function setAside() {
    const stream = await testStream()
    await stream.settle([park('a/x'), shelve('a/x', 1), park('a/y'), ['block', '{}']])
    await stream.redis.hset(stream.keys.blocked, '7', '{}')
    return stream
  }

  test('all: every partition and object; again, nothing', async () => {
    const { resume, stored, woken } = await setAside()
    expect(await resume('all')).toEqual({ partitions: 2, objects: 2 })
    expect(await stored()).toMatchObject({
      blocked: {},
      shelves: { 'a/x': '0 released 1 {"error":"no"}', 'a/y': '0 released 0 {"error":"no"}' },
      group: { revision: '1' },
    })
    expect(await resume('all')).toEqual({ partitions: 0, objects: 0 })
    expect([await woken(), (await stored()).group!.revision]).toEqual([['*'], '1'])
  })

  test('partitions: only those named', async () => {
    const { resume, stored, woken } = await setAside()
    expect(await resume('partitions', 7, 8)).toEqual({ partitions: 1, objects: 0 })
    expect((await stored()).blocked).toEqual({ 0: '{}' })
    expect(await woken()).toEqual(['*'])
  })

  test('objects: only those named that are parked', async () => {
    const { resume, stored } = await setAside()
    expect(await resume('objects', 'a/x', 'a/unknown')).toEqual({ partitions: 0, objects: 1 })
    expect(await resume('objects', 'a/x')).toEqual({ partitions: 0, objects: 0 })
    expect((await stored()).shelves!['a/y']).toMatch(/^0 parked /)
  })
})

describe('redrive.lua', () => {
  test('redriven: from the dead letters onto a released shelf, in order', async () => {
    const { redis, keys, settle, redrive, shelf, stored, woken } = await testStream()
    await settle([bury(1), bury(2), bury(3)])
    expect(await redrive('a/b', 1, 3, 4)).toBe(2)
    expect(await shelf('a/b')).toEqual([1, 3].map(onShelf))
    expect(await stored()).toMatchObject({
      dead: { '0-2': 'letter 2' },
      shelves: { 'a/b': '0 released 0 {}' },
      group: { shelved: '2', revision: '1' },
    })
    expect(await redis.zrange(keys.deadOrder, '0', '-1')).toEqual(['0-2'])
    expect(await woken()).toEqual(['*'])
  })

  test('redriven: by seq between what waits there, and what is parked stays parked', async () => {
    const { settle, redrive, shelf, stored } = await testStream()
    await settle([bury(1), bury(4), bury(6), park('a/b'), shelve('a/b', 3), shelve('a/b', 5)])
    expect(await redrive('a/b', 4)).toBe(1)
    expect(await redrive('a/b', 1, 6)).toBe(2)
    expect(await shelf('a/b')).toEqual([1, 3, 4, 5, 6].map(onShelf))
    expect((await stored()).shelves).toEqual({ 'a/b': '0 parked 5 {"error":"no"}' })
  })

  test('redriven 0: none of them is a dead letter any more, and no shelf is made', async () => {
    const { redrive, stored, woken } = await testStream()
    expect(await redrive('a/b', 1, 2)).toBe(0)
    expect([await stored(), await woken()]).toMatchObject([{ shelves: {}, group: {} }, []])
  })

  test('full: no room for so many events, or for another object; nothing is written', async () => {
    const { redis, keys, settle, redrive, stored } = await testStream()
    await settle([bury(1), bury(2)])
    await redis.hset(keys.group, 'shelved', keepLimits.shelved - 1)
    expect(await redrive('a/b', 1, 2)).toBe('full')
    await redis.hset(keys.group, 'shelved', 0)
    const known = Array.from({ length: keepLimits.shelves }, (_, i) => `a/${i}`)
    await redis.hset(keys.shelves, ...known.flatMap((object) => [object, '0 released 0 {}']))
    expect(await redrive('a/b', 1, 2)).toBe('full')
    expect(Object.keys((await stored()).dead!)).toEqual(['0-1', '0-2'])
    expect(await redrive('a/1', 1, 2)).toBe(2)
  })
})

describe('discard.lua', () => {
  test('letters: how many were there; the others stay', async () => {
    const { redis, keys, settle, discard, stored, woken } = await testStream()
    await settle([bury(1), bury(2), bury(3)])
    expect(await discard('letters', '0-1', '0-3', '0-9')).toBe(2)
    expect((await stored()).dead).toEqual({ '0-2': 'letter 2' })
    expect(await redis.zrange(keys.deadOrder, '0', '-1')).toEqual(['0-2'])
    expect(await woken()).toEqual([])
  })

  test('objects: all that waits is gone; the empty shelf stays for the owner, released', async () => {
    const { settle, discard, shelf, stored, woken } = await testStream()
    await settle([park('a/b'), shelve('a/b', 1), shelve('a/b', 2), park('a/c'), shelve('a/c', 3)])
    expect(await discard('objects', 'a/b', 'a/unknown')).toBe(2)
    expect([await shelf('a/b'), await shelf('a/c')]).toEqual([[], [onShelf(3)]])
    expect(await stored()).toMatchObject({
      shelves: { 'a/b': '0 released 2 {"error":"no"}', 'a/c': '0 parked 3 {"error":"no"}' },
      group: { shelved: '1', revision: '1' },
    })
    expect(await woken()).toEqual(['*'])
  })

  test('objects: one that is being worked off is left alone', async () => {
    const { settle, resume, discard, shelf } = await testStream()
    await settle([park('a/b'), shelve('a/b', 1)])
    await resume('objects', 'a/b')
    expect(await discard('objects', 'a/b')).toBe(0)
    expect(await shelf('a/b')).toEqual([onShelf(1)])
  })
})

describe('count.lua', () => {
  /** Entries of 3, 4 and 1 events: 100 to 102, 200 to 203, 300. */
  async function threeEntries() {
    const p = testPartition()
    await p.flush(objects(3), { nowUs: 100 })
    await p.flush(objects(4), { nowUs: 200 })
    await p.flush(objects(1), { nowUs: 300 })
    return p
  }

  test('done: exact in the middle of entries, before the first, between and after the last', async () => {
    const { redis, keys } = await threeEntries()
    const seqs = [100, 101, 102, 200, 201, 202, 203, 300]
    const edges = [0, 99, 100, 101, 102, 150, 199, 200, 202, 203, 250, 300, 999]
    for (const after of edges)
      for (const upTo of edges.filter((edge) => edge > after)) {
        const { events, more } = await runScript(redis, countScript, { keys, after, upTo, maxEntries: 10 })
        const wanted = seqs.filter((seq) => seq > after && seq <= upTo).length
        expect([after, upTo, events, more]).toEqual([after, upTo, wanted, false])
      }
  })

  test('more: so many entries at a time, from where it has come to', async () => {
    const { redis, keys } = await threeEntries()
    const count = (after: number, upTo: number) => runScript(redis, countScript, { keys, after, upTo, maxEntries: 1 })
    expect(await count(100, 300)).toEqual({ events: 2, reached: 102, more: true })
    expect(await count(102, 300)).toEqual({ events: 4, reached: 203, more: true })
    expect(await count(203, 300)).toEqual({ events: 1, reached: 300, more: false })
    expect(await count(150, 201)).toEqual({ events: 2, reached: 201, more: false })
  })

  test('done: an empty log; a log of many steps is counted to its end', async () => {
    const p = testPartition()
    expect(await countEvents(p.redis, p.keys, 0, 1_000)).toBe(0)
    for (let i = 1; i <= 60; i += 1) await p.flush(objects(2), { nowUs: i * 10 })
    expect(await countEvents(p.redis, p.keys, 0, 601)).toBe(120)
    expect(await countEvents(p.redis, p.keys, 10, 600)).toBe(118)
    expect(await countEvents(p.redis, p.keys, 600, 600)).toBe(0)
  })
  test('all above a position: the same before, at and after what retention has taken', async () => {
    const { redis, keys, trim } = await threeEntries()
    expect(await countAbove(redis, keys, 0, 300)).toBe(8)
    expect(await trim({ maxEvents: 5 })).toMatchObject({ removed: 3 })
    for (const [after, count] of [
      [0, 5],
      [102, 5],
      [199, 5],
      [201, 3],
      [300, 0],
    ] as const)
      expect([after, await countAbove(redis, keys, after, 300)]).toEqual([after, count])
  })
})
