/** A claimed item is its holder's until it is settled or its lease lapses; nobody else's, and not after that. */
import { describe, expect, test } from 'vitest'
import type { Bus } from '../../src/bus.ts'
import { freshNamespace, testBus } from '../support/bus.ts'
import { eventually } from '../support/eventually.ts'
import { repeat, sendAll } from '../support/queues.ts'

const busAndQueue = (options = {}) => {
  const bus = testBus() as Bus
  return { bus, queue: bus.queue('mail', options) }
}

describe('an item', () => {
  test('[Q17] that is not acked in time is given again; acked, never again; a second ack is stale and harmless', async () => {
    const { bus, queue } = busAndQueue()
    const [id] = await sendAll(queue, ['a'])
    const first = (await queue.claim({ lease: 30 })).items[0]!
    expect(first.id).toBe(id)
    expect((await queue.claim()).items).toEqual([])
    const second = await eventually(async () => (await queue.claim({ lease: '10s' })).items[0] ?? false)
    expect([second.id, second.attempt]).toEqual([id, 2])
    expect(await second.ack()).toBe('settled')
    expect(await second.ack()).toBe('stale')
    expect(await first.ack()).toBe('stale')
    expect(await bus.queues.get('mail')).toMatchObject({ waiting: 0, held: 0, in: 1, out: 1 })
    await new Promise((resolve) => setTimeout(resolve, 60))
    expect((await queue.claim()).items).toEqual([])
  })

  test('[Q18] that is extended stays held for longer; with 0 it is available at once', async () => {
    const { queue } = busAndQueue()
    await sendAll(queue, ['a', 'b'])
    const { items } = await queue.claim({ max: 2, lease: 100 })
    expect(await items[0]!.extend('1m')).toBe('settled')
    // The other one of the same claim lapses as it would have.
    const lapsed = await eventually(async () => (await queue.claim({ max: 5 })).items[0] ?? false)
    expect(lapsed.event.tenant).toBe('b')
    expect((await queue.claim()).items).toEqual([])
    expect(await items[0]!.extend(0)).toBe('settled')
    const again = (await queue.claim()).items[0]!
    expect([again.event.tenant, again.attempt]).toEqual(['a', 2])
    expect(await items[0]!.ack()).toBe('stale')
  })

  test('[Q19] whose lease has moved on cannot be acked, tried again, given up or extended by the old one', async () => {
    const { bus, queue } = busAndQueue()
    await sendAll(queue, ['a'])
    const old = (await queue.claim({ lease: 1 })).items[0]!
    const current = await eventually(async () => (await queue.claim({ lease: '1m' })).items[0] ?? false)
    const facts = await bus.queues.get('mail')
    for (const say of [
      () => old.ack(),
      () => old.retry('1s'),
      () => old.dead(),
      () => old.extend('1h'),
      () => old.extend(0),
      () => old.handBack(),
    ])
      expect(await say()).toBe('stale')
    expect(await bus.queues.get('mail')).toEqual(facts)
    expect(await current.ack()).toBe('settled')
  })

  test('[Q34] is never with two workers at once; the handler sees attempt, enqueued and first-claimed time', async () => {
    const namespace = freshNamespace()
    const buses = Array.from({ length: 3 }, () => testBus({ namespace }) as Bus)
    const inHand = new Map<string, number>()
    let [most, done] = [0, 0]
    for (const bus of buses)
      bus.queue('mail', { lease: '5s' }).work(
        async ({ id }) => {
          inHand.set(id, (inHand.get(id) ?? 0) + 1)
          most = Math.max(most, inHand.get(id)!)
          await new Promise((resolve) => setTimeout(resolve, 1))
          inHand.set(id, inHand.get(id)! - 1)
          done += 1
        },
        { concurrency: 20 },
      )
    const sender = testBus({ namespace }).queue('mail', { lease: '5s' })
    await sendAll(sender, repeat('a', 500))
    await Promise.all(buses.map((bus) => bus.run({ signals: false })))
    await eventually(() => done === 500)
    expect([most, inHand.size, done]).toEqual([1, 500, 500])
  })

  test('[Q34] times stay with the item through its attempts', async () => {
    const bus = testBus() as Bus
    const seen: [attempt: number, enqueuedAt: number, firstClaimedAt: number][] = []
    const queue = bus.queue('mail', { retry: { backoff: [20, 20] } })
    queue.work((_, { attempt, enqueuedAt, firstClaimedAt }) => {
      seen.push([attempt, enqueuedAt, firstClaimedAt])
      if (attempt < 3) throw new Error('not yet')
    })
    const before = Date.now()
    await queue.send(1)
    const sentBy = Date.now()
    await bus.run({ signals: false })
    await eventually(() => seen.length === 3)
    const [, enqueuedAt, firstClaimedAt] = seen[0]!
    expect(seen.map(([attempt]) => attempt)).toEqual([1, 2, 3])
    expect(seen.every(([, enqueued, first]) => enqueued === enqueuedAt && first === firstClaimedAt)).toBe(true)
    expect(enqueuedAt).toBeGreaterThanOrEqual(before)
    expect(enqueuedAt).toBeLessThanOrEqual(sentBy)
    expect(firstClaimedAt).toBeGreaterThanOrEqual(enqueuedAt)
  })
})
