/**
 * Those of a partition who do not ride with main: each is read for up to main, a stretch at a time, and its store is mended or
 * waited for without holding up anyone else.
 *
 * What comes back from a store counts only as long as the subscription is still here as it was sent: a change of the table, or a
 * new beginning, puts another in its place.
 */
import type { RawPage } from '../log/read.ts'
import { deliveriesOf } from './chunk.ts'
import type { RouteHold } from './hold.ts'
import { backOff, nextRetryAt, nextToServe, type Own, ownAt } from './own.ts'
import type { PartitionContext } from './ports.ts'
import type { Loaded, Place } from './scripts.ts'
import type { Subscription } from './sink.ts'
import type { Call, Outcome } from './stores.ts'

export interface OwnReadersContext extends Omit<PartitionContext, 'commitSoon' | 'commitNow'> {
  readonly partition: number
  readonly hold: RouteHold
  isRouting(): boolean
  /** Something can go on. */
  wake(): void
  /** Someone has come further. */
  moved(): void
  report(name: Parameters<PartitionContext['telemetry']['emit']>[0], fields: Record<string, string | number>): void
  reportGap(after: number, page: RawPage): void
}

const retryMs = 100
/** A subscription that is nearly where main is is waited for, or under load it would never get there. */
const stretchMs = 100

export class OwnReaders {
  readonly #context: OwnReadersContext
  readonly #all = new Map<string, Own>()
  #turns = 0

  constructor(context: OwnReadersContext) {
    this.#context = context
  }

  get size(): number {
    return this.#all.size
  }

  has(name: string): boolean {
    return this.#all.has(name)
  }

  clear(): void {
    this.#all.clear()
  }

  delete(name: string): void {
    this.#all.delete(name)
  }

  /** Where Redis says that it is; nothing, where it rides. */
  place(subscription: Subscription, own: Loaded['own']): void {
    const place = own.get(`${this.#context.partition} ${subscription.name}`)
    if (place) this.#all.set(subscription.name, ownAt(subscription, place.seq, place.seq))
  }

  lowest(main: number): number {
    let lowest = main
    for (const { at } of this.#all.values()) lowest = Math.min(lowest, at)
    return lowest
  }

  foremost(main: number): number {
    let foremost = main
    for (const { at } of this.#all.values()) foremost = Math.max(foremost, at)
    return foremost
  }

  nextRetryAt(main: number): number {
    return nextRetryAt(this.#all.values(), main)
  }

  /** Takes out who is exactly where main is. */
  takeThoseAt(main: number): Subscription[] {
    const there = [...this.#all.values()].filter(({ busy, at }) => !busy && at === main)
    for (const { subscription, reported } of there) {
      this.#all.delete(subscription.name)
      if (reported) this.#context.report('sink.caught-up', { subscription: subscription.name })
    }
    return there.map(({ subscription }) => subscription)
  }

  /** What Redis does not know yet. */
  unsaved(): Place[] {
    const places: Place[] = []
    for (const { subscription, at, saved } of this.#all.values())
      if (saved !== at) places.push({ name: subscription.name, revision: subscription.revision, act: 'own', seq: at })
    return places
  }

  saved({ name, revision, seq }: Place): void {
    const own = this.#all.get(name)
    if (own?.subscription.revision === revision) own.saved = seq
  }

  /** Its store has not taken what lies behind `at`. */
  leaveBehind({ subscription, outcome, over }: Call, at: number): void {
    const own = ownAt(subscription, at, undefined)
    this.#all.set(subscription.name, own)
    this.#handleTrouble(own, outcome)
    if (outcome !== undefined) return
    // A late answer is not overtaken.
    own.busy = true
    void over.then(() => {
      own.busy = false
      this.#context.wake()
    })
  }

  /** Reads one stretch for those whose turn it is. Answers whether there was anyone. */
  async catchUp(main: number): Promise<boolean> {
    const { clock, log, stores, partition, hold } = this.#context
    const group = nextToServe(this.#all.values(), main, clock.monotonicMs())
    const [first] = group
    if (!first) return false
    this.#turns += 1
    const after = first.at
    await hold.reachDownTo(after)
    const page = await log.read(partition, after)
    if (!this.#context.isRouting()) return false
    this.#context.reportGap(after, page)
    const upTo = page.complete ? main : Math.min(main, page.last)
    const served = new Map(group.filter((own) => this.#isHere(own)).map((own) => [own.subscription, own]))
    const hasFailed = [...served.values()].some(({ failures, gone }) => failures + gone > 0)
    const calls = stores.send(partition, this.#deliveriesFor(served, page, after, upTo))
    for (const call of calls) this.#follow(served.get(call.subscription)!, call, upTo)
    for (const own of served.values()) {
      own.servedIn = this.#turns
      if (!own.busy) this.#advance(own, upTo)
    }
    if (calls.length > 0 && upTo === main && !hasFailed) await this.#nearlyThere(calls)
    return true
  }

  #deliveriesFor(served: ReadonlyMap<Subscription, Own>, { entries }: RawPage, after: number, upTo: number) {
    const { table, partition, unroutable } = this.#context
    return deliveriesOf(
      { entries, after, upTo },
      (tenant, type) => table.match(tenant, type).filter((subscription) => served.has(subscription)),
      (seq) => unroutable(partition, seq),
    )
  }

  async #nearlyThere(calls: readonly Call[]): Promise<void> {
    const { clock } = this.#context
    await new Promise<void>((resolve) => {
      const timer = clock.after(stretchMs, resolve)
      void Promise.all(calls.map(({ over }) => over)).then(() => {
        timer.cancel()
        resolve()
      })
    })
  }

  #isHere(own: Own): boolean {
    return this.#all.get(own.subscription.name) === own
  }

  #follow(own: Own, call: Call, upTo: number): void {
    own.busy = true
    void call.over.then(() => {
      own.busy = false
      if (!this.#isHere(own)) return
      if (call.outcome === 'accepted') this.#advance(own, upTo)
      else this.#handleTrouble(own, call.outcome)
      this.#context.wake()
    })
  }

  #advance(own: Own, at: number): void {
    own.at = at
    own.failures = 0
    own.gone = 0
    this.#context.moved()
  }

  #handleTrouble(own: Own, outcome: Outcome): void {
    const { clock, load, report } = this.#context
    if (outcome === 'gone') {
      own.gone += 1
      own.retryAt = clock.monotonicMs() + retryMs
      // At first its maker may just be about to make it.
      if (own.gone > 1) void this.#remake(own)
      return
    }
    // It comes forward: there will be more room soon.
    if (outcome === 'partly') own.failures = 0
    backOff(own, clock.monotonicMs())
    // What has changed comes with the load; where that does not help, the retry asks again.
    if (outcome === 'outdated') return void load().catch(() => undefined)
    if (own.reported) return
    own.reported = true
    const silent = outcome === 'full' || outcome === 'partly' ? 'the backlog of a tenant is full' : 'no answer'
    const problem = typeof outcome === 'object' ? outcome.problem : silent
    report('sink.behind', { subscription: own.subscription.name, problem })
  }

  /** Registered, and yet without a store: made again where everyone is. Lower is harmless, nobody sends that again. */
  async #remake(own: Own): Promise<void> {
    const { load, table, stores, partitions, clock, report, wake } = this.#context
    const { subscription } = own
    own.busy = true
    try {
      const { own: places, mains } = await load()
      if (!this.#isHere(own)) return
      const placeOf = (_: unknown, partition: number) =>
        places.get(`${partition} ${subscription.name}`)?.seq ?? mains.get(partition) ?? 0
      await stores.make(subscription, Array.from({ length: partitions }, placeOf))
      await load()
      // Removed meanwhile: then its store was taken away before it was made again.
      if (table.get(subscription.name)?.born !== subscription.born) return await stores.remove(subscription)
      report('sink.remade', { subscription: subscription.name })
      own.gone = 0
      own.retryAt = 0
    } catch {
      backOff(own, clock.monotonicMs())
    } finally {
      own.busy = false
      wake()
    }
  }
}
