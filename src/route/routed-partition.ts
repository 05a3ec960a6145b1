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
import type { Kind } from '../envelope.ts'
import type { LogHint } from '../log/hint.ts'
import type { RawPage } from '../log/read.ts'
import { mayPass } from '../redis/connection.ts'
import type { Timer } from '../runtime/clock.ts'
import type { Telemetry } from '../runtime/telemetry.ts'
import { deliveriesOf, type Stretch } from './chunk.ts'
import { RouteHold } from './hold.ts'
import { OwnReaders } from './own-readers.ts'
import type { PartitionContext } from './ports.ts'
import type { Committed, Loaded, SaidRoute } from './scripts.ts'
import type { Along, Subscription } from './sink.ts'
import type { Call } from './stores.ts'

const retryMs = 100

export class RoutedPartition {
  readonly partition: number
  readonly epoch: number
  /** Resolves when it does nothing any more. */
  readonly ended: Promise<void>
  readonly #context: PartitionContext
  readonly #hold: RouteHold
  readonly #own: OwnReaders
  /** Who rides with main, although Redis has not heard of it yet. */
  readonly #joined = new Map<string, Subscription>()
  #main = 0
  #savedMain = -1
  #state: 'beginning' | 'routing' | 'over' = 'beginning'
  /** Whether the log may have more than main has read; else how far it has to reach for that. */
  #mayHaveMore = true
  #endOfLog = 0
  /** The log has grown since it was waited for: by what, if a hint said so. */
  #growth: LogHint | 'unknown' | undefined
  /** An event that goes with its publish into its store; it is waited for before anything else happens. */
  #taking: Promise<void> | undefined
  /** Grows with each beginning: what was under way before one does not count. */
  #life = 0
  #isResting = false
  #isWoken = false
  #wakeUp: () => void = () => undefined

  constructor(context: PartitionContext, grant: { partition: number; epoch: number }) {
    this.#context = context
    this.partition = grant.partition
    this.epoch = grant.epoch
    this.#hold = new RouteHold(context.log, grant)
    this.#own = new OwnReaders({
      ...context,
      partition: grant.partition,
      hold: this.#hold,
      isRouting: () => this.#state === 'routing',
      wake: () => this.#wake(),
      moved: () => context.commitSoon(this),
      report: (name, fields) => this.#report(name, fields),
      reportGap: (after, page) => this.#reportGap(after, page),
    })
    this.ended = this.#run()
  }

  /** Everything up to here was given to those who ride. */
  get main(): number {
    return this.#main
  }

  /** Nothing is to be routed that is known of, and everyone rides. */
  get isIdle(): boolean {
    return this.#state === 'routing' && this.#isResting && this.#own.size === 0 && !this.#taking
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

  /**
   * An event is about to be stored. If everything before it is routed and one queue alone wants it, that queue takes it in the same visit to
   * Redis, and a way back and forth is saved. Whatever else there is, it is routed as all others are.
   */
  takeNext({ tenant, type }: Kind): Along | undefined {
    if (!this.isIdle || this.#isWoken || !this.#hold.isPlaced || this.#endOfLog > this.#main) return undefined
    const [subscription, ...others] = this.#context.table.match(tenant, type)
    if (!subscription || others.length > 0) return undefined
    const along = this.#context.stores.takeNext(this.partition, { subscription, tenant, after: this.#main })
    if (along) this.#taking = this.#follow(along.taken)
    return along
  }

  async #follow(taken: Promise<number | undefined>): Promise<void> {
    const life = this.#life
    const seq = await taken
    this.#taking = undefined
    if (seq === undefined || life !== this.#life || this.#state !== 'routing') return
    this.#main = seq
    this.#endOfLog = seq
    this.#context.commitSoon(this)
  }

  begin({ mains, own }: Loaded, all: Iterable<Subscription>): void {
    if (this.#state !== 'beginning') return
    this.#main = mains.get(this.partition) ?? 0
    this.#savedMain = this.#main
    this.#own.clear()
    this.#joined.clear()
    for (const subscription of all) this.#own.place(subscription, own)
    this.#mayHaveMore = true
    this.#growth = undefined
    this.#life += 1
    this.#state = 'routing'
  }

  /** These have changed. Where they are is what Redis says: it was written with the change. */
  take({ own }: Loaded, changed: readonly string[]): void {
    if (this.#state !== 'routing' || changed.length === 0) return
    for (const name of changed) {
      this.#own.delete(name)
      this.#joined.delete(name)
      const subscription = this.#context.table.get(name)
      if (subscription) this.#own.place(subscription, own)
    }
    this.#wake()
  }

  /** What Redis does not know yet; undefined when it knows everything. */
  say(): SaidRoute | undefined {
    if (this.#state !== 'routing') return undefined
    const places = this.#own.unsaved()
    for (const { name, revision } of this.#joined.values())
      places.push({ name, revision, act: 'join', seq: this.#main })
    if (places.length === 0 && this.#main === this.#savedMain) return undefined
    return { partition: this.partition, epoch: this.epoch, main: this.#main, places }
  }

  /** Redis has it. What was refused is said again, unless the table is loaded first and tells that it has changed. */
  committed({ main, places }: SaidRoute, words: Committed['words'][number]): void {
    if (this.#state !== 'routing') return
    this.#savedMain = main
    for (const [i, place] of places.entries()) {
      if (words[i + 1] !== 'done') continue
      const { name, revision, act } = place
      if (act === 'own') this.#own.saved(place)
      else if (this.#joined.get(name)?.revision === revision) this.#joined.delete(name)
    }
  }

  /** Retention is told how far everyone is, now and then; when there is no subscription it need not keep anything. */
  async moveHold(): Promise<void> {
    if (this.#state !== 'routing') return
    if (this.#context.table.wanting > 0) await this.#hold.place(this.#own.lowest(this.#main))
    else if (this.#hold.isPlaced) await this.#hold.drop()
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
        // A Redis that was away is there again soon, and that has been reported.
        failures = mayPass(error) ? 0 : failures + 1
        if (failures > 0) this.#report('route.failed', { problem: String(error) })
        this.#state = 'beginning'
        await new Promise<void>((resolve) => this.#context.clock.after(retryMs * 2 ** Math.min(failures, 5), resolve))
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
    if (table.wanting > 0) await this.#hold.place(this.#own.lowest(this.#main))
    else await this.#hold.drop()
  }

  /** Answers whether there may be more to do at once. */
  async #turn(): Promise<boolean> {
    await this.#taking
    this.#joinThose()
    const hasRouted = await this.#routeMain()
    const hasCaughtUp = this.#state === 'routing' && (await this.#own.catchUp(this.#main))
    this.#joinThose()
    return hasRouted || hasCaughtUp
  }

  get #riders(): number {
    return this.#context.table.wanting - this.#own.size
  }

  /** Who is exactly where main is rides from here on. When nobody rides, main is wherever the foremost is. */
  #joinThose(): void {
    if (this.#state !== 'routing' || this.#own.size === 0) return
    if (this.#riders === 0) this.#main = this.#own.foremost(this.#main)
    const there = this.#own.takeThoseAt(this.#main)
    if (there.length === 0) return
    for (const subscription of there) this.#joined.set(subscription.name, subscription)
    this.#mayHaveMore = true
    this.#context.commitNow(this)
  }

  async #routeMain(): Promise<boolean> {
    if (this.#state !== 'routing' || this.#riders === 0) return false
    const stretch = this.#takeHint() ?? (this.#mayHaveMore ? await this.#readMain() : undefined)
    if (!stretch || this.#state !== 'routing') return false
    const deliveries = deliveriesOf(stretch, this.#ridersFor, (seq) => this.#context.unroutable(this.partition, seq))
    const calls = this.#context.stores.send(this.partition, deliveries)
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

  #leaveBehind(call: Call): void {
    const { name } = call.subscription
    // It has changed meanwhile, or is gone: then Redis has said where it is.
    if (this.#context.table.get(name) !== call.subscription || this.#own.has(name)) return
    this.#joined.delete(name)
    this.#own.leaveBehind(call, this.#main)
    this.#context.commitNow(this)
  }

  /** What came along with its hint, and is the very next, need not be read. */
  #takeHint(): Stretch | undefined {
    const hint = this.#growth
    this.#growth = undefined
    // It has gone its way already.
    if (!hint || (hint !== 'unknown' && hint.last <= this.#main)) return undefined
    this.#mayHaveMore = true
    if (hint === 'unknown' || !hint.entry || hint.before > this.#main) return undefined
    this.#mayHaveMore = false
    this.#endOfLog = hint.last
    return { entries: [hint.entry], after: this.#main, upTo: hint.last }
  }

  async #readMain(): Promise<Stretch | undefined> {
    const { log } = this.#context
    await log.open()
    if (!this.#hold.isPlaced) await this.#hold.place(this.#own.lowest(this.#main))
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

  #reportGap(after: number, { trimmed }: RawPage): void {
    // From the very beginning there is nothing to miss: it means what is stored.
    if (trimmed > after && after > 0) this.#report('route.gap', { from: after, to: trimmed })
  }

  #report(name: Parameters<Telemetry['emit']>[0], fields: Record<string, string | number>): void {
    this.#context.telemetry.emit(name, { partition: this.partition, ...fields })
  }

  #wake(): void {
    this.#isWoken = true
    this.#wakeUp()
  }

  async #rest(): Promise<void> {
    if (!this.#isWoken) await this.#untilWoken()
    this.#isWoken = false
  }

  #untilWoken(): Promise<void> {
    const { clock, log } = this.#context
    const retryAt = this.#own.nextRetryAt(this.#main)
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
        this.#growth = hint ?? 'unknown'
        this.#wake()
      })
    })
  }
}
