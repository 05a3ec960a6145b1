/** The primary is demoted and keeps its connections; the address leads to the new one: a bus goes there by itself. */
import type { Redis } from 'ioredis'
import { describe, expect, onTestFinished, test } from 'vitest'
import { type Bus, busbar } from '../../src/bus.ts'
import type { BusOptions } from '../../src/bus-options.ts'
import { freshNamespace, plainRedis } from '../support/bus.ts'
import { eventually } from '../support/eventually.ts'
import { startProxy } from '../support/proxy.ts'
import { startRedis } from '../support/redis.ts'
import { storedEvents } from '../support/stored.ts'
import { Ledger } from './ledger.ts'
import { publishAtRandom, randomFrom } from './storm.ts'

async function server(): Promise<{ port: number; redis: Redis }> {
  // Else a primary waits 5 s for further replicas before it sends its data.
  const started = await startRedis({ args: ['--repl-diskless-sync-delay', '0'] })
  onTestFinished(() => started.stop())
  return { port: started.port, redis: plainRedis(started.url) }
}

const isInStep = async (redis: Redis) => (await redis.info('replication')).includes('master_link_status:up')

/** Two servers, the second a replica of the first, behind an address that leads to the first. */
async function pair() {
  const [first, second] = [await server(), await server()]
  await second.redis.replicaof('127.0.0.1', first.port)
  await eventually(() => isInStep(second.redis))
  // The proxy looks where it leads to for each new connection, and leaves the open ones alone.
  const address = { port: first.port }
  const proxy = await startProxy({ target: address })
  onTestFinished(() => proxy.stop())
  const namespace = freshNamespace()
  return {
    proxy,
    bus(options?: BusOptions): Bus {
      const bus = busbar({ redis: proxy.url, namespace, publish: { timeout: '20s' }, ...options })
      onTestFinished(() => bus.close({ timeout: '1s' }))
      return bus
    },
    /** They change places, and no write is lost: the first takes none until the second has them all. */
    async failOver() {
      await first.redis.call('FAILOVER')
      await eventually(() => isInStep(first.redis))
    },
    leadToSecond() {
      address.port = second.port
    },
    log: () => storedEvents(second.redis, namespace),
  }
}

describe('a failover that leaves connections open', () => {
  test('[P12] under load: publishes go on at the new primary, no event twice, none lost, order kept', async () => {
    const place = await pair()
    const ledger = new Ledger()
    let done = false
    const storms = Array.from({ length: 4 }, (_, n) =>
      publishAtRandom({ bus: place.bus(), name: `bus${n}`, ledger, random: randomFrom(n), enough: () => done }),
    )
    const grown = (by: number) => {
      const before = ledger.count('stored')
      return eventually(() => ledger.count('stored') >= before + by)
    }
    await grown(500)
    await place.failOver()
    place.leadToSecond()
    await grown(500)
    done = true
    await Promise.all(storms)
    ledger.expectToMatch(await place.log())
    expect(ledger.count('unknown') + ledger.count('refused')).toBe(0)
  })

  test('a queue worker goes on: what it holds is settled, what comes is handled', async () => {
    const place = await pair()
    const bus = place.bus()
    const queue = bus.queue('mail')
    const begun: unknown[] = []
    let finish = () => {}
    const finished = new Promise<void>((resolve) => {
      finish = resolve
    })
    queue.work(async ({ data }) => {
      begun.push(data)
      if (data === 'during') await finished
    })
    await bus.run({ signals: false })
    await queue.send('before')
    await queue.send('during')
    await eventually(() => begun.length === 2)
    await place.failOver()
    place.leadToSecond()
    finish()
    await queue.send('after')
    await eventually(async () => (await bus.queues.get('mail')).out === 3)
    expect(begun).toEqual(['before', 'during', 'after'])
  })

  test('[P25] while the address leads to the demoted one, a bus asks there twice a second and no more', async () => {
    const place = await pair()
    const lostAt: number[] = []
    const bus = place.bus({
      onTelemetry({ name, fields }) {
        if (name === 'redis.lost' && fields.connection === 'writes') lostAt.push(performance.now())
      },
    })
    await bus.publish('order.paid', 'before')
    await place.failOver()
    const publishes = Promise.all(Array.from({ length: 50 }, (_, n) => bus.publish('order.paid', n)))
    await eventually(() => lostAt.length >= 6)
    // Five pauses of 250 to 750 ms.
    expect(lostAt[5]! - lostAt[0]!).toBeGreaterThan(1_240)
    place.leadToSecond()
    await publishes
    expect(await place.log()).toHaveLength(51)
  })
})
