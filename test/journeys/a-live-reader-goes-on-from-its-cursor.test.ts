import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import type { Bus } from '../../src/bus.ts'
import type { Live } from '../../src/bus-types.ts'
import type { Event } from '../../src/event.ts'
import { readCursor, writeCursor } from '../../src/log/cursor.ts'
import type { Gap, Since } from '../../src/sinks/live/reader.ts'
import { plainRedis, take, testBus } from '../support/bus.ts'
import { storedEvents } from '../support/stored.ts'

const idsByPartition = (events: readonly { id: string }[]) => {
  const places = new Map<string, string[]>()
  for (const { id } of events) {
    const place = id.split('-')[0]!
    places.set(place, [...(places.get(place) ?? []), id])
  }
  return new Map([...places].sort())
}

const upTo = (count: number) => Array.from({ length: count }, (_, i) => i)

describe('resuming', () => {
  /** How a reader is left: how many it takes, whether it is closed before its cursor is asked for, how much follows. */
  const stop = fc.record({ take: fc.nat(70), closed: fc.boolean(), publish: fc.nat(30), other: fc.boolean() })

  async function publishSome(bus: Bus, count: number): Promise<void> {
    const keys = ['a', 'b', 'c', 'd', 'e']
    await Promise.all([
      bus.commit(
        keys[count % 5]!,
        [...upTo(count), 0].map((i) => [i % 3 ? 'order.line' : 'stock.moved', i] as const),
      ),
      ...upTo(count).map((i) => bus.publish(i % 2 ? 'order.paid' : 'stock.moved', i, { key: keys[i % 5]! })),
    ])
  }

  test('[L02] from any stop, also in the middle of a flush: no gap, no repeat', async () => {
    const property = fc.asyncProperty(fc.array(stop, { minLength: 3, maxLength: 8 }), async (stops) => {
      const one = testBus({ partitions: 3 })
      const two = testBus({ namespace: one.namespace, partitions: 3 })
      const gaps: Gap[] = []
      const got: Event[] = []
      let since: Since = 'beginning'
      await publishSome(one, 20)
      for (const { take: wanted, closed, publish, other } of stops) {
        const live: Live<Event> = (other ? two : one).live('order.*', { since, onGap: (gap) => gaps.push(gap) })
        await live.ready()
        // Never more than there is: a reader that waits would not stop.
        const stored = await storedEvents(redis, one.namespace)
        const left = stored.filter(({ type }) => type.startsWith('order.')).length - got.length
        got.push(...(await take(live, Math.min(wanted, left))))
        if (closed) await live.return!()
        await publishSome(one, publish)
        since = live.cursor
        await live.return!()
      }
      const stored = (await storedEvents(redis, one.namespace)).filter(({ type }) => type.startsWith('order.'))
      const rest = one.live('order.*', { since, onGap: (gap) => gaps.push(gap) })
      got.push(...(await take(rest, stored.length - got.length)))
      expect(idsByPartition(got)).toEqual(idsByPartition(stored))
      expect(gaps).toEqual([])
      const last = await one.publish('order.last', 1)
      expect((await rest.next()).value!.id).toBe(last.id)
      await Promise.all([one.close(), two.close()])
    })
    const redis = plainRedis()
    await fc.assert(property, { numRuns: 12, endOnFailure: true })
  })

  test('[L02] event by event, each with a reader of its own', async () => {
    const bus = testBus({ partitions: 2 })
    const answers = await bus.commit(
      'k',
      upTo(40).map((i) => ['a.b', i] as const),
    )
    let since: Since = 'beginning'
    for (const { id } of answers) {
      const live: Live<Event> = bus.live('a.*', { since })
      expect((await live.next()).value!.id).toBe(id)
      since = live.cursor
      await live.return!()
    }
  })

  test('[L02] the cursor stands still once the reader has ended, whatever is published then', async () => {
    const bus = testBus({ partitions: 2 })
    const busy = bus.live('a.*')
    await busy.ready()
    const left = bus.live('a.*')
    await left.ready()
    await bus.publish('a.b', 1, { key: 'k' })
    expect((await left.next()).value!.data).toBe(1)
    await left.return!()
    for (let i = 2; i < 20; i += 1) await bus.publish('a.b', i, { key: `k${i}` })
    await take(busy, 19)
    const resumed = bus.live('a.*', { since: left.cursor })
    expect((await take(resumed, 18)).map(({ data }) => data).sort((a, b) => Number(a) - Number(b))).toEqual(
      upTo(18).map((i) => i + 2),
    )
  })

  test('[L02] a reader that was never asked for anything has a cursor too: where it was to begin', async () => {
    const bus = testBus({ partitions: 2 })
    await bus.publish('a.b', 1, { key: 'k' })
    const first = bus.live('a.*', { since: 'beginning' })
    await first.next()
    await bus.publish('a.b', 2, { key: 'k' })
    const cases: [Since, number][] = [
      [first.cursor, 2],
      ['beginning', 1],
      [0, 1],
      [new Date(5), 1],
    ]
    for (const [since, data] of cases) {
      const untouched = bus.live('a.*', { since })
      const { cursor } = untouched
      await untouched.return!()
      expect(untouched.cursor).toBe(cursor)
      expect((await bus.live('a.*', { since: cursor }).next()).value!.data).toBe(data)
    }
    expect(bus.live('a.*').cursor).toBe('now')
  })

  test('[L02] the same cursor serves log.read', async () => {
    const bus = testBus({ partitions: 2 })
    await publishSome(bus, 30)
    const live = bus.live('>', { since: 'beginning' })
    const first = await take(live, 17)
    const rest: Event[] = []
    for await (const event of bus.log.read({ since: live.cursor })) rest.push(event)
    const stored = await storedEvents(plainRedis(), bus.namespace)
    expect(idsByPartition([...first, ...rest])).toEqual(idsByPartition(stored))
  })
})

describe('where to begin', () => {
  test('[L02] beginning, now, a time, a Date', async () => {
    const bus = testBus({ partitions: 3 })
    const old: string[] = []
    for (let i = 0; i < 10; i += 1) old.push((await bus.publish('a.b', i, { key: `k${i}` })).id)
    // The next millisecond of the server's clock, which is what times are compared with.
    const lastSeq = Number(old.at(-1)!.split('-')[1])
    const after = Math.floor(lastSeq / 1000) + 1
    while ((await bus.publish('a.b', 'x', { key: 'k' })).seq < after * 1000);
    const stored = await storedEvents(plainRedis(), bus.namespace)
    const firstOf = async (since?: Since) => {
      const live = since === undefined ? bus.live('a.*') : bus.live('a.*', { since })
      await live.ready()
      return live
    }
    expect((await take(await firstOf('beginning'), stored.length)).map(({ id }) => id)).toEqual(
      expect.arrayContaining(old),
    )
    const [now, usual, future] = await Promise.all([firstOf('now'), firstOf(), firstOf(Date.now() + 3_600_000)])
    const [byTime, byDate] = await Promise.all([firstOf(after), firstOf(new Date(after))])
    const early = await firstOf(0)
    expect((await take(early, stored.length)).map(({ id }) => id)).toEqual(expect.arrayContaining(old))
    for (const live of [byTime, byDate]) {
      const { value } = await live.next()
      expect(value!.seq).toBeGreaterThanOrEqual(after * 1000)
      expect(old).not.toContain(value!.id)
    }
    const last = await bus.publish('a.b', 'last')
    for (const live of [now, usual, future]) expect((await live.next()).value!.id).toBe(last.id)
  })

  test('[L02] exactly from the time on: an event of that very millisecond is in, the one before is not', async () => {
    const bus = testBus({ partitions: 1 })
    // A thousand seqs in a row: one of them is the very first of its millisecond.
    const seqs = (
      await bus.commit(
        'k',
        upTo(1_000).map((i) => ['a.b', i] as const),
      )
    ).map(({ seq }) => seq)
    const ms = seqs.find((seq) => seq % 1_000 === 0)! / 1_000
    const expected = seqs.filter((seq) => seq >= ms * 1_000)
    for (const since of [ms, new Date(ms)]) {
      const got = await take(bus.live('a.*', { since }), expected.length)
      expect(got.map(({ seq }) => seq)).toEqual(expected)
      const read: number[] = []
      for await (const { seq } of bus.log.read({ since })) read.push(seq)
      expect(read).toEqual(expected)
    }
    const before: number[] = []
    for await (const { seq } of bus.log.read({ until: ms })) before.push(seq)
    expect(before).toEqual(seqs.filter((seq) => seq < ms * 1_000))
  })
})

describe('a cursor that cannot be used', () => {
  test('[L02] of another partition count: refused, saying both', async () => {
    const [three, four] = [testBus({ partitions: 3 }), testBus({ partitions: 4 })]
    const live = three.live('a.*', { since: 'beginning' })
    await live.ready()
    const refused = { code: 'CURSOR_INVALID', message: expect.stringMatching(/with 3 partitions, this one has 4/) }
    await expect(four.live('a.*', { since: live.cursor }).next()).rejects.toMatchObject(refused)
    await expect(four.log.read({ since: live.cursor }).next()).rejects.toMatchObject(refused)
    await expect(four.log.hold('x', live.cursor)).rejects.toMatchObject(refused)
  })

  const garbage: unknown[] = [
    '',
    'garbage',
    'AAA',
    '!!!!',
    '\0',
    '😀',
    '__proto__',
    'A'.repeat(10_000),
    'gICAgICAgICAgICAgIA',
    -1,
    1.5e16,
    Number.NaN,
    new Date('x'),
    {},
    [],
    null,
    true,
  ]
  test.each(garbage.map((since) => ({ since, as: String(JSON.stringify(since)).slice(0, 30) })))(
    '[L02] $as: CURSOR_INVALID, and the bus goes on',
    async ({ since }) => {
      const bus = testBus({ partitions: 2 })
      const live = bus.live('a.*', { since: since as Since })
      await expect(live.next()).rejects.toMatchObject({ code: 'CURSOR_INVALID', retryable: false })
      await expect(bus.log.read({ since: since as string }).next()).rejects.toMatchObject({ code: 'CURSOR_INVALID' })
      const fine = bus.live('a.*')
      await fine.ready()
      const { id } = await bus.publish('a.b', 1)
      expect((await fine.next()).value!.id).toBe(id)
    },
  )

  test('[L02] of a log that has been lost: said as a gap, and everything new comes', async () => {
    const bus = testBus({ partitions: 2 })
    const { seq } = await bus.publish('a.b', 1, { key: 'k' })
    const ahead = writeCursor([seq + 5_000_000_000, seq + 5_000_000_000])
    const gaps: Gap[] = []
    const live = bus.live('a.*', { since: ahead, onGap: (gap) => gaps.push(gap) })
    await live.ready()
    expect(gaps.map(({ to }) => to)).toEqual([seq + 5_000_000_000, seq + 5_000_000_000])
    const { id } = await bus.publish('a.b', 2, { key: 'k' })
    expect((await live.next()).value!.id).toBe(id)
  })

  test.each(['xyz', 'now0', 'yesterday', '10m', 'AAAA', '12'])('[L02] %s is not taken for a position', (word) => {
    for (const partitions of [1, 2, 16])
      expect(() => readCursor(word, partitions)).toThrow(expect.objectContaining({ code: 'CURSOR_INVALID' }))
  })

  test('[L02] any position survives being written and read, in little space', () => {
    const seqs = fc.array(fc.oneof(fc.constant(0), fc.maxSafeNat()), { minLength: 1, maxLength: 256 })
    fc.assert(
      fc.property(seqs, (cursor) => {
        expect(readCursor(writeCursor(cursor), cursor.length)).toEqual(cursor)
      }),
    )
    fc.assert(
      fc.property(fc.string(), fc.integer({ min: 1, max: 256 }), (text, partitions) => {
        try {
          expect(writeCursor(readCursor(text, partitions)).length).toBeGreaterThan(0)
        } catch (error) {
          expect(error).toMatchObject({ code: 'CURSOR_INVALID' })
        }
      }),
    )
    const now = Date.now() * 1000
    expect(writeCursor(upTo(16).map((i) => now - i * 1_000_000)).length).toBeLessThan(110)
  })
})
