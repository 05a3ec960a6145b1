/**
 * One task of this process: a function that runs at start, at an interval or by cron, on one process or in each.
 *
 *   resting    declared, or another process runs it
 *   ticking    waits for its next tick
 *   running    never twice at once: a tick that is due meanwhile is left out and counted
 */
import { type Duration, parseDuration } from '../duration.ts'
import { BusbarError, shown } from '../errors.ts'
import type { LoopContext } from '../runtime/loop.ts'
import { isUnknownOf, named, unknownOption } from '../unknown-name.ts'
import { parseCron, type Ticks } from './cron.ts'

export interface TaskOptions {
  /** From one tick to the next, at least 100ms; the first comes one interval after the start. */
  every?: Duration
  /** Five fields, or six with seconds first. Neither this nor `every`: once at start. */
  cron?: string
  /** Of the cron. Default UTC. */
  timezone?: string
  /** `leader` (default): on one of the processes that declare it, elsewhere when that one ends. `each`: in every process. */
  on?: 'leader' | 'each'
}

export interface TaskContext {
  name: string
  /** Aborts when the bus is closed and, for a task of one process, when it is another's to run. */
  signal: AbortSignal
  /** When it was due. */
  tick: Date
}

export type TaskHandler = (context: TaskContext) => unknown

export interface Task {
  name: string
  on: 'leader' | 'each'
  when: { kind: 'start' } | { kind: 'every'; everyMs: number } | { kind: 'cron'; ticks: Ticks }
  handler: TaskHandler
}

const nameShape = /^[A-Za-z0-9._-]{1,64}$/
export const nameProblem = 'its name must be 1 to 64 of A-Z a-z 0-9 . _ -'
export const isName = (name: unknown): name is string => typeof name === 'string' && nameShape.test(name)

const leastEveryMs = 100
const known = new Set<keyof TaskOptions>(['every', 'cron', 'timezone', 'on'])

export function checkTask(name: string, options: TaskOptions, handler: TaskHandler): Task {
  const invalid = (problem: string) => BusbarError.of('TASK_INVALID', { name: shown(name), problem })
  if (!isName(name)) throw invalid(nameProblem)
  if (typeof options !== 'object' || options === null) throw invalid('its options come second, {} for once at start')
  const unknown = unknownOption(options, known)
  if (unknown !== undefined) throw invalid(unknownProblem(unknown))
  const { every, cron, timezone, on = 'leader' } = options
  if (typeof handler !== 'function') throw invalid('it needs a function to run')
  if (on !== 'leader' && on !== 'each') throw invalid(`on must be "leader" or "each"; got ${shown(on)}`)
  if (every !== undefined && cron !== undefined) throw invalid('give either every or cron, not both')
  if (timezone !== undefined && cron === undefined) throw invalid('a timezone needs a cron')
  if (cron !== undefined) {
    const ticks = parseCron(cron, timezone ?? 'UTC')
    if (!ticks.ok) throw invalid(ticks.problem)
    return { name, on, handler, when: { kind: 'cron', ticks: ticks.value } }
  }
  if (every === undefined) return { name, on, handler, when: { kind: 'start' } }
  const parsed = parseDuration(every)
  if (!parsed.ok) throw invalid(`every ${parsed.problem}; got ${shown(every)}`)
  if (parsed.value < leastEveryMs) throw invalid(`every must be at least ${leastEveryMs}ms; got ${shown(every)}`)
  return { name, on, handler, when: { kind: 'every', everyMs: parsed.value } }
}

function unknownProblem(name: string): string {
  if (name === 'leader') return 'leader is unknown; say on: "leader", which is the default, or on: "each"'
  return `${named(name)} ${isUnknownOf(name, known)}`
}

export interface TaskRunContext extends LoopContext {
  /** The server's clock, in ms. */
  serverMs(): Promise<number>
}

/** A tick, and how long it is until then. */
interface Next {
  tick: number
  inMs: number
}

// Timers end at 2^31 ms, and the clock may be set meanwhile: a far tick is computed anew now and then.
const maxWaitMs = 600_000
const retryMs = 1_000

export class TaskRun {
  readonly #context: TaskRunContext
  readonly task: Task
  #running: Promise<void> | undefined

  constructor(context: TaskRunContext, task: Task) {
    this.#context = context
    this.task = task
  }

  /** Resolves when it does not run. */
  async ended(): Promise<void> {
    await this.#running
  }

  /** Ticks from now on until the signal aborts. */
  begin(signal: AbortSignal): void {
    const { when } = this.task
    if (when.kind === 'start') void this.#runOnce(signal)
    else if (when.kind === 'every') void this.#tickOn(this.#interval(when.everyMs), signal)
    else void this.#tickOn(this.#cron(when.ticks), signal)
  }

  /** It has no next tick: one that still runs, of a lead that was lost and is back, is waited for. */
  async #runOnce(signal: AbortSignal): Promise<void> {
    await this.ended()
    if (!signal.aborted) this.#run(this.#context.clock.now(), signal)
  }

  async #tickOn(next: (signal: AbortSignal) => Promise<Next | undefined>, signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      const found = await next(signal)
      if (found === undefined) return
      await this.#wait(Math.min(found.inMs, maxWaitMs), signal)
      if (!signal.aborted && found.inMs <= maxWaitMs) this.#run(found.tick, signal)
    }
  }

  #interval(everyMs: number): () => Promise<Next> {
    const { clock } = this.#context
    const start = clock.monotonicMs()
    let ticks = 0
    return async () => {
      const passed = clock.monotonicMs() - start
      // Those that passed while the process was paused are over.
      const next = Math.max(ticks + 1, Math.ceil(passed / everyMs))
      const inMs = Math.max(0, next * everyMs - passed)
      // One further away is only looked at, and found again.
      if (inMs <= maxWaitMs) ticks = next
      return { inMs, tick: clock.now() + inMs }
    }
  }

  /** On one process by the server's clock: the next one goes on where this one was, whatever its own clock says. */
  #cron(ticks: Ticks): (signal: AbortSignal) => Promise<Next | undefined> {
    let last = 0
    return async (signal) => {
      const now = this.task.on === 'leader' ? await this.#serverMs(signal) : this.#context.clock.now()
      const tick = now === undefined ? undefined : ticks.after(Math.max(now, last))
      if (now === undefined || tick === undefined) return undefined
      const inMs = tick - now
      if (inMs <= maxWaitMs) last = tick
      return { tick, inMs }
    }
  }

  async #serverMs(signal: AbortSignal): Promise<number | undefined> {
    while (!signal.aborted) {
      try {
        return await this.#context.serverMs()
      } catch {
        // Redis is away. If that lasts, the task is not this process's any more.
        await this.#wait(retryMs, signal)
      }
    }
    return undefined
  }

  #run(tick: number, signal: AbortSignal): void {
    const { name, handler } = this.task
    const { telemetry } = this.#context
    if (this.#running) return telemetry.emit('task.skipped', { task: name, tick })
    const run = async () => {
      try {
        await handler({ name, signal, tick: new Date(tick) })
      } catch (error) {
        // Giving up because it was asked to is no failure.
        if (!signal.aborted) telemetry.emit('task.failed', { task: name, tick, problem: String(error) })
      }
    }
    this.#running = run().finally(() => {
      this.#running = undefined
    })
  }

  #wait(ms: number, signal: AbortSignal): Promise<void> {
    return new Promise((resolve) => {
      const done = () => {
        timer.cancel()
        signal.removeEventListener('abort', done)
        resolve()
      }
      const timer = this.#context.clock.after(ms, done)
      signal.addEventListener('abort', done)
    })
  }
}
