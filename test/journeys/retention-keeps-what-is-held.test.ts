import type { Redis } from 'ioredis'
import { describe, expect, test } from 'vitest'
import type { Bus } from '../../src/bus.ts'
import { systemClock } from '../../src/runtime/clock.ts'
import { plainRedis, testBus } from '../support/bus.ts'
import { eventually } from '../support/eventually.ts'
import { retainerOf } from '../support/retainer.ts'
import { type StoredEvent, storedEvents, tagsOf } from '../support/stored.ts'

async function publishOneByOne(bus: Bus, count: number, data: (i: number) => unknown = (i) => i): Promise<void> {
  for (let i = 0; i < count; i += 1) await bus.publish('a.b', data(i), { key: `k${i % 7}` })
}

const numbers = (events: readonly StoredEvent[]) => events.map(({ json }) => Number(json))
const upTo = (from: number, to: number) => Array.from({ length: to - from }, (_, i) => from + i)

async function metaOf(redis: Redis, bus: Bus, partition = 0): Promise<Record<string, string>> {
  const tags = await tagsOf(redis, bus.namespace)
  return redis.hgetall(`${bus.namespace}:{${tags[partition]}}:meta`)
}

/** A position before everything that is stored. */
async function beginning(bus: Bus): Promise<string> {
  const reader = bus.live('>', { since: 'beginning' })
  await reader.ready()
  const { cursor } = reader
  await reader.return?.()
  return cursor
}

async function cursorAfter(bus: Bus, count: number): Promise<string> {
  const reader = bus.live('>', { since: 'beginning' })
  for (let i = 0; i < count; i += 1) await reader.next()
  const { cursor } = reader
  await reader.return?.()
  return cursor
}

describe('limits', () => {
  test('[P15] by count: the newest stay, whole flushes go, and what is counted is what is there', async () => {
    const bus = testBus({ partitions: 1, retention: { events: 50 } })
    const redis = plainRedis()
    const { trim, reports } = await retainerOf(bus)
    await publishOneByOne(bus, 60)
    expect(await trim()).toBe(10)
    expect(numbers(await storedEvents(redis, bus.namespace))).toEqual(upTo(10, 60))
    expect(await trim()).toBe(0)

    await bus.commit(
      'k',
      upTo(60, 80).map((i) => ['a.b', i] as const),
    )
    expect(await trim()).toBe(20)
    await bus.commit(
      'k',
      upTo(80, 90).map((i) => ['a.b', i] as const),
    )
    const kept = await storedEvents(redis, bus.namespace)
    expect(numbers(kept)).toEqual(upTo(30, 90))
    const bytes = (await rawEnvelopes(redis, bus)).reduce((sum, envelope) => sum + Buffer.byteLength(envelope), 0)
    expect(await metaOf(redis, bus)).toMatchObject({ events: '60', bytes: String(bytes) })
    expect(reports.map(({ name, fields }) => [name, fields.events])).toEqual([
      ['log.trimmed', 10],
      ['log.trimmed', 20],
    ])
  })

  async function rawEnvelopes(redis: Redis, bus: Bus): Promise<string[]> {
    const [tag] = await tagsOf(redis, bus.namespace)
    const entries = await redis.xrange(`${bus.namespace}:{${tag}}:log`, '-', '+')
    return entries.flatMap(([, fields]) => fields[1]!.split('\x1e').slice(1))
  }

  test('[P15] by bytes', async () => {
    const bus = testBus({ partitions: 1, retention: { bytes: '100kB' } })
    const redis = plainRedis()
    const { trim } = await retainerOf(bus)
    await publishOneByOne(bus, 150, () => 'é'.repeat(500))
    await trim()
    const envelopes = await rawEnvelopes(redis, bus)
    const bytes = envelopes.reduce((sum, envelope) => sum + Buffer.byteLength(envelope), 0)
    expect(bytes).toBeLessThanOrEqual(100_000)
    expect(bytes).toBeGreaterThan(100_000 - 1_100)
    expect(await metaOf(redis, bus)).toMatchObject({ events: String(envelopes.length), bytes: String(bytes) })
  })

  test("[P15] by age, by the server's clock", async () => {
    const ageUs = 300_000
    const bus = testBus({ partitions: 1, retention: { age: '300ms' } })
    const redis = plainRedis()
    const { trim } = await retainerOf(bus)
    const serverUs = async () => {
      const [seconds, micros] = await redis.time()
      return Number(seconds) * 1e6 + Number(micros)
    }
    const published: number[] = []
    let gone = 0
    while (gone < 20) {
      published.push((await bus.publish('a.b', 1)).seq)
      const before = await serverUs()
      gone += await trim()
      const after = await serverUs()
      const kept = (await storedEvents(redis, bus.namespace)).map(({ seq }) => seq)
      const removed = published.filter((seq) => !kept.includes(seq))
      expect(removed).toHaveLength(gone)
      expect(Math.max(0, ...removed)).toBeLessThanOrEqual(after - ageUs)
      expect(Math.min(...kept, Number.POSITIVE_INFINITY)).toBeGreaterThan(before - ageUs)
    }
  })

  test('[P15] each partition by itself, and what is gone is gone for every reader', async () => {
    const bus = testBus({ partitions: 3, retention: { events: 5 } })
    const { trim } = await retainerOf(bus)
    const answers = []
    for (let i = 0; i < 60; i += 1) answers.push(await bus.publish('a.b', i, { key: `k${i % 12}` }))
    await trim()
    const kept = await storedEvents(plainRedis(), bus.namespace)
    expect([0, 1, 2].map((place) => kept.filter(({ partition }) => partition === place).length)).toEqual([5, 5, 5])
    for (const { id } of answers) {
      const found = await bus.log.get(id)
      expect(found !== undefined, id).toBe(kept.some((event) => event.id === id))
    }
    const read: string[] = []
    for await (const event of bus.log.read()) read.push(event.id)
    expect(read.sort()).toEqual(kept.map(({ id }) => id).sort())
    const histories = await Promise.all(upTo(0, 12).map((i) => bus.log.history(`k${i}`)))
    expect(
      histories
        .flat()
        .map(({ id }) => id)
        .sort(),
    ).toEqual(read)
  })
})

describe('holds', () => {
  test('[P15] nothing after a registered cursor goes, until it is moved on or dropped', async () => {
    const bus = testBus({ partitions: 1, retention: { events: 100 } })
    const redis = plainRedis()
    const { trim, reports } = await retainerOf(bus)
    await publishOneByOne(bus, 150)
    await bus.log.hold('slow', await cursorAfter(bus, 20))
    await bus.log.hold('fast', await cursorAfter(bus, 90))
    await trim()
    expect(numbers(await storedEvents(redis, bus.namespace))).toEqual(upTo(20, 150))

    // It does not move backwards by accident.
    await bus.log.hold('slow', await cursorAfter(bus, 10))
    await bus.log.hold('slow', await beginning(bus))
    await trim()
    expect(numbers(await storedEvents(redis, bus.namespace))).toEqual(upTo(30, 150))

    await bus.log.dropHold('slow')
    await trim()
    expect(numbers(await storedEvents(redis, bus.namespace))).toEqual(upTo(50, 150))
    expect(reports.filter(({ name }) => name === 'log.lost-unread')).toEqual([])
    expect((await metaOf(redis, bus)).lost ?? '0').toBe('0')
  })

  test('[P15] a cursor inside a flush keeps the whole of it', async () => {
    const bus = testBus({ partitions: 1, retention: { events: 10 } })
    const redis = plainRedis()
    const { trim } = await retainerOf(bus)
    await publishOneByOne(bus, 5)
    await bus.commit(
      'k',
      upTo(5, 15).map((i) => ['a.b', i] as const),
    )
    await bus.log.hold('reader', await cursorAfter(bus, 8))
    await trim()
    expect(numbers(await storedEvents(redis, bus.namespace))).toEqual(upTo(5, 15))
  })

  test('[P15] by age too', async () => {
    const bus = testBus({ partitions: 1, retention: { age: 0 } })
    const redis = plainRedis()
    const { trim } = await retainerOf(bus)
    await bus.log.hold('reader', await beginning(bus))
    await publishOneByOne(bus, 10)
    await trim()
    expect(await storedEvents(redis, bus.namespace)).toHaveLength(10)
    await bus.log.hold('reader', await cursorAfter(bus, 4))
    await eventually(async () => (await trim()) > 0)
    expect(numbers(await storedEvents(redis, bus.namespace))).toEqual(upTo(4, 10))
  })

  test('[P15] past the hard cap the log goes on: what is lost is counted exactly and reported with the holder', async () => {
    const bus = testBus({ partitions: 1, retention: { events: 50 } })
    const redis = plainRedis()
    const { trim, reports } = await retainerOf(bus)
    await publishOneByOne(bus, 10)
    await bus.commit(
      'k',
      upTo(10, 20).map((i) => ['a.b', i] as const),
    )
    await bus.log.hold('forgotten', await cursorAfter(bus, 14))
    await publishOneByOne(bus, 86, (i) => 20 + i)
    await bus.log.hold('newer', await cursorAfter(bus, 100))

    // 106 events, 100 at most: the first 10 were passed by everybody, and with them it is 96.
    await trim()
    expect(numbers(await storedEvents(redis, bus.namespace))).toEqual(upTo(10, 106))
    await publishOneByOne(bus, 9, (i) => 106 + i)
    // 105: the flush from 10 to 19 must go, of which the holder had passed four.
    await trim()
    expect(numbers(await storedEvents(redis, bus.namespace))).toEqual(upTo(20, 115))
    expect(await metaOf(redis, bus)).toMatchObject({ lost: '6' })
    await publishOneByOne(bus, 8, (i) => 115 + i)
    await trim()
    expect(numbers(await storedEvents(redis, bus.namespace))).toEqual(upTo(23, 123))
    expect(await metaOf(redis, bus)).toMatchObject({ lost: '9', events: '100' })
    const lost = reports
      .filter(({ name }) => name === 'log.lost-unread')
      .map(({ level, fields }) => ({ level, ...fields }))
    expect(lost).toEqual([
      { level: 'error', partition: 0, events: 6, holder: 'forgotten' },
      { level: 'error', partition: 0, events: 3, holder: 'forgotten' },
    ])
  })

  test('[P15] past the hard cap of bytes too', async () => {
    const bus = testBus({ partitions: 1, retention: { bytes: '20kB' } })
    const redis = plainRedis()
    const { trim, reports } = await retainerOf(bus)
    await bus.log.hold('forgotten', await beginning(bus))
    await publishOneByOne(bus, 60, () => 'x'.repeat(1_000))
    await trim()
    const { bytes, lost, events } = (await metaOf(redis, bus)) as { bytes: string; lost: string; events: string }
    expect(Number(bytes)).toBeLessThanOrEqual(40_000)
    expect(Number(bytes)).toBeGreaterThan(38_500)
    expect(Number(lost)).toBe(60 - Number(events))
    expect(reports.map(({ name }) => name)).toContain('log.lost-unread')
  })
})

describe('without being asked', () => {
  test('[P15] a running bus trims by itself, also when nobody publishes any more', async () => {
    const writer = testBus({ partitions: 2, retention: { age: '150ms' } })
    // Its timer of ten seconds goes a hundred times as fast.
    const after = (ms: number, fn: () => void) => systemClock.after(ms > 8_000 ? ms / 100 : ms, fn)
    const keeper = testBus({ namespace: writer.namespace, clock: { ...systemClock, after } })
    await writer.topics()
    await keeper.run()
    for (let round = 0; round < 2; round += 1) {
      await publishOneByOne(writer, 20)
      await eventually(async () => (await storedEvents(plainRedis(), writer.namespace)).length === 0)
    }
    expect(keeper.telemetry.counts().get('log.trimmed')).toBeGreaterThanOrEqual(2)
    expect(writer.telemetry.counts().has('log.trimmed')).toBe(false)
  })

  test('[P15] a publisher alone keeps the log bounded', async () => {
    const bus = testBus({ partitions: 1, retention: { events: 1_000 } })
    const redis = plainRedis()
    const total = 20_000
    let most = 0
    for (let from = 0; from < total; from += 1_000) {
      await Promise.all(upTo(from, from + 1_000).map((i) => bus.publish('a.b', i, { key: `k${i % 100}` })))
      most = Math.max(most, Number((await metaOf(redis, bus)).events))
    }
    // It looks every 4,096 events, so that much may come on top, and what is published while it trims.
    expect(most).toBeLessThan(total / 2)
    await eventually(async () => Number((await metaOf(redis, bus)).events) <= 1_000 + 4_096 + 256)
    expect(bus.telemetry.counts().get('log.trimmed')).toBeGreaterThanOrEqual(2)
    const kept = numbers(await storedEvents(redis, bus.namespace))
    expect(kept).toEqual(upTo(total - kept.length, total))
  })
})
