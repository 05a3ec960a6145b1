/** What the live readers of a process want: asked for each hint, and for each event that is read. */
import { createPatternTable, type Pattern } from '../../pattern.ts'

const maxAnswers = 1_000

export class Wishes<Reader> {
  readonly #table = createPatternTable<Reader>()
  readonly #readers = new Set<Reader>()
  /** Kinds of a hint → whether one of them is wanted. One flush after the other brings the same ones. */
  readonly #answers = new Map<string, boolean>()

  /** Answers the function that takes it back. */
  add(pattern: Pattern, reader: Reader): () => void {
    const remove = this.#table.add(pattern, reader)
    this.#readers.add(reader)
    this.#answers.clear()
    return () => {
      remove()
      this.#readers.delete(reader)
      this.#answers.clear()
    }
  }

  get isEmpty(): boolean {
    return this.#table.size === 0
  }

  get readers(): Iterable<Reader> {
    return this.#readers
  }

  match(tenant: string, type: string): readonly Reader[] {
    return this.#table.match(tenant, type)
  }

  /** Of kinds as a hint has them; '' are unknown ones. */
  wantAnyOf(kinds: string): boolean {
    if (this.isEmpty) return false
    if (kinds === '') return true
    const known = this.#answers.get(kinds)
    if (known !== undefined) return known
    const wanted = kinds.split('\n').some((kind) => {
      const colon = kind.indexOf(':')
      return this.match(kind.slice(0, colon), kind.slice(colon + 1)).length > 0
    })
    if (this.#answers.size >= maxAnswers) this.#answers.clear()
    this.#answers.set(kinds, wanted)
    return wanted
  }
}
