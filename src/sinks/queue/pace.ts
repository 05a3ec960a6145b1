/**
 * How fast handlers end: how many items a worker may claim before there is a free slot for them.
 *
 * A quarter of its slots, so that one is there when a handler ends. More when handlers are so quick that more would have ended by the
 * time a claim is answered: then what is claimed still begins within some ms. None when they are so slow that what waits here would
 * wait for longer than another worker might need to begin it. What was claimed at a quicker pace than there is now goes back.
 */

/** What begins within so long could as well begin now. */
const soonMs = 8
/** What waits for longer than so long is another worker's to begin; … */
const shortMs = 100
/** … a quarter of the slots for longer than so long. */
const longMs = 1_000

/** How many handlers end in so many ms, as the last whole window of that length has shown. */
class Window {
  readonly #lengthMs: number
  #since = 0
  #ended = 0
  #last = 0

  constructor(lengthMs: number) {
    this.#lengthMs = lengthMs
  }

  /** Nothing is known but this. */
  begin(nowMs: number, expected: number): void {
    this.#since = nowMs
    this.#ended = 0
    this.#last = expected
  }

  add(items: number): void {
    this.#ended += items
  }

  at(nowMs: number): number {
    const passedMs = nowMs - this.#since
    if (passedMs >= this.#lengthMs) {
      this.#last = (this.#ended * this.#lengthMs) / passedMs
      this.#since = nowMs
      this.#ended = 0
    }
    return this.#last
  }
}

export class Pace {
  readonly #quarter: number
  readonly #soon = new Window(soonMs)
  readonly #short = new Window(shortMs)
  readonly #long = new Window(longMs)

  constructor(capacity: number, nowMs: number) {
    this.#quarter = Math.floor(capacity / 4)
    this.#soon.begin(nowMs, 0)
    this.rested(nowMs)
  }

  ended(items: number): void {
    this.#soon.add(items)
    this.#short.add(items)
    this.#long.add(items)
  }

  /** No handler runs, so none is slow. */
  rested(nowMs: number): void {
    this.#short.begin(nowMs, Number.POSITIVE_INFINITY)
    this.#long.begin(nowMs, Number.POSITIVE_INFINITY)
  }

  ahead(nowMs: number): number {
    return Math.max(this.#few(nowMs), Math.floor(this.#soon.at(nowMs)))
  }

  /** How many that were claimed ahead may stay, now that all slots are taken. */
  keeps(nowMs: number): number {
    return Math.max(this.#few(nowMs), Math.ceil(this.#short.at(nowMs)))
  }

  #few(nowMs: number): number {
    return this.#long.at(nowMs) < this.#quarter ? 0 : this.#quarter
  }
}
