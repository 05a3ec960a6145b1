/** A hub hears only the hints of the topics that its readers name, and some of those get lost. */
import type { Redis } from 'ioredis'
import { describe, expect, test } from 'vitest'
import type { Bus } from '../../src/bus.ts'
import { readCursor, writeCursor } from '../../src/log/cursor.ts'
import { partitionOf, partitionTags } from '../../src/log/partition.ts'
import { compilePattern, type Pattern } from '../../src/pattern.ts'
import { publishScript } from '../../src/publish/scripts.ts'
import { partitionKeys } from '../../src/redis/keys.ts'
import { runScript, writeArg } from '../../src/redis/script.ts'
import { plainRedis, take, testBus } from '../support/bus.ts'
import { eventually } from '../support/eventually.ts'
import { envelopeOf } from '../support/partition.ts'
import { retainerOf } from '../support/retainer.ts'
import { storedEvents } from '../support/stored.ts'
import { faultyPlace, type Random, randomFrom } from './storm.ts'

const partitions = 2
const tags = partitionTags(partitions)
const key = 'k'
const itsPartition = partitionOf(`default/${key}`, partitions)

/** Stores an event as a publish does, but its hints go astray. */
async function publishUnheard(redis: Redis, bus: Bus, type: string, partition = itsPartition): Promise<void> {
  await runScript(redis, publishScript, {
    ...{ process: '', n: 0, floor: 0, kinds: `default:${type}`, live: '', options: '' },
    keys: { ...partitionKeys(bus.namespace, tags[partition]!), wake: 'elsewhere:wake' },
    records: `\x1e${envelopeOf('', type)}`,
    objects: { text: writeArg(''), count: 1 },
  })
}

async function channelsOf({ namespace }: Bus): Promise<string[]> {
  const channels = (await plainRedis().pubsub('CHANNELS', `${namespace}:*`)) as string[]
  return channels.map((channel) => channel.slice(namespace.length)).sort()
}

describe('what a hub listens to', () => {
  const allPartitions = tags.map((tag) => `:{${tag}}:wake`)

  test('[L01] only the topics that its readers name; all partitions when one names none; nothing after the last', async () => {
    const bus = testBus({ partitions })
    const open = async (pattern: Pattern) => {
      const live = bus.live(pattern)
      await live.ready()
      return live
    }
    const orders = await open('order.*')
    const both = await open(['acme:order.paid', 'stock.>'])
    expect(await channelsOf(bus)).toEqual([':wake:order', ':wake:stock'])
    const all = await open('/paid$/')
    expect(await channelsOf(bus)).toEqual([':wake:order', ':wake:stock', ...allPartitions])
    await Promise.all([all.return!(), both.return!()])
    await expect.poll(() => channelsOf(bus)).toEqual([':wake:order'])
    await orders.return!()
    await expect.poll(() => channelsOf(bus)).toEqual([])
  })

  test('[L01] more topics than can be asked for each: all partitions, and everyone gets theirs', async () => {
    const bus = testBus({ partitions })
    const topicsOf = (reader: number) => Array.from({ length: 60 }, (_, i) => `t${60 * reader + i}.*`)
    const lives = Array.from({ length: 20 }, (_, reader) => bus.live(topicsOf(reader)))
    await Promise.all(lives.map((live) => live.ready()))
    const heard = await channelsOf(bus)
    expect(heard.filter((channel) => channel.startsWith(':wake:'))).toHaveLength(16 * 60)
    expect(heard).toEqual(expect.arrayContaining(allPartitions))
    const types = lives.map((_, reader) => `t${60 * reader + 59}.x`)
    await Promise.all(types.map((type) => bus.publish(type)))
    expect(await Promise.all(lives.map(async (live) => (await live.next()).value!.type))).toEqual(types)
  })
})

test('[L02] from a cursor older than what nobody wanted until now, where the hub has not come so far: nothing missed', async () => {
  const bus = testBus({ partitions })
  const other = bus.live('order.sent')
  await other.ready()
  const since = other.cursor
  await bus.publish('noise.made', null, { key })
  const { id } = await bus.publish('order.paid', null, { key })
  // In the other partition, so that the hub has heard of the one before and has not moved there.
  const elsewhere = ['a', 'b', 'c', 'd'].find((one) => partitionOf(`default/${one}`, partitions) !== itsPartition)!
  await bus.publish('order.sent', null, { key: elsewhere })
  await other.next()
  const live = bus.live('order.paid', { since })
  expect((await live.next()).value!.id).toBe(id)
})

test('[L02] from a recent cursor: what is stored comes at once, not with the next look', async () => {
  const bus = testBus({ partitions })
  const orders = bus.live('order.*')
  await orders.ready()
  const took: number[] = []
  for (let n = 0; n < 5; n += 1) {
    const { cursor } = orders
    await bus.publish('stock.moved', n, { key })
    const startedAt = performance.now()
    const stock = bus.live('stock.*', { since: cursor })
    await stock.next()
    took.push(performance.now() - startedAt)
    await stock.return!()
  }
  expect(took.sort((a, b) => a - b)[2]!).toBeLessThan(300)
})

describe('a hub that is behind', () => {
  const setUp = async () => {
    const bus = testBus({ partitions: 1, retention: { events: 10 } })
    const gaps: unknown[] = []
    const open = async (pattern: Pattern) => {
      const live = bus.live(pattern, { onGap: (gap) => gaps.push(gap) })
      await live.ready()
      return live
    }
    const [orders, stock] = [await open('order.*'), await open('stock.*')]
    const { trim } = await retainerOf(bus)
    for (let i = 0; i < 50; i += 1) await bus.publish('noise.made')
    expect(await trim()).toBeGreaterThan(0)
    return { bus, open, orders, stock, gaps }
  }

  test('[L03] retention took only what nobody wanted, then a flush of two followed topics: no gap', async () => {
    const { bus, orders, stock, gaps } = await setUp()
    await bus.commit(key, [
      ['order.paid', null],
      ['stock.moved', null],
    ])
    await Promise.all([orders.next(), stock.next()])
    expect(gaps).toEqual([])
  })

  test('[L03] retention took only what nobody wanted, then someone wants everything: no gap', async () => {
    const { bus, open, gaps } = await setUp()
    const all = await open('>')
    await bus.publish('noise.made')
    await all.next()
    expect(gaps).toEqual([])
  })

  test('[L05] what a reader has read for itself was lost by Redis: reported, and its seqs are not given again', async () => {
    const place = await faultyPlace({ partitions: 1, args: ['--appendonly', 'no'] })
    const told: string[] = []
    const watcher = place.bus({ onTelemetry: ({ name }) => told.push(name) })
    const orders = watcher.live('order.*')
    await orders.ready()
    await watcher.publish('order.paid')
    await take(orders, 1)
    await place.redis.save()
    // As if the server's clock had been an hour ahead: only what was seen keeps later seqs above these.
    const ahead = String((Date.now() + 3_600_000) * 1_000)
    await place.redis.hset(partitionKeys(place.namespace, partitionTags(1)[0]!).meta, 'last', ahead)
    const lost = await place.bus().publish('stock.moved')
    const stock = watcher.live('stock.*', { since: 'beginning' })
    expect((await stock.next()).value!.id).toBe(lost.id)
    await place.server.kill()
    await place.server.restart()
    await eventually(() => told.includes('log.rolled-back'))
    const next = await place.bus().publish('stock.moved')
    expect(next.seq).toBeGreaterThan(lost.seq)
    expect((await stock.next()).value!.id).toBe(next.id)
  })
})

test('[L05] ended while it opens, with a cursor that is refused: nothing is followed any more', async () => {
  const bus = testBus({ partitions })
  await bus.live('other.*').ready()
  for (let hops = 0; hops < 12; hops += 1) {
    const live = bus.live('order.*', { since: writeCursor([1, 2, 3]) })
    const ready = live.ready().catch(() => undefined)
    for (let i = 0; i < hops; i += 1) await undefined
    await live.return!()
    await ready
  }
  await expect.poll(() => channelsOf(bus)).toEqual([':wake:other'])
})

describe('hints that went astray', () => {
  async function readerOf(pattern: Pattern) {
    const redis = plainRedis()
    const bus = testBus({ partitions })
    const live = bus.live(pattern)
    await live.ready()
    return {
      live,
      unheard: (type: string) => publishUnheard(redis, bus, type),
      publish: (type: string) => bus.publish(type, null, { key }),
    }
  }
  const typesOf = (events: { type: string }[]) => events.map(({ type }) => type)

  test('[L05] of the same topic: the next one tells, and what was missed comes before it', async () => {
    const { live, unheard, publish } = await readerOf('order.*')
    await unheard('order.first')
    await unheard('noise.made')
    await publish('order.second')
    expect(typesOf(await take(live, 2))).toEqual(['order.first', 'order.second'])
  })

  test('[L05] of another topic that is followed: what was missed comes before it', async () => {
    const { live, unheard, publish } = await readerOf(['order.*', 'stock.*'])
    await unheard('stock.moved')
    await unheard('noise.made')
    await publish('order.paid')
    expect(typesOf(await take(live, 2))).toEqual(['stock.moved', 'order.paid'])
  })

  test('[L05] of the same topic, between two that nobody wants: what was missed comes', async () => {
    const { live, unheard, publish } = await readerOf('order.paid')
    await publish('noise.made')
    await publish('order.sent')
    await unheard('order.paid')
    await publish('order.sent')
    expect(typesOf(await take(live, 1))).toEqual(['order.paid'])
  })

  test('[L05] and no other ever comes: the look finds it', async () => {
    const { live, unheard } = await readerOf(['order.*', 'stock.*'])
    await unheard('stock.moved')
    expect(typesOf(await take(live, 1))).toEqual(['stock.moved'])
  })

  test('[L05] found by a look while the reader of everything leaves: the others miss nothing', async () => {
    const place = await faultyPlace({ partitions })
    const bus = place.bus()
    const [orders, all] = [bus.live('order.*'), bus.live('>')]
    await Promise.all([orders.ready(), all.ready()])
    await publishUnheard(place.redis, bus, 'order.lost')
    place.proxy.onCommand(({ name }) => (name === 'HMGET' ? 'hold' : 'forward'))
    await eventually(() => place.proxy.held.length >= partitions)
    await all.return!()
    place.proxy.onCommand(() => 'forward')
    place.proxy.release()
    expect(typesOf(await take(orders, 1))).toEqual(['order.lost'])
  })

  const topics = ['a', 'b', 'c', 'd', 'e', 'f']
  const patterns: Pattern[] = [
    ...['a.*', 'b.x', 'c.>'],
    ...[['a.*', 'b.*'], ['d.x', 'e.y', 'f.*'], topics.map((topic) => `${topic}.x`), '>'],
  ]

  async function publishSome(redis: Redis, bus: Bus, random: Random): Promise<void> {
    const type = `${random.pick(topics)}.${random.pick(['x', 'y'])}`
    if (random.below(3) === 0) return publishUnheard(redis, bus, type, random.below(partitions))
    const more = Array.from({ length: random.pick([0, 0, 1, 5]) }, () => `${random.pick(topics)}.x`)
    await Promise.all([type, ...more].map((one) => bus.publish(one)))
  }

  /** Begins, reads so many, ends. Answers what it was given, and from where to where. */
  async function readSome(bus: Bus, pattern: Pattern, events: number) {
    const live = bus.live(pattern)
    await live.ready()
    const start = readCursor(live.cursor, partitions)
    const ids = (await take(live, events)).map(({ id }) => id)
    const end = readCursor(live.cursor, partitions)
    await live.return!()
    return { pattern, start, end, ids }
  }

  test.each([1, 2, 3])(
    '[L01] readers come and go, every third hint is lost: nothing missed, no repeats, order kept, seed %i',
    async (seed) => {
      const random = randomFrom(seed)
      const redis = plainRedis()
      const bus = testBus({ partitions })
      const publisher = testBus({ namespace: bus.namespace, partitions })
      // `>` makes the hub hear everything: only some runs have it.
      const wanted = seed % 2 === 0 ? patterns : patterns.slice(0, -1)
      const reading: ReturnType<typeof readSome>[] = []
      let seen: Awaited<(typeof reading)[number]>[] | undefined
      for (let n = 0; !seen; n += 1) {
        await publishSome(redis, publisher, random)
        if (n % 40 === 0 && reading.push(readSome(bus, random.pick(wanted), 150)) === 14)
          void Promise.all(reading).then((all) => {
            seen = all
          })
      }

      const log = await storedEvents(redis, bus.namespace)
      for (const { pattern, start, end, ids } of seen) {
        const matcher = compilePattern(pattern)
        for (const [partition, first] of start.entries()) {
          const matching = log.filter(
            (event) =>
              event.partition === partition &&
              event.seq > first &&
              event.seq <= end[partition]! &&
              matcher.matches(event.tenant, event.type),
          )
          const got = ids.filter((id) => id.startsWith(`${partition}-`))
          expect(got, String(pattern)).toEqual(matching.map(({ id }) => id))
        }
      }
    },
  )
})
