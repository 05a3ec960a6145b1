/** Every reply of log/trim.lua, what it removes, and when heads go. Seqs are small because the tests set the clock. */
import { describe, expect, test } from 'vitest'
import { envelopeOf, objects, type Partition, testPartition } from '../support/partition.ts'

const trimmed = (removed: number, more = false) => ({ removed, lost: 0, more, holder: '' })
const bytesOf = (object: string) => Buffer.byteLength(envelopeOf(object))
const idsOf = async (p: Partition) => (await p.entries()).map(([id]) => id)

/** Three entries: 100–101, 200–202, 300. */
async function threeEntries(): Promise<Partition> {
  const p = testPartition()
  await p.flush(['acme/a', 'acme/b'], { nowUs: 100 })
  await p.flush(['acme/a', 'acme/b', 'acme/c'], { nowUs: 200 })
  await p.flush(['acme/a'], { nowUs: 300 })
  return p
}

describe('limits', () => {
  test('nothing is over any: nothing is removed or written', async () => {
    const p = await threeEntries()
    const before = [await p.stored(), await p.meta(), await idsOf(p)]
    expect(await p.trim({ ageSeq: 100, maxEvents: 6, maxBytes: 6 * bytesOf('acme/a') })).toEqual(trimmed(0))
    expect([await p.stored(), await p.meta(), await idsOf(p)]).toEqual(before)
    expect(await testPartition().trim({ maxEvents: 0 })).toEqual(trimmed(0))
  })

  test('[P15] by age: entries whose last event is too old, with trimmed, events and bytes kept up', async () => {
    const p = await threeEntries()
    expect(await p.trim({ ageSeq: 201 })).toEqual(trimmed(2))
    expect(await idsOf(p)).toEqual(['202-0', '300-0'])
    const bytes = String(4 * bytesOf('acme/a'))
    expect(await p.meta()).toEqual({ last: '300', trimmed: '101', events: '4', bytes, lost: '0', headsClosed: '300' })
    expect(await p.trim({ ageSeq: 202 })).toEqual(trimmed(3))
    expect(await p.meta()).toMatchObject({ trimmed: '202', events: '1', bytes: String(bytesOf('acme/a')) })
  })

  test('[P15] by count: whole entries, until no more than the limit are left', async () => {
    const p = await threeEntries()
    expect(await p.trim({ maxEvents: 5 })).toEqual(trimmed(2))
    expect(await p.trim({ maxEvents: 4 })).toEqual(trimmed(0))
    expect(await p.trim({ maxEvents: 2 })).toEqual(trimmed(3))
    expect(await idsOf(p)).toEqual(['300-0'])
  })

  test('[P15] by bytes: until no more than the limit are left', async () => {
    const p = await threeEntries()
    expect(await p.trim({ maxBytes: 6 * bytesOf('acme/a') - 1 })).toEqual(trimmed(2))
    expect(await p.trim({ maxBytes: 4 * bytesOf('acme/a') })).toEqual(trimmed(0))
    expect(await p.trim({ maxBytes: bytesOf('acme/a') })).toEqual(trimmed(3))
    expect(await idsOf(p)).toEqual(['300-0'])
  })

  test('[P15] everything can go, and the next event goes on as before', async () => {
    const p = await threeEntries()
    expect(await p.trim({ maxEvents: 0 })).toEqual(trimmed(6))
    expect(await p.meta()).toMatchObject({ last: '300', trimmed: '300', events: '0', bytes: '0' })
    expect(await p.flush(['acme/a'], { nowUs: 1 })).toMatchObject({ last: 301, prevs: ['300'] })
    expect(await p.meta()).toMatchObject({ events: '1', bytes: String(bytesOf('acme/a')) })
  })
})

describe('steps', () => {
  test('more: a call looks at about 4,096 events; done: nothing is left to remove', async () => {
    const p = testPartition()
    for (let i = 0; i < 20; i += 1) await p.flush(objects(256))
    let removed = 0
    const replies: boolean[] = []
    for (let more = true; more; ) {
      const reply = await p.trim({ maxEvents: 300 })
      expect(reply.removed).toBeLessThanOrEqual(4_096 + 256)
      removed += reply.removed
      more = reply.more
      replies.push(more)
    }
    expect(replies).toEqual([true, false])
    expect(removed).toBe(19 * 256)
    expect(await p.count()).toBe(256)
  })

  test('more: or at about 1 MiB of them', async () => {
    const p = testPartition()
    const large = envelopeOf('acme/a', 'order.paid', 'x'.repeat(100_000))
    for (let i = 0; i < 20; i += 1) await p.flush([['acme/a', large]])
    const reply = await p.trim({ maxEvents: 0 })
    expect(reply.more).toBe(true)
    expect(reply.removed).toBeLessThanOrEqual(12)
    expect(await p.trim({ maxEvents: 0 })).toMatchObject({ removed: 20 - reply.removed, lost: 0 })
  })
})

describe('holds', () => {
  const hold = (p: Partition, name: string, seq: number) => p.redis.hset(p.keys.holds, name, seq)

  test('[P15] the lowest one stops trimming, entries above it stay whole', async () => {
    const p = await threeEntries()
    await hold(p, 'search', 202)
    await hold(p, 'mail', 101)
    expect(await p.trim({ ageSeq: 1_000 })).toEqual({ ...trimmed(2), holder: 'mail' })
    expect(await p.trim({ maxEvents: 2 })).toEqual({ ...trimmed(0), holder: 'mail' })
    await hold(p, 'mail', 201)
    expect(await p.trim({ ageSeq: 1_000 })).toEqual({ ...trimmed(0), holder: 'mail' })
    await p.redis.hdel(p.keys.holds, 'mail')
    expect(await p.trim({ ageSeq: 1_000 })).toEqual({ ...trimmed(3), holder: 'search' })
    expect(await idsOf(p)).toEqual(['300-0'])
    expect(await p.meta()).toMatchObject({ lost: '0' })
  })

  test('[P15] past twice the events the hold gives way, and what it lost is counted', async () => {
    const p = await threeEntries()
    await hold(p, 'mail', 100)
    expect(await p.trim({ maxEvents: 3 })).toEqual({ ...trimmed(0), holder: 'mail' })
    // Event 100 was passed: only 101 of the first entry is lost.
    expect(await p.trim({ maxEvents: 2 })).toEqual({ removed: 2, lost: 1, more: false, holder: 'mail' })
    expect(await p.meta()).toMatchObject({ lost: '1', events: '4' })
    expect(await p.trim({ maxEvents: 1 })).toEqual({ removed: 3, lost: 3, more: false, holder: 'mail' })
    expect(await p.meta()).toMatchObject({ lost: '4', events: '1' })
  })

  test('[P15] past twice the bytes too; age alone never takes what is held', async () => {
    const p = await threeEntries()
    await hold(p, 'mail', 0)
    expect(await p.trim({ ageSeq: 1_000 })).toEqual({ ...trimmed(0), holder: 'mail' })
    const maxBytes = 2.5 * bytesOf('acme/a')
    expect(await p.trim({ maxBytes })).toEqual({ removed: 2, lost: 2, more: false, holder: 'mail' })
  })
})

describe('heads', () => {
  const generations = async ({ redis, keys }: Partition) => [
    await redis.hgetall(keys.heads),
    await redis.hgetall(keys.headsOld),
    await redis.hget(keys.meta, 'headsClosed'),
  ]

  test('[P16] go in two generations, each only after all of its events', async () => {
    const p = testPartition()
    await p.flush(['acme/a', 'acme/b'], { nowUs: 100 })
    await p.flush(['acme/c'], { nowUs: 200 })
    // Nothing trimmed: nothing closed.
    await p.trim({})
    expect(await generations(p)).toEqual([{ 'acme/a': '100', 'acme/b': '101', 'acme/c': '200' }, {}, null])
    // The first trim closes the first generation, which keeps heads of trimmed events and of kept ones.
    await p.trim({ ageSeq: 101 })
    const first = { 'acme/a': '100', 'acme/b': '101', 'acme/c': '200' }
    expect(await generations(p)).toEqual([{}, first, '200'])
    expect(await p.flush(['acme/a', 'acme/d'], { nowUs: 300 })).toMatchObject({ prevs: ['100', ''] })
    // 200 is still there: the generation that has its head stays.
    await p.trim({ ageSeq: 199 })
    expect(await generations(p)).toEqual([{ 'acme/a': '300', 'acme/d': '301' }, first, '200'])
    await p.trim({ ageSeq: 200 })
    expect(await generations(p)).toEqual([{}, { 'acme/a': '300', 'acme/d': '301' }, '301'])
    expect(await p.flush(['acme/c', 'acme/d'], { nowUs: 400 })).toMatchObject({ prevs: ['', '301'] })
  })

  test('[P16] of a log that retention has emptied are all gone after the next looks', async () => {
    const p = testPartition()
    await p.flush(objects(1_000), { nowUs: 100 })
    await p.trim({ maxEvents: 0 })
    expect(await p.redis.hlen(p.keys.headsOld)).toBe(1_000)
    await p.trim({ maxEvents: 0 })
    expect(await generations(p)).toEqual([{}, {}, null])
    expect(await p.flush(['acme/o:0'], { nowUs: 2_000 })).toMatchObject({ last: 2_000, prevs: [''] })
  })
})
