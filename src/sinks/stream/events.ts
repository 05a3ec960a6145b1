/**
 * The events of one partition as a handler sees them: one by one, or in batches.
 *
 * Asking for the next one says that the one before is done. Who leaves the loop decides by how its handler ends: what was
 * in hand is done if it ends well, and has failed if it throws. So leaving the loop alone tells the middleware nothing;
 * it hears of it when the handler has ended.
 */
import { asked, type Duration, parseDuration } from '../../duration.ts'
import { BusbarError, shown } from '../../errors.ts'
import type { Event } from '../../event.ts'
import type { Clock } from '../../runtime/clock.ts'
import type { HeldPartition, Item } from './held-partition.ts'
import { Chain, ended, type Given, type Pull, type Step } from './middleware.ts'
import type { Middleware, ProcessorContext } from './options.ts'

export interface TakeOptions {
  /** How long a batch that is not full waits for more, from its first event on. Default: not at all. */
  within?: Duration
}

export interface PartitionEvents<E extends Event = Event> extends AsyncIterable<E> {
  /** Batches of at most n events, each done as a whole. */
  take(n: number, options?: TakeOptions): AsyncIterable<readonly E[]>
}

export interface TurnOptions {
  held: HeldPartition
  clock: Clock
  use: readonly Middleware[]
  context: ProcessorContext
  /** What the handler was given and has not done yet. */
  hand: Item[]
  /** Up to this seq events are tried alone. */
  aloneUpTo: number
}

const maxBatch = 10_000

/** One call of a handler. */
export class Turn implements PartitionEvents {
  readonly #options: TurnOptions
  readonly #chains: Chain[] = []

  constructor(options: TurnOptions) {
    this.#options = options
  }

  [Symbol.asyncIterator](): AsyncIterator<Event, undefined> {
    return this.#iterator(() => this.#one()) as AsyncIterator<Event, undefined>
  }

  take(n: number, { within = 0 }: TakeOptions = {}): AsyncIterable<readonly Event[]> {
    const parsed = asked(parseDuration(within), within)
    if (!parsed.ok) throw BusbarError.of('SETTING_INVALID', { problems: [`within ${parsed.problem}`] })
    if (!Number.isInteger(n) || n < 1 || n > maxBatch)
      throw BusbarError.of('SETTING_INVALID', {
        problems: [`take must be of 1 to ${maxBatch} events; got ${shown(n)}`],
      })
    const batches = () => this.#iterator(() => this.#batch(n, parsed.value)) as AsyncIterator<readonly Event[]>
    return { [Symbol.asyncIterator]: batches }
  }

  /** The handler has ended. */
  async end(failure?: { error: unknown }): Promise<void> {
    for (const chain of this.#chains) await chain.end(failure)
  }

  #iterator(pull: Pull): AsyncIterator<Given, undefined> {
    const { use, context } = this.#options
    let next = pull
    if (use.length > 0) {
      const chain = new Chain(use, context, pull)
      this.#chains.push(chain)
      next = () => chain.next()
    }
    return {
      next: () => {
        this.done()
        return next()
      },
      return: () => Promise.resolve(ended),
    }
  }

  /** Everything in hand is done. */
  done(): void {
    const { held, hand } = this.#options
    if (hand.length === 0) return
    held.done(hand)
    // Mostly it was one; emptying a list by its length costs as much as handing out an event.
    if (hand.length === 1) hand.pop()
    else hand.length = 0
  }

  #one(): Promise<Step> {
    const item = this.#options.held.tryPull()
    return item ? Promise.resolve(this.#give(item)) : this.#oneLater()
  }

  async #oneLater(): Promise<Step> {
    const item = await this.#options.held.pull()
    return item ? this.#give(item) : ended
  }

  #give(item: Item): Step {
    this.#options.hand.push(item)
    return { done: false, value: item.event }
  }

  async #batch(n: number, withinMs: number): Promise<Step> {
    const { held, hand, aloneUpTo, clock } = this.#options
    const first = await held.pull()
    if (!first) return ended
    const batch = [first]
    hand.push(first)
    const until = clock.monotonicMs() + withinMs
    while (batch.length < n && first.event.seq > aloneUpTo) {
      const item = held.tryPull()
      if (item) {
        batch.push(item)
        hand.push(item)
      } else if (held.isOpen && clock.monotonicMs() < until) await held.more(until - clock.monotonicMs())
      else break
    }
    return { done: false, value: batch.map(({ event }) => event) }
  }
}
