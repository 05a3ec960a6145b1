/** A live reader whose Redis or connections go away: it goes on by itself, without a hole, a repeat or a change of order. */
import { describe, expect, test } from 'vitest'
import type { Bus } from '../../src/bus.ts'
import type { Event } from '../../src/event.ts'
import { eventually } from '../support/eventually.ts'
import type { Decision } from '../support/proxy.ts'
import { Ledger } from './ledger.ts'
import { type FaultyPlace, faultyPlace, loseRedis, publishAtRandom, randomFrom } from './storm.ts'

/** Reads everything from now on, in the background. */
async function follow(bus: Bus, pattern = '>'): Promise<Event[]> {
  const live = bus.live(pattern)
  await live.ready()
  const events: Event[] = []
  void (async () => {
    for await (const event of live) events.push(event)
  })()
  return events
}

/** Publishes from several buses past the proxy until `work` is done. */
async function publishDuring(place: FaultyPlace, work: (ledger: Ledger) => Promise<void>): Promise<void> {
  const ledger = new Ledger()
  let done = false
  const storms = Array.from({ length: 3 }, (_, n) => {
    const bus = place.bus({ redis: place.server.url, publish: { timeout: '30s' } })
    return publishAtRandom({ bus, name: `bus${n}`, ledger, random: randomFrom(n), enough: () => done, pauseMs: 2 })
  })
  await work(ledger)
  done = true
  await Promise.all(storms)
}

const grown = (ledger: Ledger, by: number) => {
  const before = ledger.count('stored')
  return eventually(() => ledger.count('stored') >= before + by, { timeoutMs: 20_000 })
}

/** The reader has got exactly the log, each partition in its order. */
async function expectWholeLog(place: FaultyPlace, events: readonly Event[], type = /./): Promise<void> {
  const log = (await place.log()).filter((event) => type.test(event.type))
  await eventually(() => events.length >= log.length, { what: 'Everything delivered' })
  const byPartition = (ids: readonly { id: string }[]) =>
    Array.from({ length: 4 }, (_, partition) => ids.map(({ id }) => id).filter((id) => id.startsWith(`${partition}-`)))
  expect(byPartition(events)).toEqual(byPartition(log))
}

describe('a live reader', () => {
  test('[L05] Redis restarted: goes on without missing what was stored, no repeats, order kept', async () => {
    const place = await faultyPlace({ partitions: 4, args: ['--appendfsync', 'always'] })
    const bus = place.bus()
    const all = await follow(bus)
    const commits = await follow(bus, 'storm.commit')
    await publishDuring(place, async (ledger) => {
      for (let times = 0; times < 3; times += 1) {
        await grown(ledger, 100)
        if (times > 0) await place.server.kill()
        await place.server.restart()
      }
      await grown(ledger, 100)
    })
    await expectWholeLog(place, all)
    await expectWholeLog(place, commits, /^storm\.commit$/)
  })

  test('[L05] the connection that reads is cut, before and after a read: nothing missed, no repeats, order kept', async () => {
    const place = await faultyPlace({ partitions: 4 })
    const readers = await Promise.all(Array.from({ length: 5 }, () => follow(place.bus())))
    const random = randomFrom(5)
    let cuts = 0
    place.proxy.onCommand(({ name }): Decision => {
      if (!['XRANGE', 'XREAD', 'HGET'].includes(name) || cuts >= 60 || random.float() < 0.5) return 'forward'
      cuts += 1
      return random.pick(['cut-before', 'drop-reply'])
    })
    await publishDuring(place, async () => {
      await eventually(() => cuts >= 60, { timeoutMs: 20_000 })
    })
    for (const events of readers) await expectWholeLog(place, events)
  })

  test('[L05] the connection for hints is cut, so that hints are lost: nothing missed, no repeats, and hints come again', async () => {
    const place = await faultyPlace({ partitions: 4 })
    const events = await follow(place.bus())
    const publisher = place.bus({ redis: place.server.url })
    const publish = () =>
      Promise.all(Array.from({ length: 20 }, (_, n) => publisher.publish('order.paid', n, { key: `order:${n}` })))
    const subscriptions = async () => (await place.redis.pubsub('CHANNELS', `${place.namespace}:*`)).length
    expect(await subscriptions()).toBe(4)

    // Cut again while it subscribes: the failure of that is nobody's but the bus's own.
    let cuts = 0
    place.proxy.onCommand(({ name }) => {
      if (name !== 'SUBSCRIBE' || cuts === 3) return 'forward'
      cuts += 1
      return 'cut-before'
    })
    await place.redis.call('CLIENT', 'KILL', 'TYPE', 'pubsub')
    await publish()
    await expectWholeLog(place, events)
    await eventually(async () => (await subscriptions()) === 4)
    expect(cuts).toBe(3)
    await publish()
    await expectWholeLog(place, events)
  })

  test('[L05] everything is cut again and again: nothing missed, no repeats, order kept', async () => {
    const place = await faultyPlace({ partitions: 4 })
    const events = await follow(place.bus())
    await publishDuring(place, async (ledger) => {
      for (let times = 0; times < 20; times += 1) {
        await grown(ledger, 20)
        place.proxy.cut()
      }
    })
    await expectWholeLog(place, events)
  })

  test('[L05] begun while Redis is away: it is ready when Redis is back, and misses nothing after that', async () => {
    const place = await faultyPlace({ partitions: 4 })
    const bus = place.bus()
    await bus.publish('order.paid', 'before')
    await loseRedis(place.proxy, bus)
    const following = follow(bus)
    await place.proxy.accept()
    const events = await following
    await bus.publish('order.paid', 'after')
    await eventually(() => events.length > 0)
    expect(events.map(({ data }) => data)).toEqual(['after'])
  })
})
