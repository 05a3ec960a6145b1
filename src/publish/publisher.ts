/**
 * Publishes calls: gathers them per partition, sends one flush per partition at a time and a few in all, repeats what had
 * no answer.
 *
 * What waits is bounded in calls and bytes (BUSY); every call ends by its deadline. A call that was never sent is
 * NOT_STORED, one that was sent and not answered is OUTCOME_UNKNOWN.
 */
import { BusbarError } from '../errors.ts'
import type { FlushInput, FlushReply, StoredReply } from '../log/flush.ts'
import type { LogHint } from '../log/hint.ts'
import type { Namespace } from '../log/namespace.ts'
import { partitionOfHash } from '../log/partition.ts'
import { type Connection, mayPass } from '../redis/connection.ts'
import { inTheSameWrite } from '../redis/script.ts'
import type { Clock, Timer } from '../runtime/clock.ts'
import type { Telemetry } from '../runtime/telemetry.ts'
import { failCall, refusalOf, settleCalls } from './answer.ts'
import type { Call } from './call.ts'
import { addCall, createLane, type Flush, forgetSettled, type Lane, nextFlush } from './lane.ts'
import { isLone, storeFlush } from './scripts.ts'

export interface PublisherOptions {
  process: string
  maxWaiting: number
  maxWaitingBytes: number
  /** '' or the prefix of the live channel. */
  liveChannelPrefix: string
}

export interface PublisherContext {
  /** Real time: deadlines are about answers. */
  clock: Clock
  /** Instead of the server's clock, in tests. */
  serverUs: Clock['serverUs']
  telemetry: Telemetry
  /** Called every few thousand events of a partition: time to look at retention. */
  grown(partition: number): void
  /** A lone event is about to be stored: answers another way to do it, if someone takes it along. */
  takeNext(
    partition: number,
    records: string,
  ): { store(flush: FlushInput): Promise<FlushReply | undefined> } | undefined
  /** A lone event was stored: whoever waits for it in this process need not wait for a hint, which may not come. */
  stored(partition: number, hint: LogHint): void
}

const eventsPerGrowth = 4_096

// Redis takes one after the other anyway. With few in flight the rest of the partitions gather more calls for theirs, and a
// flush costs Redis and every reader that it wakes a fixed amount.
const maxFlying = 6

const sweepMs = 50
const repeatMs = 50

export class Publisher {
  readonly #context: PublisherContext
  readonly #options: PublisherOptions
  #connection: Connection | undefined
  #unsubscribe: (() => void) | undefined
  #lanes: Lane[] | undefined
  #refusal: unknown
  /** Calls that came before the namespace was opened, in order. */
  #early: Call[] = []
  /** Lanes whose calls wait to be sent, in turn. */
  #scheduled: Lane[] = []
  #sending = false
  /** Flushes that were sent and not answered. */
  #flying = 0
  #keylessPartition = 0
  #waitingCalls = 0
  #waitingBytes = 0
  #sweeper: Timer | undefined
  #closed = false
  #drained: (() => void) | undefined

  constructor(context: PublisherContext, options: PublisherOptions) {
    this.#context = context
    this.#options = options
  }

  /** Partition count and keys are known: calls that came early take their lanes. */
  open(namespace: Namespace, connection: Connection): void {
    this.#connection = connection
    this.#unsubscribe = connection.onReady(() => this.#sendAgain())
    this.#lanes = namespace.partitions.map((keys, partition) => createLane(partition, keys))
    const early = this.#early
    this.#early = []
    for (const call of early) if (!call.settled) this.#place(call)
  }

  /** The namespace cannot be opened: nothing will ever be published. */
  refuse(error: unknown): void {
    this.#refusal = error
    for (const call of this.#early) this.#fail(call, error)
    this.#early = []
  }

  /** The log was seen to reach this seq: no later event may get a smaller one. */
  saw(partition: number, seq: number): void {
    const lane = this.#lanes?.[partition]
    if (lane && seq > lane.floor) lane.floor = seq
  }

  /** The highest seq of the partition that was seen. */
  floorOf(partition: number): number {
    return this.#lanes?.[partition]?.floor ?? 0
  }

  submit(call: Call): void {
    if (this.#closed) return failCall(call, BusbarError.of('BUS_CLOSED'))
    if (this.#refusal) return failCall(call, this.#refusal)
    const { maxWaiting, maxWaitingBytes } = this.#options
    if (this.#waitingCalls >= maxWaiting || this.#waitingBytes + call.size > maxWaitingBytes)
      return failCall(call, this.#busy())
    this.#count(call, 1)
    if (this.#lanes) this.#place(call)
    else this.#early.push(call)
    // After what is sent in this tick: a timer takes as long to make as a call.
    if (!this.#sweeper) process.nextTick(() => this.#sweepSoon())
  }

  #sweepSoon(): void {
    if (this.#waitingCalls > 0) this.#sweeper ??= this.#context.clock.after(sweepMs, () => this.#sweep())
  }

  get waiting(): { calls: number; bytes: number } {
    return { calls: this.#waitingCalls, bytes: this.#waitingBytes }
  }

  /** Takes no more calls and waits for the answers of those it has, at most until the deadline. */
  async close(timeoutMs: number): Promise<void> {
    this.#closed = true
    if (this.#waitingCalls > 0) {
      await new Promise<void>((resolve) => {
        this.#drained = resolve
        this.#context.clock.after(timeoutMs, resolve)
      })
    }
    this.#unsubscribe?.()
    this.#sweeper?.cancel()
    this.#expireUntil(Number.POSITIVE_INFINITY)
  }

  #busy(): BusbarError {
    const { maxWaiting, maxWaitingBytes } = this.#options
    return BusbarError.of('BUSY', {
      waiting: this.#waitingCalls,
      waitingBytes: this.#waitingBytes,
      maxWaiting,
      maxWaitingBytes,
    })
  }

  #count(call: Call, by: 1 | -1): void {
    this.#waitingCalls += by
    this.#waitingBytes += by * call.size
    if (this.#waitingCalls === 0) this.#drained?.()
  }

  #place(call: Call): void {
    const lane = this.#laneOf(call)
    addCall(lane, call)
    if (!lane.flush) this.#schedule(lane)
  }

  #laneOf(call: Call): Lane {
    const lanes = this.#lanes!
    return lanes[call.hash === undefined ? this.#keylessPartition : partitionOfHash(call.hash, lanes.length)]!
  }

  #schedule(lane: Lane): void {
    if (!lane.scheduled) this.#scheduled.push(lane)
    lane.scheduled = true
    this.#sendSoon()
  }

  /** Calls of one tick go together: flushes leave once all that this tick wakes has had its say. */
  #sendSoon(): void {
    if (this.#sending || this.#scheduled.length === 0) return
    this.#sending = true
    process.nextTick(() => {
      this.#sending = false
      this.#sendScheduled()
    })
  }

  #sendScheduled(): void {
    if (this.#scheduled.length === 1) return this.#sendWhileFew()
    inTheSameWrite(this.#connection!.redis, () => this.#sendWhileFew())
  }

  /** A lane whose calls have all expired sends nothing and takes no place. */
  #sendWhileFew(): void {
    while (this.#flying < maxFlying && this.#scheduled.length > 0) {
      const lane = this.#scheduled.shift()!
      lane.scheduled = false
      this.#sendNext(lane)
    }
  }

  /** A flush is made only when it can be sent: what was never sent can still be refused as not stored. */
  #sendNext(lane: Lane): void {
    if (lane.flush || !this.#connection!.isReady) return
    lane.flush = nextFlush(lane, this.#options.process, this.#live(lane), this.#context.serverUs?.())
    if (!lane.flush) return
    // Events without key share a partition for one flush, then move on.
    if (lane.partition === this.#keylessPartition)
      this.#keylessPartition = (this.#keylessPartition + 1) % this.#lanes!.length
    void this.#send(lane, lane.flush)
  }

  #live(lane: Lane): string {
    const prefix = this.#options.liveChannelPrefix
    return prefix === '' ? '' : `${lane.partition} ${prefix}`
  }

  async #send(lane: Lane, flush: Flush): Promise<void> {
    flush.tries += 1
    if (flush.tries > 1)
      this.#context.telemetry.emit('publish.repeated', { partition: lane.partition, n: flush.input.n })
    let reply: FlushReply
    let isTaken = false
    this.#flying += 1
    try {
      const { redis } = this.#connection!
      const isLoneOne = flush.tries === 1 && isLone(flush.input)
      const along = isLoneOne ? this.#context.takeNext(lane.partition, flush.records) : undefined
      isTaken = along !== undefined
      reply = (along && (await along.store(flush.input))) ?? (await storeFlush(redis, flush.input))
    } catch (error) {
      return this.#unanswered(lane, flush, error as Error)
    } finally {
      this.#flying -= 1
      this.#sendSoon()
    }
    // Whoever takes it waits for this.
    if (isTaken) process.nextTick(() => this.#answered(lane, flush, reply))
    else this.#answered(lane, flush, reply)
  }

  #answered(lane: Lane, flush: Flush, reply: FlushReply): void {
    // Sent twice, answered twice: the second answer finds the lane with another flush, or none.
    if (lane.flush !== flush) return
    for (const call of flush.calls) if (!call.settled) this.#count(call, -1)
    if (reply.kind === 'stored') {
      if (reply.last > lane.floor) lane.floor = reply.last
      lane.sinceGrowth += flush.events
      if (lane.sinceGrowth >= eventsPerGrowth) {
        lane.sinceGrowth = 0
        this.#context.grown(lane.partition)
      }
      this.#tell(lane.partition, flush, reply)
      settleCalls(flush.calls, flush.events, lane.partition, reply)
    } else {
      const error =
        reply.kind === 'closed'
          ? BusbarError.of('PUBLISHING_CLOSED')
          : BusbarError.of('WRITE_REFUSED', { problem: `flush ${flush.input.n} was ${reply.kind}` })
      for (const call of flush.calls) failCall(call, error)
    }
    this.#finish(lane)
  }

  /** The stored answer of a repeated flush does not say what was before; the one that got lost may have been all there was to hear. */
  #tell(partition: number, { tries, events, records, input }: Flush, reply: StoredReply): void {
    const { before, last, prevs, exceptions } = reply
    const { kinds } = input
    if (before !== undefined)
      this.#context.stored(partition, { before, last, kinds, entry: [`${last}-0`, [prevs, records]] })
    else if (tries > 1 && events === 1 && exceptions.length === 0)
      this.#context.stored(partition, { before: Number.POSITIVE_INFINITY, last, kinds, entry: undefined })
  }

  #unanswered(lane: Lane, flush: Flush, error: Error): void {
    if (lane.flush !== flush) return
    if (flush.calls.every((call) => call.settled)) return this.#finish(lane)
    if (mayPass(error)) return this.#repeatSoon(lane, flush)
    const refusal = refusalOf(error)
    for (const call of flush.calls) this.#fail(call, refusal)
    this.#finish(lane)
  }

  /** A lost connection sends again when it is ready; this covers answers that say "not now" on a live one. */
  #repeatSoon(lane: Lane, flush: Flush): void {
    if (!this.#connection!.isReady) return
    this.#context.clock.after(repeatMs, () => {
      if (lane.flush === flush) this.#sendOrDrop(lane, flush)
    })
  }

  #sendAgain(): void {
    for (const lane of this.#lanes ?? []) {
      if (lane.flush) this.#sendOrDrop(lane, lane.flush)
      else if (lane.waiting.length > 0) this.#schedule(lane)
    }
  }

  #sendOrDrop(lane: Lane, flush: Flush): void {
    if (flush.calls.every((call) => call.settled)) this.#finish(lane)
    else void this.#send(lane, flush)
  }

  #finish(lane: Lane): void {
    lane.flush = undefined
    if (lane.waiting.length > 0) this.#schedule(lane)
  }

  #fail(call: Call, error: unknown): void {
    if (call.settled) return
    this.#count(call, -1)
    failCall(call, error)
  }

  /** Looks for passed deadlines after I/O had its turn: a process that was paused takes answers that lie there first. */
  #sweep(): void {
    setImmediate(() => {
      const now = this.#context.clock.monotonicMs()
      this.#expireUntil(now)
      this.#sweeper = undefined
      this.#sweepSoon()
    })
  }

  #expireUntil(now: number): void {
    const expired = (call: Call) => !call.settled && call.deadlineAt <= now
    for (const call of this.#early.filter(expired)) this.#notStored(call)
    this.#early = this.#early.filter((call) => !call.settled)
    for (const lane of this.#lanes ?? []) {
      for (const call of lane.flush?.calls ?? []) if (expired(call)) this.#unknown(call)
      const unsent = lane.waiting.flatMap((draft) => draft.calls.filter(expired))
      for (const call of unsent) this.#notStored(call)
      if (unsent.length > 0) forgetSettled(lane)
    }
  }

  #unknown(call: Call): void {
    const { timeoutMs } = call
    this.#context.telemetry.emit('publish.unknown', { timeoutMs })
    this.#fail(call, BusbarError.of('OUTCOME_UNKNOWN', { timeoutMs }))
  }

  #notStored(call: Call): void {
    const problem = this.#connection?.isReady ? 'earlier calls have no answer yet' : 'Redis cannot be reached'
    this.#fail(call, BusbarError.of('NOT_STORED', { timeoutMs: call.timeoutMs, problem }))
  }
}
