import { describe, expect, test } from 'vitest'
import { systemClock } from '../../src/runtime/clock.ts'
import { plainRedis, testBus } from '../support/bus.ts'
import { storedEvents } from '../support/stored.ts'

describe('a published event', () => {
  test('[P01] the answer has id, seq and prev, and the event can be read back by its id', async () => {
    const bus = testBus()
    const first = await bus.publish('order.placed', { total: 12 }, { tenant: 'acme', key: 'order:42', trace: 'req-1' })
    const second = await bus.publish('order.paid', { total: 12 }, { tenant: 'acme', key: 'order:42' })

    expect(first).toEqual({
      id: expect.stringMatching(/^\d+-\d+$/),
      seq: expect.any(Number),
      prev: null,
      duplicate: false,
    })
    expect(first.id.split('-')[1]).toBe(String(first.seq))
    expect(second.prev).toBe(first.seq)
    expect(second.seq).toBeGreaterThan(first.seq)

    const read = await bus.log.get(first.id)
    expect(read?.toJSON()).toEqual({
      id: first.id,
      seq: first.seq,
      prev: null,
      type: 'order.placed',
      tenant: 'acme',
      key: 'order:42',
      time: Math.floor(first.seq / 1000),
      trace: 'req-1',
      data: { total: 12 },
    })
    expect((await bus.log.get(second.id))?.toJSON()).toMatchObject({
      id: second.id,
      prev: first.seq,
      type: 'order.paid',
    })
  })

  test('[P01] every event of a flush of many is found by its own id, and nothing beside them', async () => {
    const bus = testBus({ partitions: 1 })
    const answers = await Promise.all(Array.from({ length: 300 }, (_, i) => bus.publish('a.b', i)))
    const read = await Promise.all(answers.map(({ id }) => bus.log.get(id)))
    expect(read.map((event) => event?.data)).toEqual(answers.map((_, i) => i))
    expect(read.map((event) => event?.id)).toEqual(answers.map(({ id }) => id))
    const beside = [`0-${answers[0]!.seq - 1}`, `0-${answers.at(-1)!.seq + 1}`, `1-${answers[0]!.seq}`]
    const nonsense = ['', '0', '0-', '-1', '0-0', '0-01', '0-1e3', `0-${2 ** 53}`, '__proto__', `0-${'9'.repeat(400)}`]
    for (const id of [...beside, ...nonsense]) expect(await bus.log.get(id), id).toBeUndefined()
  })

  test('[P01] an object can be read back in pages, newest first, and a stretch of the log by pattern', async () => {
    const bus = testBus()
    const seqs: number[] = []
    for (let i = 0; i < 90; i += 1) {
      const type = i % 3 ? 'order.line' : 'order.paid'
      seqs.push((await bus.publish(type, i, { tenant: 'acme', key: i % 2 ? 'odd' : 'even' })).seq)
    }
    const pages: unknown[][] = []
    let before: string | undefined
    do {
      const page = await bus.log.history('even', { tenant: 'acme', limit: 20, ...(before ? { before } : {}) })
      pages.unshift(page.map(({ data }) => data))
      before = page[0]?.id
    } while (pages[0]!.length > 0)
    expect(pages.map((page) => page.length)).toEqual([0, 5, 20, 20])
    expect(pages.flat()).toEqual(Array.from({ length: 45 }, (_, i) => 2 * i))
    const foreign = (await bus.log.history('odd', { tenant: 'acme' }))[5]!.id
    expect(await bus.log.history('even', { tenant: 'acme', before: foreign })).toEqual([])

    const read: number[] = []
    for await (const { seq } of bus.log.read({ match: 'acme:*.paid' })) read.push(seq)
    expect(read).toEqual(seqs.filter((_, i) => i % 3 === 0))
  })

  test('[P01] without a key an event has no predecessor, and without data it has null', async () => {
    const bus = testBus({ partitions: 1 })
    await bus.publish('a.b')
    const second = await bus.publish('a.b')
    expect(second.prev).toBeNull()
    expect((await bus.log.get(second.id))?.toJSON()).toMatchObject({ key: null, prev: null, data: null })
  })
})

describe('time', () => {
  test("[P10] absent or null is the server's time, whatever this process's clock says", async () => {
    const bus = testBus({ clock: { ...systemClock, now: () => 0 } })
    const redis = plainRedis()
    const serverMs = async () => {
      const [seconds, micros] = await redis.time()
      return Number(seconds) * 1000 + Math.floor(Number(micros) / 1000)
    }
    for (const time of [undefined, null]) {
      const before = await serverMs()
      const { id } = await bus.publish('a.b', {}, { time })
      const after = await serverMs()
      const read = (await bus.log.get(id))!.time
      expect(read).toBeGreaterThanOrEqual(before)
      expect(read).toBeLessThanOrEqual(after)
    }
  })

  test.each([
    [0, 0],
    [1, 1],
    [1_700_000_000_123, 1_700_000_000_123],
    [8_640_000_000_000_000, 8_640_000_000_000_000],
    [new Date('1999-12-31T23:59:59.999Z'), 946_684_799_999],
  ])('[P10] a given time %s is delivered unchanged', async (time, expected) => {
    const bus = testBus()
    const live = bus.live('a.b')
    await live.ready()
    const { id } = await bus.publish('a.b', {}, { time, key: 'k' })
    expect((await bus.log.get(id))!.time).toBe(expected)
    expect((await bus.log.history('k'))[0]!.time).toBe(expected)
    expect((await live.next()).value!.time).toBe(expected)
    const [committed] = await bus.commit('k', [['a.b', 1, { time }]])
    expect((await bus.log.get(committed!.id))!.time).toBe(expected)
  })
})

describe('topics', () => {
  test('[P17] N publishes make the counter N, over all ways to publish and all partitions', async () => {
    const bus = testBus({ partitions: 5 })
    expect(await bus.topics()).toEqual(new Map())

    await bus.publish('order.placed', 1)
    expect(await bus.topics()).toEqual(new Map([['order', 1]]))

    await Promise.all(
      Array.from({ length: 100 }, (_, i) => bus.publish(i % 2 ? 'order.paid' : 'order', i, { key: `${i}` })),
    )
    await bus.publishAll(
      Array.from({ length: 50 }, (_, i) => ({ type: i % 2 ? 'stock.moved' : 'orders.x', key: `${i}` })),
    )
    await bus.commit('k', [['stock.counted'], ['invoice'], ['order.line.shipped']])
    expect(await bus.topics()).toEqual(
      new Map([
        ['invoice', 1],
        ['order', 102],
        ['orders', 25],
        ['stock', 26],
      ]),
    )
    expect(await storedEvents(plainRedis(), bus.namespace)).toHaveLength(154)
  })

  test('[P17] what is not stored is not counted', async () => {
    const bus = testBus()
    const { seq } = await bus.publish('order.placed', 1, { key: 'k', idempotencyKey: 'once' })
    await bus.publish('order.placed', 1, { key: 'k', idempotencyKey: 'once' })
    await expect(bus.publish('order.placed', 1, { key: 'k', expectPrev: seq - 1 })).rejects.toThrow()
    await expect(bus.publish('order.placed', 2, { key: 'k', idempotencyKey: 'once' })).rejects.toThrow()
    expect(await bus.topics()).toEqual(new Map([['order', 1]]))
  })
})
