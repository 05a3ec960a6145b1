/** What one processor gets: everything that matches, once and in order while nothing goes wrong, from where it was told. */
import { describe, expect, test } from 'vitest'
import type { Bus } from '../../src/bus.ts'
import { freshNamespace, testBus } from '../support/bus.ts'
import { eventually } from '../support/eventually.ts'

type Numbered = { n: number }

/** Publishes `count` events, round robin over the keys, each with its number within its key. */
async function publishNumbered(bus: Bus, count: number, { keys = 10, type = 'order.paid', from = 0 } = {}) {
  await Promise.all(
    Array.from({ length: count }, (_, i) =>
      bus.publish(type, { n: from + Math.floor(i / keys) }, { key: `k${i % keys}` }),
    ),
  )
}

/** Runs a processor that notes what it gets. */
async function follow(bus: Bus, name: string, options: Parameters<Bus['processor']>[1]) {
  const seen: { key: string; n: number; id: string }[] = []
  bus.processor(name, { ...options, concurrency: undefined }, async (events) => {
    for await (const event of events) seen.push({ key: event.key!, n: (event.data as Numbered).n, id: event.id })
  })
  await bus.run({ signals: false })
  return seen
}

const numbersOf = (seen: readonly { key: string; n: number }[], key: string) =>
  seen.filter((event) => event.key === key).map(({ n }) => n)

describe('[S01] two processors', () => {
  test('each sees every event, once and in order per key', async () => {
    const namespace = freshNamespace()
    const [one, two, publisher] = [testBus({ namespace }), testBus({ namespace }), testBus({ namespace })]
    await publishNumbered(publisher, 300)
    const both = [await follow(one, 'search', { match: 'order.>' }), await follow(two, 'audit', { match: '>' })]
    await publishNumbered(publisher, 300, { from: 30 })
    for (const seen of both) {
      await eventually(() => seen.length >= 600)
      expect(new Set(seen.map(({ id }) => id)).size).toBe(600)
      for (let key = 0; key < 10; key += 1)
        expect(numbersOf(seen, `k${key}`)).toEqual(Array.from({ length: 60 }, (_, n) => n))
    }
  })

  test('only what matches, and the cursor passes what does not', async () => {
    const bus = testBus()
    const seen = await follow(bus, 'search', { match: ['order.paid', 'acme:mail.>'] })
    await publishNumbered(bus, 20, { type: 'order.shipped' })
    await bus.publish('mail.sent', { n: 0 }, { tenant: 'other', key: 'k' })
    await bus.publish('mail.sent', { n: 1 }, { tenant: 'acme', key: 'k' })
    await publishNumbered(bus, 10)
    await eventually(() => seen.length === 11)
    await eventually(async () => (await bus.streams.get('search')).lag === 0)
  })
})

describe('[S09] a new processor starts', () => {
  const started = async (from: 'now' | 'beginning' | undefined | 'time') => {
    const bus = testBus()
    const all = await Promise.all(Array.from({ length: 20 }, (_, n) => bus.publish('order.paid', { n }, { key: 'k0' })))
    // In the next millisecond, so that the time between them is one that can be named.
    const until = Math.floor(Math.max(...all.map(({ seq }) => seq)) / 1000) + 1
    const { seq } = await eventually(async () => {
      const published = await bus.publish('order.paid', { n: 100 }, { key: 'k0' })
      return published.seq >= until * 1000 && published
    })
    const time = Math.floor(seq / 1000)
    await publishNumbered(bus, 20, { from: 200 })
    const options = from === undefined ? {} : { from: from === 'time' ? new Date(time) : from }
    const seen = await follow(bus, 'search', { match: '>', ...options })
    await bus.publish('order.paid', { n: 300 }, { key: 'k0' })
    await eventually(() => seen.some(({ n }) => n === 300))
    await eventually(async () => (await bus.streams.get('search')).lag === 0)
    return seen.map(({ n }) => n)
  }

  test('at the beginning, which is the default', async () => {
    for (const from of [undefined, 'beginning'] as const) {
      const numbers = await started(from)
      for (let n = 0; n < 20; n += 1) expect(numbers).toContain(n)
      expect(numbers.filter((n) => n >= 200).length).toBe(21)
    }
  })

  test('now', async () => {
    expect(await started('now')).toEqual([300])
  })

  test('at a time', async () => {
    const numbers = await started('time')
    expect(numbers).toContain(100)
    expect(numbers.filter((n) => n >= 200).length).toBe(21)
    expect(numbers.filter((n) => n < 100)).toEqual([])
  })

  test('only when it is new: declared again, it goes on', async () => {
    const namespace = freshNamespace()
    const first = testBus({ namespace })
    await publishNumbered(first, 20)
    const seen = await follow(first, 'search', { match: '>' })
    await eventually(() => seen.length === 20)
    await first.close()
    const second = testBus({ namespace })
    const again = await follow(second, 'search', { match: '>', from: 'beginning' })
    await publishNumbered(second, 1, { from: 500 })
    await eventually(() => again.length === 1)
    expect(again[0]!.n).toBe(500)
  })
})

describe('[S06] the cursor', () => {
  test('moves only after the iteration ended: what failed is processed again', async () => {
    const bus = testBus({ partitions: 1 })
    await publishNumbered(bus, 5, { keys: 1 })
    const tries: number[] = []
    let failures = 2
    let cursorWhileWorking: number | undefined
    bus.processor('search', { match: '>', retry: { backoff: ['10ms', '10ms'] } }, async (events) => {
      for await (const event of events) {
        const { n } = event.data as Numbered
        tries.push(n)
        if (n === 2 && failures-- > 0) {
          cursorWhileWorking = (await bus.streams.get('search')).partitions[0]!.cursor
          expect(cursorWhileWorking).toBeLessThan(event.seq)
          throw new Error('not yet')
        }
      }
    })
    await bus.run({ signals: false })
    await eventually(() => tries.length === 7)
    expect(tries).toEqual([0, 1, 2, 2, 2, 3, 4])
    expect(cursorWhileWorking).toBeGreaterThan(0)
  })

  test('a restart continues at committed + 1; what was in hand at the end comes again', async () => {
    const namespace = freshNamespace()
    const first = testBus({ namespace, partitions: 1 })
    await publishNumbered(first, 6, { keys: 1 })
    const seen: number[] = []
    first.processor('search', { match: '>' }, async (events, { signal }) => {
      for await (const event of events) {
        const { n } = event.data as Numbered
        seen.push(n)
        if (n === 3)
          await new Promise((_, reject) => signal.addEventListener('abort', () => reject(new Error('abort'))))
      }
    })
    await first.run({ signals: false })
    await eventually(() => seen.length === 4)
    await first.close({ timeout: '200ms' })
    const second = testBus({ namespace })
    const rest = await follow(second, 'search', { match: '>' })
    await eventually(() => rest.length === 3)
    expect(rest.map(({ n }) => n)).toEqual([3, 4, 5])
  })

  test('is committed by itself after each event, each batch, or every interval', async () => {
    for (const commit of ['each', 'batch', '50ms'] as const) {
      const bus = testBus({ partitions: 1 })
      const seen = await follow(bus, 'search', { match: '>', commit })
      await publishNumbered(bus, 250, { keys: 1 })
      await eventually(() => seen.length === 250)
      await eventually(async () => (await bus.streams.get('search')).lag === 0)
    }
  })
})
