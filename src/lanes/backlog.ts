/** How much waits in the lanes of a store, for whoever has to give some of it up. */
import type { Redis } from 'ioredis'
import type { LaneKeys } from '../redis/keys.ts'
import { readRecord } from './record.ts'

/** Bytes of all that waits in a store. */
export const bytesIn = async (redis: Redis, keys: LaneKeys): Promise<number> =>
  Number((await redis.hget(keys.store, 'bytes')) ?? 0)

/** The lane with most bytes waiting; undefined when nothing waits, but for those that are passed over. */
export async function largestLane(
  redis: Redis,
  keys: LaneKeys,
  passed: ReadonlySet<string>,
): Promise<{ lane: string; bytes: number } | undefined> {
  let largest: { lane: string; bytes: number } | undefined
  for await (const page of redis.hscanBufferStream(keys.lanes, { count: 1_000 }) as AsyncIterable<Buffer[]>)
    for (let i = 0; i < page.length; i += 2) {
      const lane = page[i]!.toString()
      const { bytes } = readRecord(page[i + 1]!)
      if (bytes > (largest?.bytes ?? 0) && !passed.has(lane)) largest = { lane, bytes }
    }
  return largest
}
