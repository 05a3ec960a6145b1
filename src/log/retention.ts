/**
 * Retention: removes what is older, more or larger than the namespace keeps, never past a hold.
 *
 * Any process may do it, several at once too: the script decides by what is there. Publishers do it every few thousand
 * events, so the log is bounded even where nothing else runs; a running bus does it on a timer, so age counts when idle.
 */
import type { Redis } from 'ioredis'
import type { PartitionKeys } from '../redis/keys.ts'
import { defineScript, runScript } from '../redis/script.ts'
import type { Clock } from '../runtime/clock.ts'
import type { Telemetry } from '../runtime/telemetry.ts'
import { type Namespace, storedRetention } from './namespace.ts'

// Looking at an event costs about 0.3 µs in the script, more for large ones: a step holds Redis up for about 1 ms.
const looksPerStep = 4_096
const lookBytesPerStep = 1024 * 1024
// Holds are kept to twice the limits; beyond that a forgotten one would fill Redis and stop everybody.
const hardFactor = 2
const never = 1e15

interface TrimInput {
  keys: PartitionKeys
  ageSeq: number
  maxEvents: number
  maxBytes: number
  /** How many times over its limits the log must be for holds to give way. */
  hardFactor?: number
}

export const trimScript = defineScript({
  file: new URL('./trim.lua', import.meta.url),
  keys: ({ keys }: TrimInput) => [keys.log, keys.meta, keys.heads, keys.headsOld, keys.holds],
  args: ({ ageSeq, maxEvents, maxBytes, hardFactor: factor = hardFactor }) => [
    ...[ageSeq, maxEvents, maxBytes, factor],
    ...[looksPerStep, lookBytesPerStep],
  ],
  reply: ([, removed, lost, more, holder]: ['trimmed', number, number, 'more' | 'done', string]) => ({
    removed,
    lost,
    more: more === 'more',
    holder,
  }),
})

export interface RetentionContext {
  redis: Redis
  namespace: Namespace
  telemetry: Telemetry
  clock: Clock
}

type TrimLimits = Omit<TrimInput, 'keys'>

const limitsHoldMs = 30_000

export class Retainer {
  readonly #context: RetentionContext
  #limits: { ageMs: number; maxEvents: number; maxBytes: number } | undefined
  #limitsUntil = 0
  readonly #busy = new Set<number>()

  constructor(context: RetentionContext) {
    this.#context = context
  }

  /** Trims all partitions, one after the other. Answers how many events went. */
  async trimLog(): Promise<number> {
    let total = 0
    for (const partition of this.#context.namespace.partitions.keys()) total += await this.trimPartition(partition)
    return total
  }

  /** Lets a partition have no more than so many bytes, as far as nobody needs what is older. */
  async trimTo(partition: number, maxBytes: number): Promise<number> {
    return this.#trim(partition, { ...(await this.#trimLimits()), maxBytes, hardFactor: never })
  }

  /** Trims one partition, unless this process is already at it. */
  async trimPartition(partition: number): Promise<number> {
    if (this.#busy.has(partition)) return 0
    this.#busy.add(partition)
    try {
      return await this.#trim(partition, await this.#trimLimits())
    } finally {
      this.#busy.delete(partition)
    }
  }

  async #trim(partition: number, limits: TrimLimits): Promise<number> {
    const { redis, namespace, telemetry } = this.#context
    const keys = namespace.partitions[partition]!
    let total = 0
    for (;;) {
      const { removed, lost, more, holder } = await runScript(redis, trimScript, { keys, ...limits })
      total += removed
      if (lost > 0) telemetry.emit('log.lost-unread', { partition, events: lost, holder })
      if (!more) break
    }
    if (total > 0) telemetry.emit('log.trimmed', { partition, events: total })
    return total
  }

  /** What the stored retention means right now, by the server's clock. */
  async #trimLimits(): Promise<TrimLimits> {
    const { redis, clock } = this.#context
    if (!this.#limits || clock.monotonicMs() > this.#limitsUntil) await this.#loadLimits()
    const { ageMs, maxEvents, maxBytes } = this.#limits!
    const nowUs = clock.serverUs?.() ?? (await serverUs(redis))
    return { ageSeq: Math.max(0, nowUs - ageMs * 1000), maxEvents, maxBytes }
  }

  async #loadLimits(): Promise<void> {
    const { redis, namespace, clock } = this.#context
    const { ageMs, events, bytes } = await storedRetention(redis, namespace.name)
    const maxMemory = Number(/^maxmemory:(\d+)/m.exec(await redis.info('memory'))?.[1] ?? 0)
    const share = maxMemory === 0 ? Number.MAX_SAFE_INTEGER : Math.floor(maxMemory / 4 / namespace.partitions.length)
    this.#limits = { ageMs, maxEvents: events, maxBytes: bytes ?? share }
    this.#limitsUntil = clock.monotonicMs() + limitsHoldMs
  }
}

async function serverUs(redis: Redis): Promise<number> {
  const [seconds, micros] = await redis.time()
  return Number(seconds) * 1e6 + Number(micros)
}
