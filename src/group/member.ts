/**
 * One member of a group: says that it is there, hears what it owns, lets go when it is asked to.
 *
 *   joining    no answer yet
 *   there      owns what the last answer said
 *   unsure     no answer for as long as the expiry: whatever it owned may be another's by now; all of it is lost at once
 *   replaced   another process has joined under its name: ended, for good
 *   left       ended by stop()
 *
 * Every answer is the whole state, so a lost one is made up for by the next. What changes is told to the keeper.
 */
import { type Connection, mayPass } from '../redis/connection.ts'
import type { Hints } from '../redis/hints.ts'
import type { GroupKeys } from '../redis/keys.ts'
import { runScript } from '../redis/script.ts'
import type { Timer } from '../runtime/clock.ts'
import { type Loop, type LoopContext, startLoop } from '../runtime/loop.ts'
import { type Grant, type GroupTiming, type HeartbeatReply, heartbeatScript } from './scripts.ts'

export interface MemberContext extends LoopContext {
  connection: Connection
  hints: Hints
}

export interface MemberOptions {
  group: string
  keys: GroupKeys
  partitions: number
  name: string
  timing: GroupTiming
  /** What it says of itself, for people. */
  about: Readonly<Record<string, unknown>>
}

/** Whoever works on the partitions. */
export interface Keeper {
  gained(grant: Grant): void
  /** Another one is to have it: finish, commit and release within this time. */
  asked(partition: number, withinMs: number): void
  /** It is not this member's any more, whatever it was doing. */
  lost(partition: number): void
  /** Someone else has changed what is kept for the owners: resumed, released, put back. */
  changed?(): void
  replaced(): void
}

/** The hint that is for all members. */
const everyone = '*'

/** Redis is away: that is reported already, and its return is heard. */
function whileAway(error: unknown): undefined {
  if (!mayPass(error)) throw error
}

export class GroupMember {
  readonly #context: MemberContext
  readonly #options: MemberOptions
  readonly #keeper: Keeper
  readonly #start: string
  readonly #owned = new Map<number, Grant>()
  #loop: Loop | undefined
  readonly #unlisten: (() => void)[] = []
  #unsure: Timer | undefined
  #sureUntil = 0
  #revision: number | undefined
  #ended = false

  constructor(context: MemberContext, options: MemberOptions, keeper: Keeper) {
    this.#context = context
    this.#options = options
    this.#keeper = keeper
    this.#start = context.randomness.id()
  }

  async start(): Promise<void> {
    const { keys, name, group } = this.#options
    const { hints, connection } = this.#context
    this.#unlisten.push(
      await hints.listen(keys.groupWake, (names) => {
        if (names === everyone || names.split(' ').includes(name)) this.#loop?.wake()
      }),
      // After an absence of Redis at once: the others give it no more than an expiry.
      connection.onReady(() => this.#loop?.wake()),
    )
    if (this.#ended) return this.#stopListening()
    let act: 'join' | 'beat' = 'join'
    this.#loop = startLoop(this.#context, `group.${group}`, async () => {
      const dueInMs = await this.#beat(act, () => {
        act = 'beat'
      }).catch(whileAway)
      return { againInMs: Math.min(this.#options.timing.heartbeatMs, dueInMs ?? Number.POSITIVE_INFINITY) }
    })
  }

  /**
   * Whether what it owns is its own for certain. Asked before anything is handed out: after a pause of the process this
   * knows better than a timer that had no chance to run.
   */
  get isSure(): boolean {
    return this.#context.clock.monotonicMs() < this.#sureUntil
  }

  /** The partition was let go in a commit; if it is still ours then, the next answer brings it back. */
  released(partition: number): void {
    this.#owned.delete(partition)
    this.#loop?.wake()
  }

  /** Leaves: what it owns goes to the others at once. The keeper has let go of everything before. */
  async stop(deadlineMs: number): Promise<void> {
    const wasThere = !this.#ended
    this.#end()
    const until = this.#context.clock.monotonicMs() + deadlineMs
    await this.#loop?.stop({ deadlineMs })
    // If it does not get through, the others wait for the expiry.
    if (wasThere && this.#context.connection.isReady) await this.#leave(until - this.#context.clock.monotonicMs())
  }

  async #leave(deadlineMs: number): Promise<void> {
    let timer: Timer | undefined
    const late = new Promise<void>((resolve) => {
      timer = this.#context.clock.after(deadlineMs, resolve)
    })
    await Promise.race([this.#say('leave').catch(() => undefined), late])
    timer?.cancel()
  }

  #say(act: 'join' | 'beat' | 'leave'): Promise<HeartbeatReply> {
    const { about, ...options } = this.#options
    const { clock } = this.#context
    const input = { ...options, act, start: this.#start, about: JSON.stringify(about), nowUs: clock.serverUs?.() }
    return runScript(this.#context.connection.redis, heartbeatScript, input)
  }

  async #beat(act: 'join' | 'beat', heard: () => void): Promise<number | undefined> {
    const { clock } = this.#context
    const { expiryMs } = this.#options.timing
    // Counted from before it was sent: the server heard it later than that, never earlier.
    const sentAt = clock.monotonicMs()
    const reply = await this.#say(act)
    heard()
    if (this.#ended) return undefined
    if (reply.kind !== 'member') {
      this.#end()
      this.#keeper.replaced()
      return undefined
    }
    this.#unsure?.cancel()
    this.#sureUntil = sentAt + expiryMs
    this.#unsure = clock.after(this.#sureUntil - clock.monotonicMs(), () => this.#loseAll())
    this.#take(reply.grants)
    if (this.#revision !== undefined && this.#revision !== reply.revision) this.#keeper.changed?.()
    this.#revision = reply.revision
    return reply.dueInMs
  }

  #take(grants: readonly Grant[]): void {
    const now = new Map(grants.map((grant) => [grant.partition, grant]))
    for (const [partition, { epoch }] of this.#owned) if (now.get(partition)?.epoch !== epoch) this.#lose(partition)
    for (const grant of grants) {
      const known = this.#owned.get(grant.partition)
      this.#owned.set(grant.partition, grant)
      if (!known) this.#keeper.gained(grant)
      if (grant.releaseInMs !== undefined && known?.releaseInMs === undefined)
        this.#keeper.asked(grant.partition, grant.releaseInMs)
    }
  }

  #lose(partition: number): void {
    this.#owned.delete(partition)
    this.#keeper.lost(partition)
  }

  #loseAll(): void {
    for (const partition of [...this.#owned.keys()]) this.#lose(partition)
  }

  #end(): void {
    this.#ended = true
    this.#sureUntil = 0
    this.#unsure?.cancel()
    this.#stopListening()
    this.#loseAll()
  }

  #stopListening(): void {
    for (const unlisten of this.#unlisten.splice(0)) unlisten()
  }
}
