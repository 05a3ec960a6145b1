/**
 * Entries of one partition that were read and not yet walked through, one event at a time.
 *
 * An event is made when it is asked for, not when its page comes in: then it dies young, and thousands that wait cost
 * what their texts cost.
 */
import { Event, type Kind } from '../event.ts'
import type { Entry } from './read.ts'

export class Unread {
  readonly #partition: number
  #entries: Entry[] = []
  #at = 0
  #length = 0
  /** The entry that is being walked through: its envelopes, and where its next event is. */
  #fields: readonly string[] = []
  #field = 0
  #prevs = ''
  #prevAt = 0
  #seq = 0

  constructor(partition: number) {
    this.#partition = partition
  }

  /** Events still to be walked through. */
  get length(): number {
    return this.#length
  }

  /** Entries behind those that are there; of the first one only what lies above `after`. */
  push(entries: readonly Entry[], after: number): void {
    for (const entry of entries) {
      this.#entries.push(entry)
      this.#length += countOf(entry)
    }
    const [first] = entries
    if (!first) return
    const passed = after - firstSeqOf(first) + 1
    // Only a reader that begins in the middle of an entry has something to pass over, and then nothing else is there.
    for (let i = 0; i < passed; i += 1) this.#step()
  }

  /** The next event whose kind `wanted` answers; undefined when there is none. */
  next(wanted: (envelope: string, seq: number) => Kind | undefined): Event | undefined {
    while (this.#step()) {
      const envelope = this.#fields[this.#field - 1]!
      const seq = this.#seq - 1
      const kind = wanted(envelope, seq)
      if (kind) return new Event(this.#partition, seq, this.#prev(), envelope, kind)
    }
    return undefined
  }

  /** All that is still to come, without walking. */
  *peek(): Generator<{ seq: number; envelope: string; event(): Event }> {
    const rest = new Unread(0)
    rest.#entries = this.#entries.slice(this.#at)
    rest.#fields = this.#fields
    rest.#field = this.#field
    rest.#prevs = this.#prevs
    rest.#prevAt = this.#prevAt
    rest.#seq = this.#seq
    rest.#length = this.#length
    while (rest.#step()) {
      const envelope = rest.#fields[rest.#field - 1]!
      const seq = rest.#seq - 1
      const prev = rest.#prev()
      yield { seq, envelope, event: () => new Event(this.#partition, seq, prev, envelope) }
    }
  }

  clear(): void {
    this.#entries = []
    this.#at = 0
    this.#length = 0
    this.#fields = []
    this.#field = 0
  }

  /** Of the event just stepped to. */
  #prev(): number | null {
    const end = this.#prevs.indexOf(' ', this.#prevAt)
    const text = this.#prevs.slice(this.#prevAt, end === -1 ? undefined : end)
    return text === '' ? null : Number(text)
  }

  #step(): boolean {
    if (this.#length === 0) return false
    if (this.#field === this.#fields.length) this.#openEntry()
    else this.#prevAt = this.#prevs.indexOf(' ', this.#prevAt) + 1
    this.#field += 1
    this.#seq += 1
    this.#length -= 1
    return true
  }

  #openEntry(): void {
    const entry = this.#entries[this.#at]!
    this.#at += 1
    if (this.#at === this.#entries.length) {
      this.#entries = []
      this.#at = 0
    }
    this.#fields = entry[1]
    this.#field = entry[1].length - countOf(entry)
    this.#prevs = entry[1][0]!
    this.#prevAt = 0
    this.#seq = firstSeqOf(entry)
  }
}

/** The envelopes stand behind the prevs and, where the number of fields would be odd, an empty text. */
const countOf = ([, fields]: Entry): number => fields.length - (fields[1] === '' ? 2 : 1)

const firstSeqOf = (entry: Entry): number => Number(entry[0].slice(0, entry[0].indexOf('-'))) - countOf(entry) + 1
