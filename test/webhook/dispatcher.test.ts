/** How a dispatcher divides its slots among the shards. */
import { expect, test } from 'vitest'
import { shardOf } from '../../src/sinks/webhook/shard.ts'
import { freshNamespace, testBus } from '../support/bus.ts'
import { eventually } from '../support/eventually.ts'
import { startReceiver, toLoopback } from '../support/receiver.ts'

const hooks = 40
const rounds = 5

test('however few slots there are, the shards take turns', async () => {
  const namespace = freshNamespace()
  const receiver = await startReceiver()
  const router = testBus({ namespace, partitions: 1, webhooks: { ...toLoopback, dispatch: false } })
  const names = Array.from({ length: hooks }, (_, n) => `hook-${n}`)
  for (const name of names)
    await router.webhooks.put(name, { url: `${receiver.url}/${name}`, match: 'order.>', batch: { maxEvents: 1 } })
  await router.run({ signals: false })
  for (let n = 1; n <= rounds; n += 1) await router.publish('order.paid', { n })
  const isReady = async () => (await router.webhooks.list()).every(({ backlog }) => backlog === rounds)
  await eventually(async () => expect(await isReady()).toBe(true))

  // All shards are asked in the same turn of the event loop, and one of them has the slot.
  const dispatcher = testBus({ namespace, webhooks: { ...toLoopback, dispatch: true, concurrency: 1 } })
  await dispatcher.run({ signals: false })
  await eventually(() => expect(receiver.received.length).toBe(rounds * hooks))
  expect(receiver.most).toBe(1)
  const served = receiver.received.map(({ path }) => shardOf(path.slice(1)))
  const shards = new Set(names.map(shardOf))
  // In the second round at the latest, should a machine without time make an attempt fail in the first.
  expect(new Set(served.slice(0, 2 * shards.size))).toEqual(shards)
})
