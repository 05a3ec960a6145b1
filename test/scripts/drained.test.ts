/** When nothing is left, judged by what stands in Redis: written here by hand, so that each condition stands alone. */
import { setTimeout as sleep } from 'node:timers/promises'
import { expect, test } from 'vitest'
import type { Bus } from '../../src/bus.ts'
import { limitWords } from '../../src/lanes/limits.ts'
import { openNamespace } from '../../src/log/namespace.ts'
import { readLasts } from '../../src/log/read.ts'
import type { LogSource } from '../../src/log/view.ts'
import { queueKeys, routeKeys } from '../../src/redis/keys.ts'
import { isRoutedUpTo } from '../../src/route/progress.ts'
import { systemClock } from '../../src/runtime/clock.ts'
import { type Left, whenDrained } from '../../src/sinks/queue/drain.ts'
import { plainRedis, testBus } from '../support/bus.ts'

async function place() {
  const bus: Bus = testBus({ partitions: 2 })
  await bus.topics()
  const redis = plainRedis()
  const namespace = await openNamespace(redis, { name: bus.namespace, partitions: 2, retention: undefined } as never)
  return { bus, redis, namespace, keys: queueKeys(bus.namespace, 'mail'), route: routeKeys(bus.namespace) }
}

/** Drains `mail`; `read` sees every question before it is asked. */
function drain({ redis, namespace }: Awaited<ReturnType<typeof place>>, begun = () => 0, asked = async () => {}) {
  const source: LogSource = {
    read: async (ask) => {
      const answer = await ask(redis, namespace)
      await asked()
      return answer
    },
  }
  let left: Left[] | undefined
  const times = { clock: systemClock, network: systemClock }
  const ended = whenDrained({ source, ...times, queues: ['mail'], begun, signal: undefined }).then((answer) => {
    left = answer
    return answer
  })
  return {
    ended,
    async goesOn() {
      // Several looks.
      await sleep(250)
      expect(left).toBeUndefined()
    },
  }
}

test('[Q32] routed up to: main has passed, and so has whoever of those asked for does not ride with it', async () => {
  const { redis, namespace, route } = await place()
  const isRouted = (lasts: number[], ...names: string[]) => isRoutedUpTo(redis, namespace, lasts, names)
  expect(await isRouted([0, 0], 'mail')).toBe(true)
  expect(await isRouted([0, 5], 'mail')).toBe(false)
  await redis.hset(route.cursors, { 0: 9, 1: 4 })
  expect(await isRouted([9, 4], 'mail')).toBe(true)
  expect(await isRouted([9, 5], 'mail')).toBe(false)
  await redis.hset(route.own, { '1 mail': '3 77', '0 bills': '1 78' })
  expect(await isRouted([9, 4], 'mail')).toBe(false)
  expect(await isRouted([9, 3], 'mail')).toBe(true)
  expect(await isRouted([9, 4], 'bills')).toBe(false)
  expect(await isRouted([1, 4], 'bills')).toBe(true)
  expect(await isRouted([9, 4], 'others')).toBe(true)
  expect(await isRouted([9, 4])).toBe(true)
})

test('[Q32] what can be given, is held or is due is waited for; what is paused or waits for later is left', async () => {
  const ground = await place()
  const { redis, keys } = ground
  await redis.hset(keys.store, { waiting: 2, held: 1 })
  await redis.zadd(keys.turns, 1, 'acme')
  await redis.zadd(keys.later, Date.now() - 1_000, 'mail.x')
  await redis.hset(keys.laterItems, 'mail.x', '…')
  const draining = drain(ground)
  await draining.goesOn()
  // Tenants of weight 0: they wait, and have no turn.
  await redis.del(keys.turns)
  await draining.goesOn()
  const dueAt = Date.now() + 60_000
  await redis.zadd(keys.later, dueAt, 'mail.x')
  await draining.goesOn()
  await redis.hset(keys.store, { held: 0 })
  expect(await draining.ended).toEqual([
    { queue: 'mail', waiting: 2, later: 1, dueAt, behind: 0, parked: 0, paused: false },
  ])
  await redis.zadd(keys.turns, 1, 'acme')
  const again = drain(ground)
  await again.goesOn()
  await redis.hset(keys.store, { paused: 1 })
  expect(await again.ended).toMatchObject([{ waiting: 2, paused: true }])
})

test('[Q32] a tenant that waits for its rate is waited for, one that is throttled is left', async () => {
  const ground = await place()
  const { redis, keys } = ground
  const limits = limitWords({ ratePerTenant: { max: 1, perMs: 60_000 } })
  await redis.hset(keys.store, { waiting: 1, limits })
  await redis.zadd(keys.later, Date.now() + 30_000, '@acme')
  const draining = drain(ground)
  await draining.goesOn()
  await redis.zadd(keys.later, Date.now() + 90_000, '@acme')
  expect(await draining.ended).toMatchObject([{ waiting: 1, later: 0 }])
  // Nothing of it waits: then it need not be waited for.
  await redis.hset(keys.store, { waiting: 0 })
  await redis.zadd(keys.later, Date.now() + 30_000, '@acme')
  expect(await drain(ground).ended).toMatchObject([{ waiting: 0, later: 0 }])
})

test('[Q32] what a handler publishes while it drains is waited for, what others publish is not', async () => {
  const ground = await place()
  const { bus, redis, namespace, route } = ground
  let asked = 0
  let handlers = 0
  // The first look is at the queue, the second at the log.
  const publishAfterSecond = async () => {
    asked += 1
    if (asked === 2) await bus.publish('order.paid', 1, { key: 'order:1' })
  }
  const alone = drain(ground, () => 0, publishAfterSecond)
  expect(await alone.ended).toHaveLength(1)

  await redis.hset(route.cursors, { ...(await readLasts(redis, namespace)) })
  asked = 0
  const begun = () => handlers
  const draining = drain(ground, begun, async () => {
    await publishAfterSecond()
    // Begun after what was published before was looked up, and through before the first look at the queue.
    if (asked === 3) handlers = 1
  })
  await draining.goesOn()
  await redis.hset(route.cursors, { ...(await readLasts(redis, namespace)) })
  await draining.ended
})

test('[Q32] what a handler publishes that ran already is waited for', async () => {
  const ground = await place()
  const { bus, redis, namespace, route, keys } = ground
  await redis.hset(keys.store, { held: 1 })
  let asked = 0
  const draining = drain(
    ground,
    () => 1,
    async () => {
      asked += 1
      if (asked !== 2) return
      await bus.publish('order.paid', 1, { key: 'order:1' })
      await redis.hset(keys.store, { held: 0 })
    },
  )
  await draining.goesOn()
  await redis.hset(route.cursors, { ...(await readLasts(redis, namespace)) })
  await draining.ended
})
