/**
 * How many requests of a process may be under way, and who has them.
 *
 * The shards that have something to give share the slots evenly; where that would be a few for each, they take turns: what becomes free is
 * gathered for a moment and goes to the first in line. Webhooks whose last attempt failed have a quarter of the slots, and one each: however
 * many hang, the others go on, and one that is down is probed, not flooded. One that finds no such slot is postponed, and that is counted.
 */
import type { Clock, Timer } from '../../runtime/clock.ts'

/** Who takes slots. */
interface Taker {
  /** It had nothing to give when last asked. */
  readonly isSpent: boolean
  /** Asks for as many as it may have. Answers whether it does. */
  fill(): boolean
}

/** A call costs as much as three of its batches: so many go in one where they can. A claim's answer has the bodies, of a MiB at most each. */
export const mostPerClaim = 16
/** For free slots to become enough for a turn. */
const gatherMs = 5

export class Slots {
  readonly total: number
  readonly #perTurn: number
  readonly #takers: ReadonlyMap<number, Taker>
  readonly #clock: Clock
  /** They found none free, in this order. */
  readonly #waiting = new Set<Taker>()
  #taken = 0
  readonly #failing = new Set<string>()
  #isOffering = false
  #gathering: Timer | undefined
  /** By the monotonic clock: those that are free now have been since then, or longer. */
  #freeSince = 0

  constructor(total: number, takers: ReadonlyMap<number, Taker>, clock: Clock) {
    this.total = total
    this.#perTurn = Math.max(1, Math.min(mostPerClaim, Math.floor(total / 4)))
    this.#takers = takers
    this.#clock = clock
  }

  get free(): number {
    return this.total - this.#taken
  }

  get taken(): number {
    return this.#taken
  }

  /** It found none free, and will be asked to fill() when there are. */
  isInLine(taker: Taker): boolean {
    return this.#waiting.has(taker)
  }

  /**
   * For a claim, as long as nobody knows what it brings: up to its share or a turn, of which it has `held`, and when half of them are taken no more
   * than is likely. As long as others wait, one that was not asked waits behind them.
   */
  take(taker: Taker, held: number, likely: number): number {
    const most = this.free < this.total / 2 ? Math.min(mostPerClaim, likely) : mostPerClaim
    const wanted = Math.min(most, Math.max(this.#perTurn, this.#share()) - held)
    if (wanted <= 0) return 0
    const n = this.#mayTake(taker) ? Math.min(wanted, this.free) : 0
    if (n === 0) {
      this.#waiting.add(taker)
      return 0
    }
    this.#waiting.delete(taker)
    this.#taken += n
    this.#freeSince = this.#clock.monotonicMs()
    // Who was passed because of one that then took less than there is.
    if (this.free > 0 && this.#waiting.size > 0) this.#offerSoon()
    return n
  }

  #mayTake(taker: Taker): boolean {
    return this.#waiting.size === 0 || (this.#waiting.has(taker) && this.#isTurn())
  }

  #isTurn(): boolean {
    return this.free >= this.#perTurn || this.#clock.monotonicMs() - this.#freeSince >= gatherMs
  }

  #share(): number {
    let flowing = 0
    for (const { isSpent } of this.#takers.values()) if (!isSpent) flowing += 1
    return Math.floor(this.total / Math.max(1, flowing))
  }

  /** Answers whether a webhook that fails may be tried now: only one of its batches at a time, until one is good. */
  takeForFailing(webhook: string): boolean {
    if (this.#failing.has(webhook) || this.#failing.size >= Math.max(1, Math.floor(this.total / 4))) return false
    this.#failing.add(webhook)
    return true
  }

  /** `failing`: the webhook that had one of the slots for those. */
  release(n: number, failing?: string): void {
    if (failing !== undefined) this.#failing.delete(failing)
    if (n === 0) return
    if (this.free === 0) this.#freeSince = this.#clock.monotonicMs()
    this.#taken -= n
    this.#offerSoon()
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
    if (this.#waiting.size > 0 && !this.#isTurn()) return this.#offerLater()
    // One that cannot ask now gets in line again when it can.
    for (const taker of [...this.#waiting, ...this.#takers.values()]) if (!taker.fill()) this.#waiting.delete(taker)
  }

  #offerLater(): void {
    this.#gathering ??= this.#clock.after(gatherMs, () => {
      this.#gathering = undefined
      this.#offer()
    })
  }
}
