/** Operations when processes die, come too late, or Redis is away. */
import { describe, expect, onTestFinished, test } from 'vitest'
import type { Bus } from '../../src/bus.ts'
import { queueKeys } from '../../src/redis/keys.ts'
import { freshNamespace, plainRedis, redisUrl, testBus } from '../support/bus.ts'
import { eventually } from '../support/eventually.ts'
import { collect } from '../support/log.ts'
import { type Child, spawnNode } from '../support/process.ts'
import { startProxy } from '../support/proxy.ts'
import { startRedis } from '../support/redis.ts'
import { quickGroup, watchedBus } from '../support/workers.ts'

const lease = 800

function spawnHanging(namespace: string, options: object): Child {
  const args = [redisUrl(), namespace, '-', JSON.stringify(options), JSON.stringify(quickGroup)]
  const child = spawnNode('queue-worker.mjs', { args, env: { HANDLE: 'hang', CONCURRENCY: '10' } })
  onTestFinished(() => child.kill())
  return child
}

describe('[O06] a worker that is killed during an operation', () => {
  test('it is run again: running no longer than its lease and a second, its attempts counted', async () => {
    const namespace = freshNamespace()
    const options = { track: true, lease } as const
    const bus = testBus({ namespace, worker: 'second' }) as unknown as Bus
    const queue = bus.queue('mail', options)
    const { id } = await queue.send(1)
    const first = spawnHanging(namespace, options)
    await first.waitForLine(/^begin/)
    expect(await bus.operations.get(id)).toMatchObject({ status: 'running', attempts: 1 })
    first.kill()
    const killedAt = performance.now()
    await eventually(async () => expect((await bus.operations.get(id)).status).toBe('queued'))
    expect(performance.now() - killedAt).toBeLessThan(lease + 1_000)
    queue.work(() => 'again')
    await bus.run({ signals: false })
    expect(await bus.operations.wait(id)).toMatchObject({
      status: 'succeeded',
      attempts: 2,
      worker: 'second',
      output: 'again',
    })
    expect((await bus.operations.stats('mail')).total).toEqual({ succeeded: 1, failed: 0, cancelled: 0 })
  })

  test('without another worker it is failed with a reason, by the leader', async () => {
    const namespace = freshNamespace()
    const options = { track: true, lease, retry: { attempts: 1 } } as const
    const bus = testBus({ namespace, group: quickGroup }) as unknown as Bus
    const queue = bus.queue('mail', options)
    await queue.send('before')
    const only = spawnHanging(namespace, options)
    await only.waitForLine(/^begin/)
    const { id } = await queue.send(1)
    await eventually(async () => expect((await bus.operations.get(id)).status).toBe('running'))
    only.kill()
    await bus.run({ signals: false })
    const ended = await bus.operations.wait(id, { timeout: '20s' })
    expect(ended).toMatchObject({ status: 'failed', attempts: 1, error: expect.stringContaining('its lease lapsed') })
    await eventually(async () => expect((await bus.operations.stats('mail')).total.failed).toBe(2))
    expect(await collect(bus.fsck())).toEqual([])
  })
})

test('[O07] the late result of a lost lease is refused, and counted', async () => {
  const { bus, count } = watchedBus({ worker: 'zombie' })
  const options = { track: true, lease: 300 } as const
  const queue = bus.queue('mail', options)
  let end = () => {}
  const held = new Promise<void>((resolve) => {
    end = resolve
  })
  queue.work(
    async () => {
      await held
      return 'too late'
    },
    { concurrency: 1 },
  )
  const { id } = await queue.send(1)
  await bus.run({ signals: false })
  await eventually(async () => expect((await bus.operations.get(id)).status).toBe('running'))
  // As if the process had stood still: its lease is gone, and someone else has the item.
  const other = testBus({ namespace: bus.namespace }) as unknown as Bus
  const redis = plainRedis()
  const keys = queueKeys(bus.namespace, 'mail')
  const door = await other.queues.open('mail')
  const lapseAndClaim = async () => {
    for (const token of await redis.zrange(keys.leases, '0', '-1')) await redis.zadd(keys.leases, 1, token)
    return (await door.claim({ lease: '30s' })).items
  }
  let items = await lapseAndClaim()
  // It may have been renewed in between.
  while (items.length === 0) items = await lapseAndClaim()
  expect(items.map((item) => [item.id, item.attempt])).toEqual([[id, 2]])
  end()
  await eventually(() => count('queue.stale') === 1)
  expect(await bus.operations.get(id)).toMatchObject({ status: 'running', attempts: 2, output: null })
  await items[0]!.ack('in time')
  expect(await bus.operations.get(id)).toMatchObject({ status: 'succeeded', output: 'in time' })
  expect((await bus.operations.stats('mail')).total).toEqual({ succeeded: 1, failed: 0, cancelled: 0 })
  expect(bus.telemetry.counts().get('queue.stale')).toBe(1)
})

test('[O11] wait survives a restart of Redis', async () => {
  const server = await startRedis({ args: ['--appendfsync', 'always'] })
  onTestFinished(() => server.stop())
  const bus = testBus({ redis: server.url, partitions: 1 }) as unknown as Bus
  const queue = bus.queue('mail', { track: true })
  const { id } = await queue.send(1)
  const waiting = bus.operations.wait(id, { timeout: '30s' })
  await bus.operations.get(id)
  await server.kill()
  await server.restart()
  await eventually(async () => expect((await bus.operations.get(id)).status).toBe('queued'))
  await (await queue.claim()).items[0]!.ack('after all')
  expect(await waiting).toMatchObject({ status: 'succeeded', output: 'after all' })
})

test('[O11] wait keeps its time and hears its signal while Redis is away or says nothing', async () => {
  const server = await startRedis()
  onTestFinished(() => server.stop())
  const proxy = await startProxy({ target: { port: Number(new URL(server.url).port) } })
  onTestFinished(() => proxy.stop())
  const bus = testBus({ redis: proxy.url, partitions: 1 }) as unknown as Bus
  const { id } = await bus.queue('mail', { track: true }).send(1)
  expect((await bus.operations.wait(id, { timeout: 0 })).status).toBe('queued')
  const [stopped, unheard] = [new AbortController(), new AbortController()]
  const looked = proxy.count('EVALSHA')
  const seeing = [{ timeout: '1s' as const }, { signal: stopped.signal }].map((how) => bus.operations.wait(id, how))
  await eventually(() => proxy.count('EVALSHA') === looked + seeing.length)
  // Behind their answers.
  await bus.operations.get(id)
  const started = performance.now()
  proxy.stall()
  const blind = [{ timeout: 100 }, { signal: unheard.signal }].map((how) => bus.operations.wait(id, how))
  stopped.abort()
  unheard.abort()
  const answers = await Promise.allSettled([...seeing, ...blind])
  proxy.resume()
  expect(answers).toMatchObject([
    ...seeing.map(() => ({ value: { status: 'queued' } })),
    ...blind.map(() => ({ reason: { code: 'REDIS_UNAVAILABLE' } })),
  ])
  expect(performance.now() - started).toBeLessThan(2_000)
})

describe('a trigger', () => {
  async function behindProxy(args: readonly string[] = []) {
    const server = await startRedis({ args: [...args] })
    onTestFinished(() => server.stop())
    const proxy = await startProxy({ target: { port: Number(new URL(server.url).port) } })
    onTestFinished(() => proxy.stop())
    const bus = testBus({ redis: proxy.url, partitions: 1 }) as unknown as Bus
    await bus.queues.put('sync', { track: true })
    return { bus, proxy, redis: plainRedis(server.url) }
  }

  test('[O09] is made, and removed, once and for all when an answer is lost', async () => {
    const { bus, proxy } = await behindProxy()
    const dropOf = (act: string) =>
      proxy.onCommand(({ args }) => {
        if (!args.some((arg) => arg.toString() === act)) return 'forward'
        proxy.onCommand()
        return 'drop-reply'
      })
    // So that Redis knows the scripts.
    await bus.triggers.create('before', { queue: 'sync' })
    await bus.triggers.enable('before')
    dropOf('resync')
    const { secret } = await bus.triggers.create('resync', { queue: 'sync' })
    expect(await bus.triggers.fire(secret)).toEqual({ id: expect.stringContaining('sync.') })
    await expect(bus.triggers.create('resync', { queue: 'sync' })).rejects.toMatchObject({ code: 'TRIGGER_EXISTS' })
    dropOf('rotate')
    const rotated = await bus.triggers.rotate('resync')
    expect(await bus.triggers.fire(rotated.secret)).toEqual({ id: expect.stringContaining('sync.') })
    dropOf('remove')
    await bus.triggers.remove('resync')
    expect((await bus.triggers.list()).map(({ name }) => name)).toEqual(['before'])
    await expect(bus.triggers.remove('resync')).rejects.toMatchObject({ code: 'TRIGGER_NOT_FOUND' })
  })

  test('[O09] can be stopped and removed when Redis is out of memory, and not made', async () => {
    const { bus, redis } = await behindProxy()
    const { secret } = await bus.triggers.create('resync', { queue: 'sync' })
    await redis.config('SET', 'maxmemory', '1')
    await expect(bus.triggers.create('other', { queue: 'sync' })).rejects.toThrow()
    expect((await bus.triggers.disable('resync')).enabled).toBe(false)
    await expect(bus.triggers.fire(secret)).rejects.toMatchObject({ code: 'TRIGGER_DISABLED' })
    await bus.triggers.remove('resync')
    expect(await bus.triggers.list()).toEqual([])
  })
})
