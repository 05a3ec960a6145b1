/** Retention at the moment a test wants it, by the limits that the namespace has stored. */
import type { Bus } from '../../src/bus.ts'
import { Retainer } from '../../src/log/retention.ts'
import { partitionKeys } from '../../src/redis/keys.ts'
import { systemClock } from '../../src/runtime/clock.ts'
import { createTelemetry, type TelemetryEvent } from '../../src/runtime/telemetry.ts'
import { plainRedis, redisUrl } from './bus.ts'
import { tagsOf } from './stored.ts'

export interface TestRetainer {
  /** Answers how many events went. */
  trim(): Promise<number>
  readonly reports: readonly TelemetryEvent[]
}

export async function retainerOf(bus: Bus, url = redisUrl()): Promise<TestRetainer> {
  await bus.topics()
  const redis = plainRedis(url)
  const tags = await tagsOf(redis, bus.namespace)
  const reports: TelemetryEvent[] = []
  const retainer = new Retainer({
    redis,
    namespace: { name: bus.namespace, partitions: tags.map((tag) => partitionKeys(bus.namespace, tag)) },
    telemetry: createTelemetry(systemClock.now, [(event) => reports.push(event)]),
    clock: systemClock,
  })
  return { trim: () => retainer.trimLog(), reports }
}
