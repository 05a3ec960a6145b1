/** How far routing is, whoever does it. */
import type { Redis } from 'ioredis'
import type { Namespace } from '../log/namespace.ts'
import { routeKeys } from '../redis/keys.ts'

/** Whether the stores of these subscriptions have everything up to these seqs, one per partition, that is theirs. */
export async function isRoutedUpTo(
  redis: Redis,
  namespace: Namespace,
  lasts: readonly number[],
  names: readonly string[],
): Promise<boolean> {
  const keys = routeKeys(namespace.name)
  const places = names.flatMap((name) => lasts.map((last, partition) => ({ field: `${partition} ${name}`, last })))
  const main = await redis.hgetall(keys.cursors)
  if (!lasts.every((last, partition) => Number(main[partition] ?? 0) >= last)) return false
  if (places.length === 0) return true
  // After main: who falls behind has a place of its own by the time that main moves on.
  const own = await redis.hmget(keys.own, ...places.map(({ field }) => field))
  return places.every(({ last }, i) => own[i] == null || Number.parseInt(own[i], 10) >= last)
}
