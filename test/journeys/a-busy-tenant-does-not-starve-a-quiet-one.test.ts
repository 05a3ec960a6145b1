/** Between two turns of a tenant every other one that waits has its turn: exactly, not about. */
import { describe, expect, test } from 'vitest'
import type { Bus } from '../../src/bus.ts'
import { freshNamespace, plainRedis, testBus } from '../support/bus.ts'
import { eventually } from '../support/eventually.ts'
import { claimTenants, repeat, sendAll } from '../support/queues.ts'

const queueOf = (options = {}) => testBus().queue('mail', options)

describe('tenants take turns', () => {
  test('[Q07] A has 1000, B has 1: the one of B is claimed second', async () => {
    const queue = queueOf()
    await sendAll(queue, repeat('a', 1_000))
    await sendAll(queue, ['b'])
    expect(await claimTenants(queue, 3)).toEqual(['a', 'b', 'a'])
  })

  test('[Q08] A, B and C with two each: A B C A B C, claimed one by one or all at once', async () => {
    const oneByOne = queueOf()
    await sendAll(oneByOne, ['a', 'a', 'b', 'b', 'c', 'c'])
    expect(await claimTenants(oneByOne, 6)).toEqual(['a', 'b', 'c', 'a', 'b', 'c'])
    const atOnce = queueOf()
    await sendAll(atOnce, ['a', 'a', 'b', 'b', 'c', 'c'])
    const { items } = await atOnce.claim({ max: 10 })
    expect(items.map(({ event }) => event.tenant)).toEqual(['a', 'b', 'c', 'a', 'b', 'c'])
  })

  test('[Q09] a drained lane leaves the line; a new item brings it back once, at the end', async () => {
    const namespace = freshNamespace()
    const queue = testBus({ namespace }).queue('mail')
    const line = () => plainRedis().zrange(`${namespace}:{queue.mail}:turns`, '0', '-1')
    await sendAll(queue, ['a', 'b', 'b', 'c'])
    expect(await claimTenants(queue, 1)).toEqual(['a'])
    expect(await line()).toEqual(['b', 'c'])
    await sendAll(queue, ['a', 'a'])
    expect(await line()).toEqual(['b', 'c', 'a'])
    expect(await claimTenants(queue, 5)).toEqual(['b', 'c', 'a', 'b', 'a'])
    expect(await line()).toEqual([])
  })

  test('[Q10] the items of one tenant come in the order in which they came in', async () => {
    const queue = queueOf()
    const ids = await sendAll(queue, repeat('a', 50))
    const { items } = await queue.claim({ max: 50 })
    expect(items.map(({ id }) => id)).toEqual(ids)
    expect(items.map(({ event }) => (event.data as { n: number }).n)).toEqual(ids.map((_, n) => n))
  })

  test('[Q10] also when they were published, and with others between them', async () => {
    const bus = testBus()
    const queue = bus.queue('mail', { match: 'mail.*' })
    await queue.claim()
    await bus.run({ signals: false })
    const published: string[] = []
    for (let n = 0; n < 60; n += 1) {
      const { id } = await bus.publish('mail.sent', { n }, { tenant: `t${n % 3}`, key: `t${n % 3}` })
      published.push(id)
    }
    await eventually(async () => (await bus.queues.get('mail')).waiting === 60)
    const { items } = await queue.claim({ max: 60 })
    for (const tenant of ['t0', 't1', 't2']) {
      const mine = items.filter(({ event }) => event.tenant === tenant).map(({ id }) => id)
      expect(mine).toEqual(published.filter((_, n) => `t${n % 3}` === tenant))
    }
  })
})

describe('a weight', () => {
  test('[Q13] of 2 is two items per turn: A A B A A B, however many are claimed at once', async () => {
    for (const max of [1, 2, 3, 5]) {
      const queue = queueOf({ weights: { a: 2 } })
      await sendAll(queue, [...repeat('a', 8), ...repeat('b', 8)])
      const tenants: string[] = []
      while (tenants.length < 12) {
        const { items } = await queue.claim({ max })
        tenants.push(...items.map(({ event }) => event.tenant))
      }
      expect(tenants.slice(0, 12).join('')).toBe('aabaabaabaab')
    }
  })

  test('[Q13] of 0 pauses a tenant, and a change takes effect at once', async () => {
    const namespace = freshNamespace()
    const queue = testBus({ namespace }).queue('mail', { weights: { a: 0 } })
    await sendAll(queue, [...repeat('a', 12), ...repeat('b', 6)])
    expect(await claimTenants(queue, 2)).toEqual(['b', 'b'])
    const put = async (weights: Record<string, number>) => {
      await (testBus({ namespace }) as Bus).queue('mail', { weights }).claim({ max: 1, lease: '1ms' })
    }
    // The claim that registers the change takes one of b with it, for a moment.
    await put({ a: 3 })
    await eventually(async () => (await queue.claim({ max: 20, lease: '1ms' })).items.length === 16)
    await eventually(async () => {
      const { items } = await queue.claim({ max: 8, lease: '1ms' })
      const tenants = items.map(({ event }) => event.tenant).join('')
      return tenants.includes('aaab')
    })
  })
})

describe('one worker over several queues', () => {
  test('[Q15] is served in proportion to their weights, and by one alone when the others are empty', async () => {
    const bus = testBus()
    const [mail, sms] = [bus.queue('mail'), bus.queue('sms')]
    await sendAll(mail, repeat('a', 300))
    await sendAll(sms, repeat('a', 300))
    const order: string[] = []
    const work = bus.work([mail, sms], (_, { queue }) => void order.push(queue), {
      concurrency: 8,
      weights: { mail: 3 },
    })
    await bus.run({ signals: false })
    await eventually(() => order.length === 600)
    await work.close()
    const mailsIn = (from: number, to: number) => order.slice(from, to).filter((queue) => queue === 'mail').length
    // Three to one as long as both wait, then the other one alone.
    for (let from = 0; from < 400; from += 4) expect(mailsIn(from, from + 4)).toBe(3)
    expect(mailsIn(400, 600)).toBe(0)
  })

  test('[Q15] many items are claimed in one call', async () => {
    const queue = queueOf()
    await sendAll(queue, repeat('a', 1_000))
    expect((await queue.claim({ max: 1_000 })).items).toHaveLength(1_000)
    expect((await queue.claim({ max: 1_000 })).items).toHaveLength(0)
  })
})

describe('a worker', () => {
  test('that was quick and stalls leaves what it has not begun to the others', async () => {
    const namespace = freshNamespace()
    const [first, second] = [testBus({ namespace }), testBus({ namespace })]
    const queue = first.queue('mail', { lease: '1m' })
    await sendAll(queue, repeat('a', 3_000))
    let open: () => void = () => undefined
    const gate = new Promise<void>((resolve) => {
      open = resolve
    })
    let [begun, taken] = [0, 0]
    queue.work(() => (++begun > 1_000 ? gate : undefined), { concurrency: 8 })
    await first.run({ signals: false })
    await eventually(() => begun === 1_008)
    second.queue('mail', { lease: '1m' }).work(
      () => {
        taken += 1
      },
      { concurrency: 8 },
    )
    await second.run({ signals: false })
    await eventually(() => taken === 3_000 - 1_008)
    open()
    await eventually(async () => (await first.queues.get('mail')).held === 0)
  })
})
