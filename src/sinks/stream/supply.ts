/**
 * One partition's events for one processor, read ahead.
 *
 *   reading   pages come in until `prefetch` events wait; then it pauses until half of them are taken
 *   waiting   everything there is has been read: the log's growth wakes it
 *   ended     for good: nothing more is given
 *
 * What waits here is bounded by `prefetch` and one page. A lost connection is waited for.
 */
import type { Redis } from 'ioredis'
import { type Kind, kindOf } from '../../envelope.ts'
import type { Event } from '../../event.ts'
import type { LogGrowth } from '../../log/growth.ts'
import type { LogHint } from '../../log/hint.ts'
import type { Namespace } from '../../log/namespace.ts'
import type { LogPages, RawPage } from '../../log/read.ts'
import { Unread } from '../../log/unread.ts'
import type { Clock } from '../../runtime/clock.ts'
import type { Telemetry } from '../../runtime/telemetry.ts'

export interface SupplyContext {
  redis: Redis
  namespace: Namespace
  pages: LogPages
  growth: LogGrowth
  /** For waiting until Redis is back. */
  network: Clock
  telemetry: Telemetry
}

export interface SupplyOptions {
  processor: string
  partition: number
  /** Everything up to here is done. */
  from: number
  prefetch: number
  wants(tenant: string, type: string): boolean
  /** Whether any object is set aside: then what comes in has to be looked at. */
  isAnyAside(): boolean
  isAside(event: Event): boolean
  /** Puts these with the others of their objects. */
  setAside(events: readonly Event[]): Promise<void>
  /** Something came in, or the position moved. */
  changed(): void
}

const retryMs = 100

export class Supply {
  readonly #context: SupplyContext
  readonly #options: SupplyOptions
  readonly #unread: Unread
  /** Seqs of events that wait and are not to be given. */
  readonly #taken = new Set<number>()
  #lastKind: Kind | undefined
  #position: number
  #reading = false
  #ended = false
  #stopWaiting: (() => void) | undefined

  constructor(context: SupplyContext, options: SupplyOptions) {
    this.#context = context
    this.#options = options
    this.#position = options.from
    this.#unread = new Unread(options.partition)
  }

  /** Everything up to here was read: it waits here, was given, or is not wanted. */
  get position(): number {
    return this.#position
  }

  /** Events that wait, wanted or not. */
  get length(): number {
    return this.#unread.length
  }

  start(): void {
    void this.#readOn()
  }

  shift(): Event | undefined {
    const event = this.#unread.next(this.#toBeGiven)
    if (!this.#reading && this.length <= this.#options.prefetch / 2) void this.#readOn()
    return event
  }

  /** Takes out what waits, is wanted and fits. */
  remove(fits: (event: Event) => boolean): Event[] {
    const found: Event[] = []
    for (const { seq, envelope, event } of this.#unread.peek()) {
      if (this.#taken.has(seq) || !this.#wanted(envelope)) continue
      const made = event()
      if (!fits(made)) continue
      found.push(made)
      this.#taken.add(seq)
    }
    return found
  }

  /** What was taken out is wanted after all. */
  putBack(events: readonly Event[]): void {
    for (const { seq } of events) this.#taken.delete(seq)
  }

  end(): void {
    this.#ended = true
    this.#stopWaiting?.()
    this.#unread.clear()
  }

  readonly #toBeGiven = (envelope: string, seq: number): Kind | undefined =>
    this.#taken.size > 0 && this.#taken.delete(seq) ? undefined : this.#wanted(envelope)

  /** Its kind, if that is wanted. Mostly it is the one of the event before: then nothing is looked up. */
  readonly #wanted = (envelope: string): Kind | undefined => {
    if (this.#lastKind !== undefined && envelope.startsWith(this.#lastKind.start)) return this.#lastKind
    const kind = kindOf(envelope)
    if (!kind || !this.#options.wants(kind.tenant, kind.type)) return undefined
    this.#lastKind = kind
    return kind
  }

  async #readOn(): Promise<void> {
    const { growth } = this.#context
    const { partition } = this.#options
    this.#reading = true
    let atEnd = false
    let known = 0
    while (!this.#ended && !atEnd && this.length < this.#options.prefetch) {
      known = growth.last(partition)
      try {
        atEnd = await this.#readPage()
      } catch {
        // A lost connection, or a server that is not ready: there is nothing to do but to ask again.
        await new Promise<void>((resolve) => this.#context.network.after(retryMs, resolve))
      }
    }
    this.#reading = false
    // What was known before the read and is not there was lost by Redis: new events come after it.
    if (atEnd && !this.#ended) this.#waitForMore(Math.max(known, this.#position))
  }

  #waitForMore(above: number): void {
    const { growth } = this.#context
    this.#reading = true
    this.#stopWaiting = growth.whenAbove(this.#options.partition, above, (hint) => void this.#wakeUp(hint))
  }

  /** What came along with its hint, and is the very next, need not be read. */
  async #wakeUp(hint: LogHint | undefined): Promise<void> {
    const isNext = hint && hint.before <= this.#position && hint.last > this.#position
    if (!isNext || !hint.entry || this.length >= this.#options.prefetch) return this.#readOn()
    await this.#takeIn({ entries: [hint.entry], last: hint.last, complete: true, trimmed: 0 })
    if (!this.#ended) this.#waitForMore(this.#position)
  }

  /** Answers whether that was all there is. */
  async #readPage(): Promise<boolean> {
    const { redis, namespace, pages } = this.#context
    const page = await pages.readRaw(redis, namespace, this.#options.partition, this.#position)
    if (this.#ended) return true
    this.#reportGap(page)
    await this.#takeIn(page)
    return page.complete || this.#ended
  }

  /**
   * Lets the events of a page wait here. It ends with a look that finds nothing to be set aside, and then they wait without a
   * turn in between: of an object that is parked meanwhile none slips through.
   */
  async #takeIn(page: RawPage): Promise<void> {
    const { partition, changed, isAnyAside, isAside, setAside } = this.#options
    const events = isAnyAside() ? this.#eventsOf(page) : []
    const left = () => events.filter((event) => !this.#taken.has(event.seq) && isAside(event))
    for (let aside = left(); aside.length > 0; aside = left()) {
      await setAside(aside)
      if (this.#ended) return
      for (const { seq } of aside) this.#taken.add(seq)
    }
    this.#unread.push(page.entries, this.#position)
    this.#position = Math.max(page.last, page.trimmed, this.#position)
    this.#context.growth.reached(partition, this.#position)
    changed()
  }

  #eventsOf(page: RawPage): Event[] {
    const ahead = new Unread(this.#options.partition)
    ahead.push(page.entries, this.#position)
    const events: Event[] = []
    for (let event = ahead.next(this.#wanted); event; event = ahead.next(this.#wanted)) events.push(event)
    return events
  }

  #reportGap({ trimmed }: RawPage): void {
    const { processor, partition } = this.#options
    // From the very beginning there is nothing to miss: it means what is stored.
    if (trimmed <= this.#position || this.#position === 0) return
    this.#context.telemetry.emit('stream.gap', { processor, partition, from: this.#position, to: trimmed })
  }
}
