/** When nothing is left, judged by what stands in Redis: written here by hand, so that each condition stands alone. */
import { setTimeout as sleep } from 'node:timers/promises'
import type { Redis } from 'ioredis'
import { expect, test } from 'vitest'
import type { Bus } from '../../src/bus.ts'
import { limitWords } from '../../src/lanes/limits.ts'
import { openNamespace } from '../../src/log/namespace.ts'
import { readLasts } from '../../src/log/read.ts'
import { liftScript } from '../../src/log/rollback.ts'
import type { LogSource } from '../../src/log/view.ts'
import { queueKeys, routeKeys } from '../../src/redis/keys.ts'
import { runScript } from '../../src/redis/script.ts'
import { writeDefinition } from '../../src/route/definition.ts'
import { isRoutedUpTo } from '../../src/route/progress.ts'
import { systemClock } from '../../src/runtime/clock.ts'
import { type Left, whenDrained } from '../../src/sinks/queue/drain.ts'
import { plainRedis, testBus } from '../support/bus.ts'

const namespaceOf = ({ namespace: name }: Bus, redis: Redis) =>
  openNamespace(redis, { name, partitions: undefined, retention: undefined })

async function place() {
  const bus: Bus = testBus({ partitions: 2 })
  await bus.topics()
  const redis = plainRedis()
  const namespace = await namespaceOf(bus, redis)
  const route = routeKeys(bus.namespace)
  const define = (name: string, match: string | null) =>
    redis.hset(route.subscriptions, name, `1 1 ${writeDefinition({ kind: 'queue', match, options: {} })}`)
  await define('mail', '>')
  const store = (partition: number, seq: number) =>
    redis.xadd(namespace.partitions[partition]!.log, `${seq}-0`, 'a', '')
  return { bus, redis, namespace, keys: queueKeys(bus.namespace, 'mail'), route, define, store }
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
  const { redis, namespace, route, define, store } = await place()
  const isRouted = (lasts: number[], ...names: string[]) => isRoutedUpTo(redis, namespace, lasts, names)
  for (const name of ['bills', 'others']) await define(name, 'order.*')
  for (const [partition, seq] of [
    [0, 9],
    [1, 4],
    [1, 5],
  ] as const)
    await store(partition, seq)
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
})

test('[Q32] routed up to: nothing is to be routed to who wants nothing, or is gone, however far main is', async () => {
  const { redis, namespace, define, store } = await place()
  await store(1, 5)
  const isRouted = (...names: string[]) => isRoutedUpTo(redis, namespace, [9, 5], names)
  expect(await isRouted('mail')).toBe(false)
  await define('sent', null)
  expect(await isRouted('sent')).toBe(true)
  expect(await isRouted('sent', 'mail')).toBe(false)
  await define('mail', null)
  expect(await isRouted('sent', 'mail', 'gone')).toBe(true)
  expect(await isRouted()).toBe(true)
})

test('[Q32] a queue that is only sent to is drained although nobody routes what was published', async () => {
  const bus = testBus({ partitions: 2 })
  const mail = bus.queue('mail')
  const handled: unknown[] = []
  mail.work(({ data }) => void handled.push(data))
  await bus.publish('order.paid', 1, { key: 'order:1' })
  await mail.send('hello')
  const signal = AbortSignal.timeout(15_000)
  expect(await bus.drained({ signal })).toMatchObject([{ queue: 'mail', waiting: 0 }])
  expect([handled, signal.aborted]).toEqual([['hello'], false])
})

test('[Q32] routed up to: what Redis has lost of the end of the log is not waited for, what it has is', async () => {
  const { redis, namespace, route, store } = await place()
  const isRouted = () => isRoutedUpTo(redis, namespace, [0, 9], ['mail'])
  await redis.hset(route.cursors, { 1: 5 })
  await store(1, 5)
  expect(await isRouted()).toBe(true)
  await store(1, 7)
  expect(await isRouted()).toBe(false)
  await redis.hset(route.cursors, { 1: 7 })
  await store(1, 12)
  expect(await isRouted()).toBe(true)
})

test('[Q32] a log that was lifted after Redis lost its end is drained, and what comes then too', async () => {
  const bus = testBus({ partitions: 1 })
  const handled: unknown[] = []
  bus.queue('mail', { match: 'order.*' }).work(({ data }) => void handled.push(data))
  await bus.run({ signals: false })
  await bus.publish('order.paid', 1)
  const redis = plainRedis()
  const { partitions } = await namespaceOf(bus, redis)
  const seen = Number(await redis.hget(partitions[0]!.meta, 'last')) + 3_600_000_000
  await runScript(redis, liftScript, { keys: partitions[0]!, seen })
  const signal = AbortSignal.timeout(15_000)
  await bus.drained({ signal })
  expect([handled, signal.aborted]).toEqual([[1], false])
  await bus.publish('order.paid', 2)
  await bus.drained({ signal })
  expect([handled, signal.aborted]).toEqual([[1, 2], false])
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

test('[Q32] a tenant that waits for its rate is waited for, however many retries are due before it', async () => {
  const ground = await place()
  const { redis, keys } = ground
  const limits = limitWords({ ratePerTenant: { max: 1, perMs: 60_000 } })
  await redis.hset(keys.store, { waiting: 1, limits })
  const dueAt = Date.now() + 20_000
  for (let n = 0; n < 150; n += 1) await redis.zadd(keys.later, dueAt, `mail.${n}`)
  await redis.zadd(keys.later, dueAt + 10_000, '@acme')
  const draining = drain(ground)
  await draining.goesOn()
  await redis.zadd(keys.later, Date.now() + 90_000, '@acme')
  expect(await draining.ended).toMatchObject([{ waiting: 1, dueAt }])
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
