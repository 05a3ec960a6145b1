/**
 * One queue as a worker draws from it: claims, keeps the leases alive, hands items out in the order of their turns, settles.
 *
 *   starting  its definition is not known yet, or its earlier self not replaced: nothing is claimed, whoever asks
 *   dry       the last claim got less than it asked for: a hint, something due or a slow look makes it ask again
 *   flowing   there may be more: it is asked as soon as there is room
 *   ended     nothing is claimed any more
 *
 * Where it flows three claims are under way, of a third of the room each: Redis makes one ready while this process works on another, and when
 * either of them stops for a moment the third keeps the other one busy.
 * A claim whose answer was lost is repeated under its token and gets what it had been given.
 */
import { errorText } from '../../errors.ts'
import type { ClaimReply, Outcome, Claim as StoreClaim } from '../../lanes/acts.ts'
import { Alarm } from '../../lanes/alarm.ts'
import type { LaneStore } from '../../lanes/store.ts'
import { redactorOf } from '../../operations/redact.ts'
import { type Connection, mayPass } from '../../redis/connection.ts'
import type { Hints } from '../../redis/hints.ts'
import { Bag, type Placed } from '../../runtime/bag.ts'
import type { Clock, Randomness } from '../../runtime/clock.ts'
import type { Telemetry } from '../../runtime/telemetry.ts'
import { within } from '../../runtime/within.ts'
import type { Held } from './held.ts'
import { Leases } from './leases.ts'
import { Notes } from './notes.ts'
import type { QueueSettings } from './options.ts'
import { type Said, type Settled, Settler } from './settler.ts'
import { doneWith, shownOutcome } from './shown.ts'

export interface SourceContext {
  clock: Clock
  /** For what waits for an answer. */
  network: Clock
  randomness: Randomness
  telemetry: Telemetry
  connection: Connection
  hints: Hints
  /** For what may be asked twice: REDIS_UNAVAILABLE when there is no answer in time. */
  repeated<T>(ask: () => Promise<T>): Promise<T>
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

/** What is heard of an operation that is to be cancelled: this, and the id of its item. */
const cancelHint = 'cancel '
const mostPerClaim = 1_000
const mostClaims = 3

export interface Claim {
  token: string
  n: number
}

/** Sends a claim by another way. */
type Take = (claim: Claim & SentClaim) => Promise<ClaimReply | undefined>

/** One that is under way, and its end. */
interface Claiming extends Placed {
  n: number
  end: Promise<void>
}

/** A claim as it goes to the store. */
export type SentClaim = Required<Pick<StoreClaim, 'leaseMs' | 'worker' | 'start' | 'idleName'>>

interface SaidOfHeld extends Said {
  readonly held: Held
}

export class Source {
  readonly #context: SourceContext
  readonly #options: SourceOptions
  readonly #settler: Settler
  readonly #leases: Leases
  readonly #notes: Notes
  readonly #alarm: Alarm
  readonly #unlisten: (() => void)[] = []
  readonly #idleName: string
  #buffer: Held[] = []
  #next = 0
  #settings: QueueSettings | undefined
  #revision = -1
  #reloading = false
  /** Under way. */
  readonly #claims = new Bag<Claiming>()
  /** Claims that had no answer: to be repeated. */
  #unanswered: Claim[] = []
  #dry = false
  /** The last claim got all that it asked for. Else one look at a time is enough. */
  #flows = false
  #wakes = 0
  #isGone = false
  #started = false
  #ended = false

  constructor(context: SourceContext, options: SourceOptions) {
    this.#context = context
    this.#options = options
    const { queue, store } = options
    this.#settler = new Settler(context, queue, store)
    this.#leases = new Leases({ queue, store, clock: context.clock, leaseMs: () => this.settings.leaseMs })
    this.#notes = new Notes(store)
    this.#alarm = new Alarm(context, () => this.#wake())
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
    return this.#leases.held
  }

  /** The last claim found nothing more to give, and nothing has been heard since; or nothing is claimed any more. */
  get isDry(): boolean {
    return (this.#dry || this.#ended) && this.#claims.size === 0
  }

  get isStarted(): boolean {
    return this.#started
  }

  async start(): Promise<void> {
    const { store, isNamed, worker, start } = this.#options
    const { hints, connection } = this.#context
    await this.#reload()
    if (isNamed && !this.#ended) await this.#context.repeated(() => store.enter({ act: 'enter', worker, start }))
    const unlisten = await hints.listen(store.keys.laneWake, (names) => {
      if (names.startsWith(cancelHint)) this.#leases.cancel(names.slice(cancelHint.length))
      else if (names.split(' ').includes(this.#idleName)) this.#wake()
    })
    // It may have been closed meanwhile.
    if (this.#ended) return unlisten()
    this.#unlisten.push(
      unlisten,
      connection.onReady(() => this.#wake()),
    )
    this.#alarm.start()
    this.#started = true
    this.fill()
  }

  /** Items that claims under way may bring. */
  get coming(): number {
    let coming = 0
    for (const { n } of this.#claims) coming += n
    return coming
  }

  /** Claims as many as there is room for, unless it is known that there are none. */
  fill(): void {
    if (!this.#started) return
    while (
      this.#claims.size < (this.#flows ? this.mostClaims : 1) &&
      !this.#dry &&
      !this.#ended &&
      this.#context.connection.isReady
    ) {
      const n = Math.min(mostPerClaim, this.#options.room())
      if (n <= 0) return
      const claim = this.#unanswered.shift() ?? { token: this.#context.randomness.id(), n }
      this.#begin(claim)
    }
  }

  /** Something was sent to the store on this connection: a claim right behind it finds it, a hint would come later. */
  expect(): void {
    if (!this.#dry || this.#claims.size > 0) return
    this.#expectMore()
    this.fill()
  }

  /**
   * Claims by another way than the others, if this worker waits for work: `take` brings the claim along with what it is for. Answers
   * whether it was asked; when it says that there was nothing for it, nothing was claimed.
   */
  takeBy(take: Take): boolean {
    if (!this.#started || !this.#dry || this.#claims.size > 0 || this.#ended || this.#unanswered.length > 0)
      return false
    const n = Math.min(mostPerClaim, this.#options.room())
    if (n <= 0) return false
    const claim = { token: this.#context.randomness.id(), n }
    this.#begin(claim, take)
    return true
  }

  #expectMore(): void {
    this.#wakes += 1
    this.#dry = false
  }

  /** What is settled lets others be claimed: the next of its object, or of its tenant. The claim goes with it. */
  get #makesRoom(): boolean {
    const { ordered, limits } = this.settings
    return ordered || Object.keys(limits).length > 0
  }

  /** How many are under way at once where it flows. What is settled goes with them, and the larger a call the less of it is for its lanes. */
  get mostClaims(): number {
    return this.#makesRoom ? 2 : mostClaims
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
      if (!this.#leases.isCertain(held)) continue
      if (held.isCancelled) {
        // Its turn comes again, and then it is gone.
        this.settle(held, { kind: 'back' })
        continue
      }
      held.state = 'running'
      return held
    }
    return undefined
  }

  /** What a handler's answer makes of its item. */
  doneWith(value: unknown): Outcome {
    return doneWith(this.settings, value)
  }

  /** What a handler says of its operation, as long as it runs. Without effect in a queue that is not tracked. */
  note(held: Held, note: { progress?: unknown; line?: string }): void {
    const { track, redact } = this.settings
    if (track !== false && held.state === 'running') this.#notes.say(held, note, redactorOf(redact))
  }

  /** Says what became of an item; one that was lost is nobody's business here any more. */
  settle(held: Held, outcome: Outcome): void {
    if (held.state === 'lost') {
      void this.#notes.finish(held)
      return this.#report('queue.stale', held)
    }
    if (held.state === 'settled') return
    held.state = 'settled'
    this.#leases.forget(held)
    const noted = this.#notes.finish(held)
    if (outcome.kind === 'retry') this.#alarm.in(outcome.afterMs)
    if (outcome.kind === 'throttle') this.#alarm.in(outcome.forMs)
    if (this.#makesRoom) this.#expectMore()
    if (noted) void noted.then(() => this.#say(held, outcome))
    else this.#say(held, outcome)
  }

  #say(held: Held, outcome: Outcome): void {
    const { token, given: of } = held.lease
    const shown = shownOutcome(this.settings, outcome)
    const said: SaidOfHeld = { token, id: held.item.id, outcome: shown, of, at: held.at, held, told: this.#told }
    this.#settler.settle(said)
  }

  readonly #told = (how: Settled, { held }: SaidOfHeld): void => {
    if (how === 'stale') this.#report('queue.stale', held)
  }

  /**
   * What waits goes back, and so does what claims under way bring; resolves when that is stored, or at the deadline. Running items
   * are settled by whoever runs them.
   */
  async handBack(deadlineMs: number): Promise<void> {
    const { network } = this.#context
    const until = network.monotonicMs() + deadlineMs
    this.#stopClaiming()
    this.giveBack()
    await within(network, deadlineMs, Promise.all(Array.from(this.#claims, ({ end }) => end)))
    await this.#notesTold(Math.max(0, until - network.monotonicMs()))
    await this.#settler.flush(Math.max(0, until - network.monotonicMs()))
  }

  /** Ends for good: what is still held is left to lapse. */
  async end(deadlineMs: number): Promise<void> {
    const { network, connection } = this.#context
    const { store, isNamed, worker, start } = this.#options
    const until = network.monotonicMs() + deadlineMs
    this.#stopClaiming()
    this.#leases.end()
    await this.#notesTold(deadlineMs)
    await this.#settler.flush(Math.max(0, until - network.monotonicMs()))
    this.#settler.end()
    if (!connection.isReady) return
    // Nobody is to be woken in its place.
    const gone = store.leaveIdle(this.#idleName)
    const left = isNamed ? store.enter({ act: 'leave', worker, start }) : undefined
    await within(network, Math.max(0, until - network.monotonicMs()), Promise.allSettled([gone, left]))
  }

  /** What is to be settled after its notes has been handed on. */
  async #notesTold(deadlineMs: number): Promise<void> {
    await within(this.#context.network, deadlineMs, this.#notes.quiet())
  }

  /** What waits here may be begun by another: all but the next so many go back, as if never claimed. */
  giveBack(but = 0): void {
    if (this.waiting <= but) return
    // Else this one may be woken for it.
    this.#options.store.leaveIdle(this.#idleName).catch(() => undefined)
    for (const held of this.#buffer.splice(this.#next + but))
      if (held.state === 'waiting') this.settle(held, { kind: 'back' })
  }

  #stopClaiming(): void {
    this.#ended = true
    this.#alarm.end()
    for (const unlisten of this.#unlisten.splice(0)) unlisten()
  }

  #wake(): void {
    this.#wakes += 1
    this.#dry = false
    this.#options.changed()
  }

  #begin(claim: Claim, take?: Take): void {
    const claiming: Claiming = { n: claim.n, place: -1, end: Promise.resolve() }
    this.#claims.add(claiming)
    claiming.end = this.#claim(claim, claiming, take)
  }

  async #claim(claim: Claim, claiming: Claiming, take: Take | undefined): Promise<void> {
    const { token, n } = claim
    const { store, worker, start } = this.#options
    const { clock, telemetry } = this.#context
    const { leaseMs } = this.settings
    const sentAt = clock.monotonicMs()
    const wakes = this.#wakes
    const sent = { token, n, leaseMs, worker, start, idleName: this.#idleName }
    try {
      const reply = await (take ? take(sent) : store.claim(sent))
      if (reply) this.#answered(reply, token, sentAt + leaseMs, n)
      // What it was woken for may have come after the claim: hints take another way than answers.
      if (this.#wakes !== wakes) this.#dry = false
    } catch (error) {
      this.#dry = true
      this.#unanswered.push(claim)
      if (!mayPass(error)) telemetry.emit('queue.stuck', { queue: this.queue, problem: errorText(error) })
    }
    this.#claims.remove(claiming)
    this.#options.changed()
  }

  #answered(reply: ClaimReply, token: string, until: number, n: number): void {
    const { telemetry } = this.#context
    const { worker } = this.#options
    if (reply.kind === 'replaced') {
      telemetry.emit('queue.replaced', { queue: this.queue, worker })
      this.#stopClaiming()
      return this.#leases.loseAll()
    }
    if (reply.kind === 'gone' && !this.#isGone) telemetry.emit('queue.gone', { queue: this.queue })
    this.#isGone = reply.kind === 'gone'
    this.#dry = true
    if (reply.kind !== 'claimed') return
    if (reply.revision !== this.#revision) void this.#reload()
    if (reply.items.length > 0) this.#keep(reply, token, until)
    this.#dry = reply.items.length < n && !reply.more
    this.#flows = !this.#dry
    if (reply.dueInMs !== undefined && this.#dry) this.#alarm.in(reply.dueInMs)
  }

  #keep({ nowMs, items }: Extract<ClaimReply, { kind: 'claimed' }>, token: string, until: number): void {
    for (const held of this.#leases.add(token, nowMs, until, items)) this.#buffer.push(held)
    // It may have ended while the claim was under way.
    if (this.#ended) this.giveBack()
  }

  async #reload(): Promise<void> {
    if (this.#reloading) return
    this.#reloading = true
    try {
      const { settings, revision } = await this.#options.define()
      const isRetimed = settings.leaseMs !== this.#settings?.leaseMs
      this.#settings = settings
      this.#revision = revision
      if (isRetimed) this.#leases.retime()
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
