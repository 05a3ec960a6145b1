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

export class Shelves {
  readonly #keys: ProcessorKeys
  readonly #partition: number
  readonly #states = new Map<string, ShelfState>()
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

  /** Its last event was taken off, and Redis has taken the shelf away. */
  close(object: string): void {
    this.#states.delete(object)
  }

  shift(): ShelvedEvent | undefined {
    return this.#due.shift()
  }

  /**
   * Reads them anew. `inHand` are given out and not yet taken off. Answers the released objects whose shelf is empty.
   */
  async load(redis: Redis, inHand: ReadonlyMap<string, string>): Promise<string[]> {
    const all = await redis.hgetall(this.#keys.shelves)
    const shelves = Object.entries(all)
      .map(([object, text]) => readShelf(object, text))
      .filter(({ partition }) => partition === this.#partition)
    this.#states.clear()
    const due: ShelvedEvent[] = []
    const empty: string[] = []
    for (const { object, state } of shelves) {
      this.#states.set(object, state)
      if (state === 'parked') continue
      const texts = await redis.lrange(shelfKey(this.#keys, object), 0, pageEvents - 1)
      if (texts.length === 0) empty.push(object)
      for (const text of texts)
        if (!inHand.has(text)) due.push({ object, text, event: readShelfText(this.#partition, text) })
    }
    this.#due = due
    return empty
  }

  /** Whether events of this object are still to be given before its shelf has to be looked at again. */
  isDue(object: string): boolean {
    return this.#due.some((shelved) => shelved.object === object)
  }
}
