/** What fails is tried again after a while, then kept for a person: with the reason, to be put back or given up. */
import { describe, expect, test } from 'vitest'
import type { Bus } from '../../src/bus.ts'
import { testBus } from '../support/bus.ts'
import { eventually } from '../support/eventually.ts'
import { watchedBus } from '../support/workers.ts'

describe('a handler that throws', () => {
  test('[Q20] is tried again with backoff and jitter; after the last attempt the item is a dead letter with the reason', async () => {
    const { bus, count } = watchedBus()
    const times: number[] = []
    const queue = bus.queue('mail', { retry: { attempts: 4, backoff: [40, 100] } })
    queue.work(() => {
      times.push(performance.now())
      throw new TypeError('no such address')
    })
    const { id } = await queue.send({ to: 'x' }, { tenant: 'acme' })
    await bus.run({ signals: false })
    await eventually(async () => (await bus.queues.get('mail')).dead === 1)
    expect(times).toHaveLength(4)
    // 40, 80, 100 ms, each between half of it and all of it; timers may be late, never early.
    const waits = times.slice(1).map((time, i) => time - times[i]!)
    for (const [i, least] of [20, 40, 50].entries()) expect(waits[i]).toBeGreaterThanOrEqual(least - 2)
    const [letter] = await bus.queues.dead.list('mail')
    expect(letter).toMatchObject({ id, attempts: 4, error: 'TypeError: no such address' })
    expect(letter!.event).toMatchObject({ id, tenant: 'acme', data: { to: 'x' } })
    expect([count('queue.failed'), count('queue.buried')]).toEqual([4, 1])
    expect(await bus.queues.get('mail')).toMatchObject({ waiting: 0, later: 0, held: 0, dead: 1, in: 1, out: 0 })
  })

  test('[Q20] jitter spreads what failed together', async () => {
    const bus = testBus() as Bus
    const queue = bus.queue('mail', { retry: { backoff: ['1h', '2h'] } })
    queue.work(() => Promise.reject(new Error('away')), { concurrency: 50 })
    await Promise.all(Array.from({ length: 50 }, (_, n) => queue.send(n)))
    await bus.run({ signals: false })
    await eventually(async () => (await bus.queues.get('mail')).later === 50)
    const { dueInMs } = await queue.claim()
    // Of 50 that wait between half an hour and an hour, the first is due in the first quarter of that time.
    expect(dueInMs).toBeGreaterThan(1_700_000)
    expect(dueInMs).toBeLessThan(2_700_000)
  })

  test('[Q20] dead letters are listed, grouped, put back or given up by filter or selection', async () => {
    const bus = testBus() as Bus
    const queue = bus.queue('mail', { match: 'mail.*' })
    for (let n = 0; n < 12; n += 1) await queue.send({ n }, { tenant: n % 2 ? 'a' : 'b' })
    const { items } = await queue.claim({ max: 12 })
    for (const [i, item] of items.entries()) await item.dead(i < 4 ? 'bounced' : 'full mailbox')
    const { dead } = bus.queues
    expect((await dead.reasons('mail')).map(({ reason, letters }) => [reason, letters])).toEqual([
      ['full mailbox', 8],
      ['bounced', 4],
    ])
    expect(await dead.list('mail', { reason: 'bounced' })).toHaveLength(4)
    expect(await dead.list('mail', { tenant: 'a', limit: 2, offset: 1 })).toHaveLength(2)
    expect(await dead.redrive('mail', { reason: 'bounced', tenant: 'a' })).toBe(2)
    expect(await dead.discard('mail', { tenant: 'b' })).toBe(6)
    const [first] = await dead.list('mail')
    expect(await dead.redrive('mail', { ids: [first!.id, 'mail.none'] })).toBe(1)
    expect(await dead.list('mail')).toHaveLength(3)
    const again = (await queue.claim({ max: 10 })).items
    expect(again.map(({ attempt }) => attempt)).toEqual([1, 1, 1])
    expect(again.map(({ id }) => id)).toContain(first!.id)
    expect(await bus.queues.get('mail')).toMatchObject({ in: 12, discarded: 6, dead: 3, held: 3 })
    expect(await dead.discard('mail', 'all')).toBe(3)
  })
})

describe('a handler decides', () => {
  test('[Q20] retry, dead and throttle are values that it returns', async () => {
    const bus = testBus() as Bus
    const queue = bus.queue('mail', { retry: { attempts: 3 } })
    const seen: string[] = []
    queue.work((event, ctx) => {
      const { what } = event.data as { what: string }
      seen.push(`${what} ${ctx.attempt}`)
      if (what === 'retry' && ctx.attempt === 1) return ctx.retry(10, 'upstream busy')
      if (what === 'dead') return ctx.dead('poison')
      if (what === 'throttle' && seen.filter((one) => one.startsWith('throttle')).length === 1) return ctx.throttle(50)
      return 'done'
    })
    await queue.send({ what: 'retry' }, { tenant: 'r' })
    await queue.send({ what: 'dead' }, { tenant: 'd' })
    await queue.send({ what: 'throttle' }, { tenant: 't' })
    await bus.run({ signals: false })
    await eventually(async () => (await bus.queues.get('mail')).out === 2)
    expect(seen.sort()).toEqual(['dead 1', 'retry 1', 'retry 2', 'throttle 1', 'throttle 1'])
    expect(await bus.queues.dead.reasons('mail')).toMatchObject([{ reason: 'poison', letters: 1 }])
  })

  test('[Q24] a handler that takes too long gets its signal, and the item is tried again', async () => {
    const { bus, count } = watchedBus()
    const queue = bus.queue('mail', { retry: { backoff: [1, 1] } })
    const reasons: unknown[] = []
    let attempts = 0
    queue.work(
      async (_, { signal, attempt }) => {
        attempts = attempt
        if (attempt > 1) return
        await new Promise((resolve) => signal.addEventListener('abort', resolve))
        reasons.push(signal.reason)
        // It goes on after its time all the same: nobody listens any more.
        await new Promise((resolve) => setTimeout(resolve, 30))
      },
      { timeout: 40, concurrency: 1 },
    )
    await queue.send(1)
    await bus.run({ signals: false })
    await eventually(async () => (await bus.queues.get('mail')).out === 1)
    expect(attempts).toBe(2)
    expect(String(reasons[0])).toContain('longer than 40 ms')
    expect([count('queue.failed'), count('queue.stale')]).toEqual([1, 0])
  })

  test('[Q24] a batch handler settles its items one by one; what it has not said is done, or tried again when it throws', async () => {
    const bus = testBus() as Bus
    const queue = bus.queue('mail', { retry: { backoff: [1, 1] } })
    const batches: string[][] = []
    queue.work(
      (items) => {
        batches.push(items.map(({ event, attempt }) => `${(event.data as { n: number }).n}/${attempt}`))
        for (const item of items) {
          const { n } = item.event.data as { n: number }
          if (n === 0) item.dead('no')
          if (n === 1 && item.attempt === 1) item.retry(1)
          if (n === 2) item.ack()
        }
        if (items.some(({ event, attempt }) => (event.data as { n: number }).n === 3 && attempt === 1))
          throw new Error('half way')
      },
      { batch: 10, concurrency: 2 },
    )
    for (let n = 0; n < 6; n += 1) await queue.send({ n })
    await bus.run({ signals: false })
    await eventually(async () => (await bus.queues.get('mail')).out === 5)
    expect(batches[0]).toEqual(['0/1', '1/1', '2/1', '3/1', '4/1', '5/1'])
    expect(batches.slice(1).flat().sort()).toEqual(['1/2', '3/2', '4/2', '5/2'])
    expect(await bus.queues.get('mail')).toMatchObject({ dead: 1, held: 0, waiting: 0, later: 0 })
  })
})
