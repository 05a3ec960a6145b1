/**
 * Who of several processes does what only one may do: the owner of the only partition of a group.
 *
 * In the group `workers` are all running processes of a namespace: its owner is the leader. Each task that one process is to
 * run has a group too, of those that declare it: the leader may be one that does not.
 *
 *   following   another one leads, or nobody yet
 *   leading     until it stops, is replaced, or is silent for so long that another one may lead
 *   ended       stopped, or another process has joined under its name
 *
 * A process that is paused may believe for a moment that it still leads. So at most one is effective only because all
 * that a leader does is harmless when two do it, or is fenced where it is written.
 */
import type { GroupKeys } from '../redis/keys.ts'
import { runScript } from '../redis/script.ts'
import type { TelemetryName } from '../runtime/telemetry.ts'
import { GroupMember, type MemberContext } from './member.ts'
import { commitScript, type Grant, type GroupTiming } from './scripts.ts'

export interface LeadershipOptions {
  group: string
  keys: GroupKeys
  worker: string
  timing: GroupTiming
  /** What the process says of itself, for people. */
  about: Readonly<Record<string, unknown>>
  /** How its changes are reported. */
  report: { gained: TelemetryName; lost: TelemetryName; task?: string }
}

export class Leadership {
  readonly #context: MemberContext
  readonly #options: LeadershipOptions
  readonly #member: GroupMember
  readonly #listeners = new Set<() => void>()
  #leading: AbortController | undefined
  #grant: Grant | undefined

  constructor(context: MemberContext, options: LeadershipOptions) {
    this.#context = context
    this.#options = options
    const { group, keys, worker, timing, about } = options
    const member = { group, keys, partitions: 1, name: worker, timing, about }
    this.#member = new GroupMember(context, member, {
      gained: (grant) => this.#lead(grant),
      asked: () => void this.#letGo(),
      lost: () => this.#follow(),
      replaced: () => context.telemetry.emit('group.replaced', { group, worker }),
    })
  }

  get isLeader(): boolean {
    return this.#leading !== undefined
  }

  /** Aborts when this leadership ends; aborted where there is none. */
  get signal(): AbortSignal {
    return this.#leading?.signal ?? AbortSignal.abort()
  }

  /** Calls `listener` after each change; answers how to stop that. */
  onChange(listener: () => void): () => void {
    this.#listeners.add(listener)
    return () => void this.#listeners.delete(listener)
  }

  start(): Promise<void> {
    return this.#member.start()
  }

  /** Leaves, so that another one leads at once. */
  async stop(deadlineMs: number): Promise<void> {
    const late = new Promise<void>((resolve) => this.#context.clock.after(deadlineMs, resolve))
    await Promise.race([this.#member.stop(deadlineMs), late])
  }

  #lead(grant: Grant): void {
    this.#grant = grant
    this.#leading = new AbortController()
    this.#report('gained')
    this.#changed()
  }

  #follow(): void {
    if (!this.#leading) return
    this.#leading.abort()
    this.#leading = undefined
    this.#report('lost')
    this.#changed()
  }

  #report(change: 'gained' | 'lost'): void {
    const { worker, report } = this.#options
    const { [change]: name, task } = report
    this.#context.telemetry.emit(name, task === undefined ? { worker } : { task, worker })
  }

  async #letGo(): Promise<void> {
    const { partition, epoch, cursor } = this.#grant!
    this.#follow()
    const said = [{ partition, epoch, cursor, release: true }]
    // If it does not get through, the other one waits for the end of the grace.
    await runScript(this.#context.connection.redis, commitScript, { keys: this.#options.keys, said }).catch(
      () => undefined,
    )
    this.#member.released(partition)
  }

  #changed(): void {
    for (const listener of this.#listeners) listener()
  }
}
