/** The scripts that make webhooks and gather their events: fences, and when an open batch is sealed. */
import { describe, expect, test } from 'vitest'
import { type ClockedShard, clockedShard, plainWrap } from '../webhook-store/clocked.ts'

const texts = (n: number, from = 1): string[] => Array.from({ length: n }, (_, i) => `{"n":${from + i}}`)
const body = (n: number, from = 1): string => `[${texts(n, from).join(',')}]`
const open = async (shard: ClockedShard, name = 'h') => (await shard.open(name)).map(({ events }) => events)

describe('make', () => {
  test('makes the shard with the first webhook, and none of its keys is there without one', async () => {
    const shard = await clockedShard()
    expect(await shard.keysLeft()).toEqual([])
    expect(await shard.make('h', { applied: [5, 7] })).toBe('made')
    expect(await shard.make('g')).toBe('made')
    expect(await shard.redis.hgetall(shard.keys.store)).toEqual({
      ...{ revision: '1', born: '1', defined: '1', attempts: '0', weighted: '0', ordered: '1', parks: '0', hooks: '2' },
    })
    expect(await shard.fields('h')).toEqual({
      ...{ revision: '1', born: '1', defined: '1', secrets: '0 made', sequences: '1' },
      ...{ maxEvents: '3', maxWaitMs: '100', maxBytes: '10000', keepEvents: '1000' },
      ...{ 'applied:0': '5', 'applied:1': '7' },
    })
    expect(await shard.redis.hget(shard.keys.definitions, 'h')).toBe('0 made\n{"url":"u"}')
    // Small in memory: a value of more than 64 bytes would make it three times as large.
    expect(await shard.redis.object('ENCODING', `${shard.keys.hookPrefix}h`)).toBe('listpack')
  })

  test('raises a definition; one that is older, or the same, changes nothing', async () => {
    const shard = await clockedShard()
    await shard.make('h', { applied: [5, 7] })
    expect(await shard.make('h', { revision: 4, maxEvents: 9, applied: [0, 0] })).toBe('raised')
    const raised = await shard.fields('h')
    expect(raised).toMatchObject({ revision: '4', defined: '4', maxEvents: '9', 'applied:0': '5', secrets: '0 made' })
    for (const revision of [3, 4]) expect(await shard.make('h', { revision, maxEvents: 2 })).toBe('outdated')
    expect(await shard.fields('h')).toEqual(raised)
    expect(await shard.redis.hget(shard.keys.store, 'hooks')).toBe('1')
  })

  test('of an earlier creation is outdated; of a later one, what is left has to go first', async () => {
    const shard = await clockedShard()
    await shard.make('h', { revision: 5, born: 5 })
    const before = await shard.fields('h')
    expect(await shard.make('h', { revision: 9, born: 4 })).toBe('outdated')
    expect(await shard.make('h', { revision: 9, born: 9 })).toBe('left')
    expect(await shard.fields('h')).toEqual(before)
    expect(await shard.remove('h', 8)).toBe('removed')
    expect(await shard.make('h', { revision: 9, born: 9 })).toBe('made')
  })

  test('keeps a revision that an accept has raised', async () => {
    const shard = await clockedShard()
    await shard.make('h')
    await shard.accept('h', texts(1), { revision: 7 })
    expect(await shard.make('h', { revision: 6 })).toBe('raised')
    expect(await shard.fields('h')).toMatchObject({ revision: '7', defined: '6' })
  })

  test('uses the secret that a definition has, with the one before it for a while', async () => {
    const shard = await clockedShard()
    await shard.make('h', { secret: 'first' })
    expect(await shard.fields('h')).toMatchObject({ secrets: '0 first' })
    await shard.make('h', { revision: 2, secret: 'first' })
    expect(await shard.fields('h')).toMatchObject({ secrets: '0 first' })
    await shard.make('h', { revision: 3, secret: 'second', overlapMs: 500 })
    expect(await shard.fields('h')).toMatchObject({ secrets: `0 second\n${shard.now() + 500} first` })
    await shard.make('h', { revision: 4, secret: '' })
    expect(await shard.fields('h')).toMatchObject({ secrets: `0 second\n${shard.now() + 500} first` })
  })
})

describe('a definition that changes', () => {
  test('does not bring back a secret that was rotated since; another one that it has is the newest', async () => {
    const shard = await clockedShard()
    await shard.make('h', { secret: 'declared' })
    await shard.rotate('h', 'rotated', 500)
    const rotated = `0 rotated\n${shard.now() + 500} declared`
    await shard.make('h', { revision: 2, secret: 'declared', maxEvents: 9 })
    expect(await shard.fields('h')).toMatchObject({ secrets: rotated, maxEvents: '9' })
    await shard.make('h', { revision: 3, secret: 'other', overlapMs: 900 })
    expect((await shard.fields('h')).secrets).toMatch(/^0 other\n/)
    await shard.make('h', { revision: 4, secret: '' })
    await shard.make('h', { revision: 5, secret: 'declared' })
    expect((await shard.fields('h')).secrets).toMatch(/^0 declared\n/)
    expect(await shard.redis.object('ENCODING', `${shard.keys.hookPrefix}h`)).toBe('listpack')
  })

  test.each([20, 900])('moves the deadline of what is open: %i ms', async (maxWaitMs) => {
    const shard = await clockedShard()
    await shard.make('h', { maxWaitMs: 100 })
    await shard.accept('h', texts(1))
    const openedAt = shard.now()
    shard.pass(50)
    const heard = await shard.listen()
    expect(await shard.make('h', { revision: 2, maxWaitMs })).toBe('raised')
    expect(await shard.open('h')).toMatchObject([{ dueMs: openedAt + maxWaitMs }])
    expect(await heard()).toEqual([`@${openedAt + maxWaitMs}`])
  })
})

describe('rotate', () => {
  test('puts a new secret before the one it replaces, once however often it is said', async () => {
    const shard = await clockedShard()
    await shard.make('h')
    expect(await shard.rotate('h', 'new', 700)).toBe('done')
    const until = shard.now() + 700
    expect(await shard.fields('h')).toMatchObject({ secrets: `0 new\n${until} made` })
    shard.pass(100)
    expect(await shard.rotate('h', 'new', 700)).toBe('done')
    expect(await shard.fields('h')).toMatchObject({ secrets: `0 new\n${until} made` })
    expect(await shard.rotate('h', 'newer', 700)).toBe('done')
    expect(await shard.fields('h')).toMatchObject({ secrets: `0 newer\n${shard.now() + 700} new\n${until} made` })
  })

  test('of a webhook that is not there writes nothing', async () => {
    const shard = await clockedShard()
    expect(await shard.rotate('h', 'new')).toBe('gone')
    expect(await shard.keysLeft()).toEqual([])
  })
})

describe('the fences of accept', () => {
  test('a webhook that is not there takes nothing', async () => {
    const shard = await clockedShard()
    expect(await shard.accept('h', texts(1))).toEqual({ kind: 'gone' })
    expect(await shard.keysLeft()).toEqual([])
    await shard.make('g')
    expect(await shard.accept('h', texts(1))).toEqual({ kind: 'gone' })
  })

  test('an older revision is outdated, a newer one is remembered', async () => {
    const shard = await clockedShard()
    await shard.make('h', { revision: 3 })
    const before = await shard.fields('h')
    expect(await shard.accept('h', texts(1), { revision: 2 })).toEqual({ kind: 'outdated' })
    expect(await shard.fields('h')).toEqual(before)
    expect(await shard.accept('h', texts(1), { revision: 4 })).toMatchObject({ kind: 'accepted', events: 1 })
    expect(await shard.accept('h', texts(1), { from: 2, revision: 3 })).toEqual({ kind: 'outdated' })
  })

  test('an earlier creation of the name is outdated, a later one has nothing here', async () => {
    const shard = await clockedShard()
    await shard.make('h', { revision: 5, born: 5 })
    expect(await shard.accept('h', texts(1), { revision: 6, born: 4 })).toEqual({ kind: 'outdated' })
    expect(await shard.accept('h', texts(1), { revision: 6, born: 6 })).toEqual({ kind: 'gone' })
    expect(await shard.counts('h')).toEqual({})
  })

  test('what was taken is passed over: a doubled accept, a late one, one that has more', async () => {
    const shard = await clockedShard()
    await shard.make('h', { maxEvents: 10 })
    expect(await shard.accept('h', texts(3))).toMatchObject({ kind: 'accepted', events: 3 })
    expect(await shard.accept('h', texts(3))).toMatchObject({ kind: 'accepted', events: 0 })
    expect(await shard.accept('h', texts(1))).toMatchObject({ kind: 'accepted', events: 0 })
    expect(await shard.accept('h', texts(4, 2), { from: 2 })).toMatchObject({ kind: 'accepted', events: 2 })
    expect(await shard.accept('h', texts(1, 2), { from: 2 })).toMatchObject({ kind: 'accepted', events: 0 })
    expect(await shard.fields('h')).toMatchObject({ 'applied:0': '5', in: '5', backlog: '5' })
    const [batch] = await shard.open('h')
    expect(batch!.pieces).toEqual([plainWrap, ...texts(5).map((text, i) => `0-${i + 1} ${text}`)])
  })

  test('partitions are told apart', async () => {
    const shard = await clockedShard()
    await shard.make('h', { maxEvents: 10 })
    await shard.accept('h', texts(2), { from: 5 })
    expect(await shard.accept('h', texts(2), { from: 1, partition: 1 })).toMatchObject({ kind: 'accepted', events: 2 })
    expect(await shard.fields('h')).toMatchObject({ 'applied:0': '6', 'applied:1': '2' })
  })

  test('each delivery of a call is answered for itself, and only its webhook takes anything', async () => {
    const shard = await clockedShard()
    await shard.make('h')
    await shard.make('g', { revision: 2 })
    await shard.make('f')
    const gone = shard.gathered('none', texts(2))
    const replies = await shard.deliver([
      shard.gathered('h', texts(3)),
      gone,
      shard.gathered('g', texts(3)),
      shard.gathered('f', texts(1)),
    ])
    expect(replies).toMatchObject([
      { kind: 'accepted', events: 3 },
      { kind: 'gone' },
      { kind: 'outdated' },
      { kind: 'accepted', events: 1 },
    ])
    expect(await shard.counts('g')).toEqual({})
    expect(await shard.counts('f')).toEqual({ in: 1, backlog: 1 })
    expect(await shard.bodies()).toEqual([body(3)])
  })

  test('a call that ends with an error has taken nothing: all of it can come again', async () => {
    const shard = await clockedShard()
    await shard.make('h')
    await shard.make('g')
    const openOfG = `${shard.keys.openPrefix}g:0`
    await shard.accept('g', texts(1))
    await shard.redis.del(openOfG)
    await shard.redis.set(openOfG, 'spoiled')
    const both = [shard.gathered('h', texts(2)), shard.gathered('g', texts(2, 2), { from: 2 })]
    await expect(shard.deliver(both)).rejects.toThrow('WRONGTYPE')
    await shard.redis.del(openOfG)
    expect(await shard.deliver(both)).toMatchObject([{ events: 2 }, { events: 2 }])
    expect((await shard.open('h'))[0]!.pieces).toHaveLength(3)
  })

  test('an open batch that is counted and not there stops nobody: neither the next event nor a claim', async () => {
    const shard = await clockedShard()
    await shard.make('h')
    await shard.make('g')
    await shard.deliver([shard.gathered('h', texts(1)), shard.gathered('g', texts(1))])
    await shard.redis.del(`${shard.keys.openPrefix}h:0`)
    shard.pass(100)
    expect(await shard.bodies()).toEqual([body(1)])
    expect(await shard.redis.zcard(shard.keys.deadlines)).toBe(0)
    expect(await shard.accept('h', texts(1, 2), { from: 2 })).toMatchObject({ events: 1 })
    expect(await shard.open('h')).toMatchObject([{ events: 1 }])
  })

  test('a replay has a fence of its own, for a day: it takes what was taken by its route, once', async () => {
    const shard = await clockedShard()
    const replay = `${shard.keys.replayPrefix}job`
    await shard.make('h')
    await shard.accept('h', texts(3))
    const again = shard.gathered('h', texts(3))
    expect(await shard.deliver([again], { replay })).toMatchObject([{ kind: 'accepted', events: 3 }])
    expect(await shard.deliver([again], { replay })).toMatchObject([{ kind: 'accepted', events: 0 }])
    expect(await shard.deliver([{ ...again, revision: 0 }], { replay })).toEqual([{ kind: 'outdated' }])
    expect(await shard.redis.hgetall(replay)).toEqual({ 0: '3' })
    expect(await shard.redis.pttl(replay)).toBeGreaterThan(86_000_000)
    expect(await shard.fields('h')).toMatchObject({ 'applied:0': '3', in: '6' })
    // Events that come by their route meanwhile are behind it.
    expect(await shard.accept('h', texts(1, 4), { from: 4 })).toMatchObject({ kind: 'accepted', events: 1 })
  })
})

describe('an open batch', () => {
  test('is kept with its deadline, of which whoever dispatches hears if it is the first', async () => {
    const shard = await clockedShard()
    const heard = await shard.listen()
    await shard.make('h')
    await shard.make('g', { maxWaitMs: 50 })
    await shard.accept('h', texts(1))
    const due = shard.now() + 100
    shard.pass(10)
    await shard.accept('h', texts(1, 2), { from: 2 })
    await shard.accept('g', texts(1))
    expect(await shard.open('h')).toEqual([
      {
        ...{ sequence: '0', openedMs: due - 100, events: 2, dueMs: due },
        ...{ bytes: plainWrap.length + 2 * '0-1 {"n":1}'.length },
        pieces: [plainWrap, '0-1 {"n":1}', '0-2 {"n":2}'],
      },
    ])
    expect(await heard()).toEqual([`@${due}`, `@${shard.now() + 50}`])
    expect(await shard.inLine()).toEqual([])
  })

  test('[W01] is sealed when it is full, however many an accept brings', async () => {
    const shard = await clockedShard()
    await shard.make('h')
    await shard.accept('h', texts(1))
    await shard.accept('h', texts(2, 2), { from: 2 })
    expect(await shard.open('h')).toEqual([])
    await shard.accept('h', texts(8, 4), { from: 4 })
    expect(await open(shard)).toEqual([2])
    expect(await shard.record('h')).toMatchObject({ waiting: 1, behind: 2 })
    expect(await shard.counts('h')).toEqual({ in: 11, backlog: 11, batches: 3 })
    expect(await shard.redis.zcard(shard.keys.deadlines)).toBe(1)
  })

  test('that is filled more than once by one accept leaves nothing of the first behind', async () => {
    const shard = await clockedShard()
    await shard.make('h', { maxWaitMs: 5 })
    await shard.accept('h', texts(2))
    await shard.accept('h', texts(4, 3), { from: 3 })
    expect(await shard.open('h')).toEqual([])
    expect(await shard.redis.zcard(shard.keys.deadlines)).toBe(0)
    await shard.accept('h', texts(2, 7), { from: 7 })
    await shard.accept('h', texts(5, 9), { from: 9 })
    expect((await shard.open('h'))[0]).toMatchObject({
      events: 1,
      pieces: [plainWrap, '0-13 {"n":13}'],
    })
  })

  test('is sealed before an event that would make it too big; one that is too big alone goes alone', async () => {
    const shard = await clockedShard()
    const long = (n: number) => `"${'x'.repeat(n)}"`
    await shard.make('h', { maxEvents: 10, maxBytes: 200 })
    await shard.accept('h', [long(80), long(80), long(80)])
    expect(await open(shard)).toEqual([1])
    await shard.accept('h', [long(500), long(10)], { from: 4 })
    expect(await open(shard)).toEqual([1])
    const sealed = [`[${long(80)},${long(80)}]`, `[${long(80)}]`, `[${long(500)}]`]
    for (const one of sealed) {
      const { batches } = await shard.take()
      expect(batches.map((batch) => batch.body)).toEqual([one])
      await shard.end(batches[0]!, 'delivered')
    }
  })

  test.each(['busbar', 'b'])(
    'has a body of maxBytes at most, with all that is around its events (%s)',
    async (format) => {
      const shard = await clockedShard()
      const start = `{"subscription":"${'s'.repeat(64)}","events":[`
      await shard.make('h', { maxEvents: 100, maxBytes: 300, maxWaitMs: 0 })
      for (let from = 1; from < 60; from += 1)
        await shard.accept('h', [`"${'x'.repeat(from)}"`], { from, wrap: `${format}\n${start}\n]}` })
      let events = 0
      for (let { batches } = await shard.take(); batches.length > 0; { batches } = await shard.take()) {
        expect(Buffer.byteLength(batches[0]!.body)).toBeLessThanOrEqual(300)
        events += batches[0]!.events
        await shard.end(batches[0]!, 'delivered')
      }
      expect(events).toBe(59)
    },
  )

  test('takes no more when another definition has lowered what it may have', async () => {
    const shard = await clockedShard()
    await shard.make('h', { maxEvents: 10 })
    await shard.accept('h', texts(5))
    await shard.make('h', { revision: 2, maxEvents: 3 })
    await shard.accept('h', texts(1, 6), { from: 6, revision: 2 })
    expect(await shard.bodies()).toEqual([body(5)])
    expect(await open(shard)).toEqual([1])
  })

  test('is sealed before an event that is wrapped otherwise', async () => {
    const shard = await clockedShard()
    await shard.make('h')
    await shard.accept('h', texts(2))
    await shard.accept('h', texts(1, 3), { from: 3, wrap: 'routemaster\n<\n>' })
    const { batches } = await shard.take()
    expect(batches).toMatchObject([{ body: body(2), format: 'busbar', events: 2, ids: ['0-1', '0-2'] }])
    await shard.end(batches[0]!, 'delivered')
    shard.pass(100)
    const next = await shard.take()
    expect(next.batches).toMatchObject([{ body: '<{"n":3}>', format: 'routemaster', ids: ['0-3'] }])
  })

  test('[W02] is sealed when it is due, by a claim or by the event that comes then', async () => {
    const shard = await clockedShard()
    await shard.make('h')
    await shard.make('g')
    await shard.deliver([shard.gathered('h', texts(1)), shard.gathered('g', texts(1))])
    shard.pass(99)
    expect((await shard.take()).claimed).toMatchObject({ items: [], dueInMs: 1 })
    shard.pass(1)
    await shard.accept('g', texts(1, 2), { from: 2 })
    expect(await shard.open('g')).toEqual([])
    const { batches } = await shard.take()
    expect(batches.map(({ subscription, body: its }) => [subscription, its])).toEqual([
      ['g', body(2)],
      ['h', body(1)],
    ])
    expect(batches[1]).toMatchObject({ openedMs: shard.now() - 100, sealedMs: shard.now() })
  })

  test('that waits for nothing is sealed at once, and whoever is idle hears of it', async () => {
    const shard = await clockedShard()
    await shard.make('h', { maxWaitMs: 0, sequences: 3 })
    await shard.take(5, { idleName: 'x' })
    const heard = await shard.listen()
    await shard.accept('h', [
      { text: '1', sequence: 0 },
      { text: '2', sequence: 2 },
      { text: '3', sequence: 1 },
      { text: '4', sequence: 2 },
    ])
    expect(await heard()).toEqual(['x'])
    expect(await shard.bodies()).toEqual(['[1]', '[2,4]', '[3]'])
  })

  test('of a busy sequence is not due before the batch before it is gone; who ends that one seals it', async () => {
    const shard = await clockedShard()
    await shard.make('h')
    await shard.accept('h', texts(4))
    const first = await shard.take()
    expect(first.batches.map((batch) => batch.body)).toEqual([body(3)])
    shard.pass(200)
    expect(await shard.bodies()).toEqual([])
    // It was looked at: the next look is a second later.
    expect((await shard.open('h'))[0]).toMatchObject({ dueMs: shard.now() + 1_000 })
    await shard.accept('h', texts(1, 5), { from: 5 })
    expect(await open(shard)).toEqual([2])
    await shard.end(first.batches[0]!, 'delivered')
    expect(await shard.open('h')).toEqual([])
    expect(await shard.bodies()).toEqual([body(2, 4)])
  })

  test.each(['delivered', 'dead'] as const)(
    'is sealed and given by the call that says %s of the one before',
    async (became) => {
      const shard = await clockedShard()
      await shard.make('h')
      await shard.accept('h', texts(4))
      const [batch] = (await shard.take()).batches
      shard.pass(200)
      const { claimed } = await shard.work([shard.ending(batch!, became)], shard.claim(5))
      expect(claimed).toMatchObject({ items: [expect.stringContaining('[{"n":4}]')] })
    },
  )

  test.each(['failed', 'throttled', 'back'] as const)('stays open when the one before is %s', async (became) => {
    const shard = await clockedShard()
    await shard.make('h')
    await shard.accept('h', texts(4))
    const [batch] = (await shard.take()).batches
    shard.pass(200)
    await shard.end(batch!, became)
    expect(await open(shard)).toEqual([1])
  })

  test('there is one of each sequence: each has its own deadline, and is busy for itself', async () => {
    const shard = await clockedShard()
    await shard.make('h', { sequences: 3 })
    const of = (sequence: number, ...its: number[]) => its.map((n) => ({ text: `${n}`, sequence }))
    await shard.accept('h', [...of(0, 1, 2, 3), ...of(1, 4)])
    shard.pass(50)
    await shard.accept('h', [...of(0, 5), ...of(2, 6)], { from: 5 })
    expect((await shard.open('h')).map(({ sequence, dueMs }) => [sequence, dueMs - shard.now()])).toEqual([
      ['0', 100],
      ['1', 50],
      ['2', 100],
    ])
    expect(await shard.bodies()).toEqual(['[1,2,3]'])
    shard.pass(100)
    const { batches } = await shard.take()
    expect(batches.map(({ sequence, body: its }) => [sequence, its])).toEqual([
      ['1', '[4]'],
      ['2', '[6]'],
    ])
    expect((await shard.open('h')).map(({ sequence }) => sequence)).toEqual(['0'])
  })

  test('sealed is an item of its lane: a header for the scripts, and the body byte for byte', async () => {
    const shard = await clockedShard()
    await shard.make('h')
    const odd = '{"a":"é\\n\\u001e%s}]\\"" }'
    await shard.accept('h', [odd, ' "b" ', '3'], { partition: 1, wrap: 'busbar\n{"e":[\n],\n"x":1}' })
    const [batch] = (await shard.take()).batches
    expect(batch!.id).toMatch(/^s\d{16}AAA$/)
    expect(batch!.text).toBe(
      `${batch!.id} 0 h 0 0 ${shard.now()} 0 0 \n{"type":"busbar.batch","tenant":"h","format":"busbar","events":3,"opened":${shard.now()},"ids":"1-1,1-2,1-3"}\n{"e":[${odd}, "b" ,3],\n"x":1}`,
    )
  })

  test('no two batches of a call have one id', async () => {
    const shard = await clockedShard()
    await shard.make('h', { maxEvents: 1, sequences: 64 })
    const events = Array.from({ length: 130 }, (_, i) => ({ text: '1', sequence: i % 64 }))
    await shard.accept('h', events)
    const { batches } = await shard.take(100)
    expect(new Set(batches.map(({ id }) => id)).size).toBe(64)
    expect(batches.slice(0, 2).map(({ id }) => id.slice(-3))).toEqual(['AAA', 'AAB'])
    expect(batches.at(-1)!.id.slice(-3)).toBe('AA_')
  })
})

describe('keepEvents', () => {
  test('[W13] the oldest batch that nobody holds gives way, and is counted', async () => {
    const shard = await clockedShard()
    await shard.make('h', { keepEvents: 7 })
    await shard.pause('pause', 'h')
    expect(await shard.accept('h', texts(12))).toEqual({ kind: 'accepted', events: 12, dropped: 6 })
    expect(await shard.accept('h', texts(12))).toEqual({ kind: 'accepted', events: 0, dropped: 0 })
    expect(await shard.counts('h')).toEqual({ in: 12, dropped: 6, backlog: 6, batches: 4 })
    await shard.pause('resume', 'h')
    const { batches } = await shard.take()
    expect(batches.map((batch) => batch.body)).toEqual([body(3, 7)])
    expect(await shard.redis.hgetall(shard.keys.store)).toMatchObject({ in: '4', dropped: '2', held: '1', behind: '1' })
  })

  test('neither what is held, nor what waits to be tried again, nor an open batch gives way', async () => {
    const shard = await clockedShard()
    await shard.make('h', { keepEvents: 1 })
    await shard.accept('h', texts(9))
    // A batch gives way as a whole.
    expect(await shard.counts('h')).toEqual({ in: 9, dropped: 9, batches: 3 })
    await shard.accept('h', texts(1, 10), { from: 10 })
    shard.pass(100)
    const [held] = (await shard.take()).batches
    await shard.accept('h', texts(5, 11), { from: 11 })
    expect(await shard.counts('h')).toMatchObject({ backlog: 3, dropped: 12 })
    await shard.end(held!, 'failed')
    await shard.accept('h', texts(2, 16), { from: 16 })
    expect(await shard.counts('h')).toMatchObject({ backlog: 2, dropped: 15 })
    shard.pass(50)
    const again = await shard.take()
    expect(again.batches.map(({ id }) => id)).toEqual([held!.id])
    await shard.end(again.batches[0]!, 'delivered')
    expect(await shard.counts('h')).toEqual({ in: 17, delivered: 1, dropped: 15, backlog: 1, batches: 6 })
  })

  test('a sequence that is stuck gives way itself, and not the others', async () => {
    const shard = await clockedShard()
    const of = (sequence: number, n: number, from: number) => texts(n, from).map((text) => ({ text, sequence }))
    await shard.make('h', { keepEvents: 12, sequences: 2 })
    await shard.accept('h', of(0, 12, 1))
    const [stuck] = (await shard.take()).batches
    await shard.end(stuck!, 'failed')
    shard.pass(1)
    await shard.accept('h', of(1, 3, 13), { from: 13 })
    expect(await shard.counts('h')).toMatchObject({ dropped: 3, backlog: 12 })
    const { batches } = await shard.take()
    expect(batches.map((batch) => batch.body)).toEqual([body(3, 13)])
    await shard.end(batches[0]!, 'delivered')
    shard.pass(50)
    await shard.end((await shard.take()).batches[0]!, 'delivered')
    expect(await shard.bodies()).toEqual([body(3, 7)])
  })

  test('100 batches give way at a time; the rest with what comes next', async () => {
    const shard = await clockedShard()
    await shard.make('h', { maxEvents: 1 })
    await shard.accept('h', texts(250))
    await shard.make('h', { revision: 2, keepEvents: 10, maxEvents: 1 })
    for (const [i, dropped] of [100, 200, 243].entries()) {
      await shard.accept('h', texts(1), { from: 251 + i, revision: 2 })
      expect(await shard.counts('h')).toMatchObject({ dropped })
    }
    expect(await shard.counts('h')).toMatchObject({ backlog: 10, in: 253 })
  })

  test('of one webhook is nothing to the others', async () => {
    const shard = await clockedShard()
    await shard.make('h', { keepEvents: 1 })
    await shard.make('g')
    await shard.deliver([shard.gathered('g', texts(9)), shard.gathered('h', texts(9))])
    expect(await shard.counts('g')).toEqual({ in: 9, backlog: 9, batches: 3 })
    expect(await shard.bodies()).toEqual([body(3)])
  })
})
