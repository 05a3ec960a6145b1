/** The guard of memory among very many queues, on a Redis that stays too full: its turns end, and each brings it further. */
import type { Redis } from 'ioredis'
import { expect, test } from 'vitest'
import type { Bus } from '../../src/bus.ts'
import { Retainer } from '../../src/log/retention.ts'
import { memoryDuty } from '../../src/memory-guard.ts'
import type { Connection } from '../../src/redis/connection.ts'
import { operationKeys, partitionKeys, routeKeys } from '../../src/redis/keys.ts'
import { systemClock } from '../../src/runtime/clock.ts'
import { createTelemetry, type TelemetryEvent } from '../../src/runtime/telemetry.ts'
import { plainRedis, testBus } from '../support/bus.ts'
import { tagsOf } from '../support/stored.ts'

const idle = Array.from({ length: 1_100 }, (_, i) => `idle${i}`)

/** One queue with something that waits, one with something that has ended, and many that have nothing. */
async function manyQueues() {
  const bus = testBus() as Bus
  const redis = plainRedis()
  await bus.queues.put('waiting', {})
  await bus.queues.put('ended', { track: true })
  await bus.queue('waiting').send({ n: 1 })
  const ended = bus.queue('ended')
  await ended.send({ n: 2 })
  await ended.pop()
  const { subscriptions } = routeKeys(bus.namespace)
  const definition = (await redis.hget(subscriptions, 'waiting'))!
  await redis.hset(subscriptions, Object.fromEntries(idle.map((name) => [name, definition])))
  return { bus, redis }
}

/** Whatever is dropped, it is not enough. With each look at the clock so many ms have passed. */
async function guardOf({ namespace: name }: Bus, redis: Redis, msPerLook: number) {
  const events: TelemetryEvent[] = []
  const telemetry = createTelemetry(systemClock.now, [(event) => events.push(event)])
  const namespace = { name, partitions: (await tagsOf(redis, name)).map((tag) => partitionKeys(name, tag)) }
  let nowMs = 0
  const monotonicMs = () => {
    nowMs += msPerLook
    return nowMs
  }
  const guard = memoryDuty({
    ...{ namespace, telemetry, clock: systemClock, network: { ...systemClock, monotonicMs }, limitBytes: 1 },
    connection: { redis } as Connection,
    retainer: new Retainer({ redis, namespace, telemetry, clock: systemClock }),
    newKey: () => 'key',
    announce: async () => undefined,
  })
  const told = () => events.map((event) => event.name).filter((event) => event !== 'memory.closed')
  return { guard, told }
}

const inOrder = ['memory.forgotten', 'memory.dropped', 'memory.stuck']

test('[W17] a thousand queues of which nothing is kept cost no turn: what waits is dropped, and then it is stuck', async () => {
  const { bus, redis } = await manyQueues()
  const { guard, told } = await guardOf(bus, redis, 100)
  for (let turns = 0; turns < 2; turns += 1) await guard.turn()
  expect(told()).toEqual(inOrder)
  expect(await bus.queues.get('waiting')).toMatchObject({ waiting: 0, dropped: 1 })
})

test('[W17] where a turn has no time for all queues the next one goes on: each is asked before anything is dropped', async () => {
  const { bus, redis } = await manyQueues()
  // Asked all the same: what is to be forgotten there is of a queue that is not tracked any more.
  await Promise.all(idle.map((name) => redis.rpush(operationKeys(bus.namespace, name).opsEnded, '1 x')))
  const { guard, told } = await guardOf(bus, redis, 10)
  let turns = 0
  for (; turns < 30 && !told().includes('memory.stuck'); turns += 1) await guard.turn()
  expect(told()).toEqual(inOrder)
  // A hundred queues in each.
  expect(turns).toBeGreaterThan(10)
})
