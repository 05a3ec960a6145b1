/** fsck of queues while they are in use: nothing sound is reported, and what is wrong is found all the same. */
import { expect, onTestFinished, test } from 'vitest'
import type { Bus } from '../src/bus.ts'
import { placeField } from '../src/lanes/record.ts'
import { queueKeys, routeKeys } from '../src/redis/keys.ts'
import { freshNamespace, plainRedis, testBus } from './support/bus.ts'
import { eventually } from './support/eventually.ts'
import { collect, fsckWhile } from './support/log.ts'
import { fillLane, soundQueue } from './support/spoiled-queue.ts'

const tenants = Array.from({ length: 12 }, (_, i) => `t${i}`)
const outcomes = ['ack', 'ack', 'ack', 'retry', 'soon', 'throw', 'dead', 'throttle'] as const

/** A queue that events and items enter in every way, and whose workers do with them whatever can be done. */
async function busyQueue() {
  const namespace = freshNamespace()
  const busOf = () => testBus({ namespace, partitions: 2 }) as unknown as Bus
  const options = {
    match: 'order.*',
    weights: { t0: 3, t1: 2 },
    retry: { attempts: 3, backoff: ['5ms', '20ms'] },
  } as const
  const buses = [busOf(), busOf()]
  let handled = 0
  for (const bus of buses) {
    const queue = bus.queue('mail', options)
    queue.work(
      async (_, ctx) => {
        handled += 1
        const outcome = outcomes[Math.floor(Math.random() * outcomes.length)]!
        if (outcome === 'retry') return ctx.retry('10ms')
        if (outcome === 'soon') return ctx.retry(0)
        if (outcome === 'throw') throw new Error('busy')
        if (outcome === 'dead') return ctx.dead('poison')
        if (outcome === 'throttle') return ctx.throttle('5ms')
      },
      { concurrency: 8 },
    )
    await bus.run({ signals: false })
  }
  const bus = buses[0]!
  const queue = bus.queue('mail-2', options)
  let running = true
  const pick = () => tenants[Math.floor(Math.random() * tenants.length)]!
  const pump = async (one: () => Promise<unknown>) => {
    while (running) await one()
  }
  const work = [
    pump(async () => {
      // Few enough to be read at once.
      if ((await bus.queues.get('mail')).waiting < 500) await bus.publish('order.paid', 1, { tenant: pick(), key: 'k' })
    }),
    pump(() =>
      queue.send(1, {
        tenant: pick(),
        delay: Math.random() < 0.5 ? 5 : 0,
        ttl: 10,
        priority: Math.random() < 0.3 ? 5 : 0,
      }),
    ),
    pump(async () => {
      const { items } = await queue.claim({ max: 3, lease: 20 })
      for (const item of items)
        if (Math.random() < 0.5)
          await (Math.random() < 0.5 ? item.extend(Math.random() < 0.5 ? 0 : 30) : item.handBack())
    }),
    pump(() => bus.queues.dead.redrive('mail', 'all')),
    pump(async () => {
      const passing = bus.queue(`passing-${Math.random().toString(36).slice(2)}`, { match: 'order.>' })
      await passing.send(1)
      await bus.queues.remove(passing.name)
    }),
  ]
  const stop = async () => {
    running = false
    await Promise.all(work)
  }
  onTestFinished(stop)
  return { bus, handled: () => handled, stop }
}

test('[Q31] with workers, senders, routers and people at it nothing is reported', async () => {
  const { bus, handled, stop } = await busyQueue()
  for (let run = 0; run < 6; run += 1) {
    const before = handled()
    expect.soft(await collect(bus.fsck())).toEqual([])
    await eventually(() => handled() > before)
  }
  await stop()
  expect(await collect(bus.fsck())).toEqual([])
})

test('[Q40] what is wrong in a queue that is never still is found too', async () => {
  const { bus } = await busyQueue()
  const redis = plainRedis()
  const keys = queueKeys(bus.namespace, 'mail')
  await redis.hincrby(keys.store, 'out', 1)
  expect(await collect(bus.fsck())).toContainEqual({
    ...{ check: 'queue-counters', where: 'queue "mail"' },
    problem: expect.stringContaining('are accounted for'),
  })
  await redis.hincrby(keys.store, 'out', -1)
  await redis.hincrby(keys.store, 'bytes', 1)
  expect(await collect(bus.fsck())).toContainEqual({
    ...{ check: 'queue-counters', where: 'queue "mail"' },
    problem: expect.stringContaining('bytes, its lanes'),
  })
})

type Passing = [plant: () => Promise<unknown>, mend: () => Promise<unknown>]

test('what is wrong at only one of its reads, whichever that is, is not reported', async () => {
  const { bus, redis, keys, held } = await soundQueue()
  const route = routeKeys(bus.namespace)
  const passing: Record<string, Passing> = {
    'a lane out of line': [() => redis.zrem(keys.turns, 'acme'), () => redis.zadd(keys.turns, 5, 'acme')],
    'a counter that is wrong': [() => redis.hincrby(keys.store, 'in', 1), () => redis.hincrby(keys.store, 'in', -1)],
    'bytes that are wrong': [() => redis.hincrby(keys.store, 'bytes', 1), () => redis.hincrby(keys.store, 'bytes', -1)],
    'a lease too many': [() => redis.zadd(keys.leases, 9e15, 'x'), () => redis.zrem(keys.leases, 'x')],
    'a held item too many': [
      () => redis.set(`${keys.heldPrefix}x`, `w s 1 ${held.id} acme place1`),
      () => redis.unlink(`${keys.heldPrefix}x`),
    ],
    'a queue of nobody': [
      () => redis.hset(queueKeys(bus.namespace, 'x').store, 'revision', 1),
      () => redis.unlink(queueKeys(bus.namespace, 'x').store),
    ],
    'a cursor of nobody': [() => redis.hset(route.own, '0 x', '0 1'), () => redis.hdel(route.own, '0 x')],
  }
  const { reads } = await fsckWhile(redis, bus.namespace, (_, ask) => ask())
  for (const [name, [plant, mend]] of Object.entries(passing)) {
    for (let wrong = 1; wrong <= reads; wrong += 1) {
      const { findings } = await fsckWhile(redis, bus.namespace, async (read, ask) => {
        if (read !== wrong) return ask()
        await plant()
        return ask().finally(mend)
      })
      expect(findings, `${name} at read ${wrong} of ${reads}`).toEqual([])
    }
    await plant()
    expect(await collect(bus.fsck()), name).not.toEqual([])
    await mend()
  }
})

test('a queue of many lanes and items is read to its end, in steps', async () => {
  const { bus, redis, keys } = await soundQueue()
  for (let i = 0; i < 600; i += 1) await fillLane(redis, keys, `lane-${i}`, [`of-${i}`])
  const ids = Array.from({ length: 5_000 }, (_, i) => `item-${i}`)
  await fillLane(redis, keys, 'big', ids)
  expect(await collect(bus.fsck())).toEqual([])
  await fillLane(redis, keys, 'other', ['item-4990'])
  const [found] = await collect(bus.fsck())
  expect(found).toMatchObject({ check: 'queue-items', where: 'item "item-4990" of queue "mail"' })

  // Items move between any two of its reads: it has too many to be read at once, so they are not compared.
  const { findings } = await fsckWhile(redis, bus.namespace, async (read, ask) => {
    const ends = [placeField('big', 0), placeField('big', 4_999)] as const
    const [first, last] = await redis.hmget(keys.items, ...ends)
    await redis.hset(keys.items, ends[0], last!, ends[1], first!)
    await redis.hincrby(keys.store, 'turn', read)
    return ask()
  })
  expect(findings).toEqual([])
})
