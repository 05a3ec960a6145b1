/**
 * What a running bus does beside publishing: it leads or follows, runs its tasks and, as the leader, fires schedules
 * and appends delayed events.
 *
 *   made       declarations gather
 *   running    member of the group `workers`
 *   stopped    its tasks have ended, then it has left: another one leads at once
 */
import { Leadership } from '../group/leadership.ts'
import type { GroupTiming } from '../group/scripts.ts'
import type { Namespace } from '../log/namespace.ts'
import type { LogSource } from '../log/view.ts'
import type { Connection } from '../redis/connection.ts'
import type { Hints } from '../redis/hints.ts'
import { groupKeys, workersGroup, workersKeys } from '../redis/keys.ts'
import { serverMs } from '../redis/server-time.ts'
import type { Clock } from '../runtime/clock.ts'
import type { Loop, LoopContext } from '../runtime/loop.ts'
import { type AppendContext, appendDuty } from './append.ts'
import { startDuty } from './duty.ts'
import { type FireContext, fireDuty } from './fire.ts'
import { Schedules } from './schedules.ts'
import { Tasks } from './tasks.ts'

/** The bus's own way into the log. */
interface Publishing extends Pick<AppendContext, 'floorOf' | 'saw' | 'liveChannelPrefix'> {
  publishWritten: FireContext['publish']
}

export interface WorkerOptions extends LoopContext {
  /** Time as the network has it, also where a test stops the clock. */
  network: Clock
  worker: string
  groupTiming: GroupTiming
  source: LogSource
  publishing: Publishing
}

export interface WorkerGround {
  namespace: Namespace
  reads: Connection
  writes: Connection
  hints: Hints
  /** Names of the tasks to start; undefined for all. */
  only: readonly string[] | undefined
  /** What the process says of itself, for people. */
  about: Readonly<Record<string, unknown>>
}

export class Worker {
  readonly tasks = new Tasks()
  readonly schedules: Schedules
  readonly #options: WorkerOptions
  #leadership: Leadership | undefined
  #duties: Loop[] = []
  #stopped = false

  constructor(options: WorkerOptions) {
    this.#options = options
    this.schedules = new Schedules(options.source, options.clock)
  }

  async start({ namespace, reads, writes, hints, about, only }: WorkerGround): Promise<void> {
    // First: as the leader it would fire what these definitions replace.
    await this.schedules.store()
    if (this.#stopped || this.#leadership) return
    const { clock, network, randomness, telemetry, worker, groupTiming, publishing } = this.#options
    const context = { clock, randomness, telemetry, connection: reads, hints }
    const keys = workersKeys(namespace.name)
    const leadership = new Leadership(
      { ...context, clock: network },
      { keys: groupKeys(namespace.name, workersGroup), worker, timing: groupTiming, about },
    )
    this.#leadership = leadership
    this.tasks.start({ ...context, serverMs: () => serverMs(reads.redis, clock) }, leadership, only)
    const dutyContext = { ...context, network, leadership, channel: keys.due }
    const firing = fireDuty({
      ...context,
      keys,
      publish: (event, options) => publishing.publishWritten(event, options),
    })
    const appending = appendDuty({
      ...this.#options,
      namespace,
      reads,
      writes,
      floorOf: (partition) => publishing.floorOf(partition),
      saw: (partition, seq) => publishing.saw(partition, seq),
      liveChannelPrefix: publishing.liveChannelPrefix,
    })
    this.#duties = [
      startDuty(dutyContext, 'leader.schedules', firing),
      startDuty(dutyContext, 'leader.delayed', appending),
    ]
    await leadership.start()
  }

  async stop(deadlineMs: number): Promise<void> {
    this.#stopped = true
    await this.tasks.stop(this.#options, deadlineMs)
    await Promise.all(this.#duties.map((duty) => duty.stop({ deadlineMs })))
    await this.#leadership?.stop(deadlineMs)
  }
}
