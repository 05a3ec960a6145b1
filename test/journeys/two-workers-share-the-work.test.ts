/** CPU-bound handlers in two processes. How much faster that is than one is a row of the bench `stream`. */
import { readFileSync } from 'node:fs'
import { expect, test } from 'vitest'
import { freshNamespace, redisUrl, testBus } from '../support/bus.ts'
import { eventually } from '../support/eventually.ts'
import { startWorker } from '../support/stream-workers.ts'

test('[S23] 1 ms of CPU per event: two worker processes work at the same time, each on its half; the bench demands 1.6×', async () => {
  const namespace = freshNamespace()
  const place = { redis: redisUrl(), namespace }
  const bus = testBus({ namespace })
  // Nobody is taken for dead on a busy machine: this is about the division alone.
  const group = { heartbeat: '200ms', expiry: '10s', grace: '10s', joinDelay: '100ms' }
  const workers = await Promise.all(['a', 'b'].map((worker) => startWorker(place, { worker, busyMs: 1, group })))
  await eventually(() => workers.every((worker) => worker.held().length === 8))
  const keys = Array.from({ length: 64 }, (_, k) => `k${k}`)
  for (let n = 0; n < 10; n += 1) await Promise.all(keys.map((key) => bus.publish('in.put', { n }, { key })))
  await eventually(() => workers.flatMap((worker) => worker.handled()).length === 640)
  const [a, b] = workers.map((worker) => worker.handled())
  const partitionsOf = (handled: typeof a) => new Set(handled!.map(({ partition }) => partition))
  expect([...partitionsOf(a)].filter((partition) => partitionsOf(b).has(partition))).toEqual([])
  expect(Math.min(a!.length, b!.length)).toBeGreaterThan(160)
  const scenario = readFileSync(new URL('../../bench/scenarios/stream.mjs', import.meta.url), 'utf8')
  expect(scenario).toMatch(/1 ms of CPU per event[\s\S]{0,400}target: 1\.6/)
})
