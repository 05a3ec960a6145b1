/** A subscription that is removed by another process just before its store is made leaves no store behind. */
import { expect, onTestFinished, test } from 'vitest'
import { Backbone } from '../../src/backbone.ts'
import { checkOptions } from '../../src/bus-options.ts'
import { LaneStores } from '../../src/lanes/store.ts'
import { Subscriptions } from '../../src/route/subscriptions.ts'
import { QueueSink } from '../../src/sinks/queue/sink.ts'
import { freshNamespace, keysOf, plainRedis, redisUrl, testBus } from '../support/bus.ts'
import { eventually } from '../support/eventually.ts'
import { collect } from '../support/log.ts'
import { testRouting } from '../support/routers.ts'

const options = { weights: {}, attempts: 5, backoffMs: [1, 2], leaseMs: 1_000 }
const mail = { name: 'mail', kind: 'queue' as const, match: 'order.*', options }

function subscriptionsOn(namespace: string, sinkOf: (sink: QueueSink) => QueueSink = (sink) => sink): Subscriptions {
  const settings = checkOptions({ redis: redisUrl(), namespace, partitions: 2 })
  const backbone = new Backbone(settings)
  onTestFinished(() => backbone.close())
  const open = async () => {
    const { reads: connection, writes, namespace: opened } = await backbone.open()
    const stores = new LaneStores({ ...settings, connection }, namespace)
    return { connection, writes, partitions: opened.partitions, stores }
  }
  const nobody = { expect: () => undefined, takeBy: () => false }
  const sinks = { queue: sinkOf(new QueueSink(open, nobody)) }
  return new Subscriptions({ ...settings, source: backbone, sinks })
}

test('by who puts it', async () => {
  const bus = testBus({ namespace: freshNamespace(), partitions: 2 })
  const other = subscriptionsOn(bus.namespace)
  const slow = subscriptionsOn(bus.namespace, (sink) => {
    const make = sink.make.bind(sink)
    sink.make = async (subscription, applied) => {
      await other.remove('mail')
      await make(subscription, applied)
    }
    return sink
  })
  await slow.put(mail, {})
  expect((await keysOf(plainRedis(), bus.namespace)).filter((key) => key.includes('{queue.'))).toEqual([])
  expect(await collect(bus.fsck())).toEqual([])
  await other.put(mail, {})
  expect(await collect(bus.fsck())).toEqual([])
})

test('by a router that found none', async () => {
  const routed = testRouting()
  const router = await routed.start('a')
  await routed.put(router, 'q', 'order.*')
  const { sink } = routed
  const make = sink.make.bind(sink)
  let made = 0
  sink.make = async (subscription, applied) => {
    await router.subscriptions.remove('q')
    await make(subscription, applied)
    made += 1
  }
  await sink.lose('q')
  await routed.bus.publish('order.paid', 1)
  await eventually(() => made > 0)
  const left = async () => (await keysOf(plainRedis(), routed.namespace)).filter((key) => key.includes('{list.'))
  await eventually(async () => expect(await left()).toEqual([]), { timeoutMs: 3_000 })
})
