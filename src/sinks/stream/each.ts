/**
 * Hands a partition to a handler of single events, several at once: those of one object one after the other, in order.
 *
 * An object whose event fails waits for its next attempt; the others go on. The cursor stays before the lowest event that
 * is not through, so no more than `prefetch` events are taken beyond it.
 */
import type { Event } from '../../event.ts'
import { backoffMs } from '../../runtime/backoff.ts'
import type { HandlingContext } from './handling.ts'
import type { HeldPartition, Item } from './held-partition.ts'
import { Chain, ended, type Step } from './middleware.ts'
import type { ProcessorContext } from './options.ts'
import { objectOf } from './set-aside.ts'

export type EventHandler = (event: Event, context: ProcessorContext) => Promise<void> | void

export class EachEvent {
  readonly #context: HandlingContext
  readonly #held: HeldPartition
  readonly #handler: EventHandler
  readonly #concurrency: number
  /** Objects at work → their events that wait behind. */
  readonly #behind = new Map<string, Item[]>()
  readonly #running = new Set<Promise<void>>()
  #taken = 0

  constructor(context: HandlingContext, held: HeldPartition, handler: EventHandler, concurrency: number) {
    this.#context = context
    this.#held = held
    this.#handler = handler
    this.#concurrency = concurrency
  }

  /** Ends when the partition gives nothing more and what is at work has ended. */
  async run(): Promise<void> {
    const { prefetch } = this.#context.settings
    while (this.#held.isOpen) {
      const full = this.#running.size >= this.#concurrency || this.#taken >= Math.max(prefetch, this.#concurrency)
      if (full) await Promise.race(this.#running)
      else {
        // Between being given and waiting behind its object there is no turn: who parks the object finds all of it.
        const item = this.#held.tryPull()
        if (item) this.#begin(item)
        else if (this.#held.isBlocked) await this.#held.change()
        else await this.#held.whenSome()
      }
    }
    await Promise.all(this.#running)
  }

  #begin(item: Item): void {
    this.#taken += 1
    const object = objectOf(item.event)
    const behind = this.#behind.get(object)
    if (behind) {
      behind.push(item)
      return
    }
    this.#behind.set(object, [])
    const running = this.#work(object, item).finally(() => this.#running.delete(running))
    this.#running.add(running)
  }

  async #work(object: string, first: Item): Promise<void> {
    const behind = this.#behind.get(object)!
    let item: Item | undefined = first
    while (item && this.#held.isOpen && !this.#held.isBlocked) {
      await this.#handle(item, behind)
      this.#taken -= 1
      item = behind.shift()
    }
    // Blocked meanwhile, or closed: what was not begun goes back.
    const rest = item ? [item, ...behind] : []
    this.#taken -= rest.length
    this.#behind.delete(object)
    this.#held.putBack(rest)
  }

  async #handle(item: Item, behind: Item[]): Promise<void> {
    const { settings, randomness } = this.#context
    for (let attempt = 1; this.#held.isOpen; attempt += 1) {
      try {
        await this.#call(item, attempt)
        // Who returns because it was told to stop has not said that it is done.
        if (!this.#held.signal.aborted) this.#held.done([item])
        return
      } catch (error) {
        if (this.#held.signal.aborted) return
        this.#context.report(this.#held, item.event, attempt, error)
        if (attempt >= settings.attempts) {
          await this.#held.giveUp(item, error, attempt, () => {
            this.#taken -= behind.length
            return behind.splice(0)
          })
          return
        }
        await this.#held.pause(backoffMs(settings.backoffMs, attempt, randomness))
      }
    }
  }

  async #call(item: Item, attempt: number): Promise<void> {
    const { use } = this.#context.settings
    const context = this.#context.tell(this.#held, () => attempt)
    if (use.length === 0) return this.#handler(item.event, context)
    const steps: Step[] = [{ done: false, value: item.event }]
    const chain = new Chain(use, context, async () => steps.shift() ?? ended)
    try {
      for (let step = await chain.next(); !step.done; step = await chain.next())
        await this.#handler(step.value as Event, context)
      await chain.end()
    } catch (error) {
      await chain.end({ error })
      throw error
    }
  }
}
