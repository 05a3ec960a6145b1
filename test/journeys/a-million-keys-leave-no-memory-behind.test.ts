import type { Redis } from 'ioredis'
import { describe, expect, onTestFinished, test } from 'vitest'
import type { Bus } from '../../src/bus.ts'
import { plainRedis, testBus } from '../support/bus.ts'
import { eventually } from '../support/eventually.ts'
import { startRedis } from '../support/redis.ts'
import { retainerOf } from '../support/retainer.ts'
import { storedEvents, tagsOf } from '../support/stored.ts'

const mb = 1024 * 1024

async function usedMemory(redis: Redis): Promise<number> {
  await redis.memory('PURGE')
  return Number(/^used_memory:(\d+)/m.exec(await redis.info('memory'))![1])
}

async function headsOf(redis: Redis, bus: Bus): Promise<{ count: number; bytes: number }> {
  let count = 0
  let bytes = 0
  for (const tag of await tagsOf(redis, bus.namespace)) {
    for (const generation of ['heads', 'headsOld']) {
      const key = `${bus.namespace}:{${tag}}:${generation}`
      count += await redis.hlen(key)
      bytes += (await redis.memory('USAGE', key)) ?? 0
    }
  }
  return { count, bytes }
}

test('[P16] a million keys used once: the memory of their heads comes back after retention', async () => {
  const server = await startRedis({ args: ['--appendonly', 'no'] })
  onTestFinished(() => server.stop())
  const redis = plainRedis(server.url)
  const bus = testBus({ redis: server.url, partitions: 4 })
  await bus.publish('warm.up', 1)
  const before = await usedMemory(redis)

  const keys = 1_000_000
  const inFlight = 5_000
  for (let from = 0; from < keys; from += inFlight)
    await Promise.all(Array.from({ length: inFlight }, (_, i) => bus.publish('a.b', 1, { key: `order:${from + i}` })))
  const full = await headsOf(redis, bus)
  expect(full.count).toBe(keys)
  expect(full.bytes).toBeGreaterThan(40 * mb)
  expect(await usedMemory(redis)).toBeGreaterThan(before + 100 * mb)

  // From now on nothing is kept; the second round is what a busy or running bus does a little later.
  const last = testBus({ redis: server.url, namespace: bus.namespace, retention: { age: 0 } })
  const { trim } = await retainerOf(last, server.url)
  expect(await trim()).toBe(keys + 1)
  await trim()
  expect(await headsOf(redis, bus)).toEqual({ count: 0, bytes: 0 })
  // Redis gives it back in the background.
  await eventually(async () => expect(await usedMemory(redis)).toBeLessThan(before + 2 * mb))

  // A key that comes back is first again, and goes on from there.
  const first = await bus.publish('a.b', 2, { key: 'order:7' })
  const second = await bus.publish('a.b', 3, { key: 'order:7' })
  expect([first.prev, second.prev]).toEqual([null, first.seq])
}, 120_000)

describe('a head', () => {
  test('[P16] lives at least as long as its event, through any order of publishing and trimming', async () => {
    const bus = testBus({ partitions: 1, retention: { events: 40 } })
    const redis = plainRedis()
    const { trim } = await retainerOf(bus)
    const lastSeq = new Map<string, number>()
    let forgotten = 0
    let seed = 7
    const random = (below: number) => {
      seed = (seed * 48_271) % 2_147_483_647
      return seed % below
    }
    for (let round = 0; round < 150; round += 1) {
      const kept = new Set((await storedEvents(redis, bus.namespace)).map(({ seq }) => seq))
      // Few keys come often, many rarely; each at most once a round.
      const keys = new Set(Array.from({ length: 1 + random(12) }, () => `k${random(2) ? random(4) : random(200)}`))
      const answers = await Promise.all(
        [...keys].map(async (key) => ({ key, ...(await bus.publish('a.b', 1, { key })) })),
      )
      for (const { key, seq, prev } of answers) {
        const before = lastSeq.get(key) ?? null
        if (before !== null && kept.has(before)) expect(prev, `${key} in round ${round}`).toBe(before)
        else expect([before, null], `${key} in round ${round}`).toContain(prev)
        if (before !== null && prev === null) forgotten += 1
        lastSeq.set(key, seq)
      }
      if (random(3) > 0) await trim()
    }
    // Some were forgotten, so the rule was put to the test.
    expect(forgotten).toBeGreaterThan(0)
    expect(lastSeq.size).toBeGreaterThan(50)
  })

  test('[P16] and its object are forgotten together: history, expectPrev and prev agree', async () => {
    const bus = testBus({ partitions: 1, retention: { events: 2 } })
    const { trim } = await retainerOf(bus)
    const old = await bus.publish('a.b', 1, { key: 'old' })
    const held = await bus.publish('a.b', 2, { key: 'held' })
    for (let i = 0; i < 3; i += 1) await trim()
    expect(await bus.log.history('old')).toHaveLength(1)
    await expect(bus.publish('a.b', 3, { key: 'old', expectPrev: null })).rejects.toMatchObject({
      details: { head: old.seq },
    })

    await bus.publish('a.b', 4, { key: 'x' })
    await bus.publish('a.b', 5, { key: 'y' })
    await trim()
    await bus.publish('a.b', 6, { key: 'x' })
    await bus.publish('a.b', 7, { key: 'y' })
    await trim()
    expect(await bus.log.history('held')).toEqual([])
    const again = await bus.publish('a.b', 8, { key: 'held', expectPrev: null })
    expect(again.prev).toBeNull()
    expect(again.seq).toBeGreaterThan(held.seq)
  })
})
