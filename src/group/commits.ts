/**
 * Tells Redis how far the partitions of one member are: what has come together meanwhile goes in one call.
 *
 *   idle       nothing new
 *   gathering  something new; it goes at once, or when the interval is over
 *   sent       one call is in flight; what comes now goes with the next
 *
 * A cursor only grows, so a call whose answer was lost is simply repeated with what is newest.
 */
import type { Connection } from '../redis/connection.ts'
import type { GroupKeys } from '../redis/keys.ts'
import { runScript } from '../redis/script.ts'
import type { Clock, Timer } from '../runtime/clock.ts'
import { commitScript, type Said } from './scripts.ts'

export interface CommitsContext {
  connection: Connection
  clock: Clock
}

export interface CommitsOptions {
  keys: GroupKeys
  /** 0: as soon as there is something. */
  everyMs: number
  /** Redis has another epoch for it: whoever works on this partition is too late. */
  stale(partition: number, epoch: number): void
}

/** How far a partition is, and how many events were handled since it was last asked. */
export type Tell = () => { cursor: number; handled: number }

interface Noted {
  partition: number
  epoch: number
  release: boolean
  tell: Tell
  waiting: (() => void)[]
}

interface Rate {
  since: number
  handled: number
}

const retryMs = 100
const rateMs = 1_000

export class Commits {
  readonly #context: CommitsContext
  readonly #options: CommitsOptions
  #noted = new Map<number, Noted>()
  readonly #rates = new Map<number, Rate>()
  #sending: Promise<void> | undefined
  #timer: Timer | undefined
  #ended = false

  constructor(context: CommitsContext, options: CommitsOptions) {
    this.#context = context
    this.#options = options
  }

  /** There is something to say; how far it is, is asked when it is said. */
  note(partition: number, epoch: number, tell: Tell): void {
    this.#note(partition, epoch, tell)
    this.#sendSoon()
  }

  /** Resolves when Redis has it, or has answered that it is too late. Does not wait for the interval. */
  now(partition: number, epoch: number, tell: Tell, { release = false } = {}): Promise<void> {
    const noted = this.#note(partition, epoch, tell)
    if (release) noted.release = true
    const told = new Promise<void>((resolve) => noted.waiting.push(resolve))
    void this.#send()
    return told
  }

  /** What was noted for this partition is nobody's business any more. */
  forget(partition: number): void {
    this.#rates.delete(partition)
    this.#drop(partition)
  }

  end(): void {
    this.#ended = true
    this.#timer?.cancel()
    for (const partition of [...this.#noted.keys()]) this.forget(partition)
  }

  #drop(partition: number): void {
    const noted = this.#noted.get(partition)
    this.#noted.delete(partition)
    for (const resolve of noted?.waiting ?? []) resolve()
  }

  #note(partition: number, epoch: number, tell: Tell): Noted {
    const noted = this.#noted.get(partition)
    if (noted?.epoch === epoch) {
      // Kept from before an absence of Redis: whoever holds the partition now knows better how far it is.
      noted.tell = tell
      return noted
    }
    this.#drop(partition)
    const fresh: Noted = { partition, epoch, release: false, tell, waiting: [] }
    this.#noted.set(partition, fresh)
    return fresh
  }

  #sendSoon(): void {
    const { everyMs } = this.#options
    if (this.#sending || this.#timer || this.#ended) return
    if (everyMs === 0) void this.#send()
    else this.#timer = this.#context.clock.after(everyMs, () => void this.#send())
  }

  #send(): Promise<void> {
    this.#sending ??= this.#sendAll().finally(() => {
      this.#sending = undefined
      if (this.#noted.size > 0) this.#sendSoon()
    })
    return this.#sending
  }

  async #sendAll(): Promise<void> {
    // One turn later: what the other partitions do in this one goes along.
    await Promise.resolve()
    while (!this.#ended) {
      this.#timer?.cancel()
      this.#timer = undefined
      const batch = [...this.#noted.values()]
      if (batch.length === 0) return
      this.#noted = new Map()
      const done = await this.#try(batch)
      if (!done) await new Promise<void>((resolve) => this.#context.clock.after(retryMs, resolve))
      else if (this.#options.everyMs > 0 && ![...this.#noted.values()].some(({ waiting }) => waiting.length > 0)) return
    }
  }

  async #try(batch: readonly Noted[]): Promise<boolean> {
    const { keys, stale } = this.#options
    const said = batch.map((noted) => this.#say(noted))
    try {
      const words = await runScript(this.#context.connection.redis, commitScript, { keys, said })
      for (const [i, noted] of batch.entries()) {
        if (words[i] === 'stale') stale(noted.partition, noted.epoch)
        for (const resolve of noted.waiting) resolve()
      }
      return true
    } catch {
      // Redis was away: it goes again together with what came meanwhile.
      for (const noted of batch) this.#keep(noted)
      return false
    }
  }

  #keep(noted: Noted): void {
    const newer = this.#noted.get(noted.partition)
    if (newer && newer.epoch !== noted.epoch) {
      for (const resolve of noted.waiting) resolve()
      return
    }
    if (newer) {
      newer.release ||= noted.release
      newer.waiting.push(...noted.waiting)
    } else this.#noted.set(noted.partition, noted)
  }

  #say({ partition, epoch, release, tell }: Noted): Said {
    const { cursor, handled } = tell()
    return { partition, epoch, release, cursor, rate: this.#rate(partition, handled) }
  }

  /** Once a second at most: how many events a second were handled since it was last said. */
  #rate(partition: number, handled: number): string | undefined {
    const { clock } = this.#context
    const now = clock.monotonicMs()
    const rate = this.#rates.get(partition) ?? { since: now, handled: 0 }
    rate.handled += handled
    this.#rates.set(partition, rate)
    const elapsed = now - rate.since
    if (elapsed < rateMs) return undefined
    const perSecond = (rate.handled * 1000) / elapsed
    this.#rates.set(partition, { since: now, handled: 0 })
    return `${perSecond.toFixed(1)} ${Math.floor(clock.now())}`
  }
}
