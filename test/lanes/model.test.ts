/**
 * Random work on stores of every kind, step by step against a reference that says it plainly. Time is the test's.
 *
 * Each walk has its own definition: ordered or not, what becomes of poison, any limits. What fails is told with its seed and path, and with
 * the fewest steps that fail.
 */
import { afterAll, beforeAll, expect, test } from 'vitest'
import { keysOf } from '../support/bus.ts'
import type { RedisServer } from '../support/redis.ts'
import type { Definition } from './steps.ts'
import { startWalkServer, walkGround, walkMany } from './walks.ts'

let server: RedisServer
beforeAll(async () => {
  server = await startWalkServer()
})
afterAll(() => server.stop())

/** Some wait for Redis while another looks at what it got. */
const seeds = [7, 8, 9]
const runs = 700
const trackedRuns = 100

async function walkAll(runs: number, its: Partial<Definition> = {}): Promise<void> {
  const grounds = seeds.map(() => walkGround(server))
  const walked = await Promise.allSettled(seeds.map((seed, i) => walkMany(grounds[i]!, { runs, seed, its })))
  for (const one of walked) if (one.status === 'rejected') throw one.reason
  for (const { redis, namespace } of grounds) expect(await keysOf(redis, namespace)).toEqual([])
}

test('[Q31] [Q33] a store does what the reference does, ordered or not, with any limits, whatever happens in whatever order; fsck finds nothing', async () => {
  await walkAll(runs)
}, 300_000)

test('[O01] [O04] [O11] what an operation says is what became of its item, by steps that the table has, and each end is counted once', async () => {
  await walkAll(trackedRuns, { track: true })
}, 300_000)
