import { describe, expect, test } from 'vitest'
import type { Bus } from '../../src/bus.ts'
import type { BusOptions } from '../../src/bus-options.ts'
import { workersKeys } from '../../src/redis/keys.ts'
import { freshNamespace, plainRedis, testBus } from '../support/bus.ts'
import { eventually } from '../support/eventually.ts'
import { collect } from '../support/log.ts'
import { clockFrom, spawnWorker, watchedBus } from '../support/workers.ts'

const timesOf = async (bus: Bus) => (await collect(bus.log.read())).map(({ time }) => time).sort()
const isoTimesOf = async (bus: Bus) => (await timesOf(bus)).map((time) => new Date(time).toISOString())
const iso = (ms: number | null) => (ms === null ? null : new Date(ms).toISOString())

describe('several processes', () => {
  test('[P21] the leader is killed between firing a tick and recording it: each tick fires exactly once', async () => {
    const namespace = freshNamespace()
    const reader = testBus({ namespace }) as unknown as Bus
    const env = { CRON: '* * * * * *' }
    const leader = spawnWorker(namespace, 'a', { ...env, FAILPOINT: 'fired:2' })
    await leader.waitForLine('led')
    const others = ['b', 'c'].map((name) => spawnWorker(namespace, name, env))
    await Promise.all(others.map((worker) => worker.waitForLine('ready')))

    await leader.hitFailpoint('fired')
    const atDeath = await timesOf(reader)
    const next = await eventually(() => others.find(({ stdout }) => stdout.includes('led')) ?? false)
    await eventually(() => next.stdout.filter((line) => line.startsWith('fired')).length >= 3)

    const times = await timesOf(reader)
    expect(atDeath.length).toBeGreaterThanOrEqual(2)
    expect(times.slice(0, atDeath.length)).toEqual(atDeath)
    expect(times).toEqual(times.map((_, i) => times[0]! + i * 1_000))
    expect(times[0]! % 1_000).toBe(0)
    // The tick that had no record was fired again, and stored once.
    expect(next.stdout).toContain(`fired ${atDeath.at(-1)}`)
    for (const event of await collect(reader.log.read()))
      expect([event.type, event.json]).toEqual(['pulse.beaten', '{"by":"schedule"}'])
  })

  test('[P21] fired again with its record lost, by a leader that never declared it: stored once', async () => {
    const clock = clockFrom('2026-07-01T11:59:59.800Z')
    const { bus } = watchedBus({ clock })
    const redis = plainRedis()
    bus.schedule('noon', '0 12 * * *', { type: 'noon.struck', data: 12, tenant: 'acme', key: 'clock' })
    await bus.run()
    const { schedules } = workersKeys(bus.namespace)
    const before = (await redis.hget(schedules, 'noon'))!
    clock.go()
    await eventually(async () => (await redis.hget(schedules, 'noon')) !== before)
    await bus.close()
    await redis.hset(schedules, 'noon', before)

    const stranger = watchedBus({ namespace: bus.namespace, clock: clockFrom('2026-07-01T12:00:05.000Z') })
    await stranger.bus.run()
    await eventually(() => stranger.count('schedule.fired') === 1)
    const [event, ...more] = await collect(stranger.bus.log.read())
    expect(more).toEqual([])
    expect(event).toMatchObject({ type: 'noon.struck', tenant: 'acme', key: 'clock', json: '12' })
    expect(iso(event!.time)).toBe('2026-07-01T12:00:00.000Z')
    await eventually(async () => (await redis.hget(schedules, 'noon')) !== before)
  })
})

describe('time zones', () => {
  const days: [string, string, string, string, string][] = [
    [
      'clocks go forward',
      '30 2 * * *',
      '2026-03-29T00:59:59.700Z',
      '2026-03-29T01:00:00.000Z',
      '2026-03-30T00:30:00.000Z',
    ],
    [
      'clocks go back',
      '30 2 * * *',
      '2026-10-25T00:29:59.700Z',
      '2026-10-25T00:30:00.000Z',
      '2026-10-26T01:30:00.000Z',
    ],
    [
      'clocks go back, hourly',
      '30 * * * *',
      '2026-10-25T00:29:59.700Z',
      '2026-10-25T00:30:00.000Z',
      '2026-10-25T01:30:00.000Z',
    ],
    [
      'an ordinary day',
      '0 9 * * *',
      '2026-07-01T06:59:59.700Z',
      '2026-07-01T07:00:00.000Z',
      '2026-07-02T07:00:00.000Z',
    ],
  ]
  test.each(days)('[P21] in Berlin, %s: %s ticks once, then at the right instant', async (_, cron, now, tick, next) => {
    const clock = clockFrom(now)
    const { bus } = watchedBus({ clock })
    bus.schedule('daily', cron, { type: 'day.begun' }, { timezone: 'Europe/Berlin' })
    await bus.run()
    clock.go()
    await eventually(async () => (await bus.schedules.list())[0]?.fired === Date.parse(tick))
    expect(await isoTimesOf(bus)).toEqual([tick])
    expect(iso((await bus.schedules.list())[0]!.next)).toBe(next)
  })
})

describe('ticks that nobody fired', () => {
  async function declaredAt(time: string, options: BusOptions = {}) {
    const { bus } = watchedBus({ clock: clockFrom(time), ...options })
    bus.schedule('hourly', '0 * * * *', { type: 'hour.struck' })
    await bus.run()
    await bus.close()
    return bus.namespace
  }

  test('[P21] are fired late, once each, in order', async () => {
    const namespace = await declaredAt('2026-07-01T10:30:00.000Z')
    const { bus, count } = watchedBus({ namespace, clock: clockFrom('2026-07-01T13:30:00.000Z') })
    await bus.run()
    await eventually(() => count('schedule.fired') === 3)
    expect(await isoTimesOf(bus)).toEqual([11, 12, 13].map((hour) => `2026-07-01T${hour}:00:00.000Z`))
    expect(count('schedule.missed')).toBe(0)
  })

  test('[P21] beyond the idempotency window are left out and counted', async () => {
    const namespace = await declaredAt('2026-07-01T10:30:00.000Z')
    const { bus, count, events } = watchedBus({ namespace, clock: clockFrom('2026-07-02T12:30:00.000Z') })
    await bus.run()
    await eventually(() => count('schedule.fired') === 24)
    expect((await isoTimesOf(bus))[0]).toBe('2026-07-01T13:00:00.000Z')
    expect(events.filter(({ name }) => name === 'schedule.missed').map(({ fields }) => fields)).toEqual([
      expect.objectContaining({ schedule: 'hourly', missed: 2 }),
    ])
  })

  test('[P21] more than a turn takes are all fired', async () => {
    const namespace = freshNamespace()
    const first = watchedBus({ namespace, clock: clockFrom('2026-07-01T10:00:00.500Z') })
    first.bus.schedule('each', '* * * * * *', { type: 'second.passed' })
    await first.bus.run()
    await first.bus.close()
    const second = watchedBus({ namespace, clock: clockFrom('2026-07-01T10:05:00.500Z') })
    await second.bus.run()
    await eventually(() => second.count('schedule.fired') >= 300)
    expect(await timesOf(second.bus)).toEqual(
      Array.from({ length: 300 }, (_, i) => Date.parse('2026-07-01T10:00:01Z') + i * 1_000),
    )
  })
})

describe('definitions', () => {
  test('[P21] an equal one goes on where it is, a changed one begins now; removed, it fires no more', async () => {
    const one = watchedBus({ clock: clockFrom('2026-07-01T10:30:00.000Z') })
    one.bus.schedule('hourly', '0 * * * *', { type: 'hour.struck', data: { a: 1 } })
    expect(await one.bus.schedules.list()).toEqual([])
    await one.bus.run()
    const [stored] = await one.bus.schedules.list()
    expect(stored).toEqual({
      name: 'hourly',
      cron: '0 * * * *',
      timezone: 'UTC',
      type: 'hour.struck',
      tenant: 'default',
      key: null,
      data: { a: 1 },
      fired: Date.parse('2026-07-01T10:30:00Z'),
      next: Date.parse('2026-07-01T11:00:00Z'),
    })
    await one.bus.close()
    const { namespace } = one.bus

    const equal = watchedBus({ namespace, clock: clockFrom('2026-07-01T10:59:00.000Z') })
    equal.bus.schedule('hourly', '0 * * * *', { type: 'hour.struck', data: { a: 1 } })
    await equal.bus.run()
    expect(await equal.bus.schedules.list()).toEqual([stored])
    await equal.bus.close()

    const changed = watchedBus({ namespace, clock: clockFrom('2026-07-01T11:30:00.000Z') })
    changed.bus.schedule('hourly', '15 * * * *', { type: 'hour.struck', data: { a: 1 } })
    await changed.bus.run()
    const [now] = await changed.bus.schedules.list()
    expect([now!.cron, iso(now!.next)]).toEqual(['15 * * * *', '2026-07-01T12:15:00.000Z'])
    expect(await changed.bus.schedules.remove('hourly')).toBe(true)
    expect(await changed.bus.schedules.remove('hourly')).toBe(false)
    expect(await changed.bus.schedules.list()).toEqual([])
    expect(await timesOf(changed.bus)).toEqual([])
  })

  const wrong: [string, unknown[], string, RegExp][] = [
    ['bad cron', ['a', '* * *', { type: 'a.b' }], 'SCHEDULE_INVALID', /five fields/],
    ['unknown zone', ['a', '* * * * *', { type: 'a.b' }, { timezone: 'X' }], 'SCHEDULE_INVALID', /timezone.*"X"/],
    ['bad name', ['', '* * * * *', { type: 'a.b' }], 'SCHEDULE_INVALID', /1 to 64/],
    ['a name twice', ['known', '* * * * *', { type: 'a.b' }], 'SCHEDULE_INVALID', /already/],
    ['bad type', ['a', '* * * * *', { type: 'a..b' }], 'EVENT_INVALID', /"type"/],
  ]
  test.each(wrong)('[P21] %s: refused at once', (_, args, code, message) => {
    const { bus } = watchedBus()
    bus.schedule('known', '* * * * *', { type: 'a.b' })
    const declare = () => bus.schedule(...(args as Parameters<Bus['schedule']>))
    expect(declare).toThrow(expect.objectContaining({ code, message: expect.stringMatching(message) }))
  })
})
