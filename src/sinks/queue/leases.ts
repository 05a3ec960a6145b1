/**
 * The leases of one queue in this process: kept alive as long as they hold something.
 *
 *   still      nothing is held, no timer runs
 *   renewing   all of them are renewed in one call, again after a third of their time
 *
 * Only leases whose answers have come are known here: what was given in an answer that got lost lapses.
 */
import { BusbarError } from '../../errors.ts'
import type { LaneStore } from '../../lanes/store.ts'
import { Bag } from '../../runtime/bag.ts'
import type { Clock, Timer } from '../../runtime/clock.ts'
import { Held, type Lease } from './held.ts'

export interface LeasesOptions {
  queue: string
  store: LaneStore
  clock: Clock
  /** As the queue is defined now. */
  leaseMs(): number
}

export class Leases {
  readonly #options: LeasesOptions
  readonly #leases = new Bag<Lease>()
  #renewal: Timer | undefined

  constructor(options: LeasesOptions) {
    this.#options = options
  }

  /** Items that this process holds, waiting or running. */
  get held(): number {
    let held = 0
    for (const { open } of this.#leases) held += open
    return held
  }

  add(token: string, claimedMs: number, until: number, texts: readonly string[]): readonly Held[] {
    const given = texts.length
    const lease: Lease = { token, claimedMs, until, items: [], given, open: given, place: -1 }
    const items = texts.map((text, at) => new Held(lease, text, at))
    lease.items = items
    this.#leases.add(lease)
    if (!this.#renewal) this.#renewSoon()
    return items
  }

  /** A process that was paused knows it here before any timer has told it: then all of the lease is lost. */
  isCertain({ lease }: Held): boolean {
    if (this.#options.clock.monotonicMs() < lease.until) return true
    this.#lose(lease)
    return false
  }

  /** It is settled; once. One that takes long is not to keep all those that came with it. */
  forget({ lease }: Held): void {
    lease.open -= 1
    if (lease.open === 0) this.#close(lease)
    else if (lease.open * 4 < lease.items.length) lease.items = lease.items.filter(({ state }) => state !== 'settled')
  }

  /** Someone wants it cancelled: its handler is told. */
  cancel(id: string): void {
    for (const { items } of this.#leases)
      for (const held of items) {
        if (held.item.id !== id || held.isCancelled || held.state === 'settled') continue
        held.isCancelled = true
        if (held.state === 'running') held.abort(BusbarError.of('OPERATION_CANCELLED', { id }))
      }
  }

  loseAll(): void {
    for (const lease of this.#leases) this.#lose(lease)
  }

  /** They last for another time from now on. Renewed at once: until the next time they would have lapsed, or might be thought to. */
  retime(): void {
    if (!this.#renewal) return
    this.#renewal.cancel()
    void this.#renew()
    this.#renewSoon()
  }

  /** What is still held lapses. */
  end(): void {
    this.#renewal?.cancel()
  }

  #lose(lease: Lease): void {
    const { queue } = this.#options
    for (const held of lease.items) {
      if (held.state === 'settled') continue
      if (held.state === 'running') held.abort(BusbarError.of('LEASE_LOST', { queue, id: held.item.id }))
      held.state = 'lost'
    }
    this.#close(lease)
  }

  #close(lease: Lease): void {
    this.#leases.remove(lease)
    lease.items = []
    lease.open = 0
  }

  #renewSoon(): void {
    const { clock, leaseMs } = this.#options
    this.#renewal = clock.after(leaseMs() / 3, () => {
      this.#renewal = undefined
      void this.#renew()
      if (this.#leases.size > 0) this.#renewSoon()
    })
  }

  async #renew(): Promise<void> {
    const { clock, store } = this.#options
    const now = clock.monotonicMs()
    for (const lease of this.#leases) if (lease.until <= now) this.#lose(lease)
    const renewed = [...this.#leases]
    if (renewed.length === 0) return
    const leaseMs = this.#options.leaseMs()
    try {
      const tokens = renewed.map(({ token }) => token)
      const lost = new Set(await store.renew(tokens, leaseMs, (id) => this.cancel(id)))
      for (const lease of renewed) {
        if (lost.has(lease.token)) this.#lose(lease)
        else lease.until = now + leaseMs
      }
    } catch {
      // Redis is away: the leases end where they ended; the next turn looks.
    }
  }
}
