/**
 * All that one process routes: its table of subscriptions, and the partitions that it holds.
 *
 * Nothing here knows Redis; router.ts connects it. A load of the table tells every partition at the same instant what has
 * changed and where that left everyone, so none of them routes by half of a change.
 */
import type { Clock } from '../runtime/clock.ts'
import type { Telemetry } from '../runtime/telemetry.ts'
import { RouteCommits } from './commits.ts'
import type { RouteLog } from './ports.ts'
import { RoutedPartition } from './routed-partition.ts'
import type { Committed, Loaded, SaidRoute } from './scripts.ts'
import { type Sinks, Stores } from './stores.ts'
import { RouteTable } from './table.ts'

export interface RoutingContext {
  readonly partitions: number
  readonly log: RouteLog
  readonly sinks: Sinks
  readonly clock: Clock
  readonly telemetry: Telemetry
  load(known: number): Promise<Loaded>
  /** Subscriptions have come, changed or gone. */
  changed?(table: RouteTable): void
  commit(said: readonly SaidRoute[]): Promise<Committed>
  /** Redis has another epoch for it: this router is too late. */
  stale(partition: number, epoch: number): void
}

export class Routing {
  readonly table = new RouteTable()
  readonly #context: RoutingContext
  readonly #runs = new Map<number, RoutedPartition>()
  readonly #stores: Stores
  readonly #commits: RouteCommits
  #toBegin = new Set<RoutedPartition>()
  #loading: Promise<unknown> = Promise.resolve()
  #next: Promise<Loaded> | undefined
  #hasUnroutable = false
  /** The last version that could not be taken. */
  #refused = 0

  constructor(context: RoutingContext) {
    this.#context = context
    this.#stores = new Stores(context.sinks, context.clock)
    this.#commits = new RouteCommits({
      clock: context.clock,
      commit: context.commit,
      committed: (run, said, words) => this.#committed(run, said, words),
      heard: (version) => {
        if (version !== this.table.version) this.load().catch(() => undefined)
      },
    })
  }

  get runs(): ReadonlyMap<number, RoutedPartition> {
    return this.#runs
  }

  gained(grant: { partition: number; epoch: number }): void {
    const run = new RoutedPartition(
      {
        ...this.#context,
        table: this.table,
        stores: this.#stores,
        load: (beginning) => this.load(beginning),
        commitSoon: (of) => this.#commits.soon(of),
        commitNow: (of) => void this.#commits.now(of),
        unroutable: (partition, seq) => this.#unroutable(partition, seq),
      },
      grant,
    )
    this.#runs.set(grant.partition, run)
  }

  lost(partition: number): void {
    this.#runs.get(partition)?.end()
    this.#runs.delete(partition)
  }

  /** Stops and says how far it came. Whoever has it next goes on from there. */
  async letGo(partition: number): Promise<void> {
    const run = this.#runs.get(partition)
    if (!run) return
    await this.#commits.now(run)
    if (this.#runs.get(partition) === run) this.lost(partition)
  }

  /** After every lost connection. */
  restart(): void {
    for (const run of this.#runs.values()) run.restart()
  }

  end(): void {
    this.#commits.end()
    for (const partition of [...this.#runs.keys()]) this.lost(partition)
  }

  /** Loads what has changed. Asked while one is under way it loads once more: that one may be older than the question. */
  load(beginning?: RoutedPartition): Promise<Loaded> {
    if (beginning) this.#toBegin.add(beginning)
    this.#next ??= this.#loading.then(() => {
      this.#next = undefined
      const loading = this.#loadNow()
      this.#loading = loading.catch(() => undefined)
      return loading
    })
    return this.#next
  }

  async #loadNow(): Promise<Loaded> {
    const beginning = this.#toBegin
    this.#toBegin = new Set()
    // What it said before it began again would otherwise be written after it was told where everyone is.
    if (beginning.size > 0) await this.#commits.quiet()
    const loaded = await this.#context.load(this.table.version)
    const changed = this.#take(loaded)
    for (const run of this.#runs.values()) {
      if (beginning.has(run)) run.begin(loaded, this.table.all())
      else run.take(loaded, changed)
    }
    // Last: were it to throw, the partitions would never hear of what the table has taken.
    if (changed.length > 0) this.#context.changed?.(this.table)
    return loaded
  }

  /** What cannot be taken is tried again with every commit; it is said once. */
  #take(loaded: Loaded): string[] {
    try {
      return this.table.take(loaded)
    } catch (error) {
      if (this.#refused !== loaded.version) this.#context.telemetry.emit('route.failed', { problem: String(error) })
      this.#refused = loaded.version
      throw error
    }
  }

  /** Who writes such a record writes many: one is said, and fsck finds them all. */
  #unroutable(partition: number, seq: number): void {
    if (!this.#hasUnroutable) this.#context.telemetry.emit('route.unroutable', { partition, seq })
    this.#hasUnroutable = true
  }

  #committed(run: RoutedPartition, said: SaidRoute, words: Committed['words'][number]): void {
    if (words[0] !== 'stale') return run.committed(said, words)
    if (this.#runs.get(run.partition) !== run) return
    this.lost(run.partition)
    this.#context.stale(run.partition, run.epoch)
  }
}
