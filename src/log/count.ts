/** How many events lie between two positions of a partition: what is still to be done, or would be again. */
import type { Redis } from 'ioredis'
import type { PartitionKeys } from '../redis/keys.ts'
import { defineScript, runScript } from '../redis/script.ts'

interface CountInput {
  keys: PartitionKeys
  after: number
  upTo: number
  maxEntries: number
}

export const countScript = defineScript({
  file: new URL('./count.lua', import.meta.url),
  keys: ({ keys }: CountInput) => [keys.log],
  args: ({ after, upTo, maxEntries }) => [after, upTo, maxEntries],
  reply: ([, events, reached, more]: ['counted', number, string, 'more' | 'done']) => ({
    events,
    reached: Number(reached),
    more: more === 'more',
  }),
})

// An entry of 256 events takes about 40 µs to look at: a step holds Redis up for at most 1 ms.
const entriesPerStep = 24

/** Events above `after` and not above `upTo`. */
export async function countEvents(redis: Redis, keys: PartitionKeys, after: number, upTo: number): Promise<number> {
  let total = 0
  let from = after
  while (from < upTo) {
    const { events, reached, more } = await runScript(redis, countScript, {
      keys,
      after: from,
      upTo,
      maxEntries: entriesPerStep,
    })
    total += events
    if (!more) break
    from = reached
  }
  return total
}

/** All events above `after`, of which the newest is `last`. Who is before everything that is kept need not count. */
export async function countAbove(redis: Redis, keys: PartitionKeys, after: number, last: number): Promise<number> {
  const [events, trimmed] = await redis.hmget(keys.meta, 'events', 'trimmed')
  return after <= Number(trimmed ?? 0) ? Number(events ?? 0) : countEvents(redis, keys, after, last)
}
