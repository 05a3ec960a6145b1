/** What the routing of a partition is connected to: a real Redis in router.ts, a model in the tests. */
import type { LogHint } from '../log/hint.ts'
import type { RawPage } from '../log/read.ts'
import type { Clock } from '../runtime/clock.ts'
import type { Telemetry } from '../runtime/telemetry.ts'
import type { RoutedPartition } from './routed-partition.ts'
import type { Loaded } from './scripts.ts'
import type { Stores } from './stores.ts'
import type { RouteTable } from './table.ts'

/** The log as a router sees it. */
export interface RouteLog {
  /** Resolves when growth is noticed from now on. */
  open(): Promise<void>
  read(partition: number, after: number): Promise<RawPage>
  /** How far it was seen to reach. */
  last(partition: number): number
  reached(partition: number, last: number): void
  whenAbove(partition: number, above: number, wake: (hint?: LogHint) => void): () => void
  /** Retention keeps what is above; a lower seq than before needs a higher epoch. */
  hold(place: { partition: number; epoch: number; seq: number }): Promise<void>
  dropHold(partition: number): Promise<void>
}

export interface PartitionContext {
  readonly partitions: number
  readonly table: RouteTable
  readonly log: RouteLog
  readonly stores: Stores
  readonly clock: Clock
  readonly telemetry: Telemetry
  /** Loads the table; `beginning` is told by begin() where everyone is, at the very instant. */
  load(beginning?: RoutedPartition): Promise<Loaded>
  /** There is something to commit. */
  commitSoon(run: RoutedPartition): void
  commitNow(run: RoutedPartition): void
  /** A record of the log that no store can be given. */
  unroutable(partition: number, seq: number): void
}
