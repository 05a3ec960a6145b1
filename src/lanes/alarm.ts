/**
 * When to ask a store again: when something is due there, and once a second anyway, because hints get lost.
 *
 *   waiting   the earliest of the times that were said rings, and the slow look
 *   ended     nothing rings any more
 */
import type { Clock, Randomness, Timer } from '../runtime/clock.ts'

export interface AlarmContext {
  clock: Clock
  /** For what makes up for lost hints: it goes on where a test lets time stand still. */
  network: Clock
  randomness: Randomness
}

const lookMs = 1_000
// What is due later is asked for again then: a timer of Node that is told more than 25 days fires at once.
const longestMs = 86_400_000

export class Alarm {
  readonly #context: AlarmContext
  readonly #ring: () => void
  #due: Timer | undefined
  #dueAt = 0
  #look: Timer | undefined
  #ended = false

  constructor(context: AlarmContext, ring: () => void) {
    this.#context = context
    this.#ring = ring
  }

  start(): void {
    const { network, randomness } = this.#context
    this.#look = network.after(lookMs * (0.9 + 0.2 * randomness.float()), () => {
      this.start()
      this.#ring()
    })
  }

  /** Something is due then; something else may be due earlier. */
  in(ms: number): void {
    const { clock } = this.#context
    // The server rounds to whole ms; one whose time a test says does not.
    const waitMs = Math.min(longestMs, clock.serverUs ? ms : ms + 1)
    const at = clock.monotonicMs() + waitMs
    if (this.#ended || (this.#due && this.#dueAt <= at)) return
    this.#due?.cancel()
    this.#dueAt = at
    this.#due = clock.after(waitMs, () => {
      this.#due = undefined
      this.#ring()
    })
  }

  end(): void {
    this.#ended = true
    this.#due?.cancel()
    this.#look?.cancel()
  }
}
