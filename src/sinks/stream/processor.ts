/**
 * A processor in this process: a member of its group that works on the partitions it is given.
 *
 *   declared   nothing is connected or stored
 *   running    member of the group `stream.<name>`; each held partition has a run of its own
 *   closed     what was in hand is finished, or aborted at the deadline; everything is let go
 *
 * A run of a partition: open, work, then either let go in time (asked, closed) or lost at once (stale, replaced, unsure).
 */
import { errorText } from '../../errors.ts'
import { Commits } from '../../group/commits.ts'
import { GroupMember, type Keeper } from '../../group/member.ts'
import type { Grant, GroupTiming } from '../../group/scripts.ts'
import type { LogGrowth } from '../../log/growth.ts'
import type { Namespace } from '../../log/namespace.ts'
import { LogPages } from '../../log/read.ts'
import type { LogSource } from '../../log/view.ts'
import { createPatternTable } from '../../pattern.ts'
import type { Connection } from '../../redis/connection.ts'
import type { Hints } from '../../redis/hints.ts'
import { type ProcessorKeys, processorKeys } from '../../redis/keys.ts'
import type { Clock, Timer } from '../../runtime/clock.ts'
import { type Loop, type LoopContext, startLoop } from '../../runtime/loop.ts'
import { declareProcessor } from './declare.ts'
import { EachEvent, type EventHandler } from './each.ts'
import { HandlingContext } from './handling.ts'
import { HeldPartition } from './held-partition.ts'
import { type IteratingHandler, Iteration } from './iterate.ts'
import type { ProcessorSettings } from './options.ts'

export interface RunContext extends LoopContext {
  /** Time as the network has it, also where a test stops the clock. */
  network: Clock
  namespace: Namespace
  connection: Connection
  hints: Hints
  growth: LogGrowth
  source: LogSource
  worker: string
  about: Readonly<Record<string, unknown>>
  timing: GroupTiming
}

interface Run {
  held: HeldPartition
  ended: Promise<void>
}

const holdEveryMs = 5_000

export class Processor implements Keeper {
  readonly name: string
  readonly settings: ProcessorSettings
  readonly #handler: IteratingHandler | EventHandler
  readonly #runs = new Map<number, Run>()
  /** How far partitions were when they were lost; of use only if they come back under the same epoch. */
  readonly #reached = new Map<number, { epoch: number; cursor: number }>()
  /** Runs that were lost and whose handler has not ended yet. */
  readonly #leftovers = new Map<number, Promise<void>>()
  #running: { context: RunContext; keys: ProcessorKeys; member: GroupMember; commits: Commits } | undefined
  #holds: Loop | undefined
  #closed = false

  constructor(name: string, settings: ProcessorSettings, handler: IteratingHandler | EventHandler) {
    this.name = name
    this.settings = settings
    this.#handler = handler
  }

  async start(context: RunContext): Promise<void> {
    if (this.#running || this.#closed) return
    const { namespace, source, worker, about, timing, growth } = context
    const keys = processorKeys(namespace.name, this.name)
    const { commit } = this.settings
    const ground = { ...context, clock: context.network }
    const commits = new Commits(ground, {
      keys,
      everyMs: typeof commit === 'object' ? commit.everyMs : 0,
      stale: (partition, epoch) => this.#stale(partition, epoch),
    })
    const partitions = namespace.partitions.length
    const group = `stream.${this.name}`
    const member = new GroupMember(ground, { group, keys, partitions, name: worker, timing, about }, this)
    await source.read((redis) => declareProcessor(redis, namespace, this.name, this.settings))
    await growth.start()
    if (this.#closed || this.#running) return
    this.#running = { context, keys, member, commits }
    await member.start()
    if (this.#closed) return
    this.#holds = startLoop(ground, `stream.${this.name}.holds`, () => this.#moveHolds())
  }

  /** Whether nothing that is stored waits for a handler here, as far as this process knows. */
  isIdleUpTo(lasts: readonly number[]): boolean {
    const runs = [...this.#runs.values()]
    if (!this.#running?.member.isSure) return this.#closed
    return runs.every(({ held }) => held.isIdle && (held.isBlocked || held.position >= lasts[held.partition]!))
  }

  async close(timeoutMs: number): Promise<void> {
    this.#closed = true
    const running = this.#running
    if (!running) return
    const { network } = running.context
    const until = network.monotonicMs() + timeoutMs
    const left = () => Math.max(10, until - network.monotonicMs())
    await Promise.all([
      this.#holds?.stop({ deadlineMs: timeoutMs }),
      ...[...this.#runs.keys()].map((partition) => this.#letGo(partition, timeoutMs)),
    ])
    await running.member.stop(left())
    running.commits.end()
  }

  gained(grant: Grant): void {
    const { context, keys, member, commits } = this.#running!
    if (this.#closed) return
    // Nobody else had it meanwhile: what was done here is done, although its commit may not have got through.
    const reached = this.#reached.get(grant.partition)
    const from = reached?.epoch === grant.epoch ? Math.max(grant.cursor, reached.cursor) : grant.cursor
    const table = createPatternTable<true>()
    table.add(this.settings.match, true)
    const held = new HeldPartition(
      {
        ...context,
        redis: context.connection.redis,
        keys,
        commits,
        pages: new LogPages(),
        isSure: () => member.isSure,
        stale: (partition, epoch) => this.#stale(partition, epoch),
      },
      {
        processor: this.name,
        grant: { ...grant, cursor: from },
        settings: this.settings,
        wants: (tenant, type) => table.match(tenant, type).length > 0,
      },
    )
    const { partition, epoch } = grant
    context.telemetry.emit('stream.gained', { processor: this.name, partition, epoch, cursor: from })
    this.#runs.set(partition, { held, ended: this.#work(held) })
  }

  asked(partition: number, withinMs: number): void {
    void this.#letGo(partition, withinMs, { release: true })
  }

  lost(partition: number): void {
    const run = this.#runs.get(partition)
    if (!run) return
    this.#runs.delete(partition)
    this.#leftovers.set(partition, run.ended)
    this.#reached.set(partition, { epoch: run.held.epoch, cursor: run.held.cursor })
    run.held.abandon()
    this.#emitLost(run.held, 'lost')
  }

  changed(): void {
    // A Redis that is away just now: the next change, or the next owner, reads it.
    for (const { held } of this.#runs.values()) held.reload().catch(() => undefined)
  }

  replaced(): void {
    const { context } = this.#running!
    context.telemetry.emit('group.replaced', { group: `stream.${this.name}`, worker: context.worker })
  }

  async #work(held: HeldPartition): Promise<void> {
    const { context } = this.#running!
    await this.#withoutLeftover(held.partition)
    await held.open()
    const handling = new HandlingContext(this.name, this.settings, context)
    const { concurrency } = this.settings
    const work =
      concurrency === undefined
        ? new Iteration(handling, held, this.#handler as IteratingHandler)
        : new EachEvent(handling, held, this.#handler as EventHandler, concurrency)
    await work.run().catch((error) => {
      context.telemetry.emit('stream.stuck', {
        processor: this.name,
        partition: held.partition,
        problem: errorText(error),
      })
    })
  }

  /** A handler that was aborted and goes on all the same should not meet its successor; it has the grace to end. */
  async #withoutLeftover(partition: number): Promise<void> {
    const { network, timing, telemetry } = this.#running!.context
    const leftover = this.#leftovers.get(partition)
    if (!leftover) return
    let timer: Timer | undefined
    const late = new Promise<void>((resolve) => {
      timer = network.after(timing.graceMs, () => {
        const problem = 'a handler goes on although its signal has fired; its events are handled again beside it'
        telemetry.emit('stream.stuck', { processor: this.name, partition, problem })
        resolve()
      })
    })
    await Promise.race([leftover, late])
    timer?.cancel()
    this.#leftovers.delete(partition)
  }

  /** Stops giving events, waits for the handler, aborts it when three quarters of the time are over, commits, lets go. */
  async #letGo(partition: number, withinMs: number, { release = false } = {}): Promise<void> {
    const run = this.#runs.get(partition)
    if (!run) return
    const { network: clock } = this.#running!.context
    run.held.close()
    const timers = [
      clock.after(withinMs * 0.75, () => run.held.abort()),
      // A handler that does not listen is left behind; its events were not committed, the next owner gets them again.
      clock.after(withinMs * 0.9, () => void run.held.finish({ release })),
      // Redis is away, too: whoever comes next waits for the end of the grace.
      clock.after(withinMs, () => run.held.abandon()),
    ]
    void run.ended.then(() => run.held.finish({ release }))
    await run.held.over
    for (const timer of timers) timer.cancel()
    if (this.#runs.get(partition) !== run) return
    this.#runs.delete(partition)
    this.#leftovers.set(partition, run.ended)
    this.#emitLost(run.held, release ? 'released' : 'closed')
    if (release) this.#running!.member.released(partition)
  }

  #stale(partition: number, epoch: number): void {
    if (this.#runs.get(partition)?.held.epoch !== epoch) return
    this.#running!.context.telemetry.emit('stream.stale', { processor: this.name, partition, epoch })
    this.lost(partition)
    this.#running!.member.released(partition)
  }

  async #moveHolds(): Promise<{ againInMs: number }> {
    for (const { held } of this.#runs.values()) if (held.isOpen) await held.moveHold()
    return { againInMs: holdEveryMs }
  }

  #emitLost(held: HeldPartition, why: string): void {
    const { telemetry } = this.#running!.context
    telemetry.emit('stream.lost', { processor: this.name, partition: held.partition, epoch: held.epoch, why })
  }
}
