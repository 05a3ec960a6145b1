/** How far routing is, whoever does it. */
import type { Redis } from 'ioredis'
import type { Namespace } from '../log/namespace.ts'
import { type RouteKeys, routeKeys } from '../redis/keys.ts'
import { readSubscription } from './definition.ts'

/** Whether the stores of these subscriptions have everything up to these seqs, one per partition, that is theirs. */
export async function isRoutedUpTo(
  redis: Redis,
  namespace: Namespace,
  lasts: readonly number[],
  names: readonly string[],
): Promise<boolean> {
  const keys = routeKeys(namespace.name)
  const wanting = await whoWants(redis, keys, names)
  // Then main does not tell: it stands still while nobody wants anything.
  if (wanting.length === 0) return true
  const places = wanting.flatMap((name) => lasts.map((last, partition) => ({ field: `${partition} ${name}`, last })))
  const main = await redis.hgetall(keys.cursors)
  for (const [partition, { log }] of namespace.partitions.entries())
    if (await hasAny(redis, log, Number(main[partition] ?? 0), lasts[partition]!)) return false
  // After main: who falls behind has a place of its own by the time that main moves on.
  const own = await redis.hmget(keys.own, ...places.map(({ field }) => field))
  return places.every(({ last }, i) => own[i] == null || Number.parseInt(own[i], 10) >= last)
}

/** Those of them to whom anything can be routed. */
async function whoWants(redis: Redis, keys: RouteKeys, names: readonly string[]): Promise<string[]> {
  if (names.length === 0) return []
  const stored = await redis.hmget(keys.subscriptions, ...names)
  return names.filter((name, i) => stored[i] != null && readSubscription(name, stored[i]).match !== null)
}

/** Where Redis has lost the end of the log there is nothing up to its last seq, and main stays below it until there is more. */
async function hasAny(redis: Redis, log: string, after: number, upTo: number): Promise<boolean> {
  if (after >= upTo) return false
  const [entry] = await redis.xrange(log, `(${after}-0`, `${upTo}-0`, 'COUNT', 1)
  return entry !== undefined
}
