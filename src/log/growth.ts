/**
 * How far the partitions reach, for whoever waits for more: one per process, however many wait.
 *
 * Hints tell it at once, and answers do of this process's own lone events. Hints get lost, so once a second one command looks
 * at the partitions that someone waits for and that were quiet. What it says may be too little for a second.
 */
import type { Connection } from '../redis/connection.ts'
import type { Hints } from '../redis/hints.ts'
import { answersChannel } from '../redis/keys.ts'
import { type Loop, type LoopContext, startLoop } from '../runtime/loop.ts'
import { type LogHint, readHint } from './hint.ts'
import type { Namespace } from './namespace.ts'
import { reportRollback } from './rollback.ts'

export interface GrowthContext extends LoopContext {
  namespace: Namespace
  connection: Connection
  hints: Hints
  /** Under which this process publishes. */
  process: string
  /** The log was seen to reach this seq. */
  saw(partition: number, seq: number): void
}

interface Waiter {
  above: number
  wake(hint?: LogHint): void
}

const lookMs = 1_000

export class LogGrowth {
  readonly #context: GrowthContext
  readonly #lasts: number[]
  readonly #waiters: Set<Waiter>[]
  readonly #heardAt: number[]
  readonly #unlisten: (() => void)[] = []
  #started: Promise<void> | undefined
  #loop: Loop | undefined
  #mayBeRolledBack = false

  constructor(context: GrowthContext) {
    this.#context = context
    this.#lasts = context.namespace.partitions.map(() => 0)
    this.#waiters = this.#lasts.map(() => new Set())
    this.#heardAt = this.#lasts.map(() => Number.NEGATIVE_INFINITY)
  }

  /** Resolves when hints are heard: whoever reads after that and then waits misses nothing. */
  start(): Promise<void> {
    this.#started ??= this.#start().catch((error) => {
      this.#started = undefined
      throw error
    })
    return this.#started
  }

  /** How far it was seen to reach. After Redis lost its tail there may be less; what comes then comes after it. */
  last(partition: number): number {
    return this.#lasts[partition]!
  }

  /**
   * Runs `wake` once when the partition reaches above this seq, at once if it does; with the hint that said so, if one did.
   * Answers how to stop waiting.
   */
  whenAbove(partition: number, above: number, wake: (hint?: LogHint) => void): () => void {
    if (this.#lasts[partition]! > above) {
      wake()
      return () => undefined
    }
    const waiter = { above, wake }
    const waiters = this.#waiters[partition]!
    waiters.add(waiter)
    return () => waiters.delete(waiter)
  }

  /** What a reader has come upon counts too. */
  reached(partition: number, last: number, hint?: LogHint): void {
    if (last <= this.#lasts[partition]!) return
    this.#lasts[partition] = last
    this.#context.saw(partition, last)
    const waiters = this.#waiters[partition]!
    for (const waiter of waiters) {
      if (waiter.above >= last) continue
      waiters.delete(waiter)
      waiter.wake(hint)
    }
  }

  /** A hint, or the answer to a lone event of this process: of those no hint comes while nobody else listens. */
  heard(partition: number, hint: LogHint): void {
    this.#heardAt[partition] = this.#context.clock.monotonicMs()
    this.reached(partition, hint.last, hint)
  }

  async stop(deadlineMs: number): Promise<void> {
    for (const unlisten of this.#unlisten.splice(0)) unlisten()
    await this.#loop?.stop({ deadlineMs })
  }

  async #start(): Promise<void> {
    const { namespace, hints, connection, process } = this.#context
    const listening = namespace.partitions.map(({ wake }, partition) =>
      hints.listen(wake, (message) => this.heard(partition, readHint(message))),
    )
    const unlisten = await Promise.all(listening)
    // Only within the time of the others: publish.lua takes it for a sign that this process is one of those who listen to them.
    const unlistenAnswers = await hints.listen(answersChannel(namespace.name, process), () => undefined)
    this.#unlisten.push(unlistenAnswers, ...unlisten)
    this.#loop = startLoop(this.#context, 'log.growth', () => this.#look())
    this.#unlisten.push(
      connection.onReady(() => {
        this.#mayBeRolledBack = true
        this.#loop?.wake()
      }),
    )
  }

  async #look(): Promise<{ againInMs: number }> {
    const { namespace, connection, clock, telemetry } = this.#context
    if (!connection.isReady) return { againInMs: lookMs }
    if (this.#mayBeRolledBack) {
      await reportRollback(connection.redis, namespace, this.#lasts, telemetry)
      this.#mayBeRolledBack = false
    }
    const quietSince = clock.monotonicMs() - lookMs / 2
    const quiet = [...this.#waiters.keys()].filter(
      (partition) => this.#waiters[partition]!.size > 0 && this.#heardAt[partition]! < quietSince,
    )
    if (quiet.length === 0) return { againInMs: lookMs }
    const keys = quiet.map((partition) => namespace.partitions[partition]!.log)
    const grown = await connection.redis.xread('COUNT', 1, 'STREAMS', ...keys, ...quiet.map((p) => this.#waitsAbove(p)))
    for (const [key, [entry]] of grown ?? [])
      this.reached(quiet[keys.indexOf(key)]!, Number(entry![0].slice(0, entry![0].indexOf('-'))))
    return { againInMs: lookMs }
  }

  /** The lowest place where someone waits, as an entry id. */
  #waitsAbove(partition: number): string {
    return `${Math.min(...[...this.#waiters[partition]!].map(({ above }) => above))}-0`
  }
}
