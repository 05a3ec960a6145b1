/**
 * A partition in the hands of its router: reads the log and hands each event to the stores of those who want it.
 *
 *   beginning   main and the places of all who do not ride with it are loaded; also after every lost connection
 *   routing     main reads a stretch, gives it to all riders at once and waits for them; then one stretch for one of the others
 *   resting     everything is routed: the log's growth, a change of the table or a retry wakes it
 *   over        lost or let go
 *
 * Strictly one stretch after the other: a store gets the next of this partition when it has answered the one before. Who does
 * not take a stretch leaves main, keeps its place before it and is read for separately, so it never holds up the others; Redis
 * hears of that in the same commit that moves main on. Whatever was in memory may be lost at any time: stores skip what they have.
 */
import type { LogHint } from '../log/hint.ts'
import type { RawPage } from '../log/read.ts'
import { mayPass } from '../redis/connection.ts'
import type { Clock, Timer } from '../runtime/clock.ts'
import type { Telemetry } from '../runtime/telemetry.ts'
import { deliveriesOf, type Stretch } from './chunk.ts'
import { backOff, nextRetryAt, nextToServe, type Own, ownAt } from './own.ts'
import type { Committed, Loaded, Place, SaidRoute } from './scripts.ts'
import type { Subscription } from './sink.ts'
import type { Call, Outcome, Stores } from './stores.ts'
import type { RouteTable } from './table.ts'

/** The log as a router sees it. */
export interface RouteLog {
  /** Resolves when growth is noticed from now on. */
  open(): Promise<void>
  read(partition: number, after: number): Promise<RawPage>
  /** How far it was seen to reach. */
  last(partition: number): number
  reached(partition: number, last: number): void
  whenAbove(partition: number, above: number, wake: (hint?: LogHint) => void): () => void
  /** Retention keeps what is above; a lower seq than before needs a higher epoch. */
  hold(place: { partition: number; epoch: number; seq: number }): Promise<void>
  dropHold(partition: number): Promise<void>
}

export interface PartitionContext {
  readonly partitions: number
  readonly table: RouteTable
  readonly log: RouteLog
  readonly stores: Stores
  readonly clock: Clock
  readonly telemetry: Telemetry
  /** Loads the table; `beginning` is told by begin() where everyone is, at the very instant. */
  load(beginning?: RoutedPartition): Promise<Loaded>
  /** There is something to commit. */
  commitSoon(run: RoutedPartition): void
  commitNow(run: RoutedPartition): void
}

const retryMs = 100
/** A subscription that is nearly where main is is waited for, or under load it would never get there. */
const stretchMs = 100

export class RoutedPartition {
  readonly partition: number
  readonly epoch: number
  /** Resolves when it does nothing any more. */
  readonly ended: Promise<void>
  readonly #context: PartitionContext
  readonly #own = new Map<string, Own>()
  /** Who rides with main, although Redis has not heard of it yet. */
  readonly #joined = new Map<string, Subscription>()
  #main = 0
  #savedMain = -1
  #state: 'beginning' | 'routing' | 'over' = 'beginning'
  #turns = 0
  /** Whether the log may have more than main has read; else how far it has to reach for that. */
  #mayHaveMore = true
  #endOfLog = 0
  #hint: LogHint | undefined
  #isResting = false
  #woken = false
  #wakeUp: () => void = () => undefined
  #heldAt = Number.POSITIVE_INFINITY
  #lowerings = 0

  constructor(context: PartitionContext, { partition, epoch }: { partition: number; epoch: number }) {
    this.#context = context
    this.partition = partition
    this.epoch = epoch
    this.ended = this.#run()
  }

  /** Everything up to here was given to those who ride. */
  get main(): number {
    return this.#main
  }

  /** Nothing is to be routed that is known of, and everyone rides. */
  get isIdle(): boolean {
    return this.#state === 'routing' && this.#isResting && this.#own.size === 0
  }

  /** Redis may have been away, and have lost something: what is in memory is forgotten. */
  restart(): void {
    if (this.#state === 'over') return
    this.#state = 'beginning'
    this.#wake()
  }

  end(): void {
    this.#state = 'over'
    this.#wake()
  }

  begin({ mains, own }: Loaded, all: Iterable<Subscription>): void {
    if (this.#state !== 'beginning') return
    this.#main = mains.get(this.partition) ?? 0
    this.#savedMain = this.#main
    this.#own.clear()
    this.#joined.clear()
    for (const subscription of all) this.#place(subscription, own)
    this.#mayHaveMore = true
    this.#hint = undefined
    this.#state = 'routing'
  }

  /** These have changed. Where they are is what Redis says: it was written with the change. */
  take({ own }: Loaded, changed: readonly string[]): void {
    if (this.#state !== 'routing' || changed.length === 0) return
    for (const name of changed) {
      this.#own.delete(name)
      this.#joined.delete(name)
      const subscription = this.#context.table.get(name)
      if (subscription) this.#place(subscription, own)
    }
    this.#wake()
  }

  /** What Redis does not know yet; undefined when it knows everything. */
  say(): SaidRoute | undefined {
    if (this.#state !== 'routing') return undefined
    const places: Place[] = []
    for (const { subscription, at, saved } of this.#own.values())
      if (saved !== at) places.push({ name: subscription.name, revision: subscription.revision, act: 'own', seq: at })
    for (const { name, revision } of this.#joined.values())
      places.push({ name, revision, act: 'join', seq: this.#main })
    if (places.length === 0 && this.#main === this.#savedMain) return undefined
    return { partition: this.partition, epoch: this.epoch, main: this.#main, places }
  }

  /** Redis has it. What was refused is said again, unless the table is loaded first and tells that it has changed. */
  committed({ main, places }: SaidRoute, words: Committed['words'][number]): void {
    if (this.#state !== 'routing') return
    this.#savedMain = main
    for (const [i, { name, revision, act, seq }] of places.entries()) {
      if (words[i + 1] !== 'done') continue
      const own = this.#own.get(name)
      if (act === 'own' && own?.subscription.revision === revision) own.saved = seq
      if (act === 'join' && this.#joined.get(name)?.revision === revision) this.#joined.delete(name)
    }
  }

  /** Retention is told how far everyone is, now and then; when there is no subscription it need not keep anything. */
  async moveHold(): Promise<void> {
    if (this.#state !== 'routing') return
    if (this.#context.table.size > 0) return this.#hold(this.#lowest())
    if (this.#heldAt !== Number.POSITIVE_INFINITY) await this.#dropHold()
  }

  #place(subscription: Subscription, own: Loaded['own']): void {
    const place = own.get(`${this.partition} ${subscription.name}`)
    if (place) this.#own.set(subscription.name, ownAt(subscription, place.seq, place.seq))
  }

  async #run(): Promise<void> {
    let failures = 0
    while (this.#state !== 'over') {
      try {
        if (this.#state === 'beginning') await this.#begin()
        const isBusy = await this.#turn()
        failures = 0
        if (!isBusy) await this.#rest()
      } catch (error) {
        if (this.#isOver) return
        if (!mayPass(error)) this.#report('route.failed', { problem: String(error) })
        this.#state = 'beginning'
        failures += 1
        await this.#pause(retryMs * 2 ** Math.min(failures, 5))
      }
    }
  }

  get #isOver(): boolean {
    return this.#state === 'over'
  }

  async #begin(): Promise<void> {
    const { table, load } = this.#context
    await load(this)
    if (this.#state !== 'routing') return
    if (table.size > 0) await this.#hold(this.#lowest())
    else await this.#dropHold()
  }

  /** Answers whether there may be more to do at once. */
  async #turn(): Promise<boolean> {
    this.#turns += 1
    this.#joinThose()
    const hasRouted = await this.#routeMain()
    const hasCaughtUp = await this.#catchUp()
    this.#joinThose()
    return hasRouted || hasCaughtUp
  }

  get #riders(): number {
    return this.#context.table.size - this.#own.size
  }

  /** Who is exactly where main is rides from here on. When nobody rides, main is wherever the foremost is. */
  #joinThose(): void {
    if (this.#state !== 'routing') return
    if (this.#own.size > 0 && this.#riders === 0)
      for (const { at } of this.#own.values()) this.#main = Math.max(this.#main, at)
    for (const [name, own] of this.#own) {
      if (own.busy || own.at !== this.#main) continue
      this.#own.delete(name)
      this.#joined.set(name, own.subscription)
      this.#mayHaveMore = true
      if (own.reported) this.#report('sink.caught-up', { subscription: name })
      this.#context.commitNow(this)
    }
  }

  async #routeMain(): Promise<boolean> {
    if (this.#state !== 'routing' || this.#riders === 0) return false
    const stretch = this.#takeHint() ?? (this.#mayHaveMore ? await this.#readMain() : undefined)
    if (!stretch || this.#state !== 'routing') return false
    const calls = this.#context.stores.send(this.partition, deliveriesOf(stretch, this.#ridersFor))
    if (calls.length > 0) await this.#context.stores.wait(calls)
    if (this.#state !== 'routing') return false
    for (const call of calls) if (call.outcome !== 'accepted') this.#leaveBehind(call)
    if (stretch.upTo > this.#main) {
      this.#main = stretch.upTo
      this.#context.commitSoon(this)
    }
    return this.#mayHaveMore || calls.length > 0
  }

  readonly #ridersFor = (tenant: string, type: string): readonly Subscription[] => {
    const all = this.#context.table.match(tenant, type)
    return this.#own.size === 0 ? all : all.filter(({ name }) => !this.#own.has(name))
  }

  /** What came along with its hint, and is the very next, need not be read. */
  #takeHint(): Stretch | undefined {
    const hint = this.#hint
    this.#hint = undefined
    if (!hint?.entry || hint.before > this.#main || hint.last <= this.#main) return undefined
    this.#mayHaveMore = false
    this.#endOfLog = hint.last
    return { entries: [hint.entry], after: this.#main, upTo: hint.last }
  }

  async #readMain(): Promise<Stretch | undefined> {
    const { log } = this.#context
    await log.open()
    if (this.#heldAt === Number.POSITIVE_INFINITY) await this.#hold(this.#lowest())
    const known = log.last(this.partition)
    const page = await log.read(this.partition, this.#main)
    if (this.#state !== 'routing') return undefined
    this.#reportGap(this.#main, page)
    const upTo = Math.max(this.#main, page.last, page.trimmed)
    log.reached(this.partition, upTo)
    this.#mayHaveMore = !page.complete
    // What was known before the read and is not there was lost by Redis: new events come after it.
    this.#endOfLog = Math.max(known, upTo)
    return { entries: page.entries, after: this.#main, upTo }
  }

  #leaveBehind(call: Call): void {
    const { subscription, outcome, over } = call
    const { name } = subscription
    // It has changed meanwhile, or is gone: then Redis has said where it is.
    if (this.#context.table.get(name) !== subscription || this.#own.has(name)) return
    const own = ownAt(subscription, this.#main, undefined)
    this.#joined.delete(name)
    this.#own.set(name, own)
    this.#handleTrouble(own, outcome)
    this.#context.commitNow(this)
    if (outcome !== undefined) return
    own.busy = true
    void over.then(() => {
      own.busy = false
      this.#wake()
    })
  }

  #handleTrouble(own: Own, outcome: Outcome): void {
    const { clock, load } = this.#context
    if (outcome === 'gone') {
      own.gone += 1
      own.retryAt = clock.monotonicMs() + retryMs
      // At first its maker may just be about to make it.
      if (own.gone > 1) void this.#remake(own)
      return
    }
    backOff(own, clock.monotonicMs())
    // The load tells this run; where that does not help the retry asks again.
    if (outcome === 'outdated') return void load().catch(() => undefined)
    if (own.reported) return
    own.reported = true
    const problem = outcome === undefined ? 'no answer' : (outcome as { problem: string }).problem
    this.#report('sink.behind', { subscription: own.subscription.name, problem })
  }

  /** Registered, and yet without a store: made again where everyone is. Less than that is harmless, nobody sends it again. */
  async #remake(own: Own): Promise<void> {
    const { load, stores, partitions, clock } = this.#context
    const { subscription } = own
    own.busy = true
    try {
      const { own: places, mains } = await load()
      if (this.#own.get(subscription.name) !== own) return
      const placeOf = (_: unknown, partition: number) =>
        places.get(`${partition} ${subscription.name}`)?.seq ?? mains.get(partition) ?? 0
      await stores.make(subscription, Array.from({ length: partitions }, placeOf))
      this.#report('sink.remade', { subscription: subscription.name })
      own.gone = 0
      own.retryAt = 0
    } catch {
      backOff(own, clock.monotonicMs())
    } finally {
      own.busy = false
      this.#wake()
    }
  }

  async #catchUp(): Promise<boolean> {
    if (this.#state !== 'routing') return false
    const { clock, log, table, stores } = this.#context
    const group = nextToServe(this.#own.values(), this.#main, clock.monotonicMs())
    const [first] = group
    if (!first) return false
    const after = first.at
    await this.#hold(Math.min(after, this.#heldAt))
    const page = await log.read(this.partition, after)
    if (this.#state !== 'routing') return false
    this.#reportGap(after, page)
    const upTo = page.complete ? this.#main : Math.min(this.#main, page.last)
    const served = new Map(group.filter((own) => this.#isCurrent(own)).map((own) => [own.subscription, own]))
    const deliveries = deliveriesOf({ entries: page.entries, after, upTo }, (tenant, type) =>
      table.match(tenant, type).filter((subscription) => served.has(subscription)),
    )
    const hasFailed = [...served.values()].some(({ failures, gone }) => failures + gone > 0)
    const calls = stores.send(this.partition, deliveries)
    for (const call of calls) this.#follow(served.get(call.subscription)!, call, upTo)
    for (const own of served.values()) {
      own.servedIn = this.#turns
      if (!own.busy) this.#advance(own, upTo)
    }
    if (calls.length > 0 && upTo === this.#main && !hasFailed)
      await Promise.race([Promise.all(calls.map(({ over }) => over)), this.#pause(stretchMs)])
    return true
  }

  #isCurrent(own: Own): boolean {
    return this.#own.get(own.subscription.name) === own
  }

  #follow(own: Own, call: Call, upTo: number): void {
    own.busy = true
    void call.over.then(() => {
      own.busy = false
      if (this.#state !== 'routing' || !this.#isCurrent(own)) return
      if (call.outcome === 'accepted') this.#advance(own, upTo)
      else this.#handleTrouble(own, call.outcome)
      this.#wake()
    })
  }

  #advance(own: Own, at: number): void {
    own.at = at
    own.failures = 0
    own.gone = 0
    this.#context.commitSoon(this)
  }

  #lowest(): number {
    let lowest = this.#main
    for (const { at } of this.#own.values()) lowest = Math.min(lowest, at)
    return lowest
  }

  /** Below its place a hold moves only under a higher epoch. The next owner's is the clock's: it stays above these. */
  async #hold(seq: number): Promise<void> {
    if (seq === this.#heldAt) return
    if (seq < this.#heldAt) this.#lowerings += 1
    await this.#context.log.hold({ partition: this.partition, epoch: this.epoch + this.#lowerings, seq })
    this.#heldAt = seq
  }

  async #dropHold(): Promise<void> {
    this.#heldAt = Number.POSITIVE_INFINITY
    await this.#context.log.dropHold(this.partition)
  }

  #reportGap(after: number, { trimmed }: RawPage): void {
    // From the very beginning there is nothing to miss: it means what is stored.
    if (trimmed > after && after > 0) this.#report('route.gap', { from: after, to: trimmed })
  }

  #report(name: Parameters<Telemetry['emit']>[0], fields: Record<string, string | number>): void {
    this.#context.telemetry.emit(name, { partition: this.partition, ...fields })
  }

  #wake(): void {
    this.#woken = true
    this.#wakeUp()
  }

  async #rest(): Promise<void> {
    if (!this.#woken) await this.#untilWoken()
    this.#woken = false
  }

  #untilWoken(): Promise<void> {
    const { clock, log } = this.#context
    const retryAt = nextRetryAt(this.#own.values(), this.#main)
    return new Promise((resolve) => {
      let timer: Timer | undefined
      let stopWaiting: () => void = () => undefined
      this.#isResting = true
      this.#wakeUp = () => {
        this.#wakeUp = () => undefined
        this.#isResting = false
        timer?.cancel()
        stopWaiting()
        resolve()
      }
      if (retryAt !== Number.POSITIVE_INFINITY)
        timer = clock.after(Math.max(1, retryAt - clock.monotonicMs()), () => this.#wake())
      if (this.#riders === 0) return
      stopWaiting = log.whenAbove(this.partition, this.#endOfLog, (hint) => {
        this.#mayHaveMore = true
        this.#hint = hint
        this.#wake()
      })
    })
  }

  #pause(ms: number): Promise<void> {
    return new Promise((resolve) => this.#context.clock.after(ms, resolve))
  }
}
