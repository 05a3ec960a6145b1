/**
 * Whether every event was handled exactly once, in whatever order, or each key in order. The same for every contender, and
 * cheap: one byte is looked up per event, and of keys one number.
 */
import { keyNumberOf, numberOf, placeOf } from './events.mjs'
import { unlessStalled } from './tally.mjs'

// More than anybody gets through in one measurement; untouched pages of it cost nothing.
const maxEvents = 4_000_000

export class Once {
  seen = 0
  #handled = new Uint8Array(maxEvents)
  #again = 0
  #swapped = 0
  #keys
  #next
  #awaited = -1
  #reached

  /** @param {{ inOrder?: boolean, keys?: number }} [options]  inOrder: of each of the keys, too */
  constructor({ inOrder = false, keys } = {}) {
    this.#keys = keys
    if (inOrder) this.#next = new Uint32Array(keys)
  }

  /** To be called with the parsed data of each event. */
  saw(data) {
    const i = numberOf(data)
    if (this.#handled[i] === 1) this.#again += 1
    this.#handled[i] = 1
    if (this.#next !== undefined) this.#isNext(keyNumberOf(i, this.#keys), placeOf(data))
    this.seen += 1
    if (this.seen === this.#awaited) this.#reached()
  }

  #isNext(key, place) {
    if (place !== this.#next[key]) this.#swapped += 1
    this.#next[key] = place + 1
  }

  /** Waits until so many have been handled; not for one that never comes. */
  async until(count) {
    if (this.seen >= count) return
    const reached = new Promise((resolve) => {
      this.#awaited = count
      this.#reached = resolve
    })
    await unlessStalled(this, reached)
  }

  /** What is wrong when the events 0 … count - 1 are all there were. */
  problems(count) {
    const lost = count - this.#handled.subarray(0, count).reduce((sum, handled) => sum + handled, 0)
    const foreign = this.#handled.subarray(count).indexOf(1)
    return [
      ...(lost > 0 ? [`${lost} of ${count} events were never handled`] : []),
      ...(this.#again > 0 ? [`events were handled again ${this.#again} times`] : []),
      ...(this.#swapped > 0 ? [`${this.#swapped} events were not the next of their key`] : []),
      ...(foreign !== -1 ? [`event ${count + foreign} was handled but never published`] : []),
    ]
  }
}
