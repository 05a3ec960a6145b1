import { setTimeout as sleep } from 'node:timers/promises'
import { describe, expect, onTestFinished, test } from 'vitest'
import type { Bus } from '../../src/bus.ts'
import type { Event } from '../../src/event.ts'
import { compilePattern, type Pattern } from '../../src/pattern.ts'
import { plainRedis, take, testBus } from '../support/bus.ts'
import { eventually } from '../support/eventually.ts'
import { startRedis } from '../support/redis.ts'
import { callsOf, type StoredEvent, storedEvents } from '../support/stored.ts'

const tenants = ['acme', 'zeta', 'default']
const types = ['order.paid', 'order.placed', 'order.line.shipped', 'stock.moved', 'order', 'busbar.note']

/** Publishes what nobody reads, one after the other, until it is told to stop. */
function floodOfUnwanted(bus: Bus) {
  let going = true
  let count = 0
  const flood = (async () => {
    for (; going; count += 1) await bus.publish('noise.made', count, { key: `k${count % 50}` })
  })()
  return {
    /** Resolves when it has gone on for so many events. */
    for: (events: number) => {
      const until = count + events
      return eventually(() => count >= until, { everyMs: 1 })
    },
    end: () => {
      going = false
      return flood
    },
  }
}

async function publishMany(bus: Bus, count: number): Promise<void> {
  await Promise.all(
    Array.from({ length: count }, (_, i) => {
      const place = { tenant: tenants[i % 3]!, key: `k${i % 11}` }
      const type = types[(i * 7) % types.length]!
      if (i % 10 === 0)
        return bus.commit(
          place.key,
          [
            [type, i],
            ['order.line.shipped', -i],
          ],
          place,
        )
      return bus.publish(type, i, i % 4 ? place : { tenant: place.tenant })
    }),
  )
}

/** Per partition, in the order in which they came. */
function byPartition(events: readonly { id: string }[]): string[][] {
  const places: string[][] = []
  for (const { id } of events) {
    const place = Number(id.split('-')[0])
    places[place] ??= []
    places[place].push(id)
  }
  return places
}

const matching = (stored: readonly StoredEvent[], pattern: Pattern) => {
  const matcher = compilePattern(pattern)
  return stored.filter(({ tenant, type }) => matcher.matches(tenant, type))
}

describe('what a reader gets', () => {
  const patterns: Pattern[] = [
    'order.*',
    'order.>',
    'order.paid',
    'acme:order.*',
    '*.moved',
    '>',
    'acme:>',
    '/^zeta:(order|stock)\\.[mp]/',
    ['order.line.*', 'zeta:stock.*'],
    'busbar.>',
    'nothing.here',
  ]

  test.each(['for many readers at once', 'each in a process of its own'])(
    '[L01] every matching event, in order per partition, nothing else, %s',
    async (where) => {
      const bus = testBus({ partitions: 4 })
      const other = testBus({ namespace: bus.namespace, partitions: 4 })
      await publishMany(bus, 50)
      // What one reader names decides what all of its process hear.
      const place = () => (where.startsWith('for') ? bus : testBus({ namespace: bus.namespace, partitions: 4 }))
      const readers = patterns.map((pattern) => ({ pattern, live: place().live(pattern) }))
      const fromStart = patterns.map((pattern) => ({ pattern, live: place().live(pattern, { since: 'beginning' }) }))
      await Promise.all(readers.map(({ live }) => live.ready()))
      const before = await storedEvents(plainRedis(), bus.namespace)
      await Promise.all([publishMany(bus, 400), publishMany(other, 400)])

      const all = await storedEvents(plainRedis(), bus.namespace)
      const known = new Set(before.map(({ id }) => id))
      const after = all.filter(({ id }) => !known.has(id))
      for (const [expectedOf, group] of [
        [after, readers],
        [all, fromStart],
      ] as const) {
        for (const { pattern, live } of group) {
          const expected = matching(expectedOf, pattern)
          const got = await take(live, expected.length)
          expect(byPartition(got), String(pattern)).toEqual(byPartition(expected))
        }
      }
      await expectNothingMore(bus, [...readers, ...fromStart])
    },
  )

  /** A last event that everybody wants comes next: nothing else was in between. */
  async function expectNothingMore(bus: Bus, readers: { live: AsyncIterator<Event> }[]): Promise<void> {
    const last: string[] = []
    for (const type of ['order.paid', 'order.line.shipped', 'stock.moved', 'busbar.note', 'nothing.here'])
      for (const tenant of tenants) last.push((await bus.publish(type, 'last', { tenant })).id)
    for (const { live } of readers) {
      const { value } = await live.next()
      expect(value!.data).toBe('last')
      expect(last).toContain(value!.id)
    }
  }

  test('[L01] readers that join in the midst of a storm miss nothing and get nothing twice', async () => {
    const bus = testBus({ partitions: 2 })
    const first = bus.live('a.*')
    await first.ready()
    const total = 6_000
    const storm = (async () => {
      for (let n = 0; n < total; n += 100)
        await Promise.all(Array.from({ length: 100 }, (_, i) => bus.publish('a.b', n + i, { key: `k${i}` })))
    })()
    const joining: Promise<Event[]>[] = []
    for await (const { data } of first) {
      if (Number(data) % 500 === 0) joining.push(take(bus.live('a.*', { since: 'beginning' }), total))
      if (joining.length === total / 500) break
    }
    const all = await Promise.all(joining)
    await storm
    const stored = await storedEvents(plainRedis(), bus.namespace)
    for (const got of all) expect(byPartition(got)).toEqual(byPartition(stored))
  })

  test('[L01] an event is what the log has of it', async () => {
    const bus = testBus()
    const live = bus.live('order.*')
    await live.ready()
    const place = { tenant: 'acme', key: 'k', time: 5, trace: 'req-1' }
    const { id } = await bus.publish('order.paid', { cents: 12 }, place)
    const { value } = await live.next()
    expect(value!.toText()).toBe((await bus.log.get(id))!.toText())
    expect(value).toMatchObject({ id, ...place, type: 'order.paid', data: { cents: 12 } })
  })

  test('[L01] a long backlog in one partition does not keep the others waiting', async () => {
    const bus = testBus({ partitions: 2 })
    const placeOf = ({ id }: { id: string }) => id.split('-')[0]
    const long = placeOf(await bus.publish('a.b', 0, { key: 'long' }))
    for (let i = 0; i < 300; i += 1) await bus.publish('a.b', i, { key: 'long' })
    let i = 0
    while (placeOf(await bus.publish('a.b', i, { key: `short${i}` })) === long) i += 1
    const got = await take(bus.live('a.>', { since: 'beginning' }), 302 + i)
    const first = (place: string | undefined) => got.findIndex((event) => placeOf(event) === place)
    // A page of the one, a page of the other.
    expect(Math.max(first('0'), first('1'))).toBeLessThan(200)
  })

  test('[L01] ends by return, by signal and with the bus; the others go on', async () => {
    const bus = testBus()
    const controller = new AbortController()
    const [returned, aborted, kept] = [bus.live('a.*'), bus.live('a.*', { signal: controller.signal }), bus.live('a.*')]
    await Promise.all([returned.ready(), aborted.ready(), kept.ready()])
    const waiting = [returned.next(), aborted.next()]
    await returned.return!()
    controller.abort()
    for (const end of await Promise.all(waiting)) expect(end.done).toBe(true)
    await bus.publish('a.b', 1)
    expect((await kept.next()).value!.data).toBe(1)
    expect(await returned.next()).toEqual({ done: true, value: undefined })
    expect((await bus.live('a.*', { signal: AbortSignal.abort() }).next()).done).toBe(true)
    const last = kept.next()
    await bus.close()
    expect((await last).done).toBe(true)
  })

  test('[L01] a pattern that cannot be used is refused at once', () => {
    const bus = testBus()
    for (const pattern of ['', 'order..paid', '>.order', '/(/', []] as Pattern[])
      expect(() => bus.live(pattern)).toThrow(expect.objectContaining({ code: 'PATTERN_INVALID' }))
  })
})

describe('what it costs', () => {
  async function ownRedis() {
    const server = await startRedis({ args: ['--appendonly', 'no'] })
    onTestFinished(() => server.stop())
    return server.url
  }

  test('[L01] one log reader per process, whatever the number of live readers', async () => {
    const url = await ownRedis()
    const redis = plainRedis(url)
    const reads = async (readers: number) => {
      const bus = testBus({ redis: url, partitions: 4 })
      const lives = Array.from({ length: readers }, (_, i) => bus.live(i % 2 ? 'a.*' : 'a.b'))
      await Promise.all(lives.map((live) => live.ready()))
      const before = await callsOf(redis, 'xrange', 'xread', 'xrevrange')
      const counted = Promise.all(lives.map((live) => take(live, 200)))
      for (let i = 0; i < 200; i += 1) await bus.publish('a.b', i, { key: `k${i % 8}` })
      const got = await counted
      expect(new Set(got.map((events) => events.length))).toEqual(new Set([200]))
      await bus.close()
      return (await callsOf(redis, 'xrange', 'xread', 'xrevrange')) - before
    }
    const alone = await reads(1)
    const together = await reads(200)
    // One read per hint at most, and a look every second.
    expect(alone).toBeLessThanOrEqual(220)
    expect(together).toBeLessThanOrEqual(220)
  })

  test('[L01] a hint of kinds that nobody wants causes no read', async () => {
    const url = await ownRedis()
    const redis = plainRedis(url)
    const bus = testBus({ redis: url, partitions: 4 })
    const lives = Array.from({ length: 50 }, (_, i) => bus.live(`acme:order.${i}`))
    await Promise.all(lives.map((live) => live.ready()))
    const before = await callsOf(redis, 'xrange')
    for (let i = 0; i < 300; i += 1)
      await bus.publish(i % 2 ? 'stock.moved' : 'order.1', i, { tenant: i % 2 ? 'acme' : 'zeta', key: `k${i % 8}` })
    const { id } = await bus.publish('order.7', 'wanted', { tenant: 'acme', key: 'k0' })
    expect((await lives[7]!.next()).value!.id).toBe(id)
    // One for the last; a look by the clock may fall between an event and its hint.
    expect((await callsOf(redis, 'xrange')) - before).toBeLessThanOrEqual(4)
  })

  test('[L01] where nothing happens a look is one command, whatever is followed', async () => {
    const url = await ownRedis()
    const redis = plainRedis(url)
    const bus = testBus({ redis: url })
    await Promise.all(Array.from({ length: 50 }, (_, i) => bus.live(`topic${i}.*`).ready()))
    const looks = () => callsOf(redis, 'xread')
    const asked = () => callsOf(redis, 'hmget', 'hget', 'xrange')
    await eventually(async () => (await looks()) >= 1)
    const before = await asked()
    await eventually(async () => (await looks()) >= 3)
    expect(await asked()).toBe(before)
  })

  test('[L01] where only unwanted events come a look fetches none of them', async () => {
    const url = await ownRedis()
    const redis = plainRedis(url)
    const bus = testBus({ redis: url, partitions: 4 })
    await bus.live('small.*').ready()
    const publisher = testBus({ redis: url, namespace: bus.namespace, partitions: 4 })
    const sent = async () => Number(/total_net_output_bytes:(\d+)/.exec(await redis.info('stats'))?.[1])
    const before = await sent()
    const startedAt = performance.now()
    // Through four looks; one that finds everything idle may still meet the first of them.
    for (let n = 0; performance.now() - startedAt < 4_300; n += 1) {
      await publisher.publish('big.one', 'x'.repeat(200_000), { key: `k${n % 16}` })
      await sleep(50)
    }
    expect((await sent()) - before).toBeLessThan(1_300_000)
  })

  test('[L01] a flood of what nobody wants hardly delays what is wanted, nor one of what everybody wants', async () => {
    const url = await ownRedis()
    const publisher = testBus({ redis: url, partitions: 4 })
    const { namespace } = publisher
    const delays = async (pattern: Pattern) => {
      const live = testBus({ redis: url, namespace, partitions: 4 }).live(pattern)
      await live.ready()
      const flood = floodOfUnwanted(publisher)
      const took: number[] = []
      for (let i = 0; i < 9; i += 1) {
        await flood.for(400)
        const startedAt = performance.now()
        await publisher.publish('order.paid', i, { key: 'order:1' })
        for (let event: Event | undefined; event?.type !== 'order.paid' || event.data !== i; )
          event = (await live.next()).value
        took.push(performance.now() - startedAt)
      }
      await flood.end()
      return took.sort((a, b) => a - b)[4]!
    }
    // A publish takes less than 1 ms here, a rest 10 ms. Held back until the flood's next pause it would be hundreds.
    expect(await delays('order.*')).toBeLessThan(30)
    expect(await delays('>')).toBeLessThan(30)
  })

  test('[L01] readers that have ended cost nothing any more', async () => {
    const url = await ownRedis()
    const redis = plainRedis(url)
    const bus = testBus({ redis: url, partitions: 1 })
    const [stopped, active] = [bus.live('a.*'), bus.live('a.*')]
    await Promise.all([stopped.ready(), active.ready()])
    await Promise.all(Array.from({ length: 1_100 }, (_, i) => bus.publish('a.b', i)))
    await take(active, 1_100)
    // It has fallen behind after a thousand, and is ended while it reads the log for itself.
    await take(stopped, 1_000)
    const reading = stopped.next()
    for (let turn = 0; turn < 50; turn += 1) await undefined
    await Promise.all([stopped.return!(), active.return!()])
    expect((await reading).done).toBe(true)
    const before = await callsOf(redis, 'xrange')
    for (let i = 0; i < 50; i += 1) await bus.publish('a.b', i)
    await bus.topics()
    expect((await callsOf(redis, 'xrange')) - before).toBeLessThanOrEqual(3)
  })
})
