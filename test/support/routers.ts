/** Routers of one namespace on a real Redis, with stores that a test can look into and disturb. */
import { onTestFinished } from 'vitest'
import { Backbone, type Opened } from '../../src/backbone.ts'
import type { Bus } from '../../src/bus.ts'
import { checkOptions } from '../../src/bus-options.ts'
import { LogGrowth } from '../../src/log/growth.ts'
import { Router } from '../../src/route/router.ts'
import { Subscriptions } from '../../src/route/subscriptions.ts'
import type { TelemetryEvent, TelemetryName } from '../../src/runtime/telemetry.ts'
import { freshNamespace, plainRedis, redisUrl, testBus } from './bus.ts'
import { type ListSink, listSink } from './list-sink.ts'
import { quickGroup } from './workers.ts'

export interface TestRouter {
  router: Router
  subscriptions: Subscriptions
  opened: Opened
  backbone: Backbone
  events: TelemetryEvent[]
  count(name: TelemetryName): number
  /** Ends as a process ends that is killed: nothing is said any more. */
  kill(): Promise<void>
}

export interface Routed {
  namespace: string
  /** For publishing; it runs nothing. */
  bus: Bus
  sink: ListSink
  start(worker: string, group?: Parameters<typeof checkOptions>[0]['group']): Promise<TestRouter>
  /** Puts a subscription of everything that fits. */
  put(router: TestRouter, name: string, match?: string, from?: 'now' | 'beginning' | number): Promise<void>
}

export const partitions = 4

export function testRouting(): Routed {
  const namespace = freshNamespace()
  const bus = testBus({ namespace, partitions }) as unknown as Bus
  const sink = listSink(plainRedis(), namespace)
  return {
    ...{ namespace, bus, sink },
    start: (worker, group = quickGroup) => startRouter(namespace, worker, sink, group),
    put: async ({ subscriptions }, name, match = '>', from = 'now') => {
      await subscriptions.put({ name, kind: 'queue', match, options: {} }, { from })
    },
  }
}

async function startRouter(
  namespace: string,
  worker: string,
  sink: ListSink,
  group: Parameters<typeof checkOptions>[0]['group'],
): Promise<TestRouter> {
  const events: TelemetryEvent[] = []
  const onTelemetry = (event: TelemetryEvent) => void events.push(event)
  const settings = checkOptions({ redis: redisUrl(), namespace, partitions, worker, group, onTelemetry })
  const backbone = new Backbone(settings)
  const opened = await backbone.open()
  const { reads: connection, hints } = opened
  const listening = { connection, hints, process: settings.randomness.id(), saw: () => undefined }
  const ground = { clock: settings.network, namespace: opened.namespace, ...listening }
  const growth = new LogGrowth({ ...settings, ...ground })
  const sinks = { queue: sink }
  const subscriptions = new Subscriptions({ ...settings, source: backbone, sinks })
  const router = new Router({
    ...settings,
    sinks,
    finishRemoval: (name, removal) => subscriptions.finishRemoval(name, removal),
  })
  onTestFinished(async () => {
    await router.close(500)
    await growth.stop(100)
    await backbone.close()
  })
  await router.start({ ...opened, growth, about: {} })
  return {
    ...{ router, subscriptions, opened, backbone, events },
    count: (name) => events.filter((event) => event.name === name).length,
    kill: () => backbone.close(),
  }
}
