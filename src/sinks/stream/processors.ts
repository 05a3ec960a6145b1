/** All processors that were declared on one bus. */
import { BusbarError, shown } from '../../errors.ts'
import type { GroupTiming } from '../../group/scripts.ts'
import type { LogGrowth } from '../../log/growth.ts'
import type { Namespace } from '../../log/namespace.ts'
import type { LogSource } from '../../log/view.ts'
import type { Connection } from '../../redis/connection.ts'
import type { Hints } from '../../redis/hints.ts'
import type { Clock } from '../../runtime/clock.ts'
import type { LoopContext } from '../../runtime/loop.ts'
import type { EventHandler } from './each.ts'
import type { IteratingHandler } from './iterate.ts'
import { checkName, checkProcessor, type ProcessorOptions } from './options.ts'
import { Processor } from './processor.ts'

export interface ProcessorsOptions extends LoopContext {
  /** Time as the network has it, also where a test stops the clock. */
  network: Clock
  worker: string
  groupTiming: GroupTiming
  /** Waits for a lost connection. */
  source: LogSource
}

export interface ProcessorsGround {
  namespace: Namespace
  reads: Connection
  hints: Hints
  growth: LogGrowth
  /** What the process says of itself, for people. */
  about: Readonly<Record<string, unknown>>
}

export class Processors {
  readonly #options: ProcessorsOptions
  readonly #declared = new Map<string, Processor>()
  readonly #running = new Set<Processor>()
  #started = false
  #closed = false

  constructor(options: ProcessorsOptions) {
    this.#options = options
  }

  get areRunning(): boolean {
    return this.#running.size > 0
  }

  get names(): readonly string[] {
    return [...this.#declared.keys()]
  }

  declare(name: string, options: ProcessorOptions, handler: IteratingHandler | EventHandler): Processor {
    const problems: string[] = []
    if (this.#started) problems.push(`processor ${shown(name)} comes too late: processors are declared before run()`)
    if (this.#declared.has(checkName('the name of a processor', name)))
      problems.push(`processor ${shown(name)} is declared twice`)
    if (typeof handler !== 'function') problems.push(`the handler of ${shown(name)} must be a function`)
    if (problems.length > 0) throw BusbarError.of('SETTING_INVALID', { problems })
    const processor = new Processor(name, checkProcessor(options ?? {}), handler)
    this.#declared.set(name, processor)
    return processor
  }

  /** Starts those named, or all. */
  async start(ground: ProcessorsGround, only: readonly string[] | undefined): Promise<void> {
    this.#started = true
    const { clock, network, randomness, telemetry, worker, groupTiming, source } = this.#options
    const { namespace, reads, hints, growth, about } = ground
    const wanted = [...this.#declared.values()].filter(({ name }) => !only || only.includes(name))
    if (wanted.length === 0) return
    const context = { clock, network, randomness, telemetry, namespace, connection: reads, hints }
    const run = { ...context, source, growth, worker, about, timing: groupTiming }
    for (const processor of wanted) {
      if (this.#closed) return
      this.#running.add(processor)
      await processor.start(run)
    }
  }

  /** Whether the running ones have handled everything up to these seqs, as far as it is theirs. */
  isIdleUpTo(lasts: readonly number[]): boolean {
    return [...this.#running].every((processor) => processor.isIdleUpTo(lasts))
  }

  async close(timeoutMs: number): Promise<void> {
    this.#closed = true
    await Promise.all([...this.#running].map((processor) => processor.close(timeoutMs)))
  }
}
