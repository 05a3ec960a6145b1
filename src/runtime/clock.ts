/**
 * Time and chance, passed in so that a schedule can be replayed from a seed.
 *
 * `now` is wall time in ms and only for people and defaults: anything compared across processes uses the
 * server's clock. `monotonicMs` never jumps and measures waiting.
 *
 * Two kinds of waiting must not be mixed up. What waits for a time (a delay, a backoff, a schedule) uses the clock it was
 * given. What waits for an answer (connections, deadlines of calls, heartbeats, looks that make up for lost hints) uses
 * `network`: it has to go on in a test where time stands still.
 */
import { randomBytes } from 'node:crypto'
import { performance } from 'node:perf_hooks'

export interface Timer {
  cancel(): void
}

export interface Clock {
  now(): number
  monotonicMs(): number
  /** Runs `fn` once after `ms`. Does not keep the process alive. */
  after(ms: number, fn: () => void): Timer
  /** What scripts take for the server's clock, in µs; only a clock that a test moves has one. */
  serverUs?(): number
  /** Real time, for what waits for an answer; only a clock that a test moves has one, any other is its own. */
  readonly network?: Clock
}

export interface Randomness {
  /** In [0, 1). */
  float(): number
  /** 120 bits as 20 base64url characters: batch, lease, worker, process, token. */
  id(): string
}

// More is none at all to Node.
const longestMs = 2 ** 31 - 1

export const systemClock: Clock = {
  now: Date.now,
  monotonicMs: () => performance.now(),
  after(ms, fn) {
    const timer = setTimeout(fn, Math.min(ms, longestMs))
    timer.unref()
    return { cancel: () => clearTimeout(timer) }
  },
}

const idBytes = 15
const idLength = 20
// Asking the system, and writing it down, takes as long for many as for one.
let drawn = ''
let used = 0

function nextId(): string {
  if (used === drawn.length) {
    drawn = randomBytes(idBytes * 64).toString('base64url')
    used = 0
  }
  used += idLength
  return drawn.slice(used - idLength, used)
}

export const systemRandomness: Randomness = { float: Math.random, id: nextId }
