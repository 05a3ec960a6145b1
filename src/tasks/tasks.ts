/**
 * The tasks of a process.
 *
 *   declared   nothing runs
 *   started    those of each process tick, those of the leader while this process leads
 *   stopped    none begins any more; those that ran were asked to end and waited for
 */
import { BusbarError, shown } from '../errors.ts'
import type { Leadership } from '../group/leadership.ts'
import { checkTask, type Task, type TaskHandler, type TaskOptions, TaskRun, type TaskRunContext } from './task.ts'

export class Tasks {
  readonly #declared = new Map<string, Task>()
  readonly #stopping = new AbortController()
  #runs: TaskRun[] | undefined

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
  start(context: TaskRunContext, leadership: Leadership, only: readonly string[] | undefined): void {
    const wanted = [...this.#declared].filter(([name]) => !only || only.includes(name))
    const runs = wanted.map(([, task]) => new TaskRun(context, task))
    const begin = (on: Task['on'], signal: AbortSignal) => {
      for (const run of runs) if (run.on === on) run.begin(signal)
    }
    this.#runs = runs
    begin('each', this.#stopping.signal)
    leadership.onChange(() => {
      if (leadership.isLeader) begin('leader', AbortSignal.any([leadership.signal, this.#stopping.signal]))
    })
  }

  /** Asks those that run to end, and waits for them, at most until the deadline. */
  async stop({ clock }: Pick<TaskRunContext, 'clock'>, deadlineMs: number): Promise<void> {
    this.#stopping.abort()
    const ended = Promise.all((this.#runs ?? []).map((run) => run.ended()))
    const late = new Promise<void>((resolve) => clock.after(deadlineMs, resolve))
    await Promise.race([ended, late])
  }
}
