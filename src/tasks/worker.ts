/**
 * What a running bus does beside publishing: it leads or follows, runs its tasks and, as the leader, fires schedules,
 * appends delayed events and does what other parts of the bus have for a leader to do.
 *
 *   made       declarations gather
 *   running    member of the group `workers`
 *   stopped    its tasks have ended, then it has left: another one leads at once
 */
import { Leadership, type LeadershipOptions } from '../group/leadership.ts'
import type { GroupTiming } from '../group/scripts.ts'
import type { Namespace } from '../log/namespace.ts'
import type { Retainer } from '../log/retention.ts'
import type { LogSource } from '../log/view.ts'
import type { Connection } from '../redis/connection.ts'
import type { Hints } from '../redis/hints.ts'
import { groupKeys, taskGroup, workersGroup, workersKeys } from '../redis/keys.ts'
import { serverMs } from '../redis/server-time.ts'
import type { Clock } from '../runtime/clock.ts'
import type { Loop, LoopContext } from '../runtime/loop.ts'
import { type AppendContext, appendDuty } from './append.ts'
import { type Duty, startDuty } from './duty.ts'
import { type FireContext, fireDuty } from './fire.ts'
import { Schedules } from './schedules.ts'
import { leastStopMs, Tasks } from './tasks.ts'

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
  /** What else the leader looks after, by name. */
  duties: Readonly<Record<string, (ground: WorkerGround) => Duty>>
}

export interface WorkerGround {
  namespace: Namespace
  reads: Connection
  writes: Connection
  hints: Hints
  retainer: Retainer
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

  async start(ground: WorkerGround): Promise<void> {
    // First: as the leader it would fire what these definitions replace.
    await this.schedules.store()
    if (this.#stopped || this.#leadership) return
    const { clock } = this.#options
    const { reads, about, only } = ground
    const leadership = this.#leadershipOf(ground, {
      ...{ group: workersGroup, about },
      report: { gained: 'leader.gained', lost: 'leader.lost' },
    })
    this.#leadership = leadership
    const taskContext = {
      ...this.#contextOn(ground),
      serverMs: () => serverMs(reads.redis, clock),
      leadershipOf: (task: string) =>
        this.#leadershipOf(ground, {
          ...{ group: taskGroup(task), about: {} },
          report: { gained: 'task.gained', lost: 'task.lost', task },
        }),
    }
    const tasks = this.tasks.start(taskContext, only)
    this.#duties = this.#startDuties(ground, leadership)
    await Promise.all([tasks, leadership.start()])
  }

  async stop(deadlineMs: number): Promise<void> {
    this.#stopped = true
    const { network } = this.#options
    const until = network.monotonicMs() + deadlineMs
    const left = () => Math.max(leastStopMs, until - network.monotonicMs())
    await this.tasks.stop(this.#options, deadlineMs)
    await Promise.all(this.#duties.map((duty) => duty.stop({ deadlineMs: left() })))
    await this.#leadership?.stop(left())
  }

  #contextOn({ reads, hints }: WorkerGround) {
    const { clock, randomness, telemetry } = this.#options
    return { clock, randomness, telemetry, connection: reads, hints }
  }

  #leadershipOf(ground: WorkerGround, options: Pick<LeadershipOptions, 'group' | 'about' | 'report'>): Leadership {
    const { network, worker, groupTiming } = this.#options
    const keys = groupKeys(ground.namespace.name, options.group)
    return new Leadership(
      { ...this.#contextOn(ground), clock: network },
      { ...options, keys, worker, timing: groupTiming },
    )
  }

  #startDuties(ground: WorkerGround, leadership: Leadership): Loop[] {
    const { network, publishing } = this.#options
    const { namespace, reads, writes } = ground
    const context = this.#contextOn(ground)
    const keys = workersKeys(namespace.name)
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
    const others = Object.entries(this.#options.duties).map(([name, dutyOn]) => [name, dutyOn(ground)] as const)
    const all = [['leader.schedules', firing], ['leader.delayed', appending], ...others] as const
    return all.map(([name, duty]) => startDuty(dutyContext, name, duty))
  }
}
