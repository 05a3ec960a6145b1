/** What keeps a worker from its items, or its items from everyone else. */
import { getEventListeners } from 'node:events'
import { setTimeout as sleep } from 'node:timers/promises'
import { describe, expect, inject, onTestFinished, test } from 'vitest'
import type { Bus } from '../../src/bus.ts'
import { workScript } from '../../src/lanes/acts.ts'
import { enterScript, makeScript, renewScript } from '../../src/lanes/scripts.ts'
import { queueKeys } from '../../src/redis/keys.ts'
import { retryDecision, throttleDecision } from '../../src/sinks/queue/context.ts'
import { testBus as clockedBus } from '../../src/testing.ts'
import { freshNamespace, plainRedis, testBus } from '../support/bus.ts'
import { eventually } from '../support/eventually.ts'
import { startProxy } from '../support/proxy.ts'
import { repeat, sendAll } from '../support/queues.ts'
import { startRedis } from '../support/redis.ts'

async function proxied() {
  const proxy = await startProxy({ target: { socketPath: inject('redisSocket') } })
  onTestFinished(() => proxy.stop())
  const claims = { seen: 0 }
  proxy.onCommand(({ args }) => {
    if (isClaim({ args })) claims.seen += 1
    return 'forward'
  })
  return { proxy, claims }
}

/** One that asks for items: the leader looks too, and takes nothing. */
const isClaim = ({ args }: { args: readonly unknown[] }) =>
  String(args[0]) === workScript.sha && claimed(args.map(String)) > 0

/** How many the claim of this call asks for. */
const claimed = (words: readonly string[]): number => Number(words[words.lastIndexOf('claim') + 3] ?? 0)

describe('several queues in one worker', () => {
  test.each([1, 2, 3])('of which none is empty all go on, with concurrency %s', async (concurrency) => {
    const bus = testBus() as Bus
    const queues = ['one', 'two', 'three'].map((name) => bus.queue(name))
    for (const queue of queues) await sendAll(queue, repeat('a', 20))
    const seen: string[] = []
    bus.work(queues, (_event, { queue }) => void seen.push(queue), { concurrency })
    await bus.run({ signals: false })
    await eventually(() => seen.length === 60, { timeoutMs: 5_000 })
  })

  test.each([1, 2])('that fill at different times all go on, with concurrency %s', async (concurrency) => {
    const bus = testBus() as Bus
    const queues = ['one', 'two'].map((name) => bus.queue(name))
    let done = 0
    bus.work(
      queues,
      async () => {
        done += 1
      },
      { concurrency },
    )
    await bus.run({ signals: false })
    let sent = 0
    for (let round = 0; round < 30; round += 1) {
      for (const queue of queues) {
        void queue.send(round)
        void queue.send(round)
        sent += 2
        await sleep(round % 3)
      }
    }
    await eventually(() => done === sent, { timeoutMs: 5_000 })
  })

  test('of which one has gone to another process under this name: the others go on', async () => {
    const namespace = freshNamespace()
    const old = testBus({ namespace, worker: 'w' }) as Bus
    const seen: string[] = []
    const queues = ['one', 'two'].map((name) => old.queue(name))
    old.work(queues, (_event, { queue }) => void seen.push(queue), { concurrency: 2 })
    await old.run({ signals: false })
    const again = testBus({ namespace, worker: 'w' }) as Bus
    again.queue('one').work(() => undefined)
    await again.run({ signals: false })
    await sleep(1_300)
    await sendAll(queues[1]!, repeat('a', 10))
    await eventually(() => seen.length === 10, { timeoutMs: 3_000 })
  })

  test('need weights that are whole numbers above 0, of queues that it has', () => {
    const bus = testBus() as Bus
    const queues = [bus.queue('constructor'), bus.queue('mail')]
    for (const weights of [{ mail: 0 }, { mail: -1 }, { mail: 1.5 }, { mail: '2' }, { male: 2 }])
      expect(() => bus.work(queues, () => undefined, { weights: weights as never })).toThrow(/weights/)
    expect(() => bus.work([], () => undefined)).toThrow(/queue/)
    expect(() => bus.work([queues[0]!, queues[0]!], () => undefined)).toThrow(/twice/)
    bus.work(queues, () => undefined)
  })
})

describe('a worker that is closed', () => {
  test('while a claim is under way gives back what the claim brings', async () => {
    const { proxy } = await proxied()
    const namespace = freshNamespace()
    const plain = testBus({ namespace }) as Bus
    const queue = plain.queue('mail', { lease: '60s', retry: { attempts: 1 } })
    const bus = testBus({ namespace, redis: proxy.url }) as Bus
    const seen: string[] = []
    const worker = bus
      .queue('mail', { lease: '60s', retry: { attempts: 1 } })
      .work(({ id }) => void seen.push(id), { concurrency: 10 })
    await bus.run({ signals: false })
    await sleep(100)
    let late = 0
    proxy.onCommand((command) => {
      if (!isClaim(command)) return 'forward'
      late += 1
      return { delayMs: 150 }
    })
    await sendAll(queue, repeat('a', 5))
    await eventually(() => late > 0)
    await worker.close()
    await sleep(300)
    await eventually(
      async () => {
        const { held, waiting } = await plain.queues.get('mail')
        expect({ held, waiting }).toEqual({ held: 0, waiting: 5 })
      },
      { timeoutMs: 3_000 },
    )
    expect(seen).toEqual([])
  })

  test('is not woken in the place of another', async () => {
    const namespace = freshNamespace()
    const bus = testBus({ namespace }) as Bus
    const worker = bus.queue('mail').work(() => undefined)
    await bus.run({ signals: false })
    const redis = plainRedis()
    const { idle } = queueKeys(namespace, 'mail')
    await eventually(async () => (await redis.zcard(idle)) === 1)
    await worker.close()
    expect(await redis.zcard(idle)).toBe(0)
  })
})

describe('claims whose answers are lost', () => {
  test('are both asked for again: nothing waits for a lease to lapse', async () => {
    const { proxy } = await proxied()
    const namespace = freshNamespace()
    const options = { lease: '60s', retry: { attempts: 1 } } as const
    const plain = testBus({ namespace }) as Bus
    await sendAll(plain.queue('mail', options), repeat('a', 100))
    let claims = 0
    // Both are executed before the connection ends.
    proxy.onCommand((command) => {
      if (!isClaim(command)) return 'forward'
      claims += 1
      return claims === 1 ? 'swallow' : claims === 2 ? 'drop-reply' : 'forward'
    })
    const bus = testBus({ namespace, redis: proxy.url }) as Bus
    const seen = new Set<string>()
    bus.queue('mail', options).work(({ id }) => void seen.add(id), { concurrency: 20 })
    await bus.run({ signals: false })
    await eventually(() => seen.size === 100, { timeoutMs: 15_000 })
  })
})

describe('time', () => {
  test('a delay of a month costs no more looks than none', async () => {
    const { proxy, claims } = await proxied()
    const bus = testBus({ redis: proxy.url }) as Bus
    const queue = bus.queue('mail')
    await queue.send('later', { delay: '30d' })
    queue.work(() => undefined)
    await bus.run({ signals: false })
    await sleep(100)
    const before = claims.seen
    await sleep(1_000)
    expect(claims.seen - before).toBeLessThan(5)
  })

  test('a lease that was made shorter is renewed as often as it needs', async () => {
    const namespace = freshNamespace()
    const bus = testBus({ namespace }) as Bus
    const queue = bus.queue('mail', { lease: '60s' })
    let begun = 0
    queue.work(
      async () => {
        begun += 1
        await sleep(1_500)
      },
      { concurrency: 4 },
    )
    await bus.run({ signals: false })
    await bus.queues.put('mail', { lease: '300ms' })
    await sleep(1_300)
    await queue.send(1)
    await eventually(async () => (await bus.queues.get('mail')).out === 1, { timeoutMs: 5_000 })
    expect(begun).toBe(1)
  })

  test('what is due when a test has moved the time on is given, and nothing is renewed that is not held', async () => {
    const { proxy } = await proxied()
    const bus = await clockedBus({ redis: proxy.url })
    onTestFinished(() => bus.close())
    const seen: number[] = []
    const queue = bus.queue('mail', { lease: '3s' })
    queue.work(({ data }) => void seen.push(data as number))
    await bus.run({ signals: false })
    await queue.send(1, { delay: '5m' })
    let renewals = 0
    proxy.onCommand(({ args }) => {
      if (String(args[0]) === renewScript.sha) renewals += 1
      return 'forward'
    })
    await bus.advance('5m')
    expect(seen).toEqual([1])
    expect(renewals).toBe(0)
  })
})

describe('handlers', () => {
  test('that throw at once, a thousand in a row, are only failures', async () => {
    const bus = testBus() as Bus
    const queue = bus.queue('mail', { retry: { attempts: 1 } })
    await sendAll(queue, repeat('a', 3_000))
    let deepest = 0
    queue.work(
      () => {
        Error.stackTraceLimit = 10_000
        deepest = Math.max(deepest, new Error('depth').stack!.split('\n').length)
        Error.stackTraceLimit = 10
        throw new Error('no')
      },
      { concurrency: 2_000 },
    )
    await bus.run({ signals: false })
    await eventually(async () => (await bus.queues.get('mail')).dead === 3_000)
    expect(deepest).toBeLessThan(50)
  })

  test('that take long keep nothing from other workers', async () => {
    const namespace = freshNamespace()
    const slow = testBus({ namespace }) as Bus
    const queue = slow.queue('mail')
    await sendAll(queue, repeat('a', 5))
    const begun: string[] = []
    queue.work(
      (event) => {
        begun.push(event.id)
        return new Promise(() => undefined)
      },
      { concurrency: 4 },
    )
    await slow.run({ signals: false })
    await eventually(async () => begun.length === 4 && (await slow.queues.get('mail')).held === 5)
    const free = testBus({ namespace }) as Bus
    const seen: number[] = []
    free.queue('mail').work((_event, { attempt }) => void seen.push(attempt))
    await free.run({ signals: false })
    await eventually(() => seen.length === 1, { timeoutMs: 4_000 })
    expect({ seen, begun: begun.length }).toEqual({ seen: [1], begun: 4 })
  })

  test('may throw what has no text', async () => {
    const bus = testBus() as Bus
    const queue = bus.queue('mail', { retry: { attempts: 1 } })
    await queue.send(1)
    queue.work(async () => {
      throw Object.create(null)
    })
    await bus.run({ signals: false })
    await eventually(async () => (await bus.queues.get('mail')).dead === 1, { timeoutMs: 3_000 })
  })
})

test('a signal that outlives many claims is not listened to by them', async () => {
  const bus = testBus() as Bus
  const queue = bus.queue('mail')
  const { signal } = new AbortController()
  for (let i = 0; i < 5; i += 1) await queue.claim({ wait: 5, signal })
  expect(getEventListeners(signal, 'abort')).toHaveLength(0)
})

test('a tenant may be called as a property that every object has', async () => {
  const bus = testBus() as Bus
  const queue = bus.queue('mail', { weights: { acme: 2 } })
  await queue.send(1, { tenant: 'constructor' })
  expect(await bus.queues.tenants('mail')).toMatchObject([{ tenant: 'constructor', weight: 1 }])
})

test('no item is put off or held for longer than a year', async () => {
  const bus = testBus() as Bus
  const queue = bus.queue('mail')
  await queue.send(1)
  const { items } = await queue.claim()
  const tooLong = { code: 'PARAMETER_INVALID', message: expect.stringContaining('366 days') }
  await expect(items[0]!.extend('400d')).rejects.toMatchObject(tooLong)
  expect(() => retryDecision('400d')).toThrow(expect.objectContaining(tooLong))
  expect(() => throttleDecision('400d')).toThrow(expect.objectContaining(tooLong))
})

test('how many to look at must be a whole number', async () => {
  const bus = testBus() as Bus
  await bus.queue('mail').send(1)
  for (const n of [0, 1.5, Number.NaN, '3'])
    for (const ask of [
      bus.queues.peek('mail', { max: n as number }),
      bus.queues.tenants('mail', { limit: n as number }),
    ])
      await expect(ask).rejects.toMatchObject({ code: 'PARAMETER_INVALID' })
})

describe('Redis is away', () => {
  test.each([
    ['made', makeScript],
    ['entered', enterScript],
  ] as const)('while a queue is %s: run() goes on when it is back', async (_, script) => {
    const { proxy } = await proxied()
    // The server knows the scripts by now.
    const other = testBus({ worker: 'other' }) as Bus
    other.queue('mail').work(() => undefined)
    await other.run({ signals: false })
    let lost = 0
    proxy.onCommand(({ args }) => {
      if (String(args[0]) !== script.sha || lost > 0) return 'forward'
      lost += 1
      return 'drop-reply'
    })
    const bus = testBus({ redis: proxy.url, worker: 'w' }) as Bus
    let seen = 0
    const queue = bus.queue('mail')
    queue.work(() => {
      seen += 1
    })
    await bus.run({ signals: false })
    await queue.send(1)
    await eventually(() => seen === 1)
    expect(lost).toBe(1)
  })

  test('when an answer to a claim by hand is lost, it is asked for again', async () => {
    const { proxy } = await proxied()
    const bus = testBus({ redis: proxy.url }) as Bus
    const queue = bus.queue('mail', { lease: '60s' })
    const ids = await sendAll(queue, repeat('a', 3))
    let lost = 0
    proxy.onCommand((command) => {
      if (!isClaim(command) || lost > 0) return 'forward'
      lost += 1
      return 'drop-reply'
    })
    const { items } = await queue.claim({ max: 3 })
    expect(items.map(({ id }) => id).sort()).toEqual([...ids].sort())
    expect(lost).toBe(1)
  })

  test('for long: everyone who asks by hand hears it by its name', async () => {
    const { proxy } = await proxied()
    const bus = testBus({ redis: proxy.url, publish: { timeout: '500ms' } }) as Bus
    const queue = bus.queue('mail')
    await sendAll(queue, repeat('a', 2))
    const { items } = await queue.claim()
    proxy.refuse()
    proxy.cut()
    const away = { code: 'REDIS_UNAVAILABLE' }
    await expect(queue.claim()).rejects.toMatchObject(away)
    await expect(queue.pop()).rejects.toMatchObject(away)
    await expect(items[0]!.extend('1s')).rejects.toMatchObject(away)
  })

  test('for good: after close() what a holder says has an answer', async () => {
    const bus = testBus() as Bus
    const queue = bus.queue('mail')
    await queue.send(1)
    const { items } = await queue.claim()
    await bus.close()
    const closed = { code: 'BUS_CLOSED' }
    await expect(items[0]!.ack()).rejects.toMatchObject(closed)
    await expect(items[0]!.extend('1s')).rejects.toMatchObject(closed)
  })
})

describe('a worker', () => {
  test('whose handlers get slow keeps nothing that another could begin, with a single slot too', async () => {
    const namespace = freshNamespace()
    const [first, second] = [testBus({ namespace }) as Bus, testBus({ namespace }) as Bus]
    const queue = first.queue('mail')
    await sendAll(queue, repeat('a', 3_000))
    const [isOpen, open] = gate()
    let [begun, taken] = [0, 0]
    queue.work(() => (++begun > 1_000 ? isOpen : undefined), { concurrency: 1 })
    await first.run({ signals: false })
    await eventually(() => begun === 1_001)
    second.queue('mail').work(() => {
      taken += 1
    })
    await second.run({ signals: false })
    await eventually(() => taken === 3_000 - 1_001)
    open()
  })

  test('that gets slow gives a quiet tenant its turn, not what it had claimed before', async () => {
    let [begun, atQuiet] = [0, 0]
    const over = new AbortController()
    onTestFinished(() => over.abort())
    const bus = testBus() as Bus
    const slow = bus.queue('slow')
    await sendAll(slow, repeat('busy', 4_000))
    slow.work(async ({ tenant }) => {
      begun += 1
      if (tenant === 'quiet') atQuiet = begun
      if (begun > 2_000) await sleep(300, undefined, { signal: over.signal }).catch(() => undefined)
    })
    await bus.run({ signals: false })
    await eventually(() => begun >= 2_010)
    const before = begun
    await slow.send(1, { tenant: 'quiet' })
    await eventually(() => atQuiet > 0)
    expect(atQuiet - before).toBeLessThan(50)
  })

  test('has whole batches as long as there is enough', async () => {
    const bus = testBus() as Bus
    const queue = bus.queue('mail')
    await sendAll(queue, repeat('a', 1_000))
    const sizes: number[] = []
    const handler = async (items: readonly unknown[]) => {
      sizes.push(items.length)
      await sleep(5)
    }
    queue.work(handler, { concurrency: 1, batch: 100 })
    await bus.run({ signals: false })
    await eventually(() => sizes.reduce((sum, size) => sum + size, 0) === 1_000)
    expect(sizes).toEqual(new Array(10).fill(100))
  })

  test('keeps what it runs when the lease is made longer', async () => {
    const namespace = freshNamespace()
    const bus = testBus({ namespace }) as Bus
    const queue = bus.queue('mail', { lease: '500ms' })
    const [isOpen, open] = gate()
    const signals: AbortSignal[] = []
    queue.work((_, { signal }) => {
      signals.push(signal)
      return isOpen
    })
    await bus.run({ signals: false })
    await queue.send(1)
    await eventually(() => signals.length === 1)
    await bus.queues.put('mail', { lease: '60s' })
    await sleep(1_500) // three of the leases it began with: nothing is to happen
    expect(signals.map(({ aborted }) => aborted)).toEqual([false])
    open()
    await eventually(async () => (await bus.queues.get('mail')).held === 0)
  })

  test('closes in time when Redis says nothing', async () => {
    const server = await startRedis()
    onTestFinished(() => server.stop())
    const bus = testBus({ redis: server.url }) as Bus
    const queue = bus.queue('mail')
    queue.work(() => undefined)
    await bus.run({ signals: false })
    await queue.send(1)
    server.pause()
    const startedAt = performance.now()
    await bus.close({ timeout: '500ms' })
    server.resume()
    expect(performance.now() - startedAt).toBeLessThan(5_000)
  })

  test('that was killed does not keep a process of its name from claiming by hand', async () => {
    const namespace = freshNamespace()
    const queue = (testBus({ namespace, worker: 'w1' }) as Bus).queue('mail')
    await queue.send(1)
    await plainRedis().hset(queueKeys(namespace, 'mail').store, 'worker:w1', 'an-earlier-start')
    expect((await queue.claim()).items).toHaveLength(1)
  })
})

/** A promise, and what resolves it. */
function gate(): [Promise<void>, () => void] {
  let open: () => void = () => undefined
  const isOpen = new Promise<void>((resolve) => {
    open = resolve
  })
  return [isOpen, open]
}
