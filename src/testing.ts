/**
 * `busbar/testing`: a bus for tests, on a real Redis, in a namespace of its own, with a clock that the test moves.
 *
 *   open     time stands still; advance() moves it, drain() waits for what is under way
 *   closed   the bus is closed, its keys are deleted, and an embedded Redis is gone with the last test bus
 *
 * Idempotency keys expire by Redis' own clock: advance() does not reach them.
 */
import { setTimeout as pause } from 'node:timers/promises'
import { type Bus, busbar } from './bus.ts'
import { internals } from './bus-internals.ts'
import type { BusOptions } from './bus-options.ts'
import { type Duration, durationParameter } from './duration.ts'
import { BusbarError } from './errors.ts'
import type { Registry } from './registry.ts'
import { type Clock, systemRandomness } from './runtime/clock.ts'
import type { Handling } from './runtime/handling.ts'
import { createTestClock } from './testing/clock.ts'
import { deleteNamespace, type TestRedis, useRedis } from './testing/redis.ts'
import { createRest } from './testing/rest.ts'

/** As for a bus. Without `redis`: BUSBAR_REDIS_URL, else an embedded one in a temporary folder. */
export type TestBusOptions<R extends Registry = Registry> = Omit<BusOptions<R>, 'namespace' | 'dataDir' | 'clock'>

export type TestBus<R extends Registry = Registry> = Bus<R> & {
  /** The time of this bus, for what of the application is to share it. */
  readonly clock: Clock
  /** Moves the time on. What is due meanwhile runs in due order, each with its round trips to Redis. */
  advance(by: Duration): Promise<void>
  /** Resolves when everything published has been handled by what runs here; NOT_DRAINED after the timeout, 10s. */
  drain(options?: { timeout?: Duration }): Promise<void>
}

const drainTimeoutMs = 10_000
const askAgainMs = 5

export async function testBus<const R extends Registry = Record<never, never>>(
  options: TestBusOptions<R> = {},
): Promise<TestBus<R>> {
  const redis = await useRedis(options.redis)
  const clock = createTestClock()
  const namespace = `test-${systemRandomness.id().toLowerCase()}`
  const bus = await orRelease(redis, () => busbar<R>({ ...options, redis: redis.url, namespace, clock }))
  const rest = createRest(() => bus[internals].connections)
  const closeBus = bus.close.bind(bus)
  let closing: Promise<void> | undefined

  async function close(timeout: { timeout?: Duration } | undefined): Promise<void> {
    clock.release()
    await closeBus(timeout)
    await deleteNamespace(redis.url, namespace)
    await redis.release()
  }

  return Object.assign(bus, {
    clock,
    async advance(by: Duration) {
      await clock.advance(durationParameter('advance', by), rest)
      for (const look of bus[internals].looks) look.wake()
      await rest()
    },
    async drain({ timeout = drainTimeoutMs }: { timeout?: Duration } = {}) {
      await drain(bus[internals].handling, rest, durationParameter('timeout', timeout))
    },
    close(timeout?: { timeout?: Duration }) {
      closing ??= close(timeout)
      return closing
    },
  })
}

/** A bus that is refused for its options has used no Redis. */
async function orRelease<T>(redis: TestRedis, make: () => T): Promise<T> {
  try {
    return make()
  } catch (error) {
    await redis.release()
    throw error
  }
}

type Rest = () => Promise<void>

async function drain(handling: ReadonlySet<Handling>, rest: Rest, timeoutMs: number): Promise<void> {
  const until = performance.now() + timeoutMs
  for (let busy = await busyOf(handling, rest); busy.length > 0; busy = await busyOf(handling, rest)) {
    if (performance.now() >= until) throw BusbarError.of('NOT_DRAINED', { timeoutMs, busy })
    await pause(askAgainMs)
  }
}

/** Asks twice: what handles an event may publish the next one, for another that has answered already. */
async function busyOf(handling: ReadonlySet<Handling>, rest: Rest): Promise<string[]> {
  for (let round = 0; round < 2; round += 1) {
    await rest()
    const asked = [...handling]
    const idle = await Promise.all(asked.map((one) => one.isIdle()))
    const busy = asked.filter((_, at) => !idle[at]).map(({ name }) => name)
    if (busy.length > 0) return busy
  }
  return []
}
