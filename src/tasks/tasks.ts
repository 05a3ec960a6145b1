/**
 * The tasks of a process.
 *
 *   declared   nothing runs
 *   started    those of each process tick, those of one process while that is this one
 *   stopped    none begins any more; those that ran were asked to end and waited for
 */
import { BusbarError, shown } from '../errors.ts'
import type { Leadership } from '../group/leadership.ts'
import { checkTask, type Task, type TaskHandler, type TaskOptions, TaskRun, type TaskRunContext } from './task.ts'

// Enough to say that it leaves, also when its tasks took all the time there was.
export const leastStopMs = 10

export interface TasksContext extends TaskRunContext {
  /** Of those that declare this task. */
  leadershipOf(task: string): Leadership
}

export class Tasks {
  readonly #declared = new Map<string, Task>()
  readonly #stopping = new AbortController()
  #runs: TaskRun[] | undefined
  readonly #leaderships: Leadership[] = []

  get names(): readonly string[] {
    return [...this.#declared.keys()]
  }

  declare(name: string, options: TaskOptions, handler: TaskHandler): void {
    const invalid = (problem: string) => BusbarError.of('TASK_INVALID', { name: shown(name), problem })
    if (this.#runs) throw invalid('tasks are declared before run()')
    if (this.#declared.has(name)) throw invalid('there is one of this name already')
    this.#declared.set(name, checkTask(name, options, handler))
  }

  /** Starts those named, or all. */
  async start(context: TasksContext, only: readonly string[] | undefined): Promise<void> {
    const wanted = [...this.#declared.values()].filter(({ name }) => !only || only.includes(name))
    this.#runs = wanted.map((task) => new TaskRun(context, task))
    for (const run of this.#runs) {
      if (run.task.on === 'each') run.begin(this.#stopping.signal)
      else this.#leaderships.push(this.#runOnOne(run, context.leadershipOf(run.task.name)))
    }
    await Promise.all(this.#leaderships.map((leadership) => leadership.start()))
  }

  #runOnOne(run: TaskRun, leadership: Leadership): Leadership {
    leadership.onChange(() => {
      if (leadership.isLeader) run.begin(AbortSignal.any([leadership.signal, this.#stopping.signal]))
    })
    return leadership
  }

  /** Asks those that run to end, and waits for them, at most until the deadline. */
  async stop({ clock }: Pick<TaskRunContext, 'clock'>, deadlineMs: number): Promise<void> {
    const until = clock.monotonicMs() + deadlineMs
    this.#stopping.abort()
    const ended = Promise.all((this.#runs ?? []).map((run) => run.ended()))
    const late = new Promise<void>((resolve) => clock.after(deadlineMs, resolve))
    await Promise.race([ended, late])
    const left = Math.max(leastStopMs, until - clock.monotonicMs())
    await Promise.all(this.#leaderships.map((leadership) => leadership.stop(left)))
  }
}
