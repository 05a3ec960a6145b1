import { describe, expect, test } from 'vitest'
import { freshNamespace, plainRedis, redisUrl, take, testBus } from '../support/bus.ts'
import { spawnNode } from '../support/process.ts'
import { chainsOf, expectUnbrokenChains, type StoredEvent, storedEvents } from '../support/stored.ts'

describe('several processes on the same keys', () => {
  const keys = 8
  const perProcess = 1_500

  test('[P03] one of them killed: per key one chain without fork or hole, with everything that was answered', async () => {
    const bus = testBus({ namespace: freshNamespace() })
    await bus.topics()
    const args = (name: string, count: number) => [redisUrl(), bus.namespace, name, String(count), String(keys)]
    const staying = ['a', 'b', 'c'].map((name) => spawnNode('publisher.mjs', { args: args(name, perProcess) }))
    const dying = spawnNode('publisher.mjs', { args: args('d', 1_000_000) })
    // All at work together: none is done yet, the one that will die has hundreds of answers.
    await dying.waitForLine(/^stored 4\d\d /, { timeoutMs: 20_000 })
    await Promise.race(staying.map((child) => child.waitForLine(/^stored 1\d\d /, { timeoutMs: 20_000 })))
    dying.kill()
    await dying.exited
    await Promise.all(staying.map((child) => child.waitForLine('done', { timeoutMs: 25_000 })))

    const stored = await storedEvents(plainRedis(), bus.namespace)
    expectUnbrokenChains(stored)
    expect([...chainsOf(stored).keys()].sort()).toEqual(Array.from({ length: keys }, (_, i) => `default/order:${i}`))
    expect(new Set(stored.map(({ id }) => id)).size).toBe(stored.length)

    for (const [i, child] of [...staying, dying].entries()) {
      const answers = child.stdout.filter((line) => /^stored \d+ \d+-\d+ (\d+|null)$/.test(line))
      if (child !== dying) expect(answers.length).toBeGreaterThanOrEqual(perProcess)
      const mine = stored.filter(({ json }) => JSON.parse(json).by === 'abcd'[i])
      const asAnswers = new Set(mine.map(({ id, prev, json }) => `stored ${JSON.parse(json).n} ${id} ${prev}`))
      expect(answers.filter((line) => !asAnswers.has(line))).toEqual([])
      expectCallOrder(mine)
    }
    const mixed = chainsOf(stored).get('default/order:1')!
    expect(new Set(mixed.map(({ json }) => JSON.parse(json).by)).size).toBe(4)
  })

  /** Calls of one process for one key are stored in the order of the calls. */
  function expectCallOrder(stored: readonly StoredEvent[]): void {
    for (const chain of chainsOf(stored).values()) {
      const numbers = chain.map(({ json }) => JSON.parse(json).n as number)
      expect(numbers).toEqual([...numbers].sort((a, b) => a - b))
    }
  }

  test('[P03] buses of one process and calls of one tick too, through every way to publish', async () => {
    const one = testBus({ partitions: 2 })
    const two = testBus({ namespace: one.namespace, partitions: 2 })
    await Promise.all(
      Array.from({ length: 600 }, (_, i) => {
        const bus = i % 2 ? one : two
        const key = `k${i % 5}`
        if (i % 3 === 0)
          return bus.commit(key, [
            ['a.b', i],
            ['a.c', i],
          ])
        if (i % 3 === 1)
          return bus.publishAll([
            { type: 'a.b', data: i, key },
            { type: 'a.b', data: i, key: 'other' },
          ])
        return bus.publish('a.d', i, { key, idempotencyKey: `i${i}` })
      }),
    )
    const stored = await storedEvents(plainRedis(), one.namespace)
    expect(stored).toHaveLength(200 * 2 + 200 * 2 + 200)
    expectUnbrokenChains(stored)
    const history = await one.log.history('k1', { limit: 1_000 })
    const chain = chainsOf(stored).get('default/k1')!
    expect(history.map(({ id, prev }) => ({ id, prev }))).toEqual(chain.map(({ id, prev }) => ({ id, prev })))
  })
})

describe('tenants and types', () => {
  test('[P30] the same key in two tenants is two objects with a chain each', async () => {
    const bus = testBus({ partitions: 1 })
    const answers = new Map<string, number[]>()
    for (let i = 0; i < 10; i += 1) {
      const tenant = i % 2 ? 'acme' : 'zeta'
      const { seq, prev } = await bus.publish('order.placed', i, { tenant, key: 'order:42' })
      const before = answers.get(tenant) ?? []
      expect(prev).toBe(before.at(-1) ?? null)
      answers.set(tenant, [...before, seq])
    }
    for (const [tenant, seqs] of answers) {
      const history = await bus.log.history('order:42', { tenant })
      expect(history.map(({ seq }) => seq)).toEqual(seqs)
      expect(new Set(history.map((event) => event.tenant))).toEqual(new Set([tenant]))
    }
    expect(await bus.log.history('order:42')).toEqual([])
    await bus.commit('order:42', [['order.paid']], { tenant: 'acme', state: 'paid' })
    expect(await bus.state('order:42', { tenant: 'acme' })).toBe('paid')
    expect(await bus.state('order:42', { tenant: 'zeta' })).toBeNull()
  })

  test('[P30] names that look alike when joined stay apart', async () => {
    const bus = testBus({ partitions: 1 })
    const first = await bus.publish('a.b', 1, { tenant: 'acme', key: 'b/c' })
    const other = await bus.publish('a.b', 1, { tenant: 'acme', key: 'b' })
    expect([first.prev, other.prev]).toEqual([null, null])
    expect(await bus.log.history('b/c', { tenant: 'acme' })).toHaveLength(1)
  })

  test("[P30] a consumer of one type gets its events at once, past an object's events of another type", async () => {
    const bus = testBus({ partitions: 1 })
    const orders = bus.live('order.*')
    await orders.ready()
    const moved = await bus.publish('stock.moved', 1, { key: 'order:42' })
    const placed = await bus.publish('order.placed', 2, { key: 'order:42' })
    await bus.publish('stock.moved', 3, { key: 'order:42' })
    const paid = await bus.publish('order.paid', 4, { key: 'order:42' })
    const got = await take(orders, 2)
    expect(got.map(({ id }) => id)).toEqual([placed.id, paid.id])
    // Its predecessor is of the other type: the reader never had it and does not wait for it.
    expect(got[0]!.prev).toBe(moved.seq)
  })
})
