/** Calls that are about the same thing, one after the other; calls about other things go on meanwhile. */
export class Turns {
  /** What it is about → the end of the last call for it. */
  readonly #last = new Map<string, Promise<unknown>>()

  /** Runs `work` when everything that was asked for before it is over, however that ended. */
  async take<T>(about: string, work: () => Promise<T>): Promise<T> {
    const before = this.#last.get(about) ?? Promise.resolve()
    const mine = before.then(work, work)
    const turn = mine.catch(() => undefined)
    this.#last.set(about, turn)
    try {
      return await mine
    } finally {
      if (this.#last.get(about) === turn) this.#last.delete(about)
    }
  }
}
