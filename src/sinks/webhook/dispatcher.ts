/**
 * Posts the batches of all webhooks, as many at a time as this process has slots.
 *
 *   made       nothing is connected
 *   running    it follows the shards that have webhooks
 *   closing    nothing is claimed any more; what is being posted ends, or is handed back
 *   closed
 *
 * Who has how many slots, slots.ts says.
 */
import type { Connection } from '../../redis/connection.ts'
import type { Hints } from '../../redis/hints.ts'
import type { Clock, Randomness } from '../../runtime/clock.ts'
import type { AnnounceContext } from './announcements.ts'
import type { Poster } from './post.ts'
import { type Shards, shardOf } from './shard.ts'
import { ShardDispatch } from './shard-dispatch.ts'
import { Slots } from './slots.ts'

export interface DispatchContext extends AnnounceContext {
  clock: Clock
  /** For what waits for an answer. */
  network: Clock
  randomness: Randomness
  connection: Connection
  hints: Hints
  shards: Shards
  poster: Poster
  worker: string
  start: string
  leaseMs: number
}

export class Dispatcher {
  readonly #context: DispatchContext
  readonly #slots: Slots
  readonly #shards = new Map<number, ShardDispatch>()
  readonly #unlisten: () => void
  #ended = false

  constructor(context: DispatchContext, concurrency: number) {
    this.#context = context
    this.#slots = new Slots(concurrency, this.#shards, context.network)
    this.#unlisten = context.connection.onReady(() => {
      for (const dispatch of this.#shards.values()) dispatch.wake()
    })
  }

  /** Nothing is being posted, and all shards had nothing to give when last asked. */
  get isDry(): boolean {
    return this.#slots.taken === 0 && [...this.#shards.values()].every(({ isDry }) => isDry)
  }

  /** These webhooks there are now. */
  follow(names: Iterable<string>): void {
    if (this.#ended) return
    const wanted = new Set<number>()
    for (const name of names) wanted.add(shardOf(name))
    for (const [index, dispatch] of this.#shards) {
      if (wanted.has(index) || dispatch.isBusy) continue
      this.#shards.delete(index)
      void dispatch.close(0)
    }
    for (const index of wanted) {
      if (this.#shards.has(index)) continue
      const dispatch = new ShardDispatch(this.#context, this.#context.shards.at(index), this.#slots)
      this.#shards.set(index, dispatch)
      dispatch.start()
    }
  }

  async close(deadlineMs: number): Promise<void> {
    this.#ended = true
    this.#unlisten()
    await Promise.all([...this.#shards.values()].map((dispatch) => dispatch.close(deadlineMs)))
  }
}
