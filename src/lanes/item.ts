/**
 * One piece of work as it lies in a store: a header line and the event's envelope, one text that moves whole.
 *
 * The scripts read the header too: store.part.lua says what stands where.
 */

export interface ItemHeader {
  id: string
  /** ms since the epoch; 0: never. */
  expiresMs: number
  lane: string
  /** Those that have ended. */
  attempts: number
  /** 0: not yet. */
  firstClaimedMs: number
  enqueuedMs: number
  priority: number
  /** Of an ordered queue: what it is ordered by. */
  key: string | undefined
  /** seq of the object's event before it, as text; '' for none. */
  prev: string
}

export interface Item extends ItemHeader {
  envelope: string
}

/** A key as a word, and a word as its key. */
export const keyWord = (key: string): string => encodeURIComponent(key)
export const wordKey = (word: string): string => decodeURIComponent(word)

/** An event that enters a queue by its route. It was enqueued when it was published. `key`: of an ordered queue, as a word; '' without one. */
export const routedItem = (id: string, seq: number, lane: string, prev: string, envelope: string, key = ''): string =>
  `${id} 0 ${lane} 0 0 ${Math.floor(seq / 1000)} 0 ${key === '' ? prev : `${key} ${prev}`}\n${envelope}`

/** Its header is read when someone looks at it: most handlers only want the event. */
class StoredItem implements Item {
  readonly id: string
  readonly #text: string
  readonly #end: number
  #header: readonly string[] | undefined

  constructor(text: string) {
    this.#text = text
    this.#end = text.indexOf('\n')
    this.id = text.slice(0, text.indexOf(' '))
  }

  get expiresMs(): number {
    return Number(this.#word(1))
  }

  get lane(): string {
    return this.#word(2)
  }

  get attempts(): number {
    return Number(this.#word(3))
  }

  get firstClaimedMs(): number {
    return Number(this.#word(4))
  }

  get enqueuedMs(): number {
    return Number(this.#word(5))
  }

  get priority(): number {
    return Number(this.#word(6))
  }

  get key(): string | undefined {
    return this.#word(8) === undefined ? undefined : wordKey(this.#word(7))
  }

  get prev(): string {
    return this.#text.slice(this.#text.lastIndexOf(' ', this.#end) + 1, this.#end)
  }

  get envelope(): string {
    return this.#text.slice(this.#end + 1)
  }

  #word(i: number): string {
    this.#header ??= this.#text.slice(0, this.#end).split(' ')
    return this.#header[i]!
  }
}

export const readItem = (text: string): Item => new StoredItem(text)

/** A dead letter as it lies in a store. */
export interface Letter {
  diedMs: number
  reason: string
  item: Item
}

/** Keeps letters apart; a reason never holds it. */
const separator = '\x1e'

export function readLetter(text: string): Letter {
  const [diedMs, reason, item] = text.split(separator)
  return { diedMs: Number(diedMs), reason: reason!, item: readItem(item!) }
}

const reasonLength = 1_000
const saidLength = 65_536

/** A reason as it was said: what of it may be shown is known later, and what is cut off before then is not recognised. */
export const saidReason = (reason: string): string => reason.slice(0, saidLength)

/** A reason as it may be stored: bounded, on its own between separators. */
export const storedReason = (reason: string): string => reason.slice(0, reasonLength).replaceAll(separator, ' ')
