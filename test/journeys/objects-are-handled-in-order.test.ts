/** An ordered queue: of one object one item at a time and in order, through failures and crashes; fair between tenants all the same. */
import { mkdtemp, readFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, expect, onTestFinished, test } from 'vitest'
import type { Bus } from '../../src/bus.ts'
import type { Queue } from '../../src/bus-types.ts'
import { freshNamespace, plainRedis, redisUrl, testBus } from '../support/bus.ts'
import { eventually } from '../support/eventually.ts'
import { type Child, spawnNode } from '../support/process.ts'
import { entered } from '../support/queues.ts'
import { startRedis } from '../support/redis.ts'
import { quickGroup } from '../support/workers.ts'

const ordered = {
  ordered: true,
  lease: '1s',
  retry: { attempts: Number.POSITIVE_INFINITY, backoff: ['5ms', '50ms'] },
} as const

const sendKeyed = (queue: Queue, key: string, n: number, tenant = 'acme') => queue.send({ n }, { tenant, key })

/** Keys in the order in which they were claimed, each item acked before the next claim. */
async function claimKeys(queue: Queue, n: number): Promise<(string | null)[]> {
  const keys: (string | null)[] = []
  for (let i = 0; i < n; i += 1) {
    const { items } = await queue.claim()
    for (const { event } of items) keys.push(event.key)
    for (const item of items) await item.ack()
  }
  return keys
}

describe('[Q21] ordered by key', () => {
  test('published, many workers, random failures and kills: effects per key in order, none missing', async () => {
    const namespace = freshNamespace()
    const file = join(await mkdtemp(join(tmpdir(), 'busbar-')), 'effects')
    const options = { match: 'order.*', ...ordered, retry: { attempts: 1_000_000, backoff: ['5ms', '50ms'] } }
    const bus = testBus({ namespace }) as Bus
    bus.queue('mail', options as never)
    await bus.run({ signals: false })
    const [keys, perKey] = [20, 25]
    const env = { HANDLE: `effect:${file}`, FAIL: '0.1', CONCURRENCY: '8' }
    const spawn = (): Child => {
      const args = [redisUrl(), namespace, '-', JSON.stringify(options), JSON.stringify(quickGroup)]
      const child = spawnNode('queue-worker.mjs', { args, env })
      onTestFinished(() => child.kill())
      return child
    }
    const workers = [spawn(), spawn(), spawn()]
    await Promise.all(workers.map((worker) => worker.waitForLine('ready')))
    for (let n = 0; n < perKey; n += 1) {
      const events = Array.from({ length: keys }, (_, k) => ({ tenant: `t${k % 4}`, key: `order:${k}` }))
      await Promise.all(events.map((at) => bus.publish('order.changed', { n }, at)))
      if (n % 8 === 4) {
        workers.shift()!.kill()
        workers.push(spawn())
      }
    }
    await eventually(async () => (await bus.queues.get('mail')).out === keys * perKey, { timeoutMs: 30_000 })
    const effects = (await readFile(file, 'utf8')).trim().split('\n')
    const byKey = new Map<string, number[]>()
    for (const [object, n] of effects.map((line) => line.split(' '))) {
      const seen = byKey.get(object!) ?? []
      byKey.set(object!, seen)
      // A worker that was killed between its effect and its ack has it done again: the last one, and no other.
      if (seen.at(-1) !== Number(n)) seen.push(Number(n))
    }
    expect(byKey.size).toBe(keys)
    for (const seen of byKey.values()) expect(seen).toEqual(Array.from({ length: perKey }, (_, n) => n))
  }, 60_000)

  test('keys are handled in parallel', async () => {
    const bus = testBus() as Bus
    const queue = bus.queue('mail', ordered)
    let [running, most] = [0, 0]
    const release: (() => void)[] = []
    queue.work(
      async () => {
        running += 1
        most = Math.max(most, running)
        await new Promise<void>((resolve) => release.push(resolve))
        running -= 1
      },
      { concurrency: 10 },
    )
    await bus.run({ signals: false })
    for (const key of ['a', 'b', 'c']) for (const n of [1, 2]) await sendKeyed(queue, key, n)
    await eventually(() => most === 3)
    for (let n = 0; n < 6; n += 1) {
      await eventually(() => release.length > 0)
      release.shift()!()
    }
    await eventually(async () => (await bus.queues.get('mail')).out === 6)
    expect(most).toBe(3)
  })
})

describe('[Q33] a key', () => {
  test('has one owner; what comes meanwhile is not left behind, and the settle that frees it puts it in line', async () => {
    const bus = testBus() as Bus
    const queue = bus.queue('mail', ordered)
    for (const n of [1, 2, 3]) await sendKeyed(queue, 'order:1', n)
    const { items } = await queue.claim({ max: 10 })
    expect(items.map(({ event }) => event.data)).toEqual([{ n: 1 }])
    await sendKeyed(queue, 'order:1', 4)
    expect((await queue.claim({ max: 10 })).items).toEqual([])
    expect(await bus.queues.get('mail')).toMatchObject({ held: 1, waiting: 0, behind: 3 })
    const next = queue.claim({ max: 10, wait: '5s' })
    await items[0]!.ack()
    expect((await next).items.map(({ event }) => event.data)).toEqual([{ n: 2 }])
  })

  test('settle and next claim are one round trip', async () => {
    const server = await startRedis()
    onTestFinished(() => server.stop())
    const bus = testBus({ redis: server.url }) as Bus
    const queue = bus.queue('mail', ordered)
    const redis = plainRedis(server.url)
    const calls = async () => Number(/cmdstat_evalsha:calls=(\d+)/.exec(await redis.info('commandstats'))?.[1] ?? 0)
    const seen: unknown[] = []
    const counted: number[] = []
    queue.work(
      async ({ data }) => {
        seen.push(data)
        if (seen.length === 10 || seen.length === 40) counted.push(await calls())
      },
      { concurrency: 1 },
    )
    for (let n = 0; n < 50; n += 1) await sendKeyed(queue, 'order:1', n)
    await bus.run({ signals: false })
    await eventually(() => seen.length === 50)
    expect(seen).toEqual(Array.from({ length: 50 }, (_, n) => ({ n })))
    // One for each, and what the bus does besides.
    expect(counted[1]! - counted[0]!).toBeLessThan(30 + 20)
  })

  test('of a crashed owner is blocked no longer than the lease', async () => {
    const queue = (testBus() as Bus).queue('mail', { ...ordered, lease: '300ms' })
    for (const n of [1, 2]) await sendKeyed(queue, 'order:1', n)
    await queue.claim()
    const { items } = await queue.claim({ wait: '3s' })
    expect(items.map(({ event }) => event.data)).toEqual([{ n: 1 }])
    await items[0]!.ack()
    expect((await queue.claim()).items.map(({ event }) => event.data)).toEqual([{ n: 2 }])
  })
})

test('[Q33] what lies behind one that has expired is there for whoever asks once', async () => {
  const queue = (testBus() as Bus).queue('mail', ordered) as Queue
  for (const take of [
    async () => (await queue.pop()).map(({ data }) => data),
    async () => (await queue.claim()).items.map(({ event }) => event.data),
  ]) {
    await queue.send('late', { key: 'k', ttl: '1ms' })
    await queue.send('next', { key: 'k' })
    await new Promise((resolve) => setTimeout(resolve, 5))
    expect(await take()).toEqual(['next'])
  }
})

test('[Q39] tenant A has 1,000 keys waiting, B one: that of B is claimed second', async () => {
  const queue = (testBus() as Bus).queue('mail', ordered)
  await Promise.all(Array.from({ length: 1_000 }, (_, n) => sendKeyed(queue, `order:${n}`, n, 'a')))
  await sendKeyed(queue, 'b:1', 1, 'b')
  expect((await claimKeys(queue, 3))[1]).toBe('b:1')
})

test('a hot key does not stay with its worker at the cost of others', async () => {
  const queue = (testBus() as Bus).queue('mail', ordered)
  for (const n of [1, 2, 3]) await sendKeyed(queue, 'hot', n)
  for (const key of ['x', 'y']) await sendKeyed(queue, key, 1)
  expect(await claimKeys(queue, 5)).toEqual(['hot', 'x', 'y', 'hot', 'hot'])
})

describe('[Q22] an object whose item fails for good', () => {
  const failing = async (options: object) => {
    const bus = testBus() as Bus
    const queue = bus.queue('mail', { ...ordered, ...options } as never) as Queue
    const seen: string[] = []
    let isBroken = true
    const tries: number[] = []
    queue.work(({ key, data }) => {
      const { n } = data as { n: number }
      if (key === 'bad' && n === 1) tries.push(performance.now())
      if (isBroken && key === 'bad' && n === 1) throw new Error('poison')
      seen.push(`${key} ${n}`)
    })
    await bus.run({ signals: false })
    for (const n of [1, 2]) for (const key of ['bad', 'good']) await sendKeyed(queue, key, n)
    const mend = () => {
      isBroken = false
    }
    return { bus, seen, mend, tries }
  }
  const retry = { attempts: 2, backoff: ['1ms', '1ms'] }

  test('skip: it is buried, the object goes on', async () => {
    const { bus, seen } = await failing({ retry })
    await eventually(() => seen.includes('bad 2') && seen.includes('good 2'))
    expect(await bus.queues.dead.list('mail')).toMatchObject([{ error: 'Error: poison', attempts: 2 }])
  })

  test('park: it is set aside until someone resumes it; others go on', async () => {
    const { bus, seen, mend } = await failing({ retry, onPoison: 'park' })
    await eventually(async () => (await bus.queues.parked.list('mail')).length === 1)
    await eventually(() => seen.includes('good 2'))
    expect(await bus.queues.parked.list('mail')).toMatchObject([
      { object: 'acme/bad', error: 'Error: poison', attempts: 2, behind: 1, event: { key: 'bad' } },
    ])
    expect(await bus.queues.get('mail')).toMatchObject({ parked: 1, behind: 1, dead: 0 })
    mend()
    expect(await bus.queues.parked.resume('mail', 'acme/bad')).toBe(true)
    expect(await bus.queues.parked.resume('mail', 'acme/bad')).toBe(false)
    await eventually(() => seen.includes('bad 2'))
    expect(seen.filter((one) => one.startsWith('bad'))).toEqual(['bad 1', 'bad 2'])
  })

  test('park and discard: it is given up with all behind it; what comes later is handled', async () => {
    const { bus, seen } = await failing({ retry, onPoison: 'park' })
    await eventually(async () => (await bus.queues.parked.list('mail'))[0]?.behind === 1)
    expect(await bus.queues.parked.discard('mail', 'acme/bad')).toBe(2)
    expect(await bus.queues.get('mail')).toMatchObject({ parked: 0, behind: 0, discarded: 2 })
    const queue = await bus.queues.open('mail')
    await queue.send({ n: 3 }, { tenant: 'acme', key: 'bad' })
    await eventually(() => seen.includes('bad 3'))
  })

  test('attempts: Infinity keeps trying at the last delay', async () => {
    const retry = { attempts: Number.POSITIVE_INFINITY, backoff: ['1ms', '20ms'] }
    const { seen, mend, tries } = await failing({ retry })
    // If the wait went on doubling, that would be half a minute.
    await eventually(() => tries.length >= 16 && seen.includes('good 2'))
    // From half of the last delay to all of it.
    for (let n = 7; n < 16; n += 1) expect(tries[n]! - tries[n - 1]!).toBeGreaterThan(9)
    expect(seen.filter((one) => one.startsWith('bad'))).toEqual([])
    mend()
    await eventually(() => seen.includes('bad 2'))
    expect(seen.filter((one) => one.startsWith('bad'))).toEqual(['bad 1', 'bad 2'])
  })
})

test('whether a queue is ordered cannot be changed', async () => {
  const bus = testBus() as Bus
  await bus.queues.put('mail', { ordered: true })
  await expect(bus.queues.put('mail', {})).rejects.toMatchObject({ code: 'SETTING_INVALID', message: /stays so/ })
  await expect(bus.queues.put('post', { onPoison: 'park' })).rejects.toThrow(/needs ordered: true/)
  expect(await entered(bus, 'mail', 0)).toBe(true)
})
