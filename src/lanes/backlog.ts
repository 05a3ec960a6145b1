/** How much waits in the lanes of a store, for whoever has to give some of it up. */
import type { Redis } from 'ioredis'
import type { LaneKeys } from '../redis/keys.ts'
import { readRecord } from './record.ts'

/** Bytes of all that waits in a store. */
export const bytesIn = async (redis: Redis, keys: LaneKeys): Promise<number> =>
  Number((await redis.hget(keys.store, 'bytes')) ?? 0)

const mostLanes = 1_000

/** The lanes with most bytes waiting, a thousand at most, the largest first. */
export async function lanesBySize(redis: Redis, keys: LaneKeys): Promise<{ lane: string; bytes: number }[]> {
  let largest: { lane: string; bytes: number }[] = []
  for await (const page of redis.hscanBufferStream(keys.lanes, { count: mostLanes }) as AsyncIterable<Buffer[]>) {
    for (let i = 0; i < page.length; i += 2) {
      const { bytes } = readRecord(page[i + 1]!)
      if (bytes > 0) largest.push({ lane: page[i]!.toString(), bytes })
    }
    largest = largest.sort((a, b) => b.bytes - a.bytes).slice(0, mostLanes)
  }
  return largest
}
