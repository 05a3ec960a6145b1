/**
 * A subscription that does not ride with main in a partition: it is new, changed, or its store could not keep up. The
 * partition's owner reads for it by itself, until it is where main is.
 *
 *   ready     the next stretch can be read for it
 *   busy      a call to its store has no answer yet, or its store is being made; nothing else is sent meanwhile
 *   waiting   its store failed: it is tried again after a while
 */
import type { Subscription } from './sink.ts'

export interface Own {
  readonly subscription: Subscription
  /** Its store has everything up to here. */
  at: number
  /** What of that is in Redis; undefined: nothing. */
  saved: number | undefined
  busy: boolean
  failures: number
  /** How often in a row there was no store. */
  gone: number
  /** Monotonic ms. */
  retryAt: number
  /** It was said that it is behind. */
  reported: boolean
  /** Turn in which it was read for last. */
  servedIn: number
}

export function ownAt(subscription: Subscription, at: number, saved: number | undefined): Own {
  const fresh = { busy: false, failures: 0, gone: 0, retryAt: 0, reported: false, servedIn: 0 }
  return { subscription, at, saved, ...fresh }
}

const firstBackoffMs = 100
const maxBackoffMs = 5_000

export function backOff(own: Own, now: number): void {
  own.retryAt = now + Math.min(maxBackoffMs, firstBackoffMs * 2 ** own.failures)
  own.failures += 1
}

// Each holds a page until its store has answered: 8 of 256 KiB for each partition.
const maxBusy = 8

/** Those to read for next: who has waited longest, and all that are at the same place; one page serves them together. */
export function nextToServe(all: Iterable<Own>, main: number, now: number): Own[] {
  let longest: Own | undefined
  let busy = 0
  const ready: Own[] = []
  for (const own of all) {
    if (own.busy) busy += 1
    else if (own.at < main && own.retryAt <= now) {
      ready.push(own)
      if (!longest || own.servedIn < longest.servedIn) longest = own
    }
  }
  return longest && busy < maxBusy ? ready.filter(({ at }) => at === longest.at) : []
}

/** When the next one that waits can be tried again; Infinity when none waits. */
export function nextRetryAt(all: Iterable<Own>, main: number): number {
  let next = Number.POSITIVE_INFINITY
  for (const own of all) if (!own.busy && own.at < main) next = Math.min(next, own.retryAt)
  return next
}
