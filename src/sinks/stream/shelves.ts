/** The shelves of one held partition, and the events of the released ones in the order in which they are due. */
import type { Redis } from 'ioredis'
import type { Event } from '../../event.ts'
import type { ProcessorKeys } from '../../redis/keys.ts'
import { shelfKey } from './scripts.ts'
import { readShelf, readShelfText, type ShelfState } from './set-aside.ts'

/** An event from a shelf, with the text by which it is taken off. */
export interface ShelvedEvent {
  object: string
  event: Event
  text: string
}

const pageEvents = 100

/** What was read of them, to be taken over at once. */
export interface ReadShelves {
  states: Map<string, ShelfState>
  due: ShelvedEvent[]
  /** Released, and nothing lies on them any more. */
  empty: string[]
}

export class Shelves {
  readonly #keys: ProcessorKeys
  readonly #partition: number
  #states = new Map<string, ShelfState>()
  #due: ShelvedEvent[] = []

  constructor(keys: ProcessorKeys, partition: number) {
    this.#keys = keys
    this.#partition = partition
  }

  get size(): number {
    return this.#states.size
  }

  has(object: string): boolean {
    return this.#states.has(object)
  }

  /** Who the caller has just parked. */
  park(object: string): void {
    this.#states.set(object, 'parked')
    this.#due = this.#due.filter((shelved) => shelved.object !== object)
  }

  shift(): ShelvedEvent | undefined {
    return this.#due.shift()
  }

  /** Whether events of this object are still to be given before its shelf has to be looked at again. */
  isDue(object: string): boolean {
    return this.#due.some((shelved) => shelved.object === object)
  }

  async read(redis: Redis): Promise<ReadShelves> {
    const shelves = Object.entries(await redis.hgetall(this.#keys.shelves))
      .map(([object, text]) => readShelf(object, text))
      .filter(({ partition }) => partition === this.#partition)
    const found: ReadShelves = { states: new Map(), due: [], empty: [] }
    for (const { object, state } of shelves) {
      found.states.set(object, state)
      if (state === 'parked') continue
      const texts = await redis.lrange(shelfKey(this.#keys, object), 0, pageEvents - 1)
      if (texts.length === 0) found.empty.push(object)
      for (const text of texts) found.due.push({ object, text, event: readShelfText(this.#partition, text) })
    }
    return found
  }

  /** `inHand` are given out and not yet taken off. */
  takeOver({ states, due }: ReadShelves, inHand: ReadonlyMap<string, string>): void {
    this.#states = states
    this.#due = due.filter(({ text }) => !inHand.has(text))
  }
}
