/**
 * How far a partition is: events begin in order and end in any; the cursor is just before the lowest that has not ended.
 */
export class Progress {
  /** Begun, in order; those before `#first` are through. */
  #begun: number[] = []
  #first = 0
  readonly #ended = new Set<number>()
  #cursor: number

  constructor(cursor: number) {
    this.#cursor = cursor
  }

  /** Everything up to here is done. */
  get cursor(): number {
    return this.#cursor
  }

  /** Events that have begun and hold the cursor back, or will. */
  get open(): number {
    return this.#begun.length - this.#first
  }

  begin(seq: number): void {
    this.#begun.push(seq)
  }

  end(seq: number): void {
    if (this.#begun[this.#first] !== seq) {
      this.#ended.add(seq)
      return
    }
    this.#pass(seq)
    while (this.#ended.size > 0 && this.#ended.delete(this.#begun[this.#first]!)) this.#pass(this.#begun[this.#first]!)
  }

  /** Nothing up to here is wanted; while something is open that says nothing yet. */
  skipTo(seq: number): void {
    if (this.open === 0 && seq > this.#cursor) this.#cursor = seq
  }

  #pass(seq: number): void {
    this.#cursor = seq
    this.#first += 1
    // Now and then, not each time: an event alone would cost a new list.
    if (this.#first >= 1_024) {
      this.#begun = this.#begun.slice(this.#first)
      this.#first = 0
    }
  }
}
