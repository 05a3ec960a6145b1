/** Items claimed by hand: each is acked, tried again, given up or extended by whoever claimed it, before the lease lapses. */
import type { Duration } from '../../duration.ts'
import type { Event } from '../../event.ts'
import type { Outcome } from '../../lanes/acts.ts'
import { type Item, saidReason } from '../../lanes/item.ts'
import type { LaneStore } from '../../lanes/store.ts'
import { checkTime } from './checks.ts'
import { eventOf } from './held.ts'

/** `stale`: not held under this lease any more. Nothing has changed, unless by this very call, sent again after a lost answer. */
export type SettleWord = 'settled' | 'stale'

export interface LeaseDoor {
  queue: string
  store: LaneStore
  /** For what may be asked twice: REDIS_UNAVAILABLE when there is no answer in time. */
  repeated<T>(ask: () => Promise<T>): Promise<T>
  /** How long to wait before this attempt's next, by the queue's policy. */
  backoffMs(attempt: number): number
  newToken(): string
  settle(token: string, id: string, outcome: Outcome): Promise<SettleWord>
  /** What an answer makes of an item. */
  doneWith(output: unknown): Outcome
}

export class ClaimedItem<Data = unknown> {
  readonly event: Event<Data>
  /** 1 for the first try. */
  readonly attempt: number
  /** When it entered the queue, and when it was first claimed: ms. */
  readonly enqueuedAt: number
  readonly firstClaimedAt: number
  #token: string
  readonly #door: LeaseDoor

  constructor(door: LeaseDoor, token: string, claimedMs: number, item: Item) {
    this.#door = door
    this.#token = token
    this.event = eventOf(item) as Event<Data>
    this.attempt = item.attempts + 1
    this.enqueuedAt = item.enqueuedMs
    this.firstClaimedAt = item.firstClaimedMs || claimedMs
  }

  get id(): string {
    return this.event.id
  }

  /** Of the lease that holds it; another one after extend(). */
  get token(): string {
    return this.#token
  }

  /** `output`: what the operation of a tracked queue shows. */
  ack(output?: unknown): Promise<SettleWord> {
    return this.#settle(this.#door.doneWith(output))
  }

  /** Without a time it follows the queue's retry policy. */
  retry(after?: Duration, reason = 'the holder asked for a retry'): Promise<SettleWord> {
    const afterMs = after === undefined ? Math.round(this.#door.backoffMs(this.attempt)) : checkTime('retry', after)
    return this.#settle({ kind: 'retry', afterMs, reason: saidReason(reason) })
  }

  dead(reason = 'the holder gave it up'): Promise<SettleWord> {
    return this.#settle({ kind: 'dead', reason: saidReason(reason) })
  }

  /** Back to the head of its lane, as if never claimed. */
  handBack(): Promise<SettleWord> {
    return this.#settle({ kind: 'back' })
  }

  /** Holds it for so long from now, in a lease of its own; 0 makes it available at once. */
  async extend(time: Duration): Promise<SettleWord> {
    const { store, newToken, repeated } = this.#door
    const input = { token: this.#token, id: this.id, forMs: checkTime('extend', time), ownToken: newToken() }
    const reply = await repeated(() => store.extend(input))
    if (reply.kind === 'extended') this.#token = reply.token
    return reply.kind === 'extended' || reply.kind === 'released' ? 'settled' : 'stale'
  }

  #settle(outcome: Outcome): Promise<SettleWord> {
    return this.#door.settle(this.#token, this.id, outcome)
  }
}

export interface ClaimedLease<Data = unknown> {
  token: string
  items: readonly ClaimedItem<Data>[]
  /** Until something is due, in ms, when there was less than asked for; undefined: nothing is. */
  dueInMs: number | undefined
  /** Acks what is left of it. */
  ack(): Promise<void>
}
