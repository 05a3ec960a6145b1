/** Redis gone or slow: what waits is bounded by count and bytes, and past it refused at once. */
import { describe, expect, test } from 'vitest'
import type { Bus } from '../../src/bus.ts'
import { spawnNode } from '../support/process.ts'
import { Ledger } from './ledger.ts'
import { type FaultyPlace, faultyPlace } from './storm.ts'

type Away = (
  place: FaultyPlace,
) => Promise<{ bus(options: Parameters<FaultyPlace['bus']>[0]): Promise<Bus>; back(): unknown }>

/** The ways in which Redis can be away, each with how it comes back. */
const away: Record<string, Away> = {
  'a Redis that was never there': async (place) => {
    place.proxy.refuse()
    return { bus: async (options) => place.bus(options), back: () => place.proxy.accept() }
  },
  'a Redis that has gone': async (place) => ({
    async bus(options) {
      const bus = await connected(place, options)
      place.proxy.refuse()
      place.proxy.cut()
      return bus
    },
    back: () => place.proxy.accept(),
  }),
  'a Redis that does not answer': async (place) => ({
    async bus(options) {
      const bus = await connected(place, options)
      place.server.pause()
      return bus
    },
    back: () => place.server.resume(),
  }),
}

async function connected(place: FaultyPlace, options: Parameters<FaultyPlace['bus']>[0]): Promise<Bus> {
  const bus = place.bus(options)
  await bus.publish('warm.up')
  return bus
}

const publish = (bus: Bus, ledger: Ledger, key: string, text = '') =>
  ledger.call('one', [key], async ([data]) => [
    await bus.publish('order.paid', data, { key, trace: text || undefined }),
  ])

describe.each(Object.entries(away))('%s', (_, leave) => {
  test('[P25] waiting publishes are bounded by count; past it refused at once with BUSY; when Redis returns all goes on', async () => {
    const place = await faultyPlace()
    const { bus: openBus, back } = await leave(place)
    const bus = await openBus({ publish: { maxWaiting: 100, timeout: '20s' } })
    const ledger = new Ledger()
    const waiting = Array.from({ length: 100 }, (_, n) => publish(bus, ledger, `order:${n % 10}`))

    const refusal = await bus.publish('order.paid', -1, { key: 'order:1' }).catch((error) => error)
    expect(refusal).toMatchObject({ code: 'BUSY', status: 503, retryable: true })
    expect(refusal.details).toMatchObject({ waiting: 100, maxWaiting: 100 })
    await expect(bus.commit('order:1', [['order.paid', -1]])).rejects.toMatchObject({ code: 'BUSY' })
    const many = await bus.publishAll([
      { type: 'order.paid', data: -1 },
      { type: 'order.paid', data: -1 },
    ])
    expect(many.map(({ error }) => error?.code)).toEqual(['BUSY', 'BUSY'])
    expect(ledger.open).toBe(100)

    await back()
    await Promise.all(waiting)
    await Promise.all(Array.from({ length: 100 }, (_, n) => publish(bus, ledger, `order:${n % 10}`)))
    expect(ledger.count('stored')).toBe(200)
    ledger.expectToMatch((await place.log()).filter(({ type }) => type !== 'warm.up'))
  })

  test('[P25] waiting publishes are bounded by bytes, the state of a commit included', async () => {
    const place = await faultyPlace()
    const { bus: openBus, back } = await leave(place)
    const bus = await openBus({ publish: { maxWaitingBytes: '10kB', timeout: '20s' } })
    const fill = async (publishOne: (n: number) => Promise<unknown>) => {
      const results = Array.from({ length: 100 }, (_, n) =>
        publishOne(n).then(
          () => 'stored',
          ({ code }) => code,
        ),
      )
      // The others are refused at once, before any I/O had its turn.
      await new Promise((resolve) => setImmediate(resolve))
      const refused = await Promise.all(results.map((result) => Promise.race([result, 'waiting'])))
      return { results, waiting: refused.filter((code) => code === 'waiting').length }
    }
    const events = await fill((n) => bus.publish('order.paid', 'x'.repeat(1_000), { key: `order:${n}` }))
    expect(events.waiting).toBe(9)
    await back()
    expect(new Set(await Promise.all(events.results))).toEqual(new Set(['stored', 'BUSY']))

    place.proxy.stall()
    const states = await fill((n) => bus.commit(`order:${n}`, [['order.paid', n]], { state: 'x'.repeat(1_000) }))
    expect(states.waiting).toBeLessThan(10)
    place.proxy.resume()
    await Promise.all(states.results)
    expect(await bus.publish('order.paid', 'x'.repeat(1_000))).toMatchObject({ duplicate: false })
  })
})

test('[P25] memory is bounded while refused publishes hammer a bus without Redis', async () => {
  const place = await faultyPlace()
  place.proxy.refuse()
  const child = spawnNode('fault-hammer.mjs', { args: [place.proxy.url, '100000'] })
  const line = await child.waitForLine(/^hammered /, { timeoutMs: 25_000 })
  const { codes, grownBytes } = JSON.parse(line.slice('hammered '.length))
  expect(Object.keys(codes).sort()).toEqual(['BUSY', 'NOT_STORED'])
  expect(codes.BUSY).toBeGreaterThan(20_000)
  expect(codes.NOT_STORED).toBeGreaterThan(10_000)
  expect(codes.BUSY + codes.NOT_STORED).toBe(120_000)
  // 10,000 calls that left 200 bytes each would be as much.
  expect(grownBytes).toBeLessThan(2_000_000)
})
