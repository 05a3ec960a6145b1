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
import { type Event, kindOf } from '../../event.ts'
import type { LogGrowth } from '../../log/growth.ts'
import type { Namespace } from '../../log/namespace.ts'
import { type LogPages, type Page, toEvent } from '../../log/read.ts'
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
  /** Decides which of the wanted events are to be given; may take its time. */
  admit(events: readonly Event[]): Promise<readonly Event[]>
  /** Something came in, or the position moved. */
  changed(): void
}

const retryMs = 100

export class Supply {
  readonly #context: SupplyContext
  readonly #options: SupplyOptions
  #waiting: Event[] = []
  #first = 0
  #position: number
  #reading = false
  #ended = false
  #stopWaiting: (() => void) | undefined

  constructor(context: SupplyContext, options: SupplyOptions) {
    this.#context = context
    this.#options = options
    this.#position = options.from
  }

  /** Everything up to here was read: it waits here, was given, or is not wanted. */
  get position(): number {
    return this.#position
  }

  get length(): number {
    return this.#waiting.length - this.#first
  }

  start(): void {
    void this.#readOn()
  }

  shift(): Event | undefined {
    const event = this.#waiting[this.#first]
    if (event === undefined) return undefined
    this.#first += 1
    if (this.#first === this.#waiting.length) {
      this.#waiting = []
      this.#first = 0
    }
    if (!this.#reading && this.length <= this.#options.prefetch / 2) void this.#readOn()
    return event
  }

  /** Takes out what waits and fits. */
  remove(fits: (event: Event) => boolean): Event[] {
    const all = this.#waiting.slice(this.#first)
    this.#first = 0
    this.#waiting = all.filter((event) => !fits(event))
    return all.filter(fits)
  }

  /** What was taken out is wanted after all. */
  putBack(events: readonly Event[]): void {
    this.#waiting = [...events, ...this.#waiting.slice(this.#first)].sort((a, b) => a.seq - b.seq)
    this.#first = 0
  }

  end(): void {
    this.#ended = true
    this.#stopWaiting?.()
    this.#waiting = []
    this.#first = 0
  }

  async #readOn(): Promise<void> {
    this.#reading = true
    let atEnd = false
    while (!this.#ended && !atEnd && this.length < this.#options.prefetch) {
      try {
        atEnd = await this.#readPage()
      } catch {
        // A lost connection, or a server that is not ready: there is nothing to do but to ask again.
        await new Promise<void>((resolve) => this.#context.network.after(retryMs, resolve))
      }
    }
    this.#reading = false
    if (atEnd && !this.#ended) this.#waitForMore()
  }

  #waitForMore(): void {
    const { growth } = this.#context
    this.#reading = true
    this.#stopWaiting = growth.whenAbove(this.#options.partition, this.#position, () => void this.#readOn())
  }

  /** Answers whether that was all there is. */
  async #readPage(): Promise<boolean> {
    const { redis, namespace, pages, growth } = this.#context
    const { partition, changed, admit } = this.#options
    const page = await pages.read(redis, namespace, partition, this.#position)
    if (this.#ended) return true
    this.#reportGap(page)
    const admitted = await admit(this.#wanted(page))
    if (this.#ended) return true
    for (const event of admitted) this.#waiting.push(event)
    this.#position = Math.max(page.last, page.trimmed, this.#position)
    growth.reached(partition, this.#position)
    changed()
    return page.complete
  }

  #wanted(page: Page): Event[] {
    const events: Event[] = []
    for (const record of page.records) {
      const kind = kindOf(record.envelope)
      if (kind && this.#options.wants(kind.tenant, kind.type)) events.push(toEvent(record))
    }
    return events
  }

  #reportGap({ trimmed }: Page): void {
    const { processor, partition } = this.#options
    // From the very beginning there is nothing to miss: it means what is stored.
    if (trimmed <= this.#position || this.#position === 0) return
    this.#context.telemetry.emit('stream.gap', { processor, partition, from: this.#position, to: trimmed })
  }
}
