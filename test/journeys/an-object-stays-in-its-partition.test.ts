import { createRequire } from 'node:module'
import { crc32 } from 'node:zlib'
import { describe, expect, test } from 'vitest'
import { crc32 as ownCrc32, partitionOf, partitionTags } from '../../src/log/partition.ts'
import { partitionKeys } from '../../src/redis/keys.ts'
import { plainRedis, testBus } from '../support/bus.ts'
import { storedEvents, tagsOf } from '../support/stored.ts'
import vectors from '../vectors/partitions.json' with { type: 'json' }

// As Redis' own clients compute it; it comes with ioredis.
const slotOf: (key: string) => number = createRequire(import.meta.url)('cluster-key-slot')

/** murmur3's finaliser in whole numbers, unlike the one under test. */
function fmix32(hash: number): number {
  const mask = 0xffffffffn
  let h = BigInt(hash)
  h = ((h ^ (h >> 16n)) * 0x85ebca6bn) & mask
  h = ((h ^ (h >> 13n)) * 0xc2b2ae35n) & mask
  return Number(h ^ (h >> 16n))
}

const expectedPartition = (object: string, partitions: number) => fmix32(crc32(object)) % partitions

describe('published vectors', () => {
  test.each(vectors.objects)('[P02] $tenant/$key', ({ tenant, key, crc32: crc, hash, of16, of7 }) => {
    const object = `${tenant}/${key}`
    expect([crc32(object), fmix32(crc)]).toEqual([crc, hash])
    expect(ownCrc32(object)).toBe(crc)
    expect([partitionOf(object, 16), partitionOf(object, 7)]).toEqual([of16, of7])
  })

  test('[P02] there are enough of them, and they reach every partition that a mistake could hide in', () => {
    expect(vectors.objects.length).toBeGreaterThanOrEqual(20)
    expect(vectors.objects.filter(({ key }) => /[\u0080-\uffff]/.test(key)).length).toBeGreaterThanOrEqual(8)
    expect(new Set(vectors.objects.map(({ of7 }) => of7)).size).toBe(7)
  })

  test.each(Object.entries(vectors.tags))('[P02] hash tags of %s partitions', (partitions, tags) => {
    expect(partitionTags(Number(partitions))).toEqual(tags)
  })
})

describe('where an object lives', () => {
  test.each([16, 7])('[P02] events lie where the vectors say, of %s partitions', async (partitions) => {
    const bus = testBus({ partitions })
    await Promise.all(vectors.objects.map(({ tenant, key }) => bus.publish('a.b', 1, { tenant, key })))
    const stored = await storedEvents(plainRedis(), bus.namespace)
    const places = new Map(stored.map(({ tenant, key, partition }) => [`${tenant}/${key}`, partition]))
    for (const { tenant, key, of16, of7 } of vectors.objects)
      expect(places.get(`${tenant}/${key}`), key).toBe(partitions === 16 ? of16 : of7)
    expect(await tagsOf(plainRedis(), bus.namespace)).toEqual(vectors.tags[partitions === 16 ? '16' : '7'])
  })

  test('[P02] always the same one, over every way to publish and over two buses', async () => {
    const one = testBus()
    const two = testBus({ namespace: one.namespace })
    const ids: string[] = []
    for (const bus of [one, two]) {
      ids.push((await bus.publish('a.b', 1, { key: 'order:42' })).id)
      ids.push((await bus.publish('c', 2, { key: 'order:42', idempotencyKey: `${ids.length}` })).id)
      ids.push(...(await bus.commit('order:42', [['a.b'], ['c.d']])).map(({ id }) => id))
      const [answer] = await bus.publishAll([{ type: 'a.b', key: 'order:42' }])
      if (!answer?.error) ids.push(answer!.id)
    }
    expect(ids).toHaveLength(10)
    const place = expectedPartition('default/order:42', 16)
    expect(new Set(ids.map((id) => Number(id.split('-')[0])))).toEqual(new Set([place]))
  })
})

describe('spread', () => {
  // With 15 degrees of freedom a fair hash is above 44.3 once in 10,000; of 6, above 27.9.
  const shapes: [string, (i: number) => string][] = [
    ['numbered', (i) => `default/order:${i}`],
    ['by tenant', (i) => `tenant-${i % 1_000}/cart:${Math.floor(i / 1_000)}`],
    ['stepping by 16', (i) => `default/${i * 16}`],
    ['padded', (i) => `default/${String(i).padStart(12, '0')}`],
  ]
  test.each(shapes)('[P02] 100,000 keys, %s, are even over 16 and over 7 partitions', (_, object) => {
    for (const [partitions, bound] of [
      [16, 44.3],
      [7, 27.9],
    ] as const) {
      const counts = new Array<number>(partitions).fill(0)
      for (let i = 0; i < 100_000; i += 1) counts[partitionOf(object(i), partitions)]! += 1
      const mean = 100_000 / partitions
      const chiSquare = counts.reduce((sum, count) => sum + (count - mean) ** 2 / mean, 0)
      expect(chiSquare).toBeLessThan(bound)
    }
  })
})

test.each([1, 2, 3, 7, 16, 100, 256])(
  '[P02] partition i of %s lies in the i-th equal part of the cluster slots, all its keys together',
  (partitions) => {
    const width = 16_384 / partitions
    for (const [i, tag] of partitionTags(partitions).entries()) {
      const keys = partitionKeys('any', tag)
      const slots = new Set(Object.values(keys).map((key) => slotOf(key)))
      expect(slots.size).toBe(1)
      expect(Math.floor([...slots][0]! / width), `partition ${i}, tag ${tag}`).toBe(i)
    }
  },
)
