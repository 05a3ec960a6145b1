/** send(): a job without an event in the log, with delay, time to live, priority and idempotency key. */
import { setTimeout as sleep } from 'node:timers/promises'
import { describe, expect, inject, onTestFinished, test } from 'vitest'
import type { Bus } from '../../src/bus.ts'
import { testBus } from '../support/bus.ts'
import { startProxy } from '../support/proxy.ts'

describe('a sent item', () => {
  test('[Q23] is stored by whichever of the ways that a process has to a queue', async () => {
    const bus = testBus() as Bus
    await bus.queues.put('mail', {})
    const opened = await bus.queues.open('mail')
    const ids = [(await opened.send(1)).id, (await opened.send(2)).id]
    const declared = bus.queue('mail')
    ids.push((await declared.send(3)).id, (await declared.send(4)).id, (await opened.send(5)).id)
    const { items } = await declared.claim({ max: 9 })
    expect(items.map(({ event }) => event.data)).toEqual([1, 2, 3, 4, 5])
    expect(items.map(({ id }) => id)).toEqual(ids)
  })

  test('[Q23] with a delay is not given before it is due, then it is', async () => {
    const queue = testBus().queue('mail')
    const { due } = await queue.send('later', { delay: 150 })
    const { items, dueInMs } = await queue.claim()
    expect(items).toEqual([])
    expect(dueInMs).toBeGreaterThan(50)
    expect(dueInMs).toBeLessThanOrEqual(150)
    const lease = await queue.claim({ wait: '5s' })
    expect(lease.items[0]!.event.data).toBe('later')
    expect(due).toBe(lease.items[0]!.enqueuedAt + 150)
    expect(Date.now()).toBeGreaterThanOrEqual(due!)
  })

  test('[Q23] past its time to live is dropped and counted', async () => {
    const bus = testBus() as Bus
    const queue = bus.queue('mail')
    await queue.send('old', { ttl: 20 })
    await queue.send('young', { ttl: '1h' })
    await sleep(40) // it is a time that is waited for
    const { items } = await queue.claim({ max: 5 })
    expect(items.map(({ event }) => event.data)).toEqual(['young'])
    expect(await bus.queues.get('mail')).toMatchObject({ in: 2, expired: 1 })
  })

  test('[Q23] of a higher priority comes before others of its tenant, and only of its tenant', async () => {
    const queue = testBus().queue('mail')
    const sent: [data: string, tenant: string, priority: number][] = [
      ['a1', 'a', 0],
      ['b1', 'b', 0],
      ['a2', 'a', 5],
      ['a3', 'a', -5],
      ['a4', 'a', 5],
      ['a5', 'a', 0],
      ['a6', 'a', 100],
    ]
    for (const [data, tenant, priority] of sent) await queue.send(data, { tenant, priority })
    const { items } = await queue.claim({ max: 10 })
    expect(items.map(({ event }) => event.data)).toEqual(['a6', 'b1', 'a2', 'a4', 'a1', 'a5', 'a3'])
  })

  test('[Q23] twice with one idempotency key is one item; another body is refused', async () => {
    const bus = testBus() as Bus
    const queue = bus.queue('mail')
    const options = { tenant: 'acme', key: 'mail:7', idempotencyKey: 'welcome-7' }
    const [first, second] = await Promise.all([queue.send({ to: 'a' }, options), queue.send({ to: 'a' }, options)])
    expect([first.duplicate, second.duplicate].sort()).toEqual([false, true])
    expect(second.id).toBe(first.id)
    expect(await queue.send({ to: 'a' }, options)).toEqual({ id: first.id, duplicate: true })
    await expect(queue.send({ to: 'b' }, options)).rejects.toMatchObject({ code: 'IDEMPOTENCY_KEY_REUSED' })
    expect((await queue.send({ to: 'a' }, { ...options, tenant: 'globex' })).duplicate).toBe(false)
    expect(await bus.queues.get('mail')).toMatchObject({ in: 2, waiting: 2 })
  })

  test('[Q23] is one item when its answer is lost, without any key', async () => {
    const proxy = await startProxy({ target: { socketPath: inject('redisSocket') } })
    onTestFinished(() => proxy.stop())
    const bus = testBus({ redis: proxy.url }) as Bus
    const queue = bus.queue('mail')
    await queue.send('first')
    proxy.next('evalsha', 'drop-reply')
    const sent = await queue.send('second')
    expect(sent.duplicate).toBe(false)
    const { items } = await queue.claim({ max: 10 })
    expect(items.map(({ event }) => event.data)).toEqual(['first', 'second'])
    expect(items[1]!.id).toBe(sent.id)
  })

  test('has an event of its own: the tenant and key it was sent with, no place in the log', async () => {
    const queue = testBus().queue('mail')
    const { id } = await queue.send({ to: 'a@b.c' }, { tenant: 'acme', key: 'mail:7', trace: 't-1' })
    const { event } = (await queue.claim()).items[0]!
    expect(event).toMatchObject({ id, seq: 0, prev: null, type: 'mail', tenant: 'acme', key: 'mail:7', trace: 't-1' })
    expect(id).toMatch(/^mail\.[\w-]{20}$/)
    expect(Math.abs(event.time - Date.now())).toBeLessThan(60_000)
    expect(JSON.parse(event.toText())).toMatchObject({ id, data: { to: 'a@b.c' } })
  })

  test.each([
    ['delay', { delay: 'soon' }],
    ['delay', { delay: '400d' }],
    ['ttl', { ttl: '1s', delay: '1m' }],
    ['priority', { priority: 101 }],
    ['priority', { priority: 0.5 }],
    ['tenant', { tenant: 'a b' }],
    ['dealy', { dealy: '1s' }],
  ])('with a bad %s is refused, and nothing is stored', async (name, options) => {
    const bus = testBus() as Bus
    const queue = bus.queue('mail')
    await queue.send('good')
    const refused = queue.send('bad', options as object)
    await expect(refused).rejects.toThrow(name)
    expect((await bus.queues.get('mail')).in).toBe(1)
  })
})
