/**
 * Entries of one partition that were read and not yet walked through, one event at a time.
 *
 * An event is made when it is asked for, not when its page comes in: then it dies young, and thousands that wait cost
 * what their texts cost.
 */
import type { Kind } from '../envelope.ts'
import { Event } from '../event.ts'
import { countOf, type Entry, envelopesOf, firstSeqOf } from './entry.ts'

export class Unread {
  readonly #partition: number
  #entries: Entry[] = []
  #at = 0
  #length = 0
  /** The entry that is being walked through, and which of its events is next. */
  #prevs: readonly string[] = []
  #envelopes: readonly string[] = []
  #event = 0
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
      const envelope = this.#envelopes[this.#event]!
      const kind = wanted(envelope, this.#seq)
      if (kind) return new Event(this.#partition, this.#seq, this.#prev, envelope, kind)
    }
    return undefined
  }

  /** All that is still to come, without walking. */
  *peek(): Generator<{ seq: number; envelope: string; event(): Event }> {
    const rest = new Unread(0)
    rest.#entries = this.#entries.slice(this.#at)
    rest.#prevs = this.#prevs
    rest.#envelopes = this.#envelopes
    rest.#event = this.#event
    rest.#seq = this.#seq
    rest.#length = this.#length
    while (rest.#step()) {
      const envelope = rest.#envelopes[rest.#event]!
      const seq = rest.#seq
      const prev = rest.#prev
      yield { seq, envelope, event: () => new Event(this.#partition, seq, prev, envelope) }
    }
  }

  clear(): void {
    this.#entries = []
    this.#at = 0
    this.#length = 0
    this.#envelopes = []
    this.#event = 0
  }

  /** Of the event just stepped to. */
  get #prev(): string {
    return this.#prevs[this.#event]!
  }

  #step(): boolean {
    if (this.#length === 0) return false
    this.#event += 1
    this.#seq += 1
    this.#length -= 1
    if (this.#event >= this.#envelopes.length) this.#openEntry()
    return true
  }

  #openEntry(): void {
    const entry = this.#entries[this.#at]!
    this.#at += 1
    if (this.#at === this.#entries.length) {
      this.#entries = []
      this.#at = 0
    }
    this.#prevs = entry[1][0].split(' ')
    this.#envelopes = envelopesOf(entry)
    this.#event = 0
    this.#seq = firstSeqOf(entry)
  }
}
