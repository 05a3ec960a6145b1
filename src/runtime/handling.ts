/**
 * Whoever handles events in this process, as a test asks about it: "has everything been handled?"
 *
 * What runs adds itself to the bus's `handling` when it starts and takes itself out when it has stopped. It is never
 * asked outside of tests, so the answer may cost a look into Redis.
 */
export interface Handling {
  /** As it was declared: what a drain that takes too long complains about. */
  readonly name: string
  /**
   * Whether everything published before the question has been handled and settled: nothing waits in the log or in a
   * buffer, no handler runs, nothing waits to be tried again, no commit is under way.
   */
  isIdle(): Promise<boolean>
}
