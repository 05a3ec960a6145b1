import { describe, expect, test } from 'vitest'
import type { Bus } from '../../src/bus.ts'
import type { BusOptions } from '../../src/bus-options.ts'
import { groupKeys, partitionKeys, workersGroup } from '../../src/redis/keys.ts'
import { keysOf, plainRedis, testBus } from '../support/bus.ts'
import { eventually } from '../support/eventually.ts'
import { collect } from '../support/log.ts'
import { expectUnbrokenChains, storedEvents, tagsOf } from '../support/stored.ts'
import { clockFrom, quickGroup, spawnWorker, watchedBus } from '../support/workers.ts'

const dayMs = 86_400_000
const readAll = (bus: Bus) => collect(bus.log.read())

describe('when it is visible', () => {
  test('[P20] a delay: not before, once after, with the place and the time of then', async () => {
    const { bus } = watchedBus()
    await bus.run()
    const live = bus.live('order.*')
    await live.ready()
    const before = await bus.publish('order.placed', 0, { key: 'order:1' })
    const delayed = await bus.publish('order.reminded', { n: 1 }, { key: 'order:1', delay: '1s', trace: 't' })
    expect(delayed).toEqual({ id: expect.stringMatching(/^d\d+-\d{16}$/), due: expect.any(Number), duplicate: false })
    expect(delayed.due).toBeGreaterThan(before.seq / 1000 + 999)
    const between = await bus.publish('order.paid', 2, { key: 'order:1' })
    expect((await bus.log.history('order:1')).map(({ type }) => type)).toEqual(['order.placed', 'order.paid'])

    const seen = [await live.next(), await live.next(), await live.next()].map(({ value }) => value)
    expect(seen.map(({ type }) => type)).toEqual(['order.placed', 'order.paid', 'order.reminded'])
    expect(seen[2]).toMatchObject({ prev: between.seq, json: '{"n":1}', trace: 't' })
    expect(seen[2].time).toBeGreaterThanOrEqual(delayed.due)
    // What comes after it proves that it came once.
    await bus.publish('order.closed', 3, { key: 'order:1' })
    expect((await live.next()).value.type).toBe('order.closed')
    expect(await readAll(bus)).toHaveLength(4)
    expect((await keysOf(plainRedis(), bus.namespace)).filter((key) => key.includes(':delayed'))).toEqual([])
  })

  test('[P20] a time, as Date or ms: not before, once after; one that has passed: at once; its own time is kept', async () => {
    const { bus } = watchedBus()
    await bus.run()
    const at = Date.now() + 1_000
    const answers = await Promise.all([
      bus.publish('a.date', 1, { at: new Date(at) }),
      bus.publish('a.ms', 1, { at, time: 5 }),
      bus.publish('a.past', 1, { at: new Date(0) }),
    ])
    expect(answers.map(({ due }) => due)).toEqual([at, at, 0])
    const past = await eventually(async () => (await readAll(bus))[0] ?? false)
    expect(past.type).toBe('a.past')
    const events = await eventually(async () => {
      const all = await readAll(bus)
      return all.length === 3 && all
    })
    const [date, ms] = events.slice(1).sort((a, b) => a.type.localeCompare(b.type))
    expect([date!.seq, ms!.seq].every((seq) => seq / 1000 >= at)).toBe(true)
    expect([date!.type, ms!.type, ms!.time]).toEqual(['a.date', 'a.ms', 5])
  })

  test('[P20] nobody runs: it waits; whoever runs later appends it', async () => {
    const { bus } = watchedBus()
    await bus.publish('a.b', 1, { delay: 0, key: 'k' })
    await bus.publish('a.c', 1)
    expect((await readAll(bus)).map(({ type }) => type)).toEqual(['a.c'])
    const later = watchedBus({ namespace: bus.namespace })
    await later.bus.run()
    await eventually(async () => (await readAll(bus)).length === 2)
  })

  test('[P20] the leader is killed, others go on: each event once, in due order per key', async () => {
    const bus = testBus({ partitions: 2 })
    const redis = plainRedis()
    // Given in the wrong order, and some due together: those in the order of the calls. All are there before anyone looks.
    const now = Date.now()
    const dues = Array.from({ length: 120 }, (_, i) => now + 1_500 + ((i * 37) % 60) * 20)
    const answers = []
    for (const [i, at] of dues.entries()) answers.push(await bus.publish('a.b', i, { key: `k:${i % 5}`, at }))
    expect(new Set(answers.map(({ id }) => id)).size).toBe(120)
    const workers = ['a', 'b', 'c'].map((name) => spawnWorker(bus.namespace, name))
    await Promise.all(workers.map((worker) => worker.waitForLine('ready')))
    const leader = await eventually(() => workers.find(({ stdout }) => stdout.includes('led')) ?? false)
    await eventually(async () => (await storedEvents(redis, bus.namespace)).length >= 20)
    leader.kill()
    const stored = await eventually(async () => {
      const all = await storedEvents(redis, bus.namespace)
      return all.length >= 120 && all
    })
    expect(stored).toHaveLength(120)
    expectUnbrokenChains(stored)
    const expected = dues.map((due, i) => ({ due, i })).sort((a, b) => a.due - b.due || a.i - b.i)
    for (let key = 0; key < 5; key += 1)
      expect(stored.filter((event) => event.key === `k:${key}`).map(({ json }) => Number(json))).toEqual(
        expected.filter(({ i }) => i % 5 === key).map(({ i }) => i),
      )
  })

  test('[P20] two leaders at once: each event once', async () => {
    // The first hears only with its next heartbeat that Redis has forgotten it.
    const group: BusOptions['group'] = { ...quickGroup, heartbeat: '20s', expiry: '60s' }
    const one = watchedBus({ worker: 'one', group, partitions: 1 })
    await one.bus.run()
    await eventually(() => one.count('leader.gained') === 1)
    const { groupWake, ...stored } = groupKeys(one.bus.namespace, workersGroup)
    await plainRedis().unlink(...Object.values(stored))
    const two = watchedBus({ namespace: one.bus.namespace, worker: 'two', group })
    await two.bus.run()
    await eventually(() => two.count('leader.gained') === 1)

    const sumOf = (field: string) =>
      [one, two]
        .flatMap(({ events }) => events.filter(({ name }) => name === 'delayed.appended'))
        .reduce((sum, { fields }) => sum + Number(fields[field]), 0)
    let published = 0
    // Until both have read the same events, and one of them found them gone.
    while (sumOf('gone') === 0) {
      const at = Date.now() + 30
      for (let n = 0; n < 10; n += 1) await one.bus.publish('a.b', n, { key: 'k', at })
      published += 10
      await eventually(() => sumOf('events') >= published)
    }
    expect(one.count('leader.lost')).toBe(0)
    expect(sumOf('events')).toBe(published)
    expect(await readAll(one.bus)).toHaveLength(published)
  })

  test('[P20] far ahead: by the server’s clock, a year later', async () => {
    const { bus } = watchedBus({ clock: clockFrom('2026-07-01T00:00:00.000Z') })
    const { due } = await bus.publish('a.b', 1, { delay: '365d' })
    expect(due).toBe(Date.parse('2026-07-01T00:00:00Z') + 365 * dayMs)
    const early = watchedBus({ namespace: bus.namespace, clock: clockFrom('2027-06-30T23:00:00.000Z') })
    await early.bus.run()
    await eventually(() => early.count('leader.gained') === 1)
    await early.bus.publish('a.now')
    expect(await readAll(bus)).toHaveLength(1)
    await early.bus.close()
    const late = watchedBus({ namespace: bus.namespace, clock: clockFrom('2027-07-01T00:01:00.000Z') })
    await late.bus.run()
    await eventually(async () => (await readAll(bus)).length === 2)
  })
})

describe('the same idempotency key again', () => {
  test('[P20] same body: the first answer; one event, also after it was due; other body, or not delayed: refused', async () => {
    const { bus } = watchedBus()
    const remind = (data: unknown = 1) => bus.publish('a.b', data, { key: 'k', delay: 200, idempotencyKey: 'once' })
    const first = await remind()
    expect(await remind()).toEqual({ ...first, duplicate: true })
    const refused = { code: 'IDEMPOTENCY_KEY_REUSED', message: expect.stringContaining('"once"') }
    await expect(remind(2)).rejects.toMatchObject(refused)
    await expect(bus.publish('a.b', 1, { key: 'k', idempotencyKey: 'once' })).rejects.toMatchObject(refused)
    await bus.publish('a.b', 1, { key: 'k', idempotencyKey: 'plain' })
    await expect(bus.publish('a.b', 1, { key: 'k', delay: 1, idempotencyKey: 'plain' })).rejects.toMatchObject({
      code: 'IDEMPOTENCY_KEY_REUSED',
    })
    await bus.run()
    await eventually(async () => (await readAll(bus)).length === 2)
    expect(await remind()).toEqual({ ...first, duplicate: true })
    await bus.publish('a.c', 1, { key: 'k' })
    expect(await readAll(bus)).toHaveLength(3)
  })

  test('[P20] without a key it chooses the partition: duplicates from any process', async () => {
    const one = testBus()
    const two = testBus({ namespace: one.namespace })
    for (let i = 0; i < 20; i += 1) {
      const first = await one.publish('a.b', 1, { delay: '1h', idempotencyKey: `i${i}` })
      expect(await two.publish('a.b', 1, { delay: '2h', idempotencyKey: `i${i}` })).toEqual({
        ...first,
        duplicate: true,
      })
    }
    expect(await one.delayed.list()).toHaveLength(20)
  })
})

describe('the view', () => {
  test('[P20] lists what is due next, over all partitions; cancelled, it never becomes visible', async () => {
    const { bus } = watchedBus()
    const hours = [5, 1, 4, 2, 3]
    const answers = new Map<number, { id: string; due: number }>()
    for (const hour of hours)
      answers.set(hour, await bus.publish('a.b', hour, { tenant: 'acme', key: `k:${hour}`, delay: `${hour}h` }))
    const expected = [1, 2, 3].map((hour) => {
      const { id, due } = answers.get(hour)!
      return { id, due, type: 'a.b', tenant: 'acme', key: `k:${hour}` }
    })
    expect(await bus.delayed.list({ limit: 3 })).toEqual(expected)
    const soon = await bus.publish('a.soon', 1, { delay: 200 })
    expect(await bus.delayed.cancel(soon.id)).toBe(true)
    expect(await bus.delayed.cancel(soon.id)).toBe(false)
    for (const id of ['', 'x', 'd0-1', 'd999-1', '0-1']) expect(await bus.delayed.cancel(id)).toBe(false)
    await bus.run()
    const after = await bus.publish('a.after', 1, { delay: 300 })
    await eventually(async () => (await readAll(bus)).length > 0)
    expect((await readAll(bus)).map(({ type }) => type)).toEqual(['a.after'])
    expect(await bus.delayed.cancel(after.id)).toBe(false)
    expect(await bus.delayed.list()).toHaveLength(5)
    expect(await collect(bus.fsck())).toEqual([])
  })
})

describe('refused, nothing stored', () => {
  const wrong: [string, object, string, RegExp][] = [
    ['delay and at', { delay: 1, at: 1 }, 'EVENT_INVALID', /"at" cannot stand beside/],
    ['expectPrev', { delay: 1, key: 'k', expectPrev: null }, 'EVENT_INVALID', /"expectPrev" cannot/],
    ['no duration', { delay: 'soon' }, 'EVENT_INVALID', /"delay" must be a duration/],
    ['over 366 days', { delay: '367d' }, 'EVENT_INVALID', /"delay" must be at most 366 days/],
    ['a time over 366 days ahead', { at: Date.now() + 367 * dayMs }, 'EVENT_INVALID', /"at" must be at most 366 days/],
    ['no time', { at: 'tomorrow' }, 'EVENT_INVALID', /"at" must be a Date/],
    ['no valid Date', { at: new Date(Number.NaN) }, 'EVENT_INVALID', /"at" must be a Date/],
    ['a bad key', { delay: 1, key: '' }, 'EVENT_INVALID', /"key"/],
    ['a bad idempotency key', { delay: 1, idempotencyKey: '' }, 'EVENT_INVALID', /"idempotencyKey"/],
  ]
  test.each(wrong)('[P20] %s', async (_, options, code, message) => {
    const bus = testBus()
    await bus.topics()
    const before = await keysOf(plainRedis(), bus.namespace)
    const call = bus.publish('a.b', 1, options as { delay: number })
    await expect(call).rejects.toMatchObject({ code, message: expect.stringMatching(message) })
    expect(await keysOf(plainRedis(), bus.namespace)).toEqual(before)
  })

  test('[P20] in publishAll: that event alone', async () => {
    const bus = testBus()
    const answers = await bus.publishAll([{ type: 'a.b' }, { type: 'a.c', delay: 1 } as never])
    expect(answers.map(({ error }) => error?.code)).toEqual([undefined, 'EVENT_INVALID'])
  })

  test('[P20] at most 100,000 in a partition: then refused, retryable', async () => {
    const bus = testBus({ partitions: 1 })
    const redis = plainRedis()
    await bus.topics()
    const keys = partitionKeys(bus.namespace, (await tagsOf(redis, bus.namespace))[0]!)
    const due = 4e15
    for (let n = 0; n < 100_000; n += 10_000)
      await redis.zadd(keys.delayed, ...Array.from({ length: 10_000 }, (_, i) => [due, `x${n + i}`]).flat())
    await expect(bus.publish('a.b', 1, { delay: 1 })).rejects.toMatchObject({
      code: 'DELAYED_FULL',
      retryable: true,
      message: expect.stringContaining('100000'),
    })
    await redis.zrem(keys.delayed, 'x0')
    await bus.publish('a.b', 1, { delay: 1 })
  })
})
