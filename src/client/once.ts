/**
 * The events of a batch, one after the other, each handled once.
 *
 *   handled    the handler has returned, and the store knows it: it is not handled again, in whatever batch it comes
 *   failed     the handler threw: the batch ends there with an error. Sent again, it goes on with this event
 *   completed  all of a batch are handled: sent again, it is answered at once
 *
 * A sender that has waited too long sends a batch again while it is still being handled here: then each event waits for the one that is
 * in hand, so both come to the end and nothing is handled twice. A process that dies between the handler and the store handles that
 * one event twice; other processes only know what a store that they share says.
 */
import { BusbarError } from '../errors.ts'
import type { Event } from '../event.ts'
import type { OrderGuard } from '../order-guard.ts'
import { Turns } from '../turns.ts'
import { type Batch, placelessId } from './batch.ts'
import type { SeenStore } from './memory.ts'

/** What goes along with an event. */
export interface EventContext {
  batchId: string
  /** Which one sent it; null where the format does not say. */
  subscription: string | null
  /** With `order`: it follows one that is not the last handled of its object, because the log was rolled back. */
  isFork: boolean
}

export type ReceiveHandler = (event: Event, context: EventContext) => unknown

export class Once {
  readonly #seen: SeenStore
  readonly #guard: OrderGuard | undefined
  readonly #turns = new Turns()

  constructor(seen: SeenStore, guard: OrderGuard | undefined) {
    this.#seen = seen
    this.#guard = guard
  }

  /** WEBHOOK_NOT_HANDLED or WEBHOOK_TOO_EARLY at the first event that cannot be handled now. */
  async handle({ id: batchId, subscription, events }: Batch, handler: ReceiveHandler): Promise<void> {
    if (await named(`batch ${batchId}`, () => this.#seen.has(batchId))) return
    for (const [n, event] of events.entries()) {
      const id = event.seq > 0 ? event.id : placelessId(batchId, n)
      const apply = (isFork: boolean) => handler(event, { batchId, subscription, isFork })
      await named(`event ${event.id}`, () => this.#turns.take(id, () => this.#handleOne(id, event, apply)))
    }
    await named(`batch ${batchId}`, () => this.#seen.add(batchId))
  }

  async #handleOne(id: string, event: Event, apply: (isFork: boolean) => unknown): Promise<void> {
    if (await this.#seen.has(id)) return
    // What has no place in the log has none in the order either.
    if (!this.#guard || event.seq === 0) await apply(false)
    else if ((await this.#guard.take(event, (_, verdict) => apply(verdict === 'fork'))) === 'wait')
      throw BusbarError.of('WEBHOOK_TOO_EARLY', { id: event.id, prev: event.prev })
    await this.#seen.add(id)
  }
}

/** Whatever the handler or a store throws becomes an error that says what it was about, and nothing else to the sender. */
async function named<T>(what: string, work: () => T | Promise<T>): Promise<T> {
  try {
    return await work()
  } catch (error) {
    if (error instanceof BusbarError && error.code === 'WEBHOOK_TOO_EARLY') throw error
    throw BusbarError.of('WEBHOOK_NOT_HANDLED', { what }, error)
  }
}
