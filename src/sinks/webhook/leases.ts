/**
 * The leases under which this process posts batches of one shard.
 *
 *   kept   some of its batches are being posted; it is renewed every third of its time
 *   lost   the shard says so, or it has ended by this process's own clock while Redis was away: posting is stopped, another one does it
 *   over   nothing of it is being posted any more
 */
import type { Clock, Timer } from '../../runtime/clock.ts'
import type { StopSignal } from './attempt.ts'

export interface Lease {
  readonly token: string
  /** Fires when its batches are not to be posted any longer. */
  readonly signal: StopSignal
}

class Stop implements StopSignal {
  #aborted = false
  readonly #listeners = new Set<() => void>()

  get aborted(): boolean {
    return this.#aborted
  }

  addEventListener(_: 'abort', listener: () => void): void {
    this.#listeners.add(listener)
  }

  removeEventListener(_: 'abort', listener: () => void): void {
    this.#listeners.delete(listener)
  }

  abort(): void {
    this.#aborted = true
    for (const listener of this.#listeners) listener()
  }
}

interface KeptLease extends Lease {
  /** By this process's monotonic clock. */
  until: number
  /** Batches that are being posted. */
  left: number
  readonly signal: Stop
}

/** Answers the tokens that hold nothing any more. */
export type Renew = (tokens: readonly string[]) => Promise<readonly string[]>

export class Leases {
  readonly #clock: Clock
  readonly #leaseMs: number
  readonly #renew: Renew
  readonly #all = new Map<string, KeptLease>()
  #next: Timer | undefined

  constructor(clock: Clock, leaseMs: number, renew: Renew) {
    this.#clock = clock
    this.#leaseMs = leaseMs
    this.#renew = renew
  }

  get size(): number {
    return this.#all.size
  }

  /** Of a claim that was sent at that time and has brought so many batches: all of them count before the first can end. */
  begin(token: string, sentAt: number, batches: number): Lease {
    const lease = { token, until: sentAt + this.#leaseMs, left: batches, signal: new Stop() }
    this.#all.set(token, lease)
    if (!this.#next) this.#lookSoon()
    return lease
  }

  /** One of its batches is not being posted any more. */
  ended({ token }: Lease): void {
    const lease = this.#all.get(token)!
    lease.left -= 1
    if (lease.left === 0) this.#all.delete(token)
  }

  abortAll(): void {
    for (const { signal } of this.#all.values()) signal.abort()
  }

  close(): void {
    this.#next?.cancel()
  }

  #kept(): KeptLease[] {
    return [...this.#all.values()].filter(({ signal }) => !signal.aborted)
  }

  /** When some are to be renewed, or when the first ends without. */
  #lookSoon(): void {
    const kept = this.#kept()
    if (kept.length === 0) return
    const untilEnd = Math.min(...kept.map(({ until }) => until)) - this.#clock.monotonicMs()
    this.#next = this.#clock.after(Math.max(1, Math.min(this.#leaseMs / 3, untilEnd)), () => {
      this.#next = undefined
      this.#abortEnded()
      void this.#renewKept()
      this.#lookSoon()
    })
  }

  #abortEnded(): void {
    const now = this.#clock.monotonicMs()
    for (const { until, signal } of this.#kept()) if (until <= now) signal.abort()
  }

  async #renewKept(): Promise<void> {
    const sentAt = this.#clock.monotonicMs()
    const kept = this.#kept()
    if (kept.length === 0) return
    try {
      const lost = new Set(await this.#renew(kept.map(({ token }) => token)))
      for (const lease of kept) {
        if (lost.has(lease.token)) lease.signal.abort()
        else lease.until = sentAt + this.#leaseMs
      }
    } catch {
      // Redis is away: they end where they ended, and the next look stops what has.
    }
  }
}
