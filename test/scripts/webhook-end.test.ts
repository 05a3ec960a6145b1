/** The scripts with which people reach into webhooks: pause, letters, drop, remove, inspect. */
import { describe, expect, test } from 'vitest'
import { forever } from '../../src/lanes/record.ts'
import { type ClockedShard, clockedShard } from '../webhook-store/clocked.ts'

const texts = (n: number, from = 1): string[] => Array.from({ length: n }, (_, i) => `${from + i}`)
const withBatches = async (shard: ClockedShard, batches: number, name = 'h') => {
  await shard.make(name)
  await shard.accept(name, texts(3 * batches))
}

describe('pause', () => {
  test.each(['pause', 'resume'] as const)('%s of a webhook that is not there writes nothing', async (act) => {
    const shard = await clockedShard()
    expect(await shard.pause(act, 'h')).toBe('gone')
    expect(await shard.keysLeft()).toEqual([])
    await shard.make('g')
    expect(await shard.pause(act, 'h')).toBe('gone')
  })

  test('nothing of it is given until it is resumed; what comes meanwhile is kept, in order', async () => {
    const shard = await clockedShard()
    await withBatches(shard, 1)
    await withBatches(shard, 1, 'g')
    expect(await shard.pause('pause', 'h')).toBe('done')
    const since = shard.now()
    shard.pass(10)
    await shard.pause('pause', 'h')
    expect(await shard.fields('h')).toMatchObject({ paused: `${since}` })
    expect(await shard.redis.exists(shard.keys.announced)).toBe(0)
    expect((await shard.take()).batches.map(({ subscription }) => subscription)).toEqual(['g'])
    await shard.accept('h', texts(3, 4), { from: 4 })
    await shard.take(5, { idleName: 'x' })
    const heard = await shard.listen()
    expect(await shard.pause('resume', 'h')).toBe('done')
    expect(await heard()).toEqual(['x'])
    expect((await shard.fields('h')).paused).toBeUndefined()
    const { batches } = await shard.take()
    expect(batches.map(({ body }) => body)).toEqual(['[1,2,3]'])
    await shard.end(batches[0]!, 'delivered')
    expect(await shard.bodies()).toEqual(['[4,5,6]'])
  })

  test('what is held then can be settled, and its next one waits', async () => {
    const shard = await clockedShard()
    await withBatches(shard, 2)
    const [batch] = (await shard.take()).batches
    await shard.pause('pause', 'h')
    await shard.end(batch!, 'delivered')
    expect((await shard.take()).batches).toEqual([])
    expect(await shard.record('h')).toMatchObject({ waiting: 1, notBefore: forever })
  })

  test('disabled, it says why and since when, and is announced; resumed it is healthy, and is not announced any more', async () => {
    const shard = await clockedShard()
    await withBatches(shard, 1)
    await shard.end((await shard.take()).batches[0]!, 'failed')
    shard.pass(50)
    await shard.end((await shard.take()).batches[0]!, 'back', { disable: 'gone' })
    expect(await shard.fields('h')).toMatchObject({ disabled: 'gone', disabledAt: `${shard.now()}`, failures: '1' })
    expect((await shard.take()).hasAnnouncements).toBe(true)
    await shard.pause('resume', 'h')
    const fields = await shard.fields('h')
    for (const name of ['disabled', 'disabledAt', 'failures', 'failingSince']) expect(fields[name]).toBeUndefined()
    expect((await shard.take()).hasAnnouncements).toBe(false)
  })

  test('resumed, what waits to be tried again is tried at once, of every sequence; whatever else waits is not', async () => {
    const shard = await clockedShard()
    await shard.make('h', { sequences: 2 })
    await shard.make('g')
    await shard.accept('h', [...texts(3), ...texts(3).map((text) => ({ text, sequence: 1 }))])
    await shard.accept('g', texts(3))
    const { batches } = await shard.take()
    for (const batch of batches) await shard.end(batch, 'failed')
    expect((await shard.take()).batches).toEqual([])
    await shard.pause('resume', 'h')
    const again = await shard.take()
    expect(again.batches.map(({ subscription, sequence, attempts }) => [subscription, sequence, attempts])).toEqual([
      ['h', '0', 1],
      ['h', '1', 1],
    ])
  })

  test('resumed, a batch that was tried again and is gone does not come back', async () => {
    const shard = await clockedShard()
    await withBatches(shard, 1)
    await shard.end((await shard.take()).batches[0]!, 'failed')
    shard.pass(50)
    await shard.end((await shard.take()).batches[0]!, 'delivered')
    await shard.pause('resume', 'h')
    expect((await shard.take()).batches).toEqual([])
    expect(await shard.redis.exists(shard.keys.later)).toBe(0)
  })
})

describe('announced', () => {
  const disable = async (shard: ClockedShard) =>
    shard.end((await shard.take()).batches[0]!, 'back', { disable: 'it answered 410 Gone' })

  test('what was told is not told again; what came after it is', async () => {
    const shard = await clockedShard()
    await withBatches(shard, 1)
    await disable(shard)
    const first = `${shard.now()}`
    shard.pass(100)
    await shard.pause('resume', 'h')
    await disable(shard)
    expect(await shard.announced('h', first)).toBe('changed')
    expect(await shard.redis.smembers(shard.keys.announced)).toEqual(['h'])
    expect(await shard.announced('h', `${shard.now()}`)).toBe('done')
    expect(await shard.announced('h', `${shard.now()}`)).toBe('done')
    expect(await shard.redis.exists(shard.keys.announced)).toBe(0)
  })

  test('one that is not disabled any more, or not there, needs no telling', async () => {
    const shard = await clockedShard()
    await shard.make('h')
    await shard.redis.sadd(shard.keys.announced, 'h', 'none')
    expect(await shard.announced('h', '')).toBe('done')
    expect(await shard.announced('none', '')).toBe('done')
    expect(await shard.redis.exists(shard.keys.announced)).toBe(0)
  })
})

describe('letters', () => {
  const withLetter = async (shard: ClockedShard) => {
    await withBatches(shard, 2)
    const [batch] = (await shard.take()).batches
    await shard.end(batch!, 'dead')
    return batch!
  }

  test('redriven goes behind what waits of its sequence, as if never tried; it is in the backlog again', async () => {
    const shard = await clockedShard()
    const letter = await withLetter(shard)
    expect(await shard.letters('redrive', letter.id, 'none', letter.id)).toBe(1)
    expect(await shard.counts('h')).toEqual({ in: 6, dead: 3, backlog: 6, batches: 2 })
    expect(await shard.dead()).toEqual([])
    const [other] = (await shard.take()).batches
    expect(other!.body).toBe('[4,5,6]')
    await shard.end(other!, 'delivered')
    expect((await shard.take()).batches).toMatchObject([{ id: letter.id, body: letter.body, attempts: 0 }])
    expect(await shard.letters('redrive', letter.id)).toBe(0)
  })

  test('redriven alone it is given at once, and whoever is idle hears of it', async () => {
    const shard = await clockedShard()
    const letter = await withLetter(shard)
    await shard.end((await shard.take()).batches[0]!, 'delivered')
    await shard.take(1, { idleName: 'x' })
    const heard = await shard.listen()
    await shard.letters('redrive', letter.id)
    expect(await heard()).toEqual(['x'])
    expect((await shard.take()).batches).toMatchObject([{ id: letter.id }])
  })

  test('discarded it is gone', async () => {
    const shard = await clockedShard()
    const letter = await withLetter(shard)
    await shard.end((await shard.take()).batches[0]!, 'delivered')
    expect(await shard.letters('discard', letter.id)).toBe(1)
    expect(await shard.letters('discard', letter.id)).toBe(0)
    expect(await shard.counts('h')).toEqual({ in: 6, dead: 3, delivered: 3, batches: 2 })
    expect(await shard.record('h')).toBeUndefined()
    expect(await shard.redis.hgetall(shard.keys.store)).toMatchObject({ discarded: '1' })
    expect(await shard.redis.exists(shard.keys.dead, shard.keys.deadOrder)).toBe(0)
  })

  test.each(['redrive', 'discard'] as const)('%s without a shard finds nothing and makes nothing', async (act) => {
    const shard = await clockedShard()
    expect(await shard.letters(act, 'x')).toBe(0)
    expect(await shard.keysLeft()).toEqual([])
  })
})

describe('drop-letters', () => {
  test('the oldest dead batches are dropped, counted where they were; nothing of what waits', async () => {
    const shard = await clockedShard()
    expect(await shard.dropLetters(1)).toEqual([])
    await withBatches(shard, 2)
    await withBatches(shard, 1, 'g')
    for (const batch of (await shard.take()).batches) await shard.end(batch, 'dead')
    expect(await shard.dropLetters(1, 1)).toHaveLength(1)
    expect(await shard.dropLetters(1_000_000)).toHaveLength(1)
    expect(await shard.dropLetters(1_000_000)).toEqual([])
    expect(await shard.counts('h')).toEqual({ in: 6, dropped: 3, backlog: 3, batches: 2 })
    expect(await shard.counts('g')).toEqual({ in: 3, dropped: 3, batches: 1 })
    expect(await shard.redis.hgetall(shard.keys.store)).toMatchObject({ dropped: '2', deadBytes: '0' })
    expect(await shard.redis.exists(shard.keys.dead, shard.keys.deadOrder)).toBe(0)
  })
})

describe('drop', () => {
  test('gives up the oldest sealed batches until there are so many bytes, and counts their events', async () => {
    const shard = await clockedShard()
    await withBatches(shard, 5)
    await withBatches(shard, 5, 'g')
    const { bytes } = (await shard.record('h'))!
    const size = bytes / 5
    const dropped = await shard.drop('h', Math.floor(size) + 1)
    expect(dropped).toMatchObject({ batches: 2, events: 6 })
    expect(dropped.bytes).toBe(bytes - (await shard.record('h'))!.bytes)
    expect(await shard.counts('h')).toEqual({ in: 15, dropped: 6, backlog: 9, batches: 5 })
    expect(await shard.counts('g')).toEqual({ in: 15, backlog: 15, batches: 5 })
    expect((await shard.take(1)).batches.map(({ body }) => body)).toEqual(['[7,8,9]'])
  })

  test('no more than so many at once', async () => {
    const shard = await clockedShard()
    await withBatches(shard, 5)
    expect(await shard.drop('h', 1_000_000, 3)).toMatchObject({ batches: 3 })
    expect(await shard.drop('h', 1_000_000, 3)).toMatchObject({ batches: 2 })
    expect(await shard.drop('h', 1_000_000, 3)).toEqual({ batches: 0, events: 0, bytes: 0 })
    expect(await shard.record('h')).toBeUndefined()
  })

  test('never one that is held or is to be tried again, but those behind it, of every sequence', async () => {
    const shard = await clockedShard()
    await shard.make('h', { sequences: 2 })
    await shard.accept('h', [...texts(6), ...texts(7, 7).map((text) => ({ text, sequence: 1 }))])
    const { batches } = await shard.take()
    await shard.end(batches[1]!, 'failed')
    expect(await shard.drop('h', 1_000_000)).toMatchObject({ batches: 2, events: 6 })
    expect(await shard.record('h')).toMatchObject({ held: 1, later: 1, behind: 0, waiting: 0 })
    expect(await shard.counts('h')).toEqual({ in: 13, dropped: 6, backlog: 7, batches: 4 })
    await shard.end(batches[0]!, 'delivered')
    shard.pass(50)
    const again = await shard.take()
    await shard.end(again.batches[0]!, 'delivered')
    shard.pass(1_000)
    expect(await shard.bodies()).toEqual(['[13]'])
  })

  test('one that was handed back can be dropped, too', async () => {
    const shard = await clockedShard()
    await withBatches(shard, 1)
    await shard.end((await shard.take()).batches[0]!, 'back')
    expect(await shard.drop('h', 1)).toMatchObject({ batches: 1, events: 3 })
    expect(await shard.record('h')).toBeUndefined()
  })

  test('of what is not there drops nothing', async () => {
    const shard = await clockedShard()
    expect(await shard.drop('h', 1)).toEqual({ batches: 0, events: 0, bytes: 0 })
    expect(await shard.keysLeft()).toEqual([])
    await shard.make('g')
    expect(await shard.drop('h', 1)).toEqual({ batches: 0, events: 0, bytes: 0 })
  })
})

/** Something of everything: open, waiting, behind, held, later, handed back, dead, attempts, throttled. */
async function withEverything(shard: ClockedShard, name: string): Promise<void> {
  const of = (sequence: number, n: number) => Array.from({ length: n }, () => ({ text: '1', sequence }))
  await shard.make(name, { sequences: 5 })
  await shard.accept(name, [...of(0, 7), ...of(1, 6), ...of(2, 3), ...of(3, 6), ...of(4, 1)])
  const { batches } = await shard.take()
  const mine = batches.filter(({ subscription }) => subscription === name)
  await shard.end(mine[1]!, 'failed', { attempt: '{}' })
  await shard.end(mine[2]!, 'dead')
  await shard.end(mine[3]!, 'back', { disable: 'why' })
}

describe('remove', () => {
  test('[W11] takes all of a webhook away, and leaves the others as they were', async () => {
    const shard = await clockedShard()
    await shard.make('g', { sequences: 5 })
    const empty = await shard.keysLeft()
    await withEverything(shard, 'h')
    expect(await shard.remove('h')).toBe('removed')
    expect(await shard.keysLeft()).toEqual(empty)
    await shard.remove('g')
    await withEverything(shard, 'g')
    const facts = async () => ({
      ...{ fields: await shard.fields('g'), record: await shard.record('g'), open: await shard.open('g') },
      ...{ inspected: await shard.inspect('g'), dead: await shard.dead(), line: await shard.inLine() },
      announced: await shard.redis.smembers(shard.keys.announced),
    })
    const before = await facts()
    await withEverything(shard, 'h')
    expect(await shard.remove('h')).toBe('removed')
    expect(await facts()).toEqual(before)
    const store = await shard.redis.hgetall(shard.keys.store)
    expect(store).toMatchObject({ hooks: '1', waiting: '1', held: '1', behind: '3' })
    expect(store.bytes).toBe(String((await shard.record('g'))!.bytes))
  })

  test('with the last webhook of a shard goes the shard', async () => {
    const shard = await clockedShard()
    await withEverything(shard, 'h')
    await withEverything(shard, 'g')
    await shard.take(1, { idleName: 'x' })
    expect(await shard.remove('h')).toBe('removed')
    expect(await shard.remove('g')).toBe('removed')
    expect(await shard.keysLeft()).toEqual([])
    expect(await shard.remove('g')).toBe('removed')
    expect(await shard.keysLeft()).toEqual([])
  })

  test('one that was born after the removal stays', async () => {
    const shard = await clockedShard()
    await shard.make('h', { revision: 5, born: 5 })
    await shard.accept('h', texts(3), { revision: 5, born: 5 })
    expect(await shard.remove('h', 4)).toBe('removed')
    expect(await shard.bodies()).toEqual(['[1,2,3]'])
  })

  test('in bounded steps: from the first on it takes nothing in and gives nothing out', async () => {
    const shard = await clockedShard()
    await shard.make('g')
    await shard.make('h', { maxEvents: 1 })
    for (let from = 1; from < 1_200; from += 400) await shard.accept('h', texts(400), { from })
    const [held] = (await shard.take()).batches
    expect(await shard.remove('h')).toBe('more')
    expect(await shard.accept('h', texts(1), { from: 2_000 })).toEqual({ kind: 'gone' })
    expect((await shard.take()).batches).toEqual([])
    expect(await shard.end(held!, 'failed')).toEqual({ kind: 'settled', stale: [0] })
    expect(await shard.pause('resume', 'h')).toBe('gone')
    expect(await shard.inspect('h')).toBeUndefined()
    expect(await shard.drop('h', 1)).toMatchObject({ batches: 0 })
    expect(await shard.remove('h')).toBe('more')
    expect(await shard.remove('h')).toBe('removed')
    expect(await shard.redis.hgetall(shard.keys.store)).toMatchObject({
      waiting: '0',
      behind: '0',
      held: '0',
      bytes: '0',
    })
    expect(await shard.record('h')).toBeUndefined()
  })

  test('between two steps of it no late maker brings it back', async () => {
    const shard = await clockedShard()
    await shard.make('g')
    await shard.make('h', { maxEvents: 1, sequences: 2 })
    for (let from = 1; from < 1_200; from += 400) await shard.accept('h', texts(400), { from })
    await shard.make('h', { revision: 2, maxEvents: 9, sequences: 2 })
    await shard.accept('h', [{ text: '1', sequence: 1 }], { from: 2_000, revision: 2 })
    expect(await shard.remove('h', 5)).toBe('more')
    expect(await shard.open('h')).toEqual([])
    expect(await shard.make('h', { revision: 3, maxEvents: 9, sequences: 2 })).toBe('outdated')
    expect(await shard.accept('h', texts(1), { from: 2_001, revision: 3 })).toEqual({ kind: 'gone' })
    expect(await shard.make('h', { revision: 9, born: 9 })).toBe('left')
    while ((await shard.remove('h', 5)) === 'more');
    expect(await shard.make('h', { revision: 9, born: 9 })).toBe('made')
  })

  test.each(['waiting', 'dead'] as const)(
    'what is claimed between two steps of it is not left behind (%s)',
    async (what) => {
      const shard = await clockedShard()
      await shard.make('g')
      await shard.make('h', { maxEvents: 1, sequences: 600 })
      const empty = (await shard.keysLeft()).filter((key) => !key.endsWith(':h'))
      const events = Array.from({ length: 600 }, (_, sequence) => ({ text: '1', sequence }))
      await shard.accept('h', events)
      if (what === 'dead') {
        const { batches } = await shard.take(600)
        await shard.work(
          batches.map((batch) => shard.ending(batch, 'dead')),
          undefined,
        )
        await shard.accept('h', events.slice(0, 10), { from: 601 })
      }
      expect(await shard.remove('h')).toBe('more')
      const { batches } = await shard.take()
      for (const batch of batches) await shard.end(batch, 'failed')
      expect(await shard.letters('redrive', ...(await shard.dead()).slice(0, 3))).toBe(what === 'dead' ? 3 : 0)
      while ((await shard.remove('h')) === 'more');
      expect(await shard.keysLeft()).toEqual(empty)
    },
  )

  test('letters of others are passed over, however many there are', async () => {
    const shard = await clockedShard()
    await shard.make('g', { maxEvents: 1, sequences: 64 })
    await shard.accept(
      'g',
      Array.from({ length: 64 }, (_, sequence) => ({ text: '1', sequence })),
    )
    const others = (await shard.take(64)).batches
    await shard.work(
      others.map((batch) => shard.ending(batch, 'dead')),
      undefined,
    )
    await withBatches(shard, 1)
    await shard.end((await shard.take()).batches[0]!, 'dead')
    expect(await shard.remove('h')).toBe('removed')
    expect((await shard.dead()).sort()).toEqual(others.map(({ id }) => id).sort())
    expect(await shard.redis.zcard(shard.keys.deadOrder)).toBe(64)
  })

  test('made again it begins anew', async () => {
    const shard = await clockedShard()
    await shard.make('g')
    await withEverything(shard, 'h')
    await shard.remove('h', 2)
    expect(await shard.make('h', { revision: 3, born: 3, applied: [50, 0] })).toBe('made')
    expect(await shard.counts('h')).toEqual({})
    expect(await shard.accept('h', texts(3), { from: 49, revision: 3, born: 3 })).toMatchObject({
      kind: 'accepted',
      events: 1,
    })
    shard.pass(100)
    expect(await shard.bodies()).toEqual(['[3]'])
  })
})

describe('inspect', () => {
  test('of what is not there answers nothing', async () => {
    const shard = await clockedShard()
    expect(await shard.inspect('h')).toBeUndefined()
    await shard.make('g')
    expect(await shard.inspect('h')).toBeUndefined()
  })

  test('[W25] shows open batches with their deadlines, sealed ones wherever they are, without their bodies', async () => {
    const shard = await clockedShard()
    await withEverything(shard, 'g')
    await withEverything(shard, 'h')
    const seen = (await shard.inspect('h'))!
    expect(seen).toMatchObject({ nowMs: shard.now(), dead: 1, fields: await shard.fields('h') })
    expect(seen.open).toEqual(['0', '4'].map((sequence) => ({ sequence, dueMs: shard.now() + 100, events: 1 })))
    const until = shard.now() + 10_000
    expect(seen.sealed.map(({ place, lease, dueMs }) => ({ place, lease, dueMs }))).toEqual([
      { place: 'held', lease: { worker: 'w', sinceMs: shard.now(), untilMs: until }, dueMs: undefined },
      { place: 'waiting', lease: undefined, dueMs: undefined },
      { place: 'behind', lease: undefined, dueMs: undefined },
      { place: 'later', lease: undefined, dueMs: shard.now() + 50 },
      { place: 'behind', lease: undefined, dueMs: undefined },
      { place: 'behind', lease: undefined, dueMs: undefined },
    ])
    for (const { headers, bytes } of seen.sealed) {
      expect(headers).toMatch(/^\S+ 0 h \d .*\n\{"type":"busbar.batch","tenant":"h".*\}$/)
      expect(bytes).toBe(headers.length + '\n[1,1,1]'.length)
    }
  })

  test('at most so many', async () => {
    const shard = await clockedShard()
    await shard.make('h', { maxEvents: 1, sequences: 3 })
    await shard.accept(
      'h',
      Array.from({ length: 30 }, (_, i) => ({ text: '1', sequence: i % 3 })),
    )
    expect((await shard.inspect('h', 7))!.sealed).toHaveLength(7)
    expect((await shard.inspect('h', 100))!.sealed).toHaveLength(30)
  })

  test('what is not to be shown is not read', async () => {
    const shard = await clockedShard()
    await withBatches(shard, 3)
    await shard.end((await shard.take()).batches[0]!, 'back')
    // Where it reads it would hear of the wrong type.
    await shard.redis.del(shard.keys.behind)
    await shard.redis.set(shard.keys.behind, 'spoiled')
    expect((await shard.inspect('h', 1))!.sealed).toMatchObject([{ place: 'waiting' }])
    await shard.redis.del(shard.keys.items)
    await shard.redis.set(shard.keys.items, 'spoiled')
    expect((await shard.inspect('h', 0))!.sealed).toEqual([])
  })

  test('writes nothing', async () => {
    const shard = await clockedShard()
    await withEverything(shard, 'h')
    const dump = async () => Promise.all((await shard.keysLeft()).map((key) => shard.redis.dumpBuffer(key)))
    const before = await dump()
    await shard.inspect('h')
    expect(await dump()).toEqual(before)
  })
})
