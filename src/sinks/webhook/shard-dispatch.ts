/**
 * The batches of one shard, as this process posts them: claimed by turns, kept under leases, settled together with the next claim.
 *
 *   dry       the last claim got less than it asked for: a hint, a deadline or a slow look makes it ask again
 *   flowing   there may be more: it is asked as soon as a slot is free
 *   closed    nothing is claimed any more
 *
 * One call at a time; what ends meanwhile goes with the next one, and while it is in line for slots it waits for its turn. A call without an answer is sent again: a claim gets what it had
 * been given, and what was settled already is stale.
 */

import type { Claim, Outcome } from '../../lanes/acts.ts'
import { Alarm } from '../../lanes/alarm.ts'
import { storedReason } from '../../lanes/item.ts'
import { mayPass } from '../../redis/connection.ts'
import { backoffMs } from '../../runtime/backoff.ts'
import type { Timer } from '../../runtime/clock.ts'
import { within } from '../../runtime/within.ts'
import { Announcements } from './announcements.ts'
import { type Batch, readBatch } from './batch.ts'
import { type Attempt, type DeliverContext, deliver, Endpoints } from './deliver.ts'
import type { DispatchContext } from './dispatcher.ts'
import { type Lease, Leases } from './leases.ts'
import type { Ended, HookFacts, WorkReply } from './scripts.ts'
import type { Shard } from './shard.ts'
import { mostPerClaim, type Slots } from './slots.ts'
import type { Verdict } from './verdict.ts'

type NewClaim = Claim & { token: string }

interface Posting {
  lease: Lease
  batch: Batch
  /** It has one of the slots for webhooks that fail, once it is being posted. */
  isFailing: boolean
}

// What has ended waits for its shard's turn until there are so many, and for no longer than this, or a tenth of a lease.
const mostEnded = 2 * mostPerClaim
const longestEndedMs = 50
const repeatMs = 100
// After an answer that says that something is wrong, and not only away.
const stuckMs = [100, 5_000] as const
// Postponed for want of a slot among those that fail, or of a connection.
const throttleMs = 1_000

export class ShardDispatch {
  readonly #context: DispatchContext
  readonly #shard: Shard
  readonly #slots: Slots
  readonly #alarm: Alarm
  readonly #idleName: string
  readonly #endpoints = new Endpoints()
  readonly #leases: Leases
  readonly #announcements: Announcements
  readonly #delivering: DeliverContext
  /** Being posted. */
  #held = 0
  #ended: Ended[] = []
  /** By the monotonic clock: since when the first of them waits. */
  #endedSince = 0
  #overdue: Timer | undefined
  #unlisten: (() => void) | undefined
  #dry = false
  /** What a claim will bring, by what the last one has: slots that are asked for in vain are missing elsewhere meanwhile. */
  #likely = 4
  #wakes = 0
  #calling: Promise<void> | undefined
  #isScheduled = false
  #closed = false
  /** By the monotonic clock: after that nothing is asked again. */
  #closedUntil = 0
  /** The server's clock, at a time of the monotonic one. */
  #serverMs = 0
  #serverAt = 0

  constructor(context: DispatchContext, shard: Shard, slots: Slots) {
    this.#context = context
    this.#shard = shard
    this.#slots = slots
    this.#idleName = context.randomness.id()
    this.#alarm = new Alarm(context, () => this.wake())
    this.#announcements = new Announcements(context, shard)
    const { network, leaseMs, poster, randomness } = context
    this.#delivering = { poster, randomness, nowMs: () => this.#nowMs() }
    this.#leases = new Leases(network, leaseMs, (tokens) => shard.renew(tokens, leaseMs))
  }

  get isDry(): boolean {
    return this.#dry && !this.isBusy
  }

  get isSpent(): boolean {
    return this.#dry || this.#closed
  }

  get isBusy(): boolean {
    return this.#leases.size > 0 || this.#ended.length > 0 || this.#calling !== undefined
  }

  start(): void {
    void this.#context.hints
      .listen(this.#shard.keys.laneWake, (message) => this.#hear(message))
      .then((unlisten) => {
        if (this.#closed) unlisten()
        else this.#unlisten = unlisten
      })
    this.#alarm.start()
    this.fill()
  }

  /** Asks for as many as it may have, unless it is known that there are none. Answers whether it does. */
  fill(): boolean {
    if (this.isSpent || this.#calling) return false
    this.#callSoon()
    return true
  }

  async close(deadlineMs: number): Promise<void> {
    const { network } = this.#context
    if (this.#closed) return
    this.#closed = true
    this.#closedUntil = network.monotonicMs() + deadlineMs
    this.#unlisten?.()
    this.#alarm.end()
    this.#callSoon()
    // What is being posted may end; a third of the time is for saying what became of it.
    await within(network, (deadlineMs * 2) / 3, this.#quiet())
    this.#leases.abortAll()
    await within(network, deadlineMs / 3, this.#quiet())
    this.#leases.close()
    await this.#context.connection.redis.zrem(this.#shard.keys.idle, this.#idleName).catch(() => undefined)
  }

  async #quiet(): Promise<void> {
    while (this.isBusy) {
      await this.#calling
      await new Promise((resolve) => this.#context.network.after(5, () => resolve(undefined)))
    }
  }

  /** Names of those who may claim, or when a batch will be due. */
  #hear(message: string): void {
    if (message.startsWith('@')) this.#alarm.in(Math.max(0, Number(message.slice(1)) - this.#nowMs()))
    else if (message.split(' ').includes(this.#idleName)) this.wake()
  }

  /** There may be something to give, whatever was last heard. */
  wake(): void {
    this.#wakes += 1
    this.#dry = false
    this.fill()
  }

  #callSoon(): void {
    if (this.#calling || this.#isScheduled) return
    this.#isScheduled = true
    setImmediate(() => {
      this.#isScheduled = false
      if (!this.#calling) this.#call()
    })
  }

  #call(): void {
    const claim = this.#nextClaim()
    if (!claim && (this.#ended.length === 0 || this.#mayWait())) return
    const ended = this.#ended
    this.#ended = []
    this.#calling = this.#ask(ended, claim).then(() => {
      this.#calling = undefined
      if (this.#ended.length > 0 || !this.isSpent) this.#callSoon()
    })
  }

  /** There are no slots for it, but its turn comes: what has ended goes with its claim. */
  #mayWait(): boolean {
    if (this.#closed || this.#ended.length >= mostEnded || !this.#slots.isInLine(this)) return false
    const { network, leaseMs } = this.#context
    const leftMs = this.#endedSince + Math.min(longestEndedMs, leaseMs / 10) - network.monotonicMs()
    if (leftMs > 0)
      this.#overdue ??= network.after(leftMs, () => {
        this.#overdue = undefined
        this.#callSoon()
      })
    return leftMs > 0
  }

  #nextClaim(): NewClaim | undefined {
    const { randomness, worker, start, leaseMs } = this.#context
    const n = this.isSpent ? 0 : this.#slots.take(this, this.#held, Math.max(this.#likely, this.#ended.length + 1))
    if (n === 0) return undefined
    return { token: randomness.id(), n, leaseMs, worker, start, byHand: true, idleName: this.#idleName }
  }

  async #ask(ended: readonly Ended[], claim: NewClaim | undefined): Promise<void> {
    const { network, randomness } = this.#context
    const wakes = this.#wakes
    for (let stuck = 0; ; ) {
      const sentAt = network.monotonicMs()
      try {
        const reply = await this.#shard.work({ ended, claim })
        if (claim) this.#claimed(claim, reply, sentAt, wakes)
        return
      } catch (error) {
        stuck = mayPass(error) ? 0 : stuck + 1
        if (stuck > 0)
          this.#context.telemetry.emit('webhook.stuck', { shard: this.#shard.index, problem: String(error) })
        if (this.#mayLeave(ended, claim)) return this.#slots.release(claim?.n ?? 0)
        const waitMs = stuck > 0 ? backoffMs(stuckMs, stuck, randomness) : repeatMs
        await new Promise<void>((resolve) => network.after(waitMs, resolve))
      }
    }
  }

  /** Closed, and either it is only about what lapses anyway, or the time is up: then all of it lapses. */
  #mayLeave(ended: readonly Ended[], claim: NewClaim | undefined): boolean {
    if (!this.#closed) return false
    const isLittle = !claim && ended.every(({ became }) => became === 'back')
    return isLittle || this.#context.network.monotonicMs() >= this.#closedUntil
  }

  #claimed(
    { token, n }: NewClaim,
    { claimed, hooks, hasAnnouncements }: WorkReply,
    sentAt: number,
    wakes: number,
  ): void {
    if (hasAnnouncements) void this.#announcements.tell()
    if (claimed?.kind !== 'claimed') {
      this.#dry = true
      return this.#slots.release(n)
    }
    this.#serverMs = claimed.nowMs
    this.#serverAt = this.#context.clock.monotonicMs()
    const { items, more, dueInMs } = claimed
    this.#likely = items.length < n ? items.length + 1 : 2 * n
    // What was heard meanwhile may be of something else than this answer.
    if (items.length < n && !more && wakes === this.#wakes) this.#dry = true
    if (dueInMs !== undefined) this.#alarm.in(dueInMs)
    // Paused for so long that another one may have them: they lapse.
    const isCertain = this.#context.network.monotonicMs() < sentAt + this.#context.leaseMs
    if (isCertain && items.length > 0) this.#begin(token, sentAt, items, hooks)
    this.#slots.release(isCertain ? n - items.length : n)
  }

  #begin(token: string, sentAt: number, items: readonly string[], hooks: WorkReply['hooks']): void {
    const lease = this.#leases.begin(token, sentAt, items.length)
    this.#held += items.length
    for (const text of items) {
      const batch = readBatch(text)
      const hook = hooks.get(batch.subscription)
      void this.#post({ lease, batch, isFailing: isFailing(batch, hook) }, hook)
    }
  }

  async #post(posting: Posting, hook: HookFacts | undefined): Promise<void> {
    const { batch, lease } = posting
    if (this.#closed) return this.#endUntried(posting, { kind: 'back' }, 'back')
    // Without a definition nobody knows where to: it is kept until there is one, or it is removed with its webhook.
    if (!hook?.stored || (posting.isFailing && !this.#slots.takeForFailing(batch.subscription)))
      return this.#endUntried(posting, this.#throttle(), 'throttled')
    const endpoint = this.#endpoints.of(hook, this.#nowMs())
    const { signal } = lease
    const delivered = await deliver(this.#delivering, { batch, endpoint, failingSince: hook.failingSince, signal })
    if (!delivered) return this.#end(posting, this.#throttle(), 'throttled', undefined)
    const { verdict, attempt } = delivered
    // Cut off by close(), or its lease was lost: whether it arrived nobody knows, so it goes out again.
    if (signal.aborted && verdict.became !== 'delivered') return this.#end(posting, { kind: 'back' }, 'back', undefined)
    this.#report(batch, attempt)
    const disable = verdict.became === 'back' ? verdict.disable : ''
    this.#end(posting, outcomeOf(verdict), verdict.became, attempt, disable)
  }

  #throttle(): Outcome {
    return { kind: 'throttle', forMs: Math.ceil(throttleMs * (0.5 + this.#context.randomness.float())) }
  }

  /** It has no slot of those that fail. */
  #endUntried(posting: Posting, outcome: Outcome, became: Ended['became']): void {
    posting.isFailing = false
    this.#end(posting, outcome, became, undefined)
  }

  #report({ subscription: webhook, sequence }: Batch, tried: Attempt): void {
    const { batch, attempt, events, status, problem, tookMs, outcome, againInMs } = tried
    const name = outcome === 'delivered' ? 'webhook.delivered' : 'webhook.failed'
    const about = { webhook, sequence, batch, attempt, events, status, problem, tookMs, outcome, againInMs }
    this.#context.telemetry.emit(name, about)
  }

  #end(posting: Posting, outcome: Outcome, became: Ended['became'], attempt: Attempt | undefined, disable = ''): void {
    const { lease, batch } = posting
    const { id, subscription: name, sequence, events } = batch
    this.#leases.ended(lease)
    this.#held -= 1
    if (this.#ended.length === 0) this.#endedSince = this.#context.network.monotonicMs()
    const settlement = { token: lease.token, id, outcome }
    const said = attempt ? JSON.stringify(attempt) : ''
    this.#ended.push({ settlement, name, sequence, became, events, attempt: said, disable })
    // The sequence may have more, and the claim goes along: also if the one under way comes back with less than it asked for.
    this.#wakes += 1
    this.#dry = false
    this.#callSoon()
    this.#slots.release(1, posting.isFailing ? batch.subscription : undefined)
  }

  #nowMs(): number {
    const { clock } = this.#context
    return Math.floor(this.#serverMs + clock.monotonicMs() - this.#serverAt)
  }
}

/** Its webhook's last attempt was not good. */
const isFailing = (batch: Batch, hook: HookFacts | undefined): boolean =>
  batch.attempts > 0 || (hook !== undefined && hook.failures > 0)

function outcomeOf(verdict: Verdict): Outcome {
  switch (verdict.became) {
    case 'delivered':
      return { kind: 'ack' }
    case 'failed':
      return { kind: 'retry', afterMs: verdict.afterMs, reason: storedReason(verdict.reason) }
    case 'dead':
      return { kind: 'dead', reason: storedReason(verdict.reason) }
    case 'back':
      return { kind: 'back' }
  }
}
