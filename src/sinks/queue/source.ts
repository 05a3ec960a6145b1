/**
 * One queue as a worker draws from it: claims, keeps the leases alive, hands items out in the order of their turns, settles.
 *
 *   starting  its definition is not known yet, or its earlier self not replaced: nothing is claimed, whoever asks
 *   dry       the last claim got less than it asked for: a hint, something due or a slow look makes it ask again
 *   flowing   there may be more: it is asked as soon as there is room
 *   ended     nothing is claimed any more
 *
 * Up to two claims are under way, of half the room each: Redis makes one ready while this process works on the other.
 * A claim whose answer was lost is repeated under its token and gets what it had been given. A lease is renewed only while
 * this process knows what it holds.
 */
import { BusbarError, errorText } from '../../errors.ts'
import type { ClaimReply, Outcome } from '../../lanes/scripts.ts'
import type { LaneStore } from '../../lanes/store.ts'
import { askAgain, type Connection, mayPass } from '../../redis/connection.ts'
import type { Hints } from '../../redis/hints.ts'
import type { Clock, Randomness, Timer } from '../../runtime/clock.ts'
import type { Telemetry } from '../../runtime/telemetry.ts'
import { Held, type Lease } from './held.ts'
import type { QueueSettings } from './options.ts'
import { Settler } from './settler.ts'

export interface SourceContext {
  clock: Clock
  /** For what waits for an answer. */
  network: Clock
  randomness: Randomness
  telemetry: Telemetry
  connection: Connection
  hints: Hints
  timeoutMs: number
}

export interface SourceOptions {
  queue: string
  store: LaneStore
  worker: string
  start: string
  /** Whether the worker comes back under its name: then it takes over what its earlier self held. */
  isNamed: boolean
  /** How many there is room for now. */
  room(): number
  /** Something has come, or there may be more. */
  changed(): void
  /** The definition as it is stored now, with its revision. */
  define(): Promise<{ settings: QueueSettings; revision: number }>
}

const lookMs = 1_000
const mostPerClaim = 1_000
const mostClaims = 2

export class Source {
  readonly #context: SourceContext
  readonly #options: SourceOptions
  readonly #settler: Settler
  readonly #leases = new Map<string, Lease>()
  readonly #unlisten: (() => void)[] = []
  readonly #idleName: string
  #buffer: Held[] = []
  #next = 0
  #settings: QueueSettings | undefined
  #revision = -1
  #reloading = false
  /** Claims under way, with how many items they ask for. */
  readonly #claims = new Map<string, number>()
  /** A claim that had no answer: to be repeated. */
  #unanswered: { token: string; n: number } | undefined
  #dry = false
  #wakes = 0
  #isGone = false
  #due: Timer | undefined
  #dueAt = 0
  #look: Timer | undefined
  #renewal: Timer | undefined
  #started = false
  #ended = false

  constructor(context: SourceContext, options: SourceOptions) {
    this.#context = context
    this.#options = options
    this.#settler = new Settler(context, options.queue, options.store)
    this.#idleName = context.randomness.id()
  }

  get queue(): string {
    return this.#options.queue
  }

  get settings(): QueueSettings {
    return this.#settings!
  }

  /** Items that wait here for a handler. */
  get waiting(): number {
    return this.#buffer.length - this.#next
  }

  /** Items that this process holds, waiting or running. */
  get held(): number {
    let held = 0
    for (const { items } of this.#leases.values()) held += items.size
    return held
  }

  /** The last claim found nothing more to give, and nothing has been heard since. */
  get isDry(): boolean {
    return this.#dry && this.#claims.size === 0
  }

  async start(): Promise<void> {
    const { store, isNamed, worker, start } = this.#options
    const { hints, connection } = this.#context
    await this.#reload()
    if (isNamed) await askAgain(this.#context, () => store.enter({ act: 'enter', worker, start }))
    this.#unlisten.push(
      await hints.listen(store.keys.laneWake, (names) => {
        if (names.split(' ').includes(this.#idleName)) this.#wake()
      }),
      connection.onReady(() => this.#wake()),
    )
    this.#lookAgain()
    this.#renewSoon()
    this.#started = true
    this.fill()
  }

  /** Items that claims under way may bring. */
  get coming(): number {
    let coming = 0
    for (const n of this.#claims.values()) coming += n
    return coming
  }

  /** Claims as many as there is room for, unless it is known that there are none. */
  fill(): void {
    if (!this.#started) return
    while (this.#claims.size < mostClaims && !this.#dry && !this.#ended && this.#context.connection.isReady) {
      const n = Math.min(mostPerClaim, this.#options.room())
      if (n <= 0) return
      void this.#claim(this.#unanswered ?? { token: this.#context.randomness.id(), n })
    }
  }

  /** Something was sent to the store on this connection: a claim right behind it finds it, a hint would come later. */
  expect(): void {
    if (this.#dry && this.#claims.size === 0) this.#wake()
  }

  /** The next item whose lease is certain; undefined when none waits. */
  take(): Held | undefined {
    while (this.#next < this.#buffer.length) {
      const held = this.#buffer[this.#next]!
      this.#next += 1
      if (this.#next === this.#buffer.length) {
        this.#buffer = []
        this.#next = 0
      }
      if (held.state !== 'waiting') continue
      // A process that was paused knows it here before any timer has told it.
      if (this.#context.clock.monotonicMs() < held.lease.until) {
        held.state = 'running'
        return held
      }
      this.#lose(held.lease)
    }
    return undefined
  }

  /** Says what became of an item; one that was lost is nobody's business here any more. */
  settle(held: Held, outcome: Outcome): void {
    if (held.state === 'lost') return this.#report('queue.stale', held)
    if (held.state === 'settled') return
    held.state = 'settled'
    this.#forget(held)
    if (outcome.kind === 'retry') this.#wakeIn(outcome.afterMs)
    if (outcome.kind === 'throttle') this.#wakeIn(outcome.forMs)
    this.#settler.settle(held.lease.token, held.item.id, outcome, (how) => {
      if (how === 'stale') this.#report('queue.stale', held)
    })
  }

  /** What waits goes back; resolves when that is stored, or at the deadline. Running items are settled by whoever runs them. */
  async handBack(deadlineMs: number): Promise<void> {
    this.#stopClaiming()
    for (let held = this.take(); held; held = this.take()) this.settle(held, { kind: 'back' })
    await this.#settler.flush(deadlineMs)
  }

  /** Ends for good: what is still held is left to lapse. */
  async end(deadlineMs: number): Promise<void> {
    this.#stopClaiming()
    this.#renewal?.cancel()
    await this.#settler.flush(deadlineMs)
    this.#settler.end()
    const { store, isNamed, worker, start } = this.#options
    if (isNamed && this.#context.connection.isReady)
      await store.enter({ act: 'leave', worker, start }).catch(() => undefined)
  }

  #stopClaiming(): void {
    this.#ended = true
    for (const timer of [this.#due, this.#look]) timer?.cancel()
    for (const unlisten of this.#unlisten.splice(0)) unlisten()
  }

  /** Something is due then; others of this process may be due earlier. */
  #wakeIn(ms: number): void {
    const { clock } = this.#context
    const at = clock.monotonicMs() + ms
    if (this.#ended || (this.#due && this.#dueAt <= at)) return
    this.#due?.cancel()
    this.#dueAt = at
    // The server rounds to whole ms.
    this.#due = clock.after(ms + 1, () => {
      this.#due = undefined
      this.#wake()
    })
  }

  #wake(): void {
    this.#wakes += 1
    this.#dry = false
    this.#options.changed()
  }

  /** Hints get lost: once a second someone asks anyway. */
  #lookAgain(): void {
    const { network, randomness } = this.#context
    this.#look = network.after(lookMs * (0.9 + 0.2 * randomness.float()), () => {
      this.#lookAgain()
      this.#wake()
    })
  }

  async #claim({ token, n }: { token: string; n: number }): Promise<void> {
    const { store, worker, start } = this.#options
    const { clock, telemetry } = this.#context
    const { leaseMs } = this.settings
    this.#unanswered = undefined
    this.#claims.set(token, n)
    const sentAt = clock.monotonicMs()
    const wakes = this.#wakes
    try {
      const reply = await store.claim({ token, n, leaseMs, worker, start, idleName: this.#idleName })
      this.#answered(reply, token, sentAt + leaseMs, n)
      // What it was woken for may have come after the claim: hints take another way than answers.
      if (this.#wakes !== wakes) this.#dry = false
    } catch (error) {
      this.#dry = true
      // Of several the last one: what the others were given lapses.
      this.#unanswered = { token, n }
      if (!mayPass(error)) telemetry.emit('queue.stuck', { queue: this.queue, problem: errorText(error) })
    }
    this.#claims.delete(token)
    this.#options.changed()
  }

  #answered(reply: ClaimReply, token: string, until: number, n: number): void {
    const { telemetry } = this.#context
    const { worker } = this.#options
    if (reply.kind === 'replaced') {
      telemetry.emit('queue.replaced', { queue: this.queue, worker })
      this.#stopClaiming()
      for (const lease of [...this.#leases.values()]) this.#lose(lease)
      return
    }
    if (reply.kind === 'gone' && !this.#isGone) telemetry.emit('queue.gone', { queue: this.queue })
    this.#isGone = reply.kind === 'gone'
    this.#dry = true
    if (reply.kind !== 'claimed') return
    if (reply.revision !== this.#revision) void this.#reload()
    if (reply.items.length > 0) this.#keep(reply, token, until)
    this.#dry = reply.items.length < n && !reply.more
    if (reply.dueInMs !== undefined && this.#dry) this.#wakeIn(reply.dueInMs)
  }

  #keep({ nowMs, items }: Extract<ClaimReply, { kind: 'claimed' }>, token: string, until: number): void {
    const lease: Lease = { token, claimedMs: nowMs, until, items: new Set() }
    this.#leases.set(token, lease)
    for (const text of items) {
      const held = new Held(lease, text)
      lease.items.add(held)
      this.#buffer.push(held)
    }
    // It may have ended while the claim was under way.
    if (this.#ended) for (let held = this.take(); held; held = this.take()) this.settle(held, { kind: 'back' })
  }

  #forget(held: Held): void {
    const { lease } = held
    lease.items.delete(held)
    if (lease.items.size === 0) this.#leases.delete(lease.token)
  }

  #lose(lease: Lease): void {
    this.#leases.delete(lease.token)
    for (const held of lease.items) {
      if (held.state === 'running') held.abort(BusbarError.of('LEASE_LOST', { queue: this.queue, id: held.item.id }))
      held.state = 'lost'
    }
    lease.items.clear()
  }

  #renewSoon(): void {
    const { clock } = this.#context
    this.#renewal = clock.after(this.settings.leaseMs / 3, () => {
      void this.#renew()
      this.#renewSoon()
    })
  }

  async #renew(): Promise<void> {
    const { clock } = this.#context
    const now = clock.monotonicMs()
    for (const lease of [...this.#leases.values()]) if (lease.until <= now) this.#lose(lease)
    const tokens = [...this.#leases.keys()]
    if (tokens.length === 0) return
    const { leaseMs } = this.settings
    try {
      const lost = new Set(await this.#options.store.renew(tokens, leaseMs))
      for (const token of tokens) {
        const lease = this.#leases.get(token)
        if (lease && lost.has(token)) this.#lose(lease)
        else if (lease) lease.until = now + leaseMs
      }
    } catch {
      // Redis is away: the leases end where they ended; the next turn looks.
    }
  }

  async #reload(): Promise<void> {
    if (this.#reloading) return
    this.#reloading = true
    try {
      const { settings, revision } = await this.#options.define()
      this.#settings = settings
      this.#revision = revision
    } catch (error) {
      if (!this.#settings) throw error
    } finally {
      this.#reloading = false
    }
  }

  #report(name: 'queue.stale', { item }: Held): void {
    this.#context.telemetry.emit(name, { queue: this.queue, id: item.id, attempt: item.attempts + 1 })
  }
}
