/** fsck while the log is in use: a sound log is never reported, whatever happens between its reads. */
import type { Redis } from 'ioredis'
import { expect, test } from 'vitest'
import type { Bus } from '../src/bus.ts'
import { openNamespace } from '../src/log/namespace.ts'
import { partitionTags } from '../src/log/partition.ts'
import { Retainer } from '../src/log/retention.ts'
import { partitionKeys } from '../src/redis/keys.ts'
import { systemClock } from '../src/runtime/clock.ts'
import { createTelemetry } from '../src/runtime/telemetry.ts'
import { plainRedis, testBus } from './support/bus.ts'
import { collect, fsckWhile, keyOf, objectsIn, publishEach, type SpoiledLog, soundLog } from './support/log.ts'
import { startRedis } from './support/redis.ts'

async function retainerOf(redis: Redis, bus: Bus): Promise<Retainer> {
  await bus.topics()
  const namespace = await openNamespace(redis, { name: bus.namespace, partitions: undefined, retention: undefined })
  return new Retainer({ redis, namespace, telemetry: createTelemetry(Date.now), clock: systemClock })
}

const smallLog = (events: number) => testBus({ partitions: 2, retention: { events } }) as unknown as Bus
const objects = [...objectsIn(0, 20), ...objectsIn(1, 20)]
const keysOf = (bus: Bus) => partitionKeys(bus.namespace, partitionTags(2)[0]!)
const trimmedOf = async (redis: Redis, bus: Bus) => Number(await redis.hget(keysOf(bus).meta, 'trimmed'))

test('[P16] through the rotations of heads, with heads in one generation, in the other and in both', async () => {
  const bus = smallLog(30)
  const redis = plainRedis()
  const retainer = await retainerOf(redis, bus)
  const seen = new Set<string>()
  for (let round = 0; round < 8; round += 1) {
    for (const object of objects.slice(round, round + 16)) await publishEach(bus, [object, object])
    await retainer.trimLog()
    expect(await collect(bus.fsck())).toEqual([])
    const counts = [await redis.hlen(keysOf(bus).heads), await redis.hlen(keysOf(bus).headsOld)]
    seen.add(counts.map((count) => (count > 0 ? 'some' : 'none')).join(' '))
  }
  expect(seen).toContain('none some')
  expect(seen).toContain('some some')
})

test('with publishing and trimming between any two of its reads', async () => {
  const log = await soundLog(60)
  const { bus, redis } = log
  const horizon = await log.meta('last')
  await openNamespace(redis, {
    name: bus.namespace,
    partitions: 2,
    retention: { ageMs: 1e9, events: 100, bytes: null },
  })
  const retainer = await retainerOf(redis, bus)
  const { findings, reads } = await fsckWhile(redis, bus.namespace, async (read, ask) => {
    // An entry each, so that the partitions take more than one page.
    for (const object of objects) await publishEach(bus, [object])
    await bus.commit(keyOf(objects[read % 40]!), Array(20).fill(['order.sent', read]), {
      tenant: 'acme',
      state: { read },
    })
    await publishEach(bus, [`acme/new:${read}`, `acme/newer:${read}`])
    await retainer.trimLog()
    return ask()
  })
  expect(findings).toEqual([])
  // Everything that was there at the start was trimmed under its hands.
  expect(reads).toBeGreaterThan(10)
  expect(await trimmedOf(redis, bus)).toBeGreaterThan(horizon)
  expect(await collect(bus.fsck())).toEqual([])
})

test('when everything goes, heads included, and begins anew at any one of its reads', async () => {
  const bus = smallLog(0)
  const redis = plainRedis()
  const retainer = await retainerOf(redis, bus)
  // One entry each, so that the partition takes more than one page.
  const beginAnew = async () => {
    for (let i = 0; i < 3; i += 1) await retainer.trimLog()
    for (let i = 0; i < 20; i += 1) await publishEach(bus, [objects[0]!, objects[20]!, objects[i]!])
  }
  await beginAnew()
  const { reads } = await fsckWhile(redis, bus.namespace, (_, ask) => ask())
  for (let anew = 1; anew <= reads; anew += 1) {
    const { findings } = await fsckWhile(redis, bus.namespace, async (read, ask) => {
      if (read === anew) await beginAnew()
      return ask()
    })
    expect(findings, `anew at read ${anew} of ${reads}`).toEqual([])
  }
})

test('what is wrong and trimmed before the second look is not reported', async () => {
  const bus = smallLog(0)
  const redis = plainRedis()
  const retainer = await retainerOf(redis, bus)
  const { log, meta } = keysOf(bus)
  const plant = async () => {
    await redis.unlink(log, meta)
    await redis.hset(meta, { last: 5, events: 1, bytes: 'no envelope'.length })
    await redis.xadd(log, '5-0', '', '\x1eno envelope')
  }
  await plant()
  const { findings, reads } = await fsckWhile(redis, bus.namespace, (_, ask) => ask())
  expect(findings).toMatchObject([{ check: 'envelopes', where: 'event 0-5' }])
  for (let gone = 1; gone <= reads; gone += 1) {
    await plant()
    let isThere = true
    const goneThen = async (read: number, ask: () => Promise<unknown>) => {
      if (read === gone) {
        await retainer.trimLog()
        isThere = false
      }
      return ask()
    }
    const found = () => expect(isThere, `gone at read ${gone} of ${reads}`).toBe(true)
    await fsckWhile(redis, bus.namespace, goneThen, found)
  }
})

test('under load from several publishers and a retainer', async () => {
  const bus = smallLog(2_000)
  const redis = plainRedis()
  const retainer = await retainerOf(redis, bus)
  let running = true
  const publisher = async (own: Bus) => {
    for (let i = 0; running; i += 1) {
      const object = objects[i % objects.length]!
      await Promise.all([
        publishEach(own, objects),
        own.commit(keyOf(object), Array(50).fill(['order.sent', { i }]), { tenant: 'acme', state: { i } }),
        own.publish('mail', i, { idempotencyKey: `k${i}` }),
      ])
    }
  }
  const trimmer = async () => {
    while (running) await retainer.trimLog()
  }
  const second = testBus({ namespace: bus.namespace }) as unknown as Bus
  const work = [publisher(bus), publisher(second), trimmer()]
  // Only runs during which the log was trimmed count.
  for (let run = 0, before = 0; run < 3; ) {
    expect.soft(await collect(bus.fsck())).toEqual([])
    const trimmed = await trimmedOf(redis, bus)
    if (trimmed > before) run += 1
    before = trimmed
  }
  running = false
  await Promise.all(work)
  expect(await collect(bus.fsck())).toEqual([])
})

type Passing = (log: SpoiledLog) => [plant: () => Promise<unknown>, mend: () => Promise<unknown>]
const own = objectsIn(0)[0]!
const passing: Record<string, Passing> = {
  'a head that is missing': ({ redis, keys }) => {
    let head: string | null
    return [
      async () => {
        head = await redis.hget(keys.heads, own)
        await redis.hdel(keys.heads, own)
      },
      () => redis.hset(keys.heads, own, head!),
    ]
  },
  'a head of nothing': ({ redis, keys }) => [
    async () => redis.hset(keys.heads, objectsIn(0, 5).at(-1)!, (await redis.hget(keys.meta, 'last'))!),
    () => redis.hdel(keys.heads, objectsIn(0, 5).at(-1)!),
  ],
  'an unseen generation': ({ redis, keys }) => [
    () => redis.hset(keys.headsOld, own, 1),
    () => redis.unlink(keys.headsOld),
  ],
  'a count that is wrong': ({ redis, keys }) => [
    () => redis.hincrby(keys.meta, 'events', 1),
    () => redis.hincrby(keys.meta, 'events', -1),
  ],
  'a last that is too low': ({ redis, keys }) => [
    () => redis.hincrby(keys.meta, 'last', -1),
    () => redis.hincrby(keys.meta, 'last', 1),
  ],
  'a trimmed that is too high': ({ redis, keys }) => [
    async () => redis.hset(keys.meta, 'trimmed', (await redis.hget(keys.meta, 'last'))!),
    () => redis.hdel(keys.meta, 'trimmed'),
  ],
  'a hold that is too high': ({ redis, keys }) => [
    () => redis.hset(keys.holds, 'h', Number.MAX_SAFE_INTEGER),
    () => redis.hdel(keys.holds, 'h'),
  ],
  'a key of nobody': ({ redis, bus }) => [
    () => redis.set(`${bus.namespace}:stray`, '1'),
    () => redis.unlink(`${bus.namespace}:stray`),
  ],
  'a key that expires': ({ redis, keys }) => [() => redis.expire(keys.meta, 60), () => redis.persist(keys.meta)],
}

test.each(Object.keys(passing))('%s at only one of its reads, whichever that is, is not reported', async (name) => {
  const log = await soundLog(4)
  const [plant, mend] = passing[name]!(log)
  const { reads } = await fsckWhile(log.redis, log.bus.namespace, (_, ask) => ask())
  for (let wrong = 1; wrong <= reads; wrong += 1) {
    const { findings } = await fsckWhile(log.redis, log.bus.namespace, async (read, ask) => {
      if (read !== wrong) return ask()
      await plant()
      return ask().finally(mend)
    })
    expect(findings, `wrong at read ${wrong} of ${reads}`).toEqual([])
  }
  await plant()
  expect(await log.findings()).not.toEqual([])
})

test('a lost connection is waited for', async () => {
  const server = await startRedis()
  try {
    const bus = testBus({ redis: server.url, partitions: 2 }) as unknown as Bus
    await publishEach(bus, objects)
    const findings = bus.fsck()
    const plain = plainRedis(server.url)
    plain.on('error', () => undefined)
    await plain.set(`${bus.namespace}:stray`, '1')
    expect((await findings.next()).value).toMatchObject({ check: 'keys' })
    await server.restart()
    expect((await findings.next()).done).toBe(true)
  } finally {
    await server.stop()
  }
})
