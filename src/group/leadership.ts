/**
 * Who leads: of all running processes of a namespace one, the owner of the only partition of the group `workers`.
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
import { GroupMember, type MemberContext } from './member.ts'
import { commitScript, type Grant, type GroupTiming } from './scripts.ts'

export interface LeadershipOptions {
  /** Of the group `workers`. */
  keys: GroupKeys
  worker: string
  timing: GroupTiming
  /** What the process says of itself, for people. */
  about: Readonly<Record<string, unknown>>
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
    const { keys, worker, timing, about } = options
    const member = { group: 'workers', keys, partitions: 1, name: worker, timing, about }
    this.#member = new GroupMember(context, member, {
      gained: (grant) => this.#lead(grant),
      asked: () => void this.#letGo(),
      lost: () => this.#follow(),
      replaced: () => context.telemetry.emit('group.replaced', { group: 'workers', worker }),
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
    this.#context.telemetry.emit('leader.gained', { worker: this.#options.worker })
    this.#changed()
  }

  #follow(): void {
    if (!this.#leading) return
    this.#leading.abort()
    this.#leading = undefined
    this.#context.telemetry.emit('leader.lost', { worker: this.#options.worker })
    this.#changed()
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
