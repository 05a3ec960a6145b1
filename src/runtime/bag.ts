/**
 * Things that come and go all the time, in no order. Each knows its place here, so that coming and going cost the same, however many there are.
 *
 * Not a Set: each time the engine makes a Set's table anew, the old one refers to the new one. Once such a table is old enough to be looked at by a
 * full collection only, everything that was ever in those that follow it outlives every quick one: of a busy worker that was a third of all
 * its garbage.
 */
export interface Placed {
  /** Where it is; below 0 when it is not there. The bag's own. */
  place: number
}

export class Bag<T extends Placed> implements Iterable<T> {
  readonly #all: T[] = []

  get size(): number {
    return this.#all.length
  }

  add(one: T): void {
    one.place = this.#all.length
    this.#all.push(one)
  }

  /** Answers whether it was there. */
  remove(one: T): boolean {
    const { place } = one
    if (place < 0) return false
    const last = this.#all.pop()!
    if (last !== one) {
      this.#all[place] = last
      last.place = place
    }
    one.place = -1
    return true
  }

  /** As they are now: whoever looks may add and remove. */
  [Symbol.iterator](): IterableIterator<T> {
    return this.#all.slice().values()
  }
}
