/** What a bus shows to the other parts of this package, and to no one else. */
import type { Connection } from './redis/connection.ts'
import type { Handling } from './runtime/handling.ts'
import type { Loop } from './runtime/loop.ts'

/** What every bus carries, so that `busbar worker` knows a bus of another copy of this package as one. */
export const busMark: unique symbol = Symbol.for('busbar.bus')

/** Where busbar/testing finds what it waits for. */
export const internals: unique symbol = Symbol('busbar.internals')

export interface BusInternals {
  readonly connections: readonly Connection[]
  /** Background work that looks at the time by itself now and then; after the clock was moved it is woken. */
  readonly looks: readonly Loop[]
  /** Whoever handles events in this process, for as long as it runs. */
  readonly handling: Set<Handling>
}
