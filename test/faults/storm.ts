/** Buses that publish at random, several calls in flight each, through whatever the network does. */
import { setTimeout as sleep } from 'node:timers/promises'
import { Redis } from 'ioredis'
import { onTestFinished } from 'vitest'
import { type Bus, busbar } from '../../src/bus.ts'
import type { BusOptions } from '../../src/bus-options.ts'
import { publishOneScript, publishScript } from '../../src/publish/scripts.ts'
import type { TelemetryName } from '../../src/runtime/telemetry.ts'
import { freshNamespace } from '../support/bus.ts'
import { eventually } from '../support/eventually.ts'
import { type Command, type Decision, type RedisProxy, startProxy } from '../support/proxy.ts'
import { type RedisOptions, type RedisServer, startRedis } from '../support/redis.ts'
import { type StoredEvent, storedEvents } from '../support/stored.ts'
import type { Answer, Ledger } from './ledger.ts'

/** Numbers in [0, 1) that follow from the seed (mulberry32), so that a failed run can be repeated. */
export function randomFrom(seed: number) {
  let state = seed
  const float = () => {
    state = (state + 0x6d2b79f5) | 0
    let t = Math.imul(state ^ (state >>> 15), 1 | state)
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32
  }
  const below = (n: number) => Math.floor(float() * n)
  return { float, below, pick: <T>(values: readonly T[]): T => values[below(values.length)]! }
}

export type Random = ReturnType<typeof randomFrom>

export const isPublish = ({ name, args: [script] }: Command): boolean =>
  [publishScript, publishOneScript].some(
    ({ sha, source }) =>
      (name === 'EVALSHA' && String(script) === sha) || (name === 'EVAL' && String(script) === source),
  )

/** Decides about the next publish only. */
export function nextPublish(proxy: RedisProxy, decision: Decision): void {
  let decided = false
  proxy.onCommand((command) => {
    if (decided || !isPublish(command)) return 'forward'
    decided = true
    return decision
  })
}

/** Ends the three connections of a bus, lets none come back, and waits until the bus has noticed. */
export async function loseRedis(proxy: RedisProxy, bus: Bus): Promise<void> {
  const count = (name: TelemetryName) => bus.telemetry.counts().get(name) ?? 0
  await eventually(() => count('redis.connected') >= Math.max(3, count('redis.lost')))
  const before = count('redis.lost')
  proxy.refuse()
  proxy.cut()
  await eventually(() => count('redis.lost') >= before + 3)
}

export interface FaultyPlace {
  namespace: string
  server: RedisServer
  proxy: RedisProxy
  /** A bus behind the proxy. */
  bus(options?: BusOptions): Bus
  /** A client past the proxy. */
  redis: Redis
  log(): Promise<StoredEvent[]>
  /** Resolves when nothing is on its way any more that a client which is gone has sent. */
  quiet(): Promise<void>
}

export interface PlaceOptions extends Pick<RedisOptions, 'args'> {
  partitions?: number
  /** Takes what ends the place's parts, to be called in reverse. */
  whenDone?(end: () => Promise<unknown>): void
}

/** A namespace on a Redis of its own, behind a proxy of its own. */
export async function faultyPlace({
  partitions = 16,
  args = [],
  whenDone = (end) =>
    onTestFinished(async () => {
      await end()
    }),
}: PlaceOptions = {}): Promise<FaultyPlace> {
  const server = await startRedis({ args })
  const proxy = await startProxy({ target: { port: server.port } })
  const redis = new Redis(server.url)
  whenDone(async () => {
    redis.disconnect()
    await proxy.stop()
    await server.stop()
  })
  const namespace = freshNamespace()
  // Tests kill the server.
  redis.on('error', () => undefined)
  // So that the first decision about a publish meets one that runs, and not one that is unknown to the server.
  const warm = busbar({ redis: server.url })
  await warm.publish('warm.up')
  await warm.close()
  return {
    namespace,
    server,
    proxy,
    bus(options) {
      const bus = busbar({ redis: proxy.url, namespace, partitions, ...options })
      whenDone(() => bus.close({ timeout: '1s' }))
      return bus
    },
    redis,
    log: () => storedEvents(redis, namespace),
    async quiet() {
      const clients = async () => Number(/connected_clients:(\d+)/.exec(await redis.info('clients'))?.[1])
      await eventually(async () => (await clients()) === proxy.connections + 1, { what: 'A quiet network' })
    },
  }
}

const maxInFlight = 20
const sharedKeys = Array.from({ length: 24 }, (_, n) => `shared:${n}`)

export interface Storm {
  bus: Bus
  /** Who publishes, in the ledger and in its own keys. */
  name: string
  ledger: Ledger
  random: Random
  enough(): boolean
  /** Of each call; without it the bus's own. */
  timeout?(): number
  /** Between two calls, where a log that grows at full speed would take longer to compare than to publish. */
  pauseMs?: number
}

/** Publishes in all ways until told to stop; resolves when every call has its outcome. */
export async function publishAtRandom(storm: Storm): Promise<void> {
  const inFlight = new Set<Promise<unknown>>()
  const chained = publishChained(storm)
  let closed = false
  while (!storm.enough() && !closed) {
    const call = oneCall(storm).then((answers) => {
      inFlight.delete(call)
      // The test has ended early, by an error elsewhere: go on and this loop never lets go of the processor.
      closed ||= answers.some((answer) => 'error' in answer && answer.error.code === 'BUS_CLOSED')
    })
    inFlight.add(call)
    if (inFlight.size >= maxInFlight || storm.random.float() < 0.1) await Promise.race(inFlight)
    if (storm.pauseMs) await sleep(storm.pauseMs)
  }
  await Promise.all([chained, ...inFlight])
}

function oneCall(storm: Storm): Promise<Answer[]> {
  const kind = storm.random.float()
  if (kind < 0.6) return onePublish(storm)
  return kind < 0.8 ? oneCommit(storm) : onePublishAll(storm)
}

function onePublish(storm: Storm): Promise<Answer[]> {
  const { bus, name, ledger, random } = storm
  const key = anyKey(storm)
  return ledger.call(name, [key], async ([data]) => {
    const idempotencyKey = random.float() < 0.2 ? { idempotencyKey: `once-${data}` } : {}
    return [await bus.publish('storm.one', data, { key, ...idempotencyKey, ...timeoutOf(storm) })]
  })
}

function oneCommit(storm: Storm): Promise<Answer[]> {
  const { bus, name, ledger, random } = storm
  const key = anyKey(storm) ?? `${name}:0`
  return ledger.call(name, Array<string>(2 + random.below(5)).fill(key), (data) => {
    const events = data.map((one) => ['storm.commit', one] as const)
    return bus.commit(key, events, { state: { of: data[0] }, ...timeoutOf(storm) })
  })
}

function onePublishAll(storm: Storm): Promise<Answer[]> {
  const { bus, name, ledger, random } = storm
  const keys = Array.from({ length: 2 + random.below(5) }, () => anyKey(storm))
  return ledger.calls(name, keys, (data) =>
    bus.publishAll(
      data.map((one, i) => ({ type: 'storm.many', data: one, key: keys[i] })),
      timeoutOf(storm),
    ),
  )
}

const timeoutOf = ({ timeout }: Storm) => (timeout ? { timeout: timeout() } : {})

function anyKey({ name, random }: Storm): string | undefined {
  const kind = random.float()
  if (kind < 0.1) return undefined
  return kind < 0.5 ? random.pick(sharedKeys) : `${name}:${random.below(12)}`
}

/** Each call expects the one before: a repeat that was taken for a new call would be a conflict with itself. */
async function publishChained({ bus, name, ledger, enough, pauseMs }: Storm): Promise<void> {
  const key = `${name}:chain`
  let expectPrev: number | null = null
  while (!enough()) {
    const [answer] = await ledger.call(name, [key], async ([data]) => [
      await bus.publish('storm.chained', data, { key, expectPrev }),
    ])
    if (!answer || 'error' in answer) return
    expectPrev = answer.seq
    if (pauseMs) await sleep(pauseMs)
  }
}
