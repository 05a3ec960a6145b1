/**
 * Random work on the webhooks of a shard, step by step against a reference that says it plainly. Time is the test's.
 *
 * What fails is told with its seed and path, and with the fewest steps that fail.
 */
import { afterAll, beforeAll, expect, test } from 'vitest'
import { startWalkServer } from '../lanes/walks.ts'
import { keysOf } from '../support/bus.ts'
import type { RedisServer } from '../support/redis.ts'
import { walkGround, walkMany } from './walks.ts'

let server: RedisServer
beforeAll(async () => {
  server = await startWalkServer()
})
afterAll(() => server.stop())

/** Some wait for Redis while another looks at what it got. */
const seeds = [7, 8, 9]
const runs = 150

test('[W03] [W04] [W10] a shard does what the reference does, whatever happens to its webhooks in whatever order', async () => {
  const grounds = seeds.map(() => walkGround(server))
  const walked = await Promise.allSettled(seeds.map((seed, i) => walkMany(grounds[i]!, { runs, seed })))
  for (const one of walked) if (one.status === 'rejected') throw one.reason
  for (const { redis, namespace } of grounds) expect(await keysOf(redis, namespace)).toEqual([])
}, 300_000)
