/** Counts of a webhook, changed behind its back. */
import type { Redis } from 'ioredis'
import type { WebhookKeys } from '../../src/redis/keys.ts'
import { readTallies, type Tallies, tallyNames } from '../../src/sinks/webhook/tallies.ts'

export async function setTallies(
  redis: Redis,
  keys: WebhookKeys,
  name: string,
  change: (tallies: Tallies) => Partial<Tallies>,
): Promise<void> {
  const packed = (await redis.hgetBuffer(keys.tallies, name))!
  const before = readTallies(packed)
  const after = { ...before, ...change(before) }
  for (const [i, field] of tallyNames.entries()) packed.writeDoubleLE(after[field], 8 * i)
  await redis.hset(keys.tallies, name, packed)
}
