/** A store that refuses is left to itself; it catches up when it takes events again. */
import { expect, test } from 'vitest'
import type { Bus } from '../../src/bus.ts'
import { queueKeys } from '../../src/redis/keys.ts'
import { freshNamespace, plainRedis } from '../support/bus.ts'
import { eventually } from '../support/eventually.ts'
import { watchedBus } from '../support/workers.ts'

test('[Q45] a sink that refuses for 30 s: the others go on; it catches up exactly once, in order', async () => {
  const namespace = freshNamespace()
  const watched = watchedBus({ namespace })
  const bus = watched.bus as Bus
  const [good, bad] = [bus.queue('good', { match: '>' }), bus.queue('bad', { match: '>' })]
  await bus.run({ signals: false })
  const ids: string[] = []
  const publish = async () =>
    void ids.push((await bus.publish('mail.sent', ids.length, { key: `k${ids.length % 5}` })).id)
  for (let n = 0; n < 20; n += 1) await publish()
  await eventually(async () => (await bus.queues.get('bad')).in === 20)

  const redis = plainRedis()
  const { store } = queueKeys(namespace, 'bad')
  await redis.rename(store, `${store}.away`)
  await redis.set(store, 'not a store')
  const until = performance.now() + 30_000
  while (performance.now() < until) {
    const before = ids.length
    for (let n = 0; n < 5; n += 1) await publish()
    // The others have them at once, whatever the bad one does: the first time after its second of patience.
    await eventually(async () => (await bus.queues.get('good')).in === before + 5, { timeoutMs: 3_000, everyMs: 20 })
    await new Promise((resolve) => setTimeout(resolve, 500))
  }
  expect(watched.count('sink.behind')).toBeGreaterThan(0)
  await redis.del(store)
  await redis.rename(`${store}.away`, store)
  await eventually(async () => (await bus.queues.get('bad')).in === ids.length, { timeoutMs: 15_000 })
  const popped = async (queue: typeof good) => (await queue.pop({ max: 1_000 })).map(({ id }) => id)
  const [inGood, inBad] = [await popped(good), await popped(bad)]
  expect([...inGood].sort()).toEqual([...ids].sort())
  expect([...inBad].sort()).toEqual([...ids].sort())
  // In order per partition, so per object too.
  const partitions = new Set(ids.map((id) => id.split('-')[0]))
  for (const partition of partitions) {
    const mine = (list: readonly string[]) => list.filter((id) => id.startsWith(`${partition}-`))
    expect(mine(inBad)).toEqual(mine(ids))
  }
}, 60_000)
