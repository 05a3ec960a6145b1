/** Buses that publish at random, several calls in flight each, through whatever the network does. */
import { onTestFinished } from 'vitest'
import type { Bus } from '../../src/bus.ts'
import type { BusOptions } from '../../src/bus-options.ts'
import { freshNamespace, plainRedis, testBus } from '../support/bus.ts'
import { type Command, type RedisProxy, startProxy } from '../support/proxy.ts'
import { startRedis } from '../support/redis.ts'
import { type StoredEvent, storedEvents } from '../support/stored.ts'
import type { Answer, Ledger } from './ledger.ts'

/** Numbers in [0, 1) that follow from the seed (mulberry32), so that a failed run can be repeated. */
export function randomFrom(seed: number) {
  let state = seed
  const float = () => {
    state = (state + 0x6d2b79f5) | 0
    let t = Math.imul(state ^ (state >>> 15), 1 | state)
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32
  }
  const below = (n: number) => Math.floor(float() * n)
  return { float, below, pick: <T>(values: readonly T[]): T => values[below(values.length)]! }
}

export type Random = ReturnType<typeof randomFrom>

/** EVAL or EVALSHA of publish.lua: seven keys, the log first. */
export const isPublish = ({ name, args }: Command): boolean =>
  name.startsWith('EVAL') && String(args[1]) === '7' && String(args[2]).endsWith(':log')

export interface FaultyPlace {
  namespace: string
  proxy: RedisProxy
  /** Past the proxy. */
  url: string
  /** A bus behind the proxy. */
  bus(options?: BusOptions): Bus
  log(): Promise<StoredEvent[]>
}

/** A namespace on a Redis of its own, behind a proxy of its own. */
export async function faultyPlace({ partitions = 16 } = {}): Promise<FaultyPlace> {
  const server = await startRedis()
  const proxy = await startProxy({ target: { port: server.port } })
  onTestFinished(async () => {
    await proxy.stop()
    await server.stop()
  })
  const namespace = freshNamespace()
  const redis = plainRedis(server.url)
  // So that the first decision about a publish meets one that runs, and not one that is unknown to the server.
  await testBus({ redis: server.url }).publish('warm.up')
  return {
    namespace,
    proxy,
    url: server.url,
    bus: (options) => testBus({ redis: proxy.url, namespace, partitions, ...options }),
    log: () => storedEvents(redis, namespace),
  }
}

const maxInFlight = 40
const sharedKeys = Array.from({ length: 24 }, (_, n) => `shared:${n}`)

/** Publishes in all ways until told to stop; resolves when every call has its outcome. */
export async function publishAtRandom(bus: Bus, name: string, ledger: Ledger, random: Random, enough: () => boolean) {
  const ownKeys = Array.from({ length: 12 }, (_, n) => `${name}:${n}`)
  const anyKey = () => (random.float() < 0.1 ? undefined : random.pick(random.float() < 0.5 ? ownKeys : sharedKeys))
  const inFlight = new Set<Promise<unknown>>()
  let calls = 0
  const chained = publishChained(bus, `${name}:chain`, ledger, enough)
  while (!enough()) {
    calls += 1
    const call = oneCall(bus, name, ledger, random, anyKey, calls).finally(() => inFlight.delete(call))
    inFlight.add(call)
    if (inFlight.size >= maxInFlight || random.float() < 0.1) await Promise.race(inFlight)
  }
  await Promise.all([chained, ...inFlight])
}

function oneCall(
  bus: Bus,
  name: string,
  ledger: Ledger,
  random: Random,
  anyKey: () => string | undefined,
  n: number,
): Promise<Answer[]> {
  const kind = random.float()
  if (kind < 0.6) {
    const key = anyKey()
    const idempotencyKey = random.float() < 0.2 ? { idempotencyKey: `${name}-${n}` } : {}
    return ledger.call(name, [key], async ([data]) => [
      await bus.publish('storm.one', data, { key, ...idempotencyKey }),
    ])
  }
  const count = 2 + random.below(5)
  if (kind < 0.8) {
    const key = anyKey() ?? `${name}:0`
    return ledger.call(name, Array<string>(count).fill(key), (data) =>
      bus.commit(
        key,
        data.map((one) => ['storm.commit', one] as const),
        { state: { n } },
      ),
    )
  }
  const keys = Array.from({ length: count }, anyKey)
  return ledger.calls(name, keys, (data) =>
    bus.publishAll(data.map((one, i) => ({ type: 'storm.many', data: one, key: keys[i] }))),
  )
}

/** Each call expects the one before: a repeat that was taken for a new call would be a conflict with itself. */
async function publishChained(bus: Bus, key: string, ledger: Ledger, enough: () => boolean): Promise<void> {
  let expectPrev: number | null = null
  while (!enough()) {
    const [answer] = await ledger.call(key, [key], async ([data]) => [
      await bus.publish('storm.chained', data, { key, expectPrev }),
    ])
    if (!answer || 'error' in answer) return
    expectPrev = answer.seq
  }
}
