/**
 * What this process has claimed: leases, and the items under them.
 *
 *   waiting   claimed, its handler has not begun
 *   running   its handler runs
 *   settled   this process has said what became of it
 *   lost      the lease lapsed, or could not be renewed in time: the item may be another's by now
 */
import { readEnvelope } from '../../envelope.ts'
import { Event } from '../../event.ts'
import { type Item, readItem } from '../../lanes/item.ts'
import type { Placed } from '../../runtime/bag.ts'

export interface Lease extends Placed {
  readonly token: string
  /** When it was claimed, by the server's clock. */
  readonly claimedMs: number
  /** By this process's monotonic clock; counted from before the claim was sent, so never later than the store's. */
  until: number
  /** Those that are open, and at most three times as many that were. */
  items: readonly Held[]
  /** How many items it had at first. */
  readonly given: number
  /** How many of them are neither settled nor lost. */
  open: number
}

/** One that was sent straight into a queue: it has no place in the log. */
class SentEvent extends Event {
  readonly #item: Item

  constructor(item: Item) {
    super(0, 0, '', item.envelope)
    this.#item = item
  }

  override get id(): string {
    return this.#item.id
  }

  override get time(): number {
    return super.time || this.#item.enqueuedMs
  }
}

const routedId = /^\d+-\d+$/

export function eventOf(item: Item): Event {
  const { id } = item
  if (!routedId.test(id)) return new SentEvent(item)
  const dash = id.indexOf('-')
  return new Event(Number(id.slice(0, dash)), Number(id.slice(dash + 1)), item.prev, item.envelope)
}

export class Held {
  state: 'waiting' | 'running' | 'settled' | 'lost' = 'waiting'
  lease: Lease
  readonly item: Item
  /** Its place among those that the lease was given. */
  readonly at: number
  /** Someone wants its operation cancelled. */
  isCancelled = false
  #event: Event | undefined
  #aborting: AbortController | undefined

  constructor(lease: Lease, text: string, at: number) {
    this.lease = lease
    this.at = at
    this.item = readItem(text)
  }

  get event(): Event {
    this.#event ??= eventOf(this.item)
    return this.#event
  }

  /** On whose behalf it was sent, and by which request. */
  get origin(): { kind: 'manual' | 'automatic'; requestId: string | null } {
    const { kind = 'automatic', request = null } = readEnvelope(this.item.envelope).header
    return { kind, requestId: request }
  }

  /** 1 for the first try. */
  get attempt(): number {
    return this.item.attempts + 1
  }

  get firstClaimedMs(): number {
    return this.item.firstClaimedMs || this.lease.claimedMs
  }

  /** Made when someone asks for it: most handlers do not. */
  get signal(): AbortSignal {
    this.#aborting ??= new AbortController()
    return this.#aborting.signal
  }

  abort(reason: unknown): void {
    this.#aborting ??= new AbortController()
    this.#aborting.abort(reason)
  }
}
