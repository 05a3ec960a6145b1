/** Each fault of the proxy does what it says, and nothing else. Plain ioredis, in both protocols, is the client. */
import { Redis, type RedisOptions } from 'ioredis'
import { afterAll, afterEach, beforeEach, describe, expect, inject, test } from 'vitest'
import { eventually } from './eventually.ts'
import { type RedisProxy, startProxy } from './proxy.ts'

const direct = new Redis(inject('redisUrl'))
const opened: Redis[] = []
let proxy: RedisProxy
let key: string
let tests = 0

beforeEach(async () => {
  proxy = await startProxy({ target: { port: Number(new URL(inject('redisUrl')).port) } })
  tests += 1
  key = `support:proxy:${tests}`
})

afterEach(async () => {
  for (const redis of opened.splice(0)) redis.disconnect()
  await proxy.stop()
})

afterAll(() => direct.disconnect())

function resendingClient(options: RedisOptions = {}): Redis {
  const redis = new Redis(proxy.url, { retryStrategy: () => 5, ...options })
  redis.on('error', () => {})
  opened.push(redis)
  return redis
}

/** Never repeats a command by itself, as the bus has it. */
async function client(options: RedisOptions = {}): Promise<Redis> {
  // Nobody hears the failure when ioredis subscribes again by itself and the connection breaks once more.
  const quiet = { maxRetriesPerRequest: 0, enableOfflineQueue: false, autoResubscribe: false }
  const redis = resendingClient({ ...quiet, ...options })
  await isReady(redis)
  return redis
}

const isReady = (redis: Redis) => eventually(() => redis.status === 'ready', { everyMs: 1, what: 'A ready client' })
const asRedisSeesIt = async (name: string) =>
  new RegExp(`.* name=${name} .*`).exec(String(await direct.client('LIST')))?.[0] ?? ''
const counter = async () => Number(await direct.get(key))

describe.each([2, 3] as const)('in RESP%d', (protocol) => {
  test('a reply is dropped: the command was executed, the client sees an error, earlier ones were answered', async () => {
    const redis = await client({ protocol })
    proxy.next('INCR', 'drop-reply')
    const [earlier, dropped, later] = await Promise.allSettled([redis.set(key, 0), redis.incr(key), redis.incr(key)])
    expect(earlier).toMatchObject({ status: 'fulfilled', value: 'OK' })
    expect([dropped.status, later.status]).toEqual(['rejected', 'rejected'])
    expect(await counter()).toBe(1)
    await isReady(redis)
    expect(await redis.incr(key)).toBe(2)
  })

  test('a connection is cut before a command: not executed', async () => {
    const redis = await client({ protocol })
    proxy.next('INCR', 'cut-before')
    const [earlier, cut] = await Promise.allSettled([redis.set(key, 5), redis.incr(key)])
    expect([earlier.status, cut.status]).toEqual(['fulfilled', 'rejected'])
    expect(await counter()).toBe(5)
  })

  test('large values, pipelines and nested replies pass unharmed', async () => {
    const redis = await client({ protocol })
    const large = Buffer.alloc(5_000_000, 'a\r\n$1\r\n')
    await redis.set(key, large)
    expect((await redis.getBuffer(key))?.equals(large)).toBe(true)
    const pipeline = redis.pipeline()
    for (let n = 0; n < 500; n += 1) pipeline.hset(`${key}:hash`, `field ${n}`, n)
    expect(await pipeline.hgetall(`${key}:hash`).exec()).toHaveLength(501)
    expect(Object.keys(await redis.hgetall(`${key}:hash`))).toHaveLength(500)
    expect(await redis.eval("return {1, {'two', {}}, false}", 0)).toEqual([1, ['two', []], null])
    await redis.unlink(key)
  })

  test('messages of subscriptions pass and are not taken for replies', async () => {
    const [subscriber, publisher] = [await client({ protocol }), await client({ protocol })]
    const messages: string[] = []
    subscriber.on('message', (_channel, message) => messages.push(message))
    await subscriber.subscribe(key, `${key}:other`)
    for (let n = 0; n < 20; n += 1) await publisher.publish(key, String(n))
    await eventually(() => messages.length === 20)
    expect(messages.map(Number)).toEqual(Array.from({ length: 20 }, (_, n) => n))
  })
})

describe('a connection with subscriptions', () => {
  test('in RESP2 is passed through without decisions', async () => {
    const subscriber = await client({ protocol: 2 })
    await subscriber.subscribe(key)
    proxy.onCommand(() => 'drop-reply')
    expect(await subscriber.ping()).toEqual(['pong', ''])
  })

  test('in RESP3 does not take a message for the reply that is decided on', async () => {
    const subscriber = await client({ protocol: 3, connectionName: key })
    const messages: string[] = []
    subscriber.on('message', (_channel, message) => messages.push(message))
    await subscriber.subscribe(key)
    proxy.next('BLPOP', 'drop-reply')
    const popped = expect(subscriber.blpop(`${key}:list`, 10)).rejects.toThrow()
    await eventually(async () => /flags=\w*b/.test(await asRedisSeesIt(key)))
    await direct.publish(key, 'beside')
    await eventually(() => messages.length === 1)
    await direct.rpush(`${key}:list`, 'item')
    await popped
    expect(await direct.llen(`${key}:list`)).toBe(0)
  })
})

describe('duplicates', () => {
  test('the trap: by default ioredis sends a command again whose reply was lost', async () => {
    const redis = resendingClient()
    proxy.next('INCR', 'drop-reply')
    expect(await redis.incr(key)).toBe(2)
  })

  test('a copy after the original: Redis counts two, the client sees one reply', async () => {
    const redis = await client()
    proxy.next('INCR', 'send-twice')
    expect(await redis.incr(key)).toBe(1)
    expect(await counter()).toBe(2)
    expect(proxy.copies).toMatchObject([{ command: { name: 'INCR', nth: 1 }, reply: 2 }])
  })

  test('a copy before the original: the original is the late one', async () => {
    const redis = await client()
    proxy.next('INCR', { copy: 'before' })
    expect(await redis.incr(key)).toBe(2)
    expect(proxy.copies.map(({ reply }) => reply)).toEqual([1])
  })

  test('a copy goes to the same database, and an error in reply to it is kept', async () => {
    const redis = await client({ db: 3 })
    proxy.onCommand(({ name }) => (['SETNX', 'INCR'].includes(name) ? 'send-twice' : 'forward'))
    expect(await redis.setnx(key, 'text')).toBe(1)
    await expect(redis.incr(key)).rejects.toThrow('not an integer')
    expect(proxy.copies[0]?.reply).toBe(0)
    expect(proxy.copies[1]?.reply).toBeInstanceOf(Error)
    await redis.del(key)
  })

  test('recorded commands arrive again later: all, or those chosen', async () => {
    const redis = await client()
    for (let n = 0; n < 3; n += 1) await redis.incr(key)
    const again = await proxy.replayLater(({ name }) => name === 'INCR')
    expect(again.map(({ reply }) => reply)).toEqual([4, 5, 6])
    await proxy.replayLater(({ name, nth }) => name === 'INCR' && nth === 2)
    expect(await counter()).toBe(7)
    await proxy.replayLater()
    expect(await counter()).toBe(10)
  })
})

describe('silence and lateness', () => {
  test('swallowed: this and later commands are executed and never answered, until cut', async () => {
    const redis = await client()
    proxy.next('INCR', 'swallow')
    const results = Promise.allSettled([redis.set(key, 0), redis.incr(key), redis.incr(key)])
    await eventually(async () => (await counter()) === 2)
    expect(redis.status).toBe('ready')
    proxy.cut()
    expect((await results).map(({ status }) => status)).toEqual(['fulfilled', 'rejected', 'rejected'])
  })

  test('stalled: nothing passes in either direction until it is resumed', async () => {
    const redis = await client()
    proxy.stall()
    const answer = redis.incr(key)
    await eventually(() => proxy.count('INCR') === 1)
    expect(await counter()).toBe(0)
    proxy.resume()
    expect(await answer).toBe(1)
  })

  test('stalled, then cut: what had not passed is lost, and nothing is decided about it', async () => {
    const redis = await client()
    proxy.stall()
    const answer = redis.incr(key)
    await eventually(() => proxy.count('INCR') === 1)
    proxy.cut()
    await expect(answer).rejects.toThrow()
    proxy.next('INCR', 'send-twice')
    proxy.resume()
    await isReady(redis)
    expect(await redis.incr(key)).toBe(1)
    expect(proxy.copies).toHaveLength(1)
  })

  test('stalled with much to say: the sender is held back instead of the proxy filling up', async () => {
    const reader = await client({ connectionName: key })
    const received: string[] = []
    reader.on('message', (channel) => received.push(channel))
    await reader.subscribe(key)
    proxy.stall()
    for (let n = 0; n < 24; n += 1) await direct.publish(key, 'x'.repeat(1_000_000))
    // 24 MB stay below the 32 MB at which Redis cuts a subscriber; the system's buffers take some of them.
    const waitingBytes = Number(/omem=(\d+)/.exec(await asRedisSeesIt(key))?.[1])
    expect(waitingBytes).toBeGreaterThan(4_000_000)
    proxy.resume()
    await eventually(() => received.length === 24)
  })

  test('held: the command and all behind it wait, others pass', async () => {
    const [redis, other] = [await client(), await client()]
    proxy.next('INCR', 'hold')
    const answers = Promise.all([redis.incr(key), redis.incr(key)])
    await eventually(() => proxy.held.length === 1)
    expect(await other.incrby(key, 10)).toBe(10)
    proxy.release()
    expect(await answers).toEqual([11, 12])
    expect(proxy.held).toEqual([])
  })

  test('held, and the client gives up: it still arrives, late', async () => {
    const redis = await client()
    proxy.next('INCR', 'hold')
    const answer = redis.incr(key)
    await eventually(() => proxy.held.length === 1)
    proxy.cut()
    await expect(answer).rejects.toThrow()
    await isReady(redis)
    expect(await redis.incr(key)).toBe(1)
    proxy.release()
    await eventually(async () => (await counter()) === 2)
  })

  test('delayed: later by that much, together and in order', async () => {
    const redis = await client()
    proxy.delay(30)
    const order: number[] = []
    const startedAt = performance.now()
    const increments = Array.from({ length: 20 }, () => redis.incr(key).then((n) => order.push(n)))
    await Promise.all(increments)
    const tookMs = performance.now() - startedAt
    expect(order).toEqual(Array.from({ length: 20 }, (_, n) => n + 1))
    expect(tookMs).toBeGreaterThan(58) // 30 there and 30 back; a timer may be early by 1 each
    expect(tookMs).toBeLessThan(20 * 30)
  })

  test('one command delayed: those behind it do not overtake it', async () => {
    const redis = await client()
    proxy.next('APPEND', { delayMs: 20 })
    await Promise.all([redis.append(key, 'a'), redis.append(key, 'b')])
    expect(await redis.get(key)).toBe('ab')
  })
})

describe('connections', () => {
  test('cut: all end at once, and clients may come back', async () => {
    const clients = [await client(), await client()]
    expect(proxy.connections).toBe(2)
    const closed = clients.map((redis) => new Promise((resolve) => redis.once('close', resolve)))
    proxy.cut()
    await Promise.all(closed)
    await Promise.all(clients.map(isReady))
  })

  test('refused until accepted again; open ones go on', async () => {
    const redis = await client()
    proxy.refuse()
    expect(await redis.ping()).toBe('PONG')
    const refused = resendingClient({ lazyConnect: true, retryStrategy: () => null })
    const reason = new Promise<Error>((resolve) => refused.once('error', resolve))
    await expect(refused.connect()).rejects.toThrow()
    expect((await reason).message).toContain('ECONNREFUSED')
    await proxy.accept()
    expect(await (await client()).ping()).toBe('PONG')
  })

  test('each command is told with its place, and counted', async () => {
    const [first, second] = [await client(), await client()]
    const seen: unknown[] = []
    proxy.onCommand(({ name, args, nth, connection }) => {
      seen.push([connection, nth, name, ...args.map(String)])
      return 'forward'
    })
    await first.incr(key)
    await second.incrby(key, 2)
    await second.incr(key)
    expect(seen).toEqual([
      [0, 1, 'INCR', key],
      [1, 1, 'INCRBY', key, '2'],
      [1, 2, 'INCR', key],
    ])
    expect([proxy.count('incr'), proxy.count('INCRBY'), proxy.count('GET')]).toEqual([2, 1, 0])
  })

  test('the target may be a socket', async () => {
    const bySocket = await startProxy({ target: { socketPath: inject('redisSocket') } })
    const redis = new Redis(bySocket.url)
    expect(await redis.incr(key)).toBe(1)
    redis.disconnect()
    await bySocket.stop()
  })
})
