/**
 * Posts the batches of all webhooks, as many at a time as this process has slots.
 *
 *   made       nothing is connected
 *   running    it follows the shards that have webhooks
 *   closing    nothing is claimed any more; what is being posted ends, or is handed back
 *   closed
 *
 * The shards that have something to give share the slots evenly. Webhooks whose last attempt failed have a quarter of them, and one each:
 * however many hang, the others go on, and one that is down is probed, not flooded. One that finds no such slot is postponed, and that is
 * counted.
 */
import type { Connection } from '../../redis/connection.ts'
import type { Hints } from '../../redis/hints.ts'
import type { Clock, Randomness } from '../../runtime/clock.ts'
import type { AnnounceContext } from './announcements.ts'
import type { Poster } from './post.ts'
import { type Shards, shardOf } from './shard.ts'
import { ShardDispatch } from './shard-dispatch.ts'

export interface DispatchContext extends AnnounceContext {
  clock: Clock
  /** For what waits for an answer. */
  network: Clock
  randomness: Randomness
  connection: Connection
  hints: Hints
  shards: Shards
  poster: Poster
  worker: string
  start: string
  leaseMs: number
}

export class Dispatcher {
  readonly #context: DispatchContext
  readonly #slots: Slots
  readonly #shards = new Map<number, ShardDispatch>()
  readonly #unlisten: () => void
  #ended = false

  constructor(context: DispatchContext, concurrency: number) {
    this.#context = context
    this.#slots = new Slots(concurrency, this.#shards)
    this.#unlisten = context.connection.onReady(() => {
      for (const dispatch of this.#shards.values()) dispatch.wake()
    })
  }

  /** Nothing is being posted, and all shards had nothing to give when last asked. */
  get isDry(): boolean {
    return this.#slots.taken === 0 && [...this.#shards.values()].every(({ isDry }) => isDry)
  }

  /** These webhooks there are now. */
  follow(names: Iterable<string>): void {
    if (this.#ended) return
    const wanted = new Set<number>()
    for (const name of names) wanted.add(shardOf(name))
    for (const [index, dispatch] of this.#shards) {
      if (wanted.has(index) || dispatch.isBusy) continue
      this.#shards.delete(index)
      void dispatch.close(0)
    }
    for (const index of wanted) {
      if (this.#shards.has(index)) continue
      const dispatch = new ShardDispatch(this.#context, this.#context.shards.at(index), this.#slots)
      this.#shards.set(index, dispatch)
      dispatch.start()
    }
  }

  async close(deadlineMs: number): Promise<void> {
    this.#ended = true
    this.#unlisten()
    await Promise.all([...this.#shards.values()].map((dispatch) => dispatch.close(deadlineMs)))
  }
}

/** Who takes slots. */
interface Taker {
  /** It had nothing to give when last asked. */
  readonly isSpent: boolean
  /** Asks for as many as it may have. Answers whether it does. */
  fill(): boolean
}

/** How many requests may be under way, and how many of them to webhooks that fail. */
export class Slots {
  readonly total: number
  readonly #takers: ReadonlyMap<number, Taker>
  /** They found none free, in this order. */
  readonly #waiting = new Set<Taker>()
  #taken = 0
  readonly #failing = new Set<string>()
  #isOffering = false

  constructor(total: number, takers: ReadonlyMap<number, Taker>) {
    this.total = total
    this.#takers = takers
  }

  get free(): number {
    return this.total - this.#taken
  }

  get taken(): number {
    return this.#taken
  }

  /**
   * For a claim, as long as nobody knows what it brings: up to its share, of which it has `held`. As long as others wait, one that was not
   * asked waits behind them.
   */
  take(taker: Taker, held: number, most: number): number {
    const wanted = Math.min(most, this.#share() - held)
    if (wanted <= 0) return 0
    const isPassed = !this.#waiting.delete(taker) && this.#waiting.size > 0
    const n = isPassed ? 0 : Math.min(wanted, this.free)
    if (n === 0) this.#waiting.add(taker)
    this.#taken += n
    // Who was passed because of one that then took less than there is.
    if (n > 0 && this.free > 0 && this.#waiting.size > 0) this.#offerSoon()
    return n
  }

  #share(): number {
    const flowing = [...this.#takers.values()].filter(({ isSpent }) => !isSpent).length
    return Math.max(1, Math.floor(this.total / Math.max(1, flowing)))
  }

  /** Answers whether a webhook that fails may be tried now: only one of its batches at a time, until one is good. */
  takeForFailing(webhook: string): boolean {
    if (this.#failing.has(webhook) || this.#failing.size >= Math.max(1, Math.floor(this.total / 4))) return false
    this.#failing.add(webhook)
    return true
  }

  /** `failing`: the webhook that had one of the slots for those. */
  release(n: number, failing?: string): void {
    this.#taken -= n
    if (failing !== undefined) this.#failing.delete(failing)
    if (n > 0) this.#offerSoon()
  }

  #offerSoon(): void {
    if (this.#isOffering) return
    this.#isOffering = true
    // What else ends in this turn of the event loop goes along.
    setImmediate(() => {
      this.#isOffering = false
      this.#offer()
    })
  }

  #offer(): void {
    if (this.free === 0) return
    // One that cannot ask now gets in line again when it can.
    for (const taker of [...this.#waiting, ...this.#takers.values()]) if (!taker.fill()) this.#waiting.delete(taker)
  }
}
