/**
 * Sends items straight into one queue: what comes while one flush has no answer goes together in the next.
 *
 * A flush carries the sender's name and a number; one without an answer is sent again under its number, so a cut connection
 * neither doubles nor reorders. What waits is bounded (BUSY). A call whose deadline passes before it was sent is NOT_STORED,
 * after that OUTCOME_UNKNOWN.
 */
import { BusbarError } from '../../errors.ts'
import type { SendReply, SentItem, ShownInputs } from '../../lanes/scripts.ts'
import type { LaneStore } from '../../lanes/store.ts'
import { refusalOf } from '../../publish/answer.ts'
import { type Connection, mayPass } from '../../redis/connection.ts'
import type { Clock, Timer } from '../../runtime/clock.ts'

export interface Sent {
  id: string
  /** The idempotency key was used before, for the same item: this is what was sent then. */
  duplicate: boolean
  /** Of a delayed item: when it can be given, in ms. Not of one that was there already. */
  due?: number
}

export interface SendCall {
  item: SentItem
  /** Of a tracked queue: what its operation shows as input, by which definition. */
  shown?: { input: string; revision: number }
  idempotencyKey: string | undefined
  bytes: number
  timeoutMs: number
}

export interface SenderContext {
  connection: Connection
  network: Clock
}

export interface SenderOptions {
  /** Nobody else's: a process may have two senders for one queue. */
  name: string
  queue: string
  store: LaneStore
  maxWaiting: number
  maxWaitingBytes: number
}

interface Waiting extends SendCall {
  deadlineAt: number
  resolve(sent: Sent): void
  reject(error: unknown): void
  settled: boolean
}

const mostItems = 256
const mostBytes = 256 * 1024
const sweepMs = 50
const repeatMs = 50

export class Sender {
  readonly #context: SenderContext
  readonly #options: SenderOptions
  #waiting: Waiting[] = []
  #flight: Waiting[] = []
  #calls = 0
  #bytes = 0
  #n = 0
  #sending = false
  #sweeper: Timer | undefined
  #closed = false
  #drained: (() => void) | undefined

  constructor(context: SenderContext, options: SenderOptions) {
    this.#context = context
    this.#options = options
  }

  get isIdle(): boolean {
    return this.#calls === 0
  }

  send(call: SendCall): Promise<Sent> {
    const { maxWaiting, maxWaitingBytes } = this.#options
    if (this.#closed) return Promise.reject(BusbarError.of('BUS_CLOSED'))
    if (this.#calls >= maxWaiting || this.#bytes + call.bytes > maxWaitingBytes)
      return Promise.reject(
        BusbarError.of('BUSY', { waiting: this.#calls, waitingBytes: this.#bytes, maxWaiting, maxWaitingBytes }),
      )
    return new Promise((resolve, reject) => {
      const deadlineAt = this.#context.network.monotonicMs() + call.timeoutMs
      this.#waiting.push({ ...call, deadlineAt, resolve, reject, settled: false })
      this.#calls += 1
      this.#bytes += call.bytes
      this.#sweeper ??= this.#context.network.after(sweepMs, () => this.#sweep())
      if (!this.#sending) void this.#sendAll()
    })
  }

  /** Takes no more, and waits for the answers of what it has, at most until the deadline. */
  async close(deadlineMs: number): Promise<void> {
    this.#closed = true
    if (this.#calls > 0)
      await new Promise<void>((resolve) => {
        this.#drained = resolve
        this.#context.network.after(deadlineMs, resolve)
      })
    this.#expire(Number.POSITIVE_INFINITY)
    this.#sweeper?.cancel()
  }

  async #sendAll(): Promise<void> {
    this.#sending = true
    await new Promise<void>((resolve) => process.nextTick(resolve))
    while (this.#waiting.length > 0 && !(this.#closed && this.#calls === 0)) {
      if (!this.#context.connection.isReady) {
        await this.#pause()
        continue
      }
      this.#flight = this.#nextFlush()
      this.#n += 1
      await this.#untilAnswered(this.#n)
      this.#flight = []
    }
    this.#sending = false
  }

  #nextFlush(): Waiting[] {
    let bytes = 0
    const end = this.#waiting.findIndex((call, i) => {
      bytes += call.bytes
      return i > 0 && (i === mostItems || bytes > mostBytes)
    })
    return this.#waiting.splice(0, end === -1 ? this.#waiting.length : end)
  }

  async #untilAnswered(n: number): Promise<void> {
    const { store, name } = this.#options
    const flight = this.#flight
    const items = flight.map(({ item }) => item)
    const shown = shownOf(flight)
    while (flight.some(({ settled }) => !settled)) {
      try {
        return this.#answered(flight, await store.send({ process: name, n, items, shown }))
      } catch (error) {
        if (!mayPass(error)) return this.#failAll(flight, refusalOf(error))
        await this.#pause()
      }
    }
  }

  #answered(flight: readonly Waiting[], reply: SendReply): void {
    const { queue } = this.#options
    if (reply.kind === 'gone') return this.#failAll(flight, BusbarError.of('QUEUE_NOT_FOUND', { name: queue }))
    if (reply.kind === 'late')
      return this.#failAll(flight, BusbarError.of('WRITE_REFUSED', { problem: 'a later flush was stored' }))
    for (const [i, call] of flight.entries()) this.#answer(call, reply.words[i]!, reply.nowMs)
  }

  #answer(call: Waiting, word: string, nowMs: number): void {
    if (call.settled) return
    const { delayMs } = call.item
    this.#settled(call)
    if (word === 'reused')
      call.reject(BusbarError.of('IDEMPOTENCY_KEY_REUSED', { idempotencyKey: String(call.idempotencyKey) }))
    else if (word.startsWith('full ')) call.reject(this.#full(call, Number(word.slice('full '.length))))
    else if (word.startsWith('duplicate ')) call.resolve({ id: word.slice('duplicate '.length), duplicate: true })
    else call.resolve({ id: word, duplicate: false, ...(delayMs > 0 ? { due: nowMs + delayMs } : {}) })
  }

  #full({ item }: Waiting, most: number): BusbarError {
    return BusbarError.of('BACKLOG_FULL', { queue: this.#options.queue, tenant: item.lane, most })
  }

  #failAll(calls: readonly Waiting[], error: unknown): void {
    for (const call of calls) this.#fail(call, error)
  }

  #fail(call: Waiting, error: unknown): void {
    if (call.settled) return
    this.#settled(call)
    call.reject(error)
  }

  #settled(call: Waiting): void {
    call.settled = true
    this.#calls -= 1
    this.#bytes -= call.bytes
    if (this.#calls === 0) this.#drained?.()
  }

  #pause(): Promise<void> {
    return new Promise((resolve) => this.#context.network.after(repeatMs, resolve))
  }

  /** After I/O had its turn: a process that was paused takes answers that lie there first. */
  #sweep(): void {
    setImmediate(() => {
      this.#expire(this.#context.network.monotonicMs())
      this.#sweeper = this.#calls > 0 ? this.#context.network.after(sweepMs, () => this.#sweep()) : undefined
    })
  }

  #expire(now: number): void {
    for (const call of this.#flight)
      if (call.deadlineAt <= now) this.#fail(call, BusbarError.of('OUTCOME_UNKNOWN', { timeoutMs: call.timeoutMs }))
    const late = this.#waiting.filter(({ deadlineAt }) => deadlineAt <= now)
    if (late.length === 0) return
    this.#waiting = this.#waiting.filter(({ deadlineAt }) => deadlineAt > now)
    const problem = this.#context.connection.isReady ? 'earlier calls have no answer yet' : 'Redis cannot be reached'
    for (const call of late) this.#fail(call, BusbarError.of('NOT_STORED', { timeoutMs: call.timeoutMs, problem }))
  }
}

/** Only where it is another than the data; undefined when this process does not know of a tracked queue. */
function shownOf(flight: readonly SendCall[]): ShownInputs | undefined {
  const revisions = flight.flatMap(({ shown }) => shown?.revision ?? [])
  if (revisions.length === 0) return undefined
  const inputs = flight.flatMap(({ item: { id, envelope }, shown }) => {
    const input = shown?.input ?? ''
    return envelope.slice(envelope.indexOf('\n') + 1) === input ? [] : [{ id, shown: input }]
  })
  return { revision: Math.min(...revisions), inputs }
}
