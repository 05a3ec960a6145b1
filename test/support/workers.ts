/** Several running buses of one namespace that notice each other's end quickly. */
import { onTestFinished } from 'vitest'
import type { Bus } from '../../src/bus.ts'
import type { BusOptions } from '../../src/bus-options.ts'
import { type Clock, systemClock } from '../../src/runtime/clock.ts'
import type { TelemetryEvent, TelemetryName } from '../../src/runtime/telemetry.ts'
import { freshNamespace, redisUrl, testBus } from './bus.ts'
import { type Child, spawnNode } from './process.ts'

// Long enough for a busy machine: nobody is taken for dead who only waits for a core.
export const quickGroup = { heartbeat: 100, expiry: 1_500, grace: 200, joinDelay: 20 }

export interface Watched {
  bus: Bus
  events: TelemetryEvent[]
  count(name: TelemetryName): number
}

/** A bus that is not running yet, and what it tells. */
export function watchedBus(options: BusOptions = {}): Watched {
  const events: TelemetryEvent[] = []
  const bus = testBus({ group: quickGroup, ...options, onTelemetry: (event) => events.push(event) }) as unknown as Bus
  return { bus, events, count: (name) => events.filter((event) => event.name === name).length }
}

/** So many of one namespace, in the order in which they will run: the first leads. */
export function busesOf(count: number, options: BusOptions = {}): Watched[] {
  const namespace = freshNamespace()
  return Array.from({ length: count }, (_, i) => watchedBus({ namespace, worker: `w${i}`, ...options }))
}

/** Another time, for processes and server alike. It stands still until go(), so that a slow start does not miss it. */
export function clockFrom(iso: string): Clock & { go(): void } {
  let ahead: number | undefined
  const now = () => (ahead === undefined ? Date.parse(iso) : Date.now() + ahead)
  return {
    ...systemClock,
    now,
    serverUs: () => now() * 1000,
    go: () => {
      ahead = Date.parse(iso) - Date.now()
    },
  }
}

/** A process of children/worker.mjs, ended with the test. */
export function spawnWorker(namespace: string, name: string, env: Record<string, string> = {}): Child {
  const child = spawnNode('worker.mjs', { args: [redisUrl(), namespace, name, JSON.stringify(quickGroup)], env })
  onTestFinished(() => child.kill())
  return child
}
