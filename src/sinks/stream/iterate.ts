/**
 * Hands a partition to a handler that iterates over its events.
 *
 * The handler is called when there is something, and iterates for as long as the partition is held; when it returns or
 * throws it is called again. What was in its hand when it threw is tried again after a while. A batch that failed its
 * last attempt is tried event by event: only those that fail alone are given up.
 */
import { BusbarError } from '../../errors.ts'
import { backoffMs } from '../../runtime/backoff.ts'
import { type PartitionEvents, Turn } from './events.ts'
import type { HandlingContext } from './handling.ts'
import type { HeldPartition, Item } from './held-partition.ts'
import type { ProcessorContext } from './options.ts'

export type IteratingHandler = (events: PartitionEvents, context: ProcessorContext) => Promise<void> | void

interface Failing {
  /** Of its event; for a handler that took none, how far the partition was. */
  seq: number
  attempts: number
}

export class Iteration {
  readonly #context: HandlingContext
  readonly #held: HeldPartition
  readonly #handler: IteratingHandler
  #failing: Failing | undefined
  /** The handler failed before it took anything: apart from the events, so that neither hides the other's attempts. */
  #failingAlone: Failing | undefined
  #aloneUpTo = 0

  constructor(context: HandlingContext, held: HeldPartition, handler: IteratingHandler) {
    this.#context = context
    this.#held = held
    this.#handler = handler
  }

  /** Ends when the partition gives nothing more. */
  async run(): Promise<void> {
    while (this.#held.isOpen) {
      if (this.#held.isBlocked) await this.#held.change()
      else if (await this.#hasSome()) await this.#turn()
    }
  }

  async #hasSome(): Promise<boolean> {
    const item = await this.#held.pull()
    if (item) this.#held.putBack([item])
    return item !== undefined
  }

  async #turn(): Promise<void> {
    const { settings, clock, name } = this.#context
    const hand: Item[] = []
    const context = this.#context.tell(this.#held, () => this.#attempt(hand[0]))
    const { use } = settings
    const turn = new Turn({ held: this.#held, clock, use, context, hand, aloneUpTo: this.#aloneUpTo })
    const given = this.#held.given
    try {
      await this.#handler(turn, context)
      const hadSome = this.#held.isOpen && !this.#held.isBlocked
      if (hadSome && this.#held.given === given) throw BusbarError.of('HANDLER_TOOK_NOTHING', { name })
      // Who returns because it was told to stop has not said that it is done.
      if (!this.#held.signal.aborted) turn.done()
      await turn.end()
    } catch (error) {
      await turn.end({ error })
      await this.#failed(hand, error)
    }
  }

  /** A failure before the first event was taken counts too; no event is given up for it. */
  #attempt(item: Item | undefined): number {
    const [failing, seq] = item ? [this.#failing, item.event.seq] : [this.#failingAlone, this.#held.cursor]
    return failing?.seq === seq ? failing.attempts + 1 : 1
  }

  async #failed(unit: readonly Item[], error: unknown): Promise<void> {
    const { settings, randomness } = this.#context
    // Whoever stops because it was told to has not failed.
    if (this.#held.signal.aborted) return
    const [first] = unit
    const attempts = this.#attempt(first)
    this.#context.report(this.#held, first?.event, attempts, error)
    const alone = first !== undefined && first.event.seq <= this.#aloneUpTo
    const again = attempts < settings.attempts && !alone
    if (first) this.#failing = again ? { seq: first.event.seq, attempts } : undefined
    // Once an event is through it begins anew: what failed now and then is not broken.
    else this.#failingAlone = again ? { seq: this.#held.cursor, attempts } : undefined
    if (again) {
      this.#held.putBack(unit)
      await this.#held.pause(backoffMs(settings.backoffMs, attempts, randomness))
    } else if (first === undefined) await this.#held.block(error, attempts)
    else if (unit.length > 1) {
      this.#aloneUpTo = unit.at(-1)!.event.seq
      this.#held.putBack(unit)
    } else await this.#held.giveUp(first, error, alone ? settings.attempts : attempts)
  }
}
