/**
 * Delayed events: kept beside the log of their partition until they are due.
 *
 *   waiting     not visible to anyone but this view
 *   in the log  appended by the leader once it was due, and removed here by the same script
 *   cancelled   before it was due
 *
 * A call without an answer is repeated until its deadline: what was answered is remembered, under the idempotency key or,
 * without one, under a random token, so a repeat keeps nothing twice.
 */
import { createHash } from 'node:crypto'
import { type Duration, parseDuration } from '../duration.ts'
import { readEnvelope } from '../envelope.ts'
import { BusbarError, shown } from '../errors.ts'
import { limits } from '../event.ts'
import { checkText } from '../event-checks.ts'
import type { Namespace } from '../log/namespace.ts'
import { objectHash, partitionOfHash } from '../log/partition.ts'
import type { LogSource } from '../log/view.ts'
import { mayPass } from '../redis/connection.ts'
import { workersKeys } from '../redis/keys.ts'
import { runScript } from '../redis/script.ts'
import type { Clock, Randomness } from '../runtime/clock.ts'
import { refusalOf } from './answer.ts'
import { fingerprint, scopeOf } from './call.ts'
import { cancelScript, type DelayInput, type DelayReply, delayScript } from './scripts.ts'
import { envelopeOf, type WrittenEvent } from './written-event.ts'

export interface DelayWish {
  /** From now, at most 366 days. */
  delay?: Duration | undefined
  /** A time, instead of a delay; one that has passed means at once. */
  at?: Date | number | undefined
  idempotencyKey?: string | undefined
  expectPrev?: number | null | undefined
}

/** The answer for a delayed event: it gets its place in the log when it is due. */
export interface Delayed {
  id: string
  /** ms since the epoch. */
  due: number
  /** True when an earlier call with the same idempotency key keeps it. */
  duplicate: boolean
}

export interface DelayedEvent {
  id: string
  due: number
  type: string
  tenant: string
  key: string | null
}

export interface DelayedView {
  /** Those that are due next, over all partitions; at most 1,000, usually 100. */
  list(options?: { limit?: number }): Promise<DelayedEvent[]>
  /** Answers whether it still waited: then it will never be in the log. */
  cancel(id: string): Promise<boolean>
}

export interface DelayerContext {
  source: LogSource
  clock: Clock
  randomness: Randomness
  maxWaiting: number
  maxWaitingBytes: number
}

const dayMs = 86_400_000
const furthestMs = 366 * dayMs
const mostPerPartition = 100_000
const onceMs = dayMs
// As long as a flush is remembered: a copy of a call that is still on its way then is not sent by anyone.
const tokenMs = 3_600_000
const maxListed = 1_000

export class Delayer implements DelayedView {
  readonly #context: DelayerContext
  readonly #pending = new Set<Promise<unknown>>()
  #bytes = 0

  constructor(context: DelayerContext) {
    this.#context = context
  }

  async delay(event: WrittenEvent, wish: DelayWish, timeoutMs: number): Promise<Delayed> {
    const due = checkDue(wish)
    const { idempotencyKey } = wish
    if (idempotencyKey !== undefined) checkText('idempotencyKey', idempotencyKey, limits.idempotencyKeyBytes)
    this.#checkRoom(event)
    const kept = this.#keep(event, due, idempotencyKey, timeoutMs)
    this.#pending.add(kept)
    this.#bytes += event.bytes
    try {
      return answerOf(await kept, idempotencyKey)
    } finally {
      this.#pending.delete(kept)
      this.#bytes -= event.bytes
    }
  }

  /** Waits for the answers of the calls it has, at most until the deadline. */
  async close(timeoutMs: number): Promise<void> {
    const late = new Promise<void>((resolve) => this.#context.clock.after(timeoutMs, resolve))
    await Promise.race([Promise.allSettled(this.#pending), late])
  }

  async list({ limit = 100 }: { limit?: number } = {}): Promise<DelayedEvent[]> {
    const most = Math.min(Math.max(1, Math.trunc(limit)), maxListed)
    return this.#context.source.read(async (redis, { partitions }) => {
      const ranges = await Promise.all(
        partitions.map(({ delayed }) => redis.zrange(delayed, '0', String(most - 1), 'WITHSCORES')),
      )
      const first = ranges
        .flatMap((flat, partition) =>
          pairs(flat).map(([number, us]) => ({ partition, number, due: Number(us) / 1000 })),
        )
        .sort((a, b) => a.due - b.due || a.number.localeCompare(b.number))
        .slice(0, most)
      const read = first.map(({ partition, number }) => redis.hget(partitions[partition]!.delayedEvents, number))
      const envelopes = await Promise.all(read)
      return first.flatMap(({ partition, number, due }, i) => {
        const envelope = envelopes[i]
        // Gone between the two reads.
        if (!envelope) return []
        const { type, tenant, key = null } = readEnvelope(envelope).header
        return { id: `d${partition}-${number}`, due, type, tenant, key }
      })
    })
  }

  async cancel(id: string): Promise<boolean> {
    const [, partition, number] = /^d(\d{1,3})-(\d{1,16})$/.exec(String(id)) ?? []
    return this.#context.source.read(async (redis, { partitions }) => {
      const keys = partitions[Number(partition)]
      if (!keys || number === undefined) return false
      return (await runScript(redis, cancelScript, { keys, number })) === 'cancelled'
    })
  }

  #checkRoom({ bytes }: WrittenEvent): void {
    const { maxWaiting, maxWaitingBytes } = this.#context
    const [waiting, waitingBytes] = [this.#pending.size, this.#bytes]
    if (waiting >= maxWaiting || waitingBytes + bytes > maxWaitingBytes)
      throw BusbarError.of('BUSY', { waiting, waitingBytes, maxWaiting, maxWaitingBytes })
  }

  #keep(event: WrittenEvent, due: Due, idempotencyKey: string | undefined, timeoutMs: number): Promise<DelayReply> {
    const { source, clock } = this.#context
    const inputIn = this.#inputs(event, due, idempotencyKey)
    let sent = false
    let over = false
    const unanswered = () =>
      sent
        ? BusbarError.of('OUTCOME_UNKNOWN', { timeoutMs })
        : BusbarError.of('NOT_STORED', { timeoutMs, problem: 'Redis cannot be reached' })
    const asked = source.read((redis, namespace) => {
      // What was answered as not stored must not be sent any more.
      if (over) throw unanswered()
      sent = true
      return runScript(redis, delayScript, inputIn(namespace))
    }, timeoutMs)
    return new Promise((resolve, reject) => {
      const timer = clock.after(timeoutMs, () => {
        over = true
        reject(unanswered())
      })
      asked
        .then(resolve, (error) => reject(mayPass(error) ? unanswered() : refusalOf(error)))
        .finally(() => timer.cancel())
    })
  }

  /** The same call each time it is asked for: only then is a repeat harmless. */
  #inputs(event: WrittenEvent, due: Due, idempotencyKey: string | undefined): (namespace: Namespace) => DelayInput {
    const { clock, randomness } = this.#context
    const call = randomness.id()
    const once = idempotencyKey ?? call
    const scope = idempotencyKey === undefined ? '' : scopeOf(event)
    const hash = event.hash ?? objectHash(scope + once)
    const digest = createHash('sha1')
      .update(`${Buffer.byteLength(scope)}:${scope}${once}`)
      .digest('hex')
    return ({ name, partitions }) => {
      const partition = partitionOfHash(hash, partitions.length)
      const keys = partitions[partition]!
      return {
        keys,
        nowUs: clock.serverUs?.(),
        partition,
        due,
        furthestMs,
        most: mostPerPartition,
        once: { key: keys.oncePrefix + digest, forMs: idempotencyKey === undefined ? tokenMs : onceMs },
        call,
        body: fingerprint([event], {}),
        channel: workersKeys(name).due,
        envelope: envelopeOf(event),
      }
    }
  }
}

type Due = { delayMs: number } | { atMs: number }

function checkDue({ delay, at, expectPrev }: DelayWish): Due {
  if (delay !== undefined && at !== undefined) throw invalid('at', at, 'cannot stand beside a delay')
  if (expectPrev !== undefined)
    throw invalid('expectPrev', expectPrev, 'cannot stand beside a delay: the head may change until it is over')
  if (delay === undefined) {
    const atMs = at instanceof Date ? at.getTime() : at
    if (typeof atMs !== 'number' || !Number.isSafeInteger(atMs) || atMs < 0)
      throw invalid('at', at, 'must be a Date, or an integer, ms since the epoch')
    return { atMs }
  }
  const parsed = parseDuration(delay)
  if (!parsed.ok) throw invalid('delay', delay, parsed.problem)
  if (parsed.value > furthestMs) throw invalid('delay', delay, 'must be at most 366 days')
  return { delayMs: parsed.value }
}

function answerOf(reply: DelayReply, idempotencyKey: string | undefined): Delayed {
  switch (reply.kind) {
    case 'reused':
      throw BusbarError.of('IDEMPOTENCY_KEY_REUSED', { idempotencyKey: shown(idempotencyKey) })
    case 'full':
      throw BusbarError.of('DELAYED_FULL', { waiting: reply.waiting, maxWaiting: mostPerPartition })
    case 'far':
      throw invalid('at', reply.furthestMs, 'must be at most 366 days from now')
    default:
      return { id: reply.id, due: reply.dueMs, duplicate: reply.kind === 'duplicate' }
  }
}

const invalid = (field: string, value: unknown, problem: string): BusbarError =>
  BusbarError.of('EVENT_INVALID', { field, value: shown(value), problem })

const pairs = (flat: readonly string[]): [string, string][] =>
  Array.from({ length: flat.length / 2 }, (_, i) => [flat[2 * i]!, flat[2 * i + 1]!])
