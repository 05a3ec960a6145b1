/**
 * What a running bus does beside publishing: it leads or follows, and runs its tasks.
 *
 *   made       declarations gather
 *   running    member of the group `workers`
 *   stopped    its tasks have ended, then it has left: another one leads at once
 */
import { Leadership } from '../group/leadership.ts'
import type { GroupTiming } from '../group/scripts.ts'
import type { Connection } from '../redis/connection.ts'
import type { Hints } from '../redis/hints.ts'
import { groupKeys, workersGroup } from '../redis/keys.ts'
import { serverMs } from '../redis/server-time.ts'
import type { LoopContext } from '../runtime/loop.ts'
import { Tasks } from './tasks.ts'

export interface WorkerOptions extends LoopContext {
  worker: string
  groupTiming: GroupTiming
}

export interface WorkerGround {
  namespace: { name: string }
  reads: Connection
  hints: Hints
  /** What the process says of itself, for people. */
  about: Readonly<Record<string, unknown>>
}

export class Worker {
  readonly tasks = new Tasks()
  readonly #options: WorkerOptions
  #leadership: Leadership | undefined
  #stopped = false

  constructor(options: WorkerOptions) {
    this.#options = options
  }

  async start({ namespace, reads, hints, about }: WorkerGround): Promise<void> {
    if (this.#stopped) return
    const { clock, randomness, telemetry, worker, groupTiming } = this.#options
    const context = { clock, randomness, telemetry, connection: reads, hints }
    this.#leadership = new Leadership(context, {
      keys: groupKeys(namespace.name, workersGroup),
      worker,
      timing: groupTiming,
      about,
    })
    this.tasks.start({ ...context, serverMs: () => serverMs(reads.redis, clock) }, this.#leadership)
    await this.#leadership.start()
  }

  async stop(deadlineMs: number): Promise<void> {
    this.#stopped = true
    await this.tasks.stop(this.#options, deadlineMs)
    await this.#leadership?.stop(deadlineMs)
  }
}
