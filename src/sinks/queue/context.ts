/** What a handler is told besides the event, and what it may answer: values, not exceptions. */
import type { Duration } from '../../duration.ts'
import type { Event } from '../../event.ts'
import type { Outcome } from '../../lanes/acts.ts'
import { saidReason } from '../../lanes/item.ts'
import { operationName } from '../../lanes/operation.ts'
import { checkTime } from './checks.ts'
import type { Held } from './held.ts'
import type { Source } from './source.ts'

/** What a handler returns when the item is not done. Made by its context only. */
export class Decision {
  readonly outcome: Outcome

  constructor(outcome: Outcome) {
    this.outcome = outcome
  }
}

/** Tries the item again after this time; after its last attempt it is a dead letter. */
export const retryDecision = (after: Duration, reason = 'the handler asked for a retry'): Decision =>
  new Decision({ kind: 'retry', afterMs: checkTime('retry', after), reason: saidReason(reason) })

/** Gives the item up: a dead letter. */
export const deadDecision = (reason = 'the handler gave it up'): Decision =>
  new Decision({ kind: 'dead', reason: saidReason(reason) })

/** Nothing of this tenant is given for so long; the item is not counted as tried. */
export const throttleDecision = (time: Duration): Decision =>
  new Decision({ kind: 'throttle', forMs: checkTime('throttle', time) })

export class WorkContext {
  readonly queue: string
  readonly worker: string
  readonly #held: Held
  readonly #source: Pick<Source, 'queue' | 'note'>

  constructor(source: Pick<Source, 'queue' | 'note'>, worker: string, held: Held) {
    this.queue = source.queue
    this.worker = worker
    this.#source = source
    this.#held = held
  }

  /** What `bus.operations` knows it by, if its queue is tracked. */
  get operationId(): string {
    return `${this.queue}.${operationName(this.#held.item.id)}`
  }

  /** Whether a person asked for it, and by which request, as `send` was told. */
  get kind(): 'manual' | 'automatic' {
    return this.#held.origin.kind
  }

  get requestId(): string | null {
    return this.#held.origin.requestId
  }

  /** How far it is, any JSON value: whoever looks at the operation sees the last one while it runs. */
  progress(value: unknown): void {
    this.#source.note(this.#held, { progress: value })
  }

  /** A line for whoever looks at the operation, also while it runs. The last 100 lines are kept, at most 16 KiB. */
  log(line: string): void {
    this.#source.note(this.#held, { line: String(line) })
  }

  /** 1 for the first try. */
  get attempt(): number {
    return this.#held.attempt
  }

  /** When it entered the queue, and when it was first claimed: ms, by the server's clock. */
  get enqueuedAt(): number {
    return this.#held.item.enqueuedMs
  }

  get firstClaimedAt(): number {
    return this.#held.firstClaimedMs
  }

  /** Fires when the handler took longer than it may, when the lease was lost, when its operation is cancelled, or when the worker ends. */
  get signal(): AbortSignal {
    return this.#held.signal
  }

  retry(after: Duration, reason?: string): Decision {
    return retryDecision(after, reason)
  }

  dead(reason?: string): Decision {
    return deadDecision(reason)
  }

  throttle(time: Duration): Decision {
    return throttleDecision(time)
  }
}

/** One item of a batch: its event, and what the handler says of it. Unsaid means done; thrown means tried again. */
export class BatchItem {
  readonly event: Event
  readonly attempt: number
  readonly enqueuedAt: number
  readonly firstClaimedAt: number
  #said: Decision | undefined
  readonly #decide: (decision: Decision | undefined, output: unknown) => void

  constructor(held: Held, decide: (decision: Decision | undefined, output: unknown) => void) {
    this.event = held.event
    this.attempt = held.attempt
    this.enqueuedAt = held.item.enqueuedMs
    this.firstClaimedAt = held.firstClaimedMs
    this.#decide = decide
  }

  /** Said once: what comes after it is without effect. */
  #say(decision: Decision | undefined, output?: unknown): void {
    if (this.#said) return
    this.#said = decision ?? new Decision({ kind: 'ack' })
    this.#decide(decision, output)
  }

  /** `output`: what the operation of a tracked queue shows. */
  ack(output?: unknown): void {
    this.#say(undefined, output)
  }

  retry(after: Duration, reason?: string): void {
    this.#say(retryDecision(after, reason))
  }

  dead(reason?: string): void {
    this.#say(deadDecision(reason))
  }
}

export interface BatchContext {
  queue: string
  worker: string
  signal: AbortSignal
}
