/** How much waits in the lanes of a store, for whoever has to give some of it up. */
import type { Redis } from 'ioredis'
import type { LaneKeys } from '../redis/keys.ts'
import { readRecord } from './record.ts'

/** Bytes of all that waits in a store, and of its dead letters. */
export async function bytesIn(redis: Redis, keys: LaneKeys): Promise<{ waiting: number; dead: number }> {
  const [waiting, dead] = await redis.hmget(keys.store, 'bytes', 'deadBytes')
  return { waiting: Number(waiting ?? 0), dead: Number(dead ?? 0) }
}

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
