/**
 * Looks names up, so that none that hangs stops the others: a look-up cannot be called off, and has a thread of few.
 *
 *   waiting   both places are taken
 *   running   in a thread, for everyone who asks for this name meanwhile
 *   hung      it was running for a second when someone gave up waiting; until it ends, and some seconds more, the name counts as unresolved
 *
 * Of names that hung before at most one is running: the other place is for those that answer.
 */
import type { LookupAddress } from 'node:dns'

/** As `dns.lookup` with `all`. */
export type Resolve = (
  hostname: string,
  options: { all: true },
  callback: (error: Error | null, addresses: LookupAddress[]) => void,
) => void

interface Lookup {
  host: string
  answer: Promise<LookupAddress[]>
  start(): void
  startedMs: number | undefined
}

// Of its four threads libuv gives this many to look-ups.
const mostRunning = 2
const hungMs = 1_000
const restMs = 10_000
const mostHung = 1_000

export class HungBefore extends Error {}

export class Lookups {
  readonly #resolve: Resolve
  readonly #nowMs: () => number
  readonly #lookups = new Map<string, Lookup>()
  readonly #waiting: Lookup[] = []
  /** Name → until when it is not looked up again. */
  readonly #hung = new Map<string, number>()
  #running = 0

  constructor(resolve: Resolve, nowMs = () => performance.now()) {
    this.#resolve = resolve
    this.#nowMs = nowMs
  }

  /** Rejects with the signal's reason, the look-up's error, or HungBefore. */
  async of(host: string, signal: AbortSignal): Promise<LookupAddress[]> {
    if (this.#rests(host)) throw new HungBefore()
    const lookup = this.#lookups.get(host) ?? this.#begin(host)
    try {
      return await unlessAborted(lookup.answer, signal)
    } catch (error) {
      if (signal.aborted) this.#gaveUp(lookup)
      throw error
    }
  }

  #rests(host: string): boolean {
    const until = this.#hung.get(host)
    if (until === undefined) return false
    return until > this.#nowMs() || [...this.#lookups.keys()].some((other) => this.#hung.has(other))
  }

  #begin(host: string): Lookup {
    let start = () => {}
    const answer = new Promise<LookupAddress[]>((resolve, reject) => {
      start = () => this.#resolve(host, { all: true }, (error, found) => (error ? reject(error) : resolve(found)))
    }).finally(() => this.#ended(lookup))
    // Everyone who asked may have given up.
    answer.catch(() => {})
    const lookup: Lookup = { host, answer, start, startedMs: undefined }
    this.#lookups.set(host, lookup)
    this.#waiting.push(lookup)
    this.#startNext()
    return lookup
  }

  #startNext(): void {
    if (this.#running >= mostRunning) return
    const next = this.#waiting.shift()
    if (!next) return
    this.#running += 1
    next.startedMs = this.#nowMs()
    next.start()
  }

  #gaveUp({ host, startedMs }: Lookup): void {
    if (startedMs === undefined || this.#nowMs() - startedMs < hungMs) return
    if (this.#hung.size >= mostHung) this.#hung.delete(this.#hung.keys().next().value!)
    if (this.#lookups.has(host)) this.#hung.set(host, Number.POSITIVE_INFINITY)
  }

  #ended({ host, startedMs }: Lookup): void {
    this.#lookups.delete(host)
    this.#running -= 1
    if (this.#nowMs() - startedMs! < hungMs) this.#hung.delete(host)
    else if (this.#hung.has(host)) this.#hung.set(host, this.#nowMs() + restMs)
    this.#startNext()
  }
}

function unlessAborted<T>(promise: Promise<T>, signal: AbortSignal): Promise<T> {
  return new Promise((resolve, reject) => {
    const stop = () => reject(signal.reason)
    if (signal.aborted) stop()
    else signal.addEventListener('abort', stop, { once: true })
    promise.then(resolve, reject).finally(() => signal.removeEventListener('abort', stop))
  })
}
