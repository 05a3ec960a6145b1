/**
 * Tells Redis how far the partitions of one router are: what has come together goes in one call, at most five a second, or at once
 * when someone has fallen behind or joins.
 *
 *   idle       nothing new
 *   gathering  something new; it goes when the interval is over
 *   sent       one call is in flight; what comes now goes with the next
 *
 * Late is harmless: stores skip what they have. A call that failed is made up for by the next one.
 */
import type { Clock, Timer } from '../runtime/clock.ts'
import type { RoutedPartition } from './routed-partition.ts'
import type { Committed, SaidRoute } from './scripts.ts'

export interface RouteCommitsOptions {
  clock: Clock
  commit(said: readonly SaidRoute[]): Promise<Committed>
  /** What it answered of each. */
  committed(run: RoutedPartition, said: SaidRoute, words: Committed['words'][number]): void
  /** The highest revision there is. */
  heard(version: number): void
}

const everyMs = 200

export class RouteCommits {
  readonly #options: RouteCommitsOptions
  readonly #due = new Set<RoutedPartition>()
  #timer: Timer | undefined
  #sending: Promise<void> | undefined
  #isUrgent = false

  constructor(options: RouteCommitsOptions) {
    this.#options = options
  }

  soon(run: RoutedPartition): void {
    this.#due.add(run)
    if (!this.#timer && !this.#sending) this.#timer = this.#options.clock.after(everyMs, () => void this.#send())
  }

  /** Resolves when Redis has answered, or could not. */
  now(run: RoutedPartition): Promise<void> {
    this.#due.add(run)
    this.#isUrgent = true
    return this.#send()
  }

  /** Resolves when no call is in flight. */
  async quiet(): Promise<void> {
    await this.#sending
  }

  end(): void {
    this.#due.clear()
    this.#timer?.cancel()
  }

  #send(): Promise<void> {
    this.#timer?.cancel()
    this.#timer = undefined
    this.#sending ??= this.#sendAll().finally(() => {
      this.#sending = undefined
      for (const run of this.#due) this.soon(run)
    })
    return this.#sending
  }

  async #sendAll(): Promise<void> {
    // One turn later: what the other partitions do in this one goes along.
    await Promise.resolve()
    do {
      this.#isUrgent = false
      const runs = [...this.#due]
      this.#due.clear()
      await this.#sendOnce(runs)
    } while (this.#isUrgent)
  }

  async #sendOnce(runs: readonly RoutedPartition[]): Promise<void> {
    const all = runs.flatMap((run) => {
      const said = run.say()
      return said ? [{ run, said }] : []
    })
    if (all.length === 0) return
    try {
      const { version, words } = await this.#options.commit(all.map(({ said }) => said))
      for (const [i, { run, said }] of all.entries()) this.#options.committed(run, said, words[i]!)
      this.#options.heard(version)
    } catch {
      for (const run of runs) this.#due.add(run)
    }
  }
}
