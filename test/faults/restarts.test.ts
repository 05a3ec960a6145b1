/** Redis is restarted, in order or by SIGKILL, with its whole log or without its tail: buses go on by themselves. */
import type { Redis } from 'ioredis'
import { describe, expect, test } from 'vitest'
import type { Bus } from '../../src/bus.ts'
import { partitionTags } from '../../src/log/partition.ts'
import { partitionKeys } from '../../src/redis/keys.ts'
import type { TelemetryEvent } from '../../src/runtime/telemetry.ts'
import { take } from '../support/bus.ts'
import { eventually } from '../support/eventually.ts'
import { Ledger } from './ledger.ts'
import { type FaultyPlace, faultyPlace, publishAtRandom, randomFrom } from './storm.ts'

describe('with its whole log', () => {
  /** Publishes from several buses until `work` is done, and for a while after it. */
  async function publishDuring(place: FaultyPlace, work: (ledger: Ledger) => Promise<void>): Promise<Ledger> {
    const ledger = new Ledger()
    let done = false
    const storms = Array.from({ length: 6 }, (_, n) => {
      const bus = place.bus({ publish: { timeout: '30s' } })
      return publishAtRandom({ bus, name: `bus${n}`, ledger, random: randomFrom(n), enough: () => done })
    })
    await work(ledger)
    done = true
    await Promise.all(storms)
    return ledger
  }

  const grown = (ledger: Ledger, by: number) => {
    const before = ledger.count('stored')
    return eventually(() => ledger.count('stored') >= before + by, { timeoutMs: 20_000 })
  }

  test.each([
    ['killed', 'kill'],
    ['restarted in order', 'restart'],
  ] as const)(
    '[P12] Redis is %s under load: all that was answered is there once, in order, and no bus is restarted',
    async (_, how) => {
      const place = await faultyPlace({ args: ['--appendfsync', 'always'] })
      const ledger = await publishDuring(place, async (ledger) => {
        for (let times = 0; times < 3; times += 1) {
          await grown(ledger, 200)
          if (how === 'kill') await place.server.kill()
          await place.server.restart()
        }
        await grown(ledger, 200)
      })
      ledger.expectToMatch(await place.log())
      expect(ledger.count('unknown') + ledger.count('refused')).toBe(0)
    },
  )

  test('[P12] SCRIPT FLUSH under load: nobody notices', async () => {
    const place = await faultyPlace()
    const ledger = await publishDuring(place, async (ledger) => {
      for (let times = 0; times < 20; times += 1) {
        await grown(ledger, 20)
        await place.redis.script('FLUSH')
      }
    })
    ledger.expectToMatch(await place.log())
    expect(ledger.count('unknown') + ledger.count('refused')).toBe(0)
  })
})

describe('without its tail', () => {
  const keys = (place: FaultyPlace) => partitionKeys(place.namespace, partitionTags(1)[0]!)
  const publish = (bus: Bus, data: string) => bus.publish('order.paid', data, { key: 'order:1' })

  /** As if the server's clock had been an hour ahead: only memory keeps later seqs above these. */
  const runAhead = async (redis: Redis, place: FaultyPlace) =>
    redis.hset(keys(place).meta, 'last', String((Date.now() + 3_600_000) * 1_000))

  /** One event that is saved and two that are not; then Redis dies and comes back without them. */
  async function rollBack(place: FaultyPlace, bus: Bus, whenPublished = async () => {}) {
    const kept = await publish(bus, 'kept')
    await place.redis.save()
    await runAhead(place.redis, place)
    const lost = [await publish(bus, 'lost 1'), await publish(bus, 'lost 2')]
    await whenPublished()
    await place.server.kill()
    await place.server.restart()
    return { kept, lost }
  }

  test('[P12] Redis comes back without its tail: the process goes on above every seq that it has seen', async () => {
    const place = await faultyPlace({ partitions: 1, args: ['--appendonly', 'no'] })
    const bus = place.bus()
    const { kept, lost } = await rollBack(place, bus)
    const next = await publish(bus, 'next')
    expect(next.prev).toBe(kept.seq)
    expect(next.seq).toBeGreaterThan(lost[1]!.seq)
    expect((await bus.log.history('order:1')).map(({ data }) => data)).toEqual(['kept', 'next'])
    expect(await bus.log.get(lost[0]!.id)).toBeUndefined()
    expect(await bus.log.get(lost[1]!.id)).toBeUndefined()
  })

  test('[P12] [L05] Redis comes back without what a live reader has read: reported, no seq is given again, the reader goes on', async () => {
    const place = await faultyPlace({ partitions: 1, args: ['--appendonly', 'no'] })
    const told: TelemetryEvent[] = []
    const watcher = place.bus({ onTelemetry: (event) => void told.push(event) })
    const live = watcher.live('order.*')
    await live.ready()
    const before: string[] = []
    const { kept, lost } = await rollBack(place, place.bus(), async () => {
      before.push(...(await take(live, 3)).map((event) => event.data as string))
    })
    expect(before).toEqual(['kept', 'lost 1', 'lost 2'])

    const rolledBack = () => told.find(({ name }) => name === 'log.rolled-back') ?? false
    const report = await eventually(rolledBack)
    expect(report.fields).toEqual({ partition: 0, last: kept.seq, seen: lost[1]!.seq })
    expect(Number(await place.redis.hget(keys(place).meta, 'last'))).toBe(lost[1]!.seq)

    // A process that has seen nothing of it.
    const fresh = place.bus()
    const next = [await publish(fresh, 'next 1'), await publish(fresh, 'next 2')]
    expect(next[0]!.seq).toBeGreaterThan(lost[1]!.seq)
    const after = await take(live, 2)
    expect(after.map(({ id, data }) => [id, data])).toEqual([
      [next[0]!.id, 'next 1'],
      [next[1]!.id, 'next 2'],
    ])
  })
})
