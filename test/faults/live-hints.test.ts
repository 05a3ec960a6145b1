/** A hub hears only the hints of the topics that its readers name, and some of those get lost. */
import type { Redis } from 'ioredis'
import { describe, expect, test } from 'vitest'
import type { Bus } from '../../src/bus.ts'
import { readCursor } from '../../src/log/cursor.ts'
import { partitionOf, partitionTags } from '../../src/log/partition.ts'
import { compilePattern, type Pattern } from '../../src/pattern.ts'
import { publishScript } from '../../src/publish/scripts.ts'
import { partitionKeys } from '../../src/redis/keys.ts'
import { runScript, writeArg } from '../../src/redis/script.ts'
import { plainRedis, take, testBus } from '../support/bus.ts'
import { envelopeOf } from '../support/partition.ts'
import { storedEvents } from '../support/stored.ts'
import { type Random, randomFrom } from './storm.ts'

const partitions = 2
const tags = partitionTags(partitions)
const key = 'k'
const itsPartition = partitionOf(`default/${key}`, partitions)

/** Stores an event as a publish does, but its hints go astray. */
async function publishUnheard(redis: Redis, bus: Bus, type: string, partition = itsPartition): Promise<void> {
  await runScript(redis, publishScript, {
    ...{ process: '', n: 0, floor: 0, kinds: `default:${type}`, live: '', options: '' },
    keys: { ...partitionKeys(bus.namespace, tags[partition]!), wake: 'elsewhere:wake' },
    events: { text: writeArg('') + writeArg(envelopeOf('', type)), count: 2 },
  })
}

describe('what a hub listens to', () => {
  const heardBy = async ({ namespace }: Bus) => {
    const channels = (await plainRedis().pubsub('CHANNELS', `${namespace}:*`)) as string[]
    return channels.map((channel) => channel.slice(namespace.length)).sort()
  }
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
    expect(await heardBy(bus)).toEqual([':wake:order', ':wake:stock'])
    const all = await open('/paid$/')
    expect(await heardBy(bus)).toEqual([':wake:order', ':wake:stock', ...allPartitions])
    await Promise.all([all.return!(), both.return!()])
    await expect.poll(() => heardBy(bus)).toEqual([':wake:order'])
    await orders.return!()
    await expect.poll(() => heardBy(bus)).toEqual([])
  })

  test('[L01] more topics than can be asked for each: all partitions, and everyone gets theirs', async () => {
    const bus = testBus({ partitions })
    const topicsOf = (reader: number) => Array.from({ length: 60 }, (_, i) => `t${60 * reader + i}.*`)
    const lives = Array.from({ length: 20 }, (_, reader) => bus.live(topicsOf(reader)))
    await Promise.all(lives.map((live) => live.ready()))
    const heard = await heardBy(bus)
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
