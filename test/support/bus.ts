/** A bus of its own per test: own namespace on the run's shared Redis, closed and swept away when the test ends. */
import { Redis } from 'ioredis'
import { inject, onTestFinished } from 'vitest'
import { type Bus, busbar } from '../../src/bus.ts'
import type { BusOptions } from '../../src/bus-options.ts'
import type { Registry } from '../../src/registry.ts'
import { systemRandomness } from '../../src/runtime/clock.ts'

export const redisUrl = (): string => inject('redisUrl')

export const freshNamespace = (): string => `t-${systemRandomness.id().toLowerCase()}`

/** A plain client for looking at what is stored. Closed when the test ends. */
export function plainRedis(url = redisUrl()): Redis {
  const redis = new Redis(url)
  onTestFinished(() => redis.disconnect())
  return redis
}

/** A user that may not subscribe: no hint ever reaches whoever connects as it. */
export async function urlWithoutHints(): Promise<string> {
  const redis = plainRedis()
  const user = `deaf-${freshNamespace()}`
  await redis.call('ACL', 'SETUSER', user, 'on', '>x', '~*', '&*', '+@all', '-subscribe')
  onTestFinished(async () => {
    await redis.call('ACL', 'DELUSER', user)
  })
  return redisUrl().replace('redis://', `redis://${user}:x@`)
}

export function testBus<const R extends Registry = Record<never, never>>(options: BusOptions<R> = {}): Bus<R> {
  const namespace = options.namespace ?? freshNamespace()
  const redis = options.redis ?? redisUrl()
  const bus = busbar<R>({ ...options, redis, namespace })
  onTestFinished(async () => {
    await bus.close({ timeout: '1s' })
    await sweepNamespace(redis, namespace)
  })
  return bus
}

export async function keysOf(redis: Redis, namespace: string): Promise<string[]> {
  const found: string[] = []
  for await (const page of redis.scanStream({ match: `${namespace}:*`, count: 1_000 })) found.push(...page)
  return found.sort()
}

async function sweepNamespace(url: string, namespace: string): Promise<void> {
  const redis = new Redis(url, { maxRetriesPerRequest: 0, retryStrategy: () => null })
  redis.on('error', () => undefined)
  try {
    const keys = await keysOf(redis, namespace)
    if (keys.length > 0) await redis.unlink(...keys)
  } catch {
    // The test ended its own Redis.
  } finally {
    redis.disconnect()
  }
}

/** Takes n events of an async iterator. */
export async function take<T>(events: AsyncIterator<T>, n: number): Promise<T[]> {
  const taken: T[] = []
  while (taken.length < n) {
    const { done, value } = await events.next()
    if (done) break
    taken.push(value)
  }
  return taken
}
