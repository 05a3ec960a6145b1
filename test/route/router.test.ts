/** Routers on a real Redis: what is published is in the stores, once and in order, through whatever happens. */
import { describe, expect, test, vi } from 'vitest'
import { dropHold } from '../../src/log/holds.ts'
import { readLasts } from '../../src/log/read.ts'
import { routeKeys } from '../../src/redis/keys.ts'
import { runScript } from '../../src/redis/script.ts'
import { removeScript } from '../../src/route/scripts.ts'
import { plainRedis, testBus } from '../support/bus.ts'
import { eventually } from '../support/eventually.ts'
import { partitions, type Routed, type TestRouter, testRouting } from '../support/routers.ts'

const since = expect.any(Number)
const all = Array.from({ length: partitions }, (_, partition) => partition)

/** Publishes so many events to as many keys; answers their ids. */
async function publish({ bus }: Routed, count: number, type = 'order.paid'): Promise<string[]> {
  const calls = Array.from({ length: count }, (_, i) => bus.publish(type, { i }, { key: `k${i}` }))
  return (await Promise.all(calls)).map(({ id }) => id)
}

/** The store has exactly these, each partition in order. */
async function holdsExactly({ sink }: Routed, name: string, ids: readonly string[], timeoutMs = 10_000): Promise<void> {
  await eventually(async () => (await sink.held(name)).length >= ids.length, {
    timeoutMs,
    what: `${ids.length} events`,
  })
  expect((await sink.held(name)).sort()).toEqual([...ids].sort())
  for (const partition of all) {
    const seqs = (await sink.held(name, partition)).map((id) => Number(id.split('-')[1]))
    expect(seqs).toEqual([...seqs].sort((a, b) => a - b))
  }
}

describe('from where', () => {
  test('now: every event that is published after the answer', async () => {
    const routed = testRouting()
    await publish(routed, 20)
    const router = await routed.start('a')
    await routed.put(router, 'q')
    await holdsExactly(routed, 'q', await publish(routed, 50))
  })

  test('the beginning, and a time; a pattern leaves out the rest', async () => {
    const routed = testRouting()
    const early = await publish(routed, 20, 'order.paid')
    const before = Math.max(...early.map((id) => Number(id.split('-')[1])))
    const late = await publish(routed, 20, 'order.paid')
    await publish(routed, 20, 'mail.sent')
    const router = await routed.start('a')
    await routed.put(router, 'q', 'order.*', 'beginning')
    await routed.put(router, 'r', 'order.*', Math.floor(before / 1_000) + 1)
    await holdsExactly(routed, 'q', [...early, ...late])
    const after = late.filter((id) => Number(id.split('-')[1]) >= (Math.floor(before / 1_000) + 1) * 1_000)
    await holdsExactly(routed, 'r', after)
    expect(router.count('sink.behind')).toBe(0)
  })

  test('a subscription that is put while no router runs is routed by the next one', async () => {
    const routed = testRouting()
    const first = await routed.start('a')
    await first.router.close(500)
    await routed.put(first, 'q')
    const ids = await publish(routed, 20)
    await routed.start('b')
    await holdsExactly(routed, 'q', ids)
  })
})

describe('changes', () => {
  test('from the answer on only the new pattern counts', async () => {
    const routed = testRouting()
    const router = await routed.start('a')
    await routed.put(router, 'q', 'order.*')
    const ids = await publish(routed, 20, 'order.paid')
    await holdsExactly(routed, 'q', ids)
    await routed.put(router, 'q', 'mail.*')
    await publish(routed, 20, 'order.paid')
    ids.push(...(await publish(routed, 20, 'mail.sent')))
    await holdsExactly(routed, 'q', ids)
  })

  test('are followed within 1.5 s when every hint is lost', async () => {
    const routed = testRouting()
    const router = await routed.start('a', {})
    await routed.put(router, 'q', 'order.*')
    await holdsExactly(routed, 'q', await publish(routed, 4, 'order.paid'))
    router.backbone.connections[2]!.redis.stream.pause()
    await routed.put(router, 'r', 'mail.*')
    await holdsExactly(routed, 'r', await publish(routed, 20, 'mail.sent'), 1_500)
  })

  test('a definition that was replaced is refused unless it is forced', async () => {
    const routed = testRouting()
    const router = await routed.start('a')
    await routed.put(router, 'q', 'a')
    await routed.put(router, 'q', 'b')
    const old = { name: 'q', kind: 'queue', match: 'a', options: {} } as const
    await expect(router.subscriptions.put(old, {})).rejects.toMatchObject({ code: 'SUBSCRIPTION_CHANGED_ELSEWHERE' })
    expect(await router.subscriptions.put(old, { force: true })).toMatchObject({ change: 'changed' })
    const changes = router.events
      .filter(({ name }) => name === 'subscription.changed')
      .map(({ fields }) => fields.change)
    expect(changes).toEqual(['created', 'changed', 'changed'])
  })

  test('a removed subscription leaves nothing behind, and its name begins anew', async () => {
    const routed = testRouting()
    const redis = plainRedis()
    const router = await routed.start('a')
    await routed.put(router, 'q')
    await holdsExactly(routed, 'q', await publish(routed, 20))
    await router.subscriptions.remove('q')
    expect(await routed.sink.held('q')).toEqual([])
    await expect(router.subscriptions.remove('q')).rejects.toMatchObject({ code: 'SUBSCRIPTION_NOT_FOUND' })
    await publish(routed, 5)
    await routed.put(router, 'q')
    await holdsExactly(routed, 'q', await publish(routed, 20))
    expect(await redis.exists(routeKeys(routed.namespace).removing)).toBe(0)
  })

  test('a removal whose process died is finished by the next put', async () => {
    const routed = testRouting()
    const router = await routed.start('a')
    await routed.put(router, 'q', 'x')
    const nowUs = (Date.now() - 20_000) * 1_000
    const keys = routeKeys(routed.namespace)
    await runScript(router.opened.reads.redis, removeScript, { keys, nowUs, name: 'q', partitions })
    await routed.put(router, 'q')
    await holdsExactly(routed, 'q', await publish(routed, 20))
  })
})

describe('latency', () => {
  test('a lone event goes from its hint into the store without a read', async () => {
    const routed = testRouting()
    const router = await routed.start('a')
    await routed.put(router, 'q')
    const ids = await publish(routed, 40)
    await holdsExactly(routed, 'q', ids)
    await eventually(() => router.router.isIdleUpTo(all.map(() => 0)))
    const reads = vi.spyOn(router.opened.reads.redis, 'multi')
    for (let i = 0; i < 10; i += 1) {
      ids.push((await routed.bus.publish('order.paid', { i }, { key: `k${i}` })).id)
      await holdsExactly(routed, 'q', ids)
    }
    expect(reads).not.toHaveBeenCalled()
  })

  test('a running bus without subscriptions hears no hints, holds nothing and writes nothing', async () => {
    const bus = testBus({ partitions })
    const redis = plainRedis()
    await bus.run()
    const { id } = await bus.publish('order.paid', 1, { key: 'k' })
    expect(await bus.log.get(id)).toBeDefined()
    const route = routeKeys(bus.namespace)
    expect(await redis.exists(route.cursors, route.own, route.subscriptions)).toBe(0)
    expect((await redis.keys(`${bus.namespace}:*:holds`)).length).toBe(0)
    const channels = (await redis.pubsub('CHANNELS', `${bus.namespace}:*`)) as string[]
    expect(channels.filter((channel) => !channel.includes('{group.'))).toEqual([])
  })
})

describe('trouble', () => {
  test('a router that is killed loses nothing and doubles nothing', async () => {
    const routed = testRouting()
    const first = await routed.start('a')
    const second = await routed.start('b')
    await eventually(() => first.count('route.lost') === partitions / 2)
    await routed.put(first, 'q')
    const ids: string[] = []
    let isOver = false
    const publishing = (async () => {
      while (!isOver) ids.push(...(await publish(routed, 20)))
    })()
    await eventually(async () => (await routed.sink.held('q')).length > 100)
    await first.kill()
    await eventually(() => second.count('route.gained') === partitions)
    isOver = true
    await publishing
    await holdsExactly(routed, 'q', ids)
  })

  test('a connection that breaks again and again', async () => {
    const routed = testRouting()
    const router = await routed.start('a')
    await routed.put(router, 'q')
    const ids: string[] = []
    for (let i = 0; i < 10; i += 1) {
      const published = publish(routed, 50)
      if (i % 2 === 0) router.opened.reads.redis.stream.destroy()
      ids.push(...(await published))
    }
    await holdsExactly(routed, 'q', ids)
  })

  test('a store that refuses is left behind, and catches up once and in order; the other one never waits', async () => {
    const routed = testRouting()
    const router = await routed.start('a')
    await routed.put(router, 'good')
    await routed.put(router, 'bad')
    const ids = await publish(routed, 20)
    await holdsExactly(routed, 'bad', ids)
    routed.sink.refusing.add('bad')
    ids.push(...(await publish(routed, 100)))
    await holdsExactly(routed, 'good', ids, 1_000)
    expect((await routed.sink.held('bad')).length).toBe(20)
    routed.sink.refusing.delete('bad')
    await holdsExactly(routed, 'bad', ids)
    await eventually(() => router.count('sink.caught-up') === router.count('sink.behind'))
    expect(router.count('sink.behind')).toBeLessThanOrEqual(partitions)
    await eventually(async () => (await plainOwn(routed)) === 0)
  })

  test('a store that does not answer is left behind once another one has answered', async () => {
    const routed = testRouting()
    const router = await routed.start('a')
    await routed.put(router, 'good')
    await routed.put(router, 'mute')
    let speak: () => void = () => undefined
    routed.sink.silent.set('mute', new Promise((resolve) => (speak = resolve)))
    const ids = await publish(routed, 20)
    await eventually(() => router.count('sink.behind') > 0)
    ids.push(...(await publish(routed, 20)))
    await holdsExactly(routed, 'good', ids)
    routed.sink.silent.delete('mute')
    speak()
    await holdsExactly(routed, 'mute', ids)
  })

  test('a store that was lost is made again', async () => {
    const routed = testRouting()
    const router = await routed.start('a')
    await routed.put(router, 'q')
    await holdsExactly(routed, 'q', await publish(routed, 20))
    await routed.sink.lose('q')
    await holdsExactly(routed, 'q', await publish(routed, 20))
    expect(router.count('sink.remade')).toBeGreaterThan(0)
  })

  test('what retention took from a subscription is said', async () => {
    const routed = testRouting()
    const router = await routed.start('a')
    await routed.put(router, 'q')
    await holdsExactly(routed, 'q', await publish(routed, 20))
    await router.router.close(500)
    const { redis } = router.opened.reads
    await publish(routed, 20)
    await dropHold(redis, router.opened.namespace, 'route')
    const lasts = await readLasts(redis, router.opened.namespace)
    const used = all.filter((partition) => lasts[partition]! > 0)
    for (const partition of used) {
      const { log, meta } = router.opened.namespace.partitions[partition]!
      await redis.hset(meta, 'trimmed', lasts[partition]!)
      await redis.xtrim(log, 'MAXLEN', 0)
    }
    const next = await routed.start('b')
    await eventually(() => next.count('route.gap') === used.length)
  })
})

test('partitions are handed over without a loss when a router joins and leaves', async () => {
  const routed = testRouting()
  const first = await routed.start('a')
  await routed.put(first, 'q')
  const ids = await publish(routed, 40)
  const second: TestRouter = await routed.start('b')
  await eventually(() => second.count('route.gained') === partitions / 2)
  ids.push(...(await publish(routed, 40)))
  await second.router.close(1_000)
  ids.push(...(await publish(routed, 40)))
  await holdsExactly(routed, 'q', ids)
})

test('[Q36] who gets an event, and why not', async () => {
  const routed = testRouting()
  const router = await routed.start('a')
  await routed.put(router, 'billing', 'order.*')
  await routed.put(router, 'mail', ['mail.>', 'acme:order.paid'] as unknown as string)
  const { subscriptions } = routed.bus
  expect(await subscriptions.match('acme', 'order.paid')).toEqual([
    { name: 'billing', kind: 'queue', match: 'order.*', matches: true, why: 'matches', since },
    { name: 'mail', kind: 'queue', match: ['mail.>', 'acme:order.paid'], matches: true, why: 'matches', since },
  ])
  expect(await subscriptions.match('other', 'order.paid', 'mail')).toEqual([
    { name: 'mail', kind: 'queue', match: ['mail.>', 'acme:order.paid'], matches: false, why: 'pattern', since },
  ])
  expect((await subscriptions.list()).map(({ name }) => name)).toEqual(['billing', 'mail'])
  expect(await subscriptions.get('billing')).toMatchObject({ name: 'billing', match: 'order.*', options: {} })
  await expect(subscriptions.get('biling')).rejects.toMatchObject({
    code: 'SUBSCRIPTION_NOT_FOUND',
    details: { meant: 'billing' },
  })
})

test('[Q36] a paused queue would get it, and hands nothing out since then', async () => {
  const bus = testBus({ partitions })
  bus.queue('billing', { match: 'order.*' })
  await bus.run({ signals: false })
  const before = Date.now()
  await bus.queues.pause('billing')
  const [facts] = await bus.subscriptions.match('acme', 'order.paid', 'billing')
  expect(facts).toMatchObject({ matches: true, why: 'matches', since, pausedSince: expect.any(Number) })
  expect(Math.abs(facts!.pausedSince! - before)).toBeLessThan(10_000)
  await bus.queues.resume('billing')
  expect(await bus.subscriptions.match('acme', 'mail.sent', 'billing')).toEqual([
    { name: 'billing', kind: 'queue', match: 'order.*', matches: false, why: 'pattern', since },
  ])
})

const plainOwn = ({ namespace }: Routed): Promise<number> => plainRedis().hlen(routeKeys(namespace).own)
