/**
 * Runs a handler over one queue or several: so many at once, each item in the order of its turn.
 *
 *   made       declared; run() starts it
 *   working    slots are filled from what was claimed; what can start now or soon is claimed
 *   closing    nothing new begins; what waits went back; handlers that run may end
 *   closed     for good
 *
 * Several queues share the slots: each has its turn with as many handlers as its weight; one that has nothing is passed over, one
 * whose items are on their way is waited for.
 */
import { errorText } from '../../errors.ts'
import type { Event } from '../../event.ts'
import type { Outcome } from '../../lanes/acts.ts'
import { backoffMs } from '../../runtime/backoff.ts'
import { Bag, type Placed } from '../../runtime/bag.ts'
import type { Timer } from '../../runtime/clock.ts'
import { within } from '../../runtime/within.ts'
import { type BatchContext, BatchItem, Decision, WorkContext } from './context.ts'
import type { Held } from './held.ts'
import type { Drawn, WorkSettings } from './options.ts'
import { Pace } from './pace.ts'
import { shownText } from './shown.ts'
import { Source, type SourceContext, type SourceOptions } from './source.ts'

export type QueueHandler<E = Event> = (event: E, context: WorkContext) => unknown
export type BatchHandler = (items: readonly BatchItem[], context: BatchContext) => unknown

export interface WorkerGround extends SourceContext {
  worker: string
  start: string
  isNamed: boolean
  sourceOf(queue: string): Pick<SourceOptions, 'store' | 'define'>
}

/** A handler at work: one slot. */
interface Run extends Placed {
  readonly source: Source
  readonly items: readonly Held[]
  timer: Timer | undefined
}

interface Seat {
  source: Source
  weight: number
  credit: number
}

/** Fewer than one in so many of what there is room for. */
const crumbs = 8
/** So few go in one claim rather than in several at once. */
const fewest = 16

const doneOutcome: Outcome = { kind: 'ack' }

/** What is thrown at once is told later, as any other failure: the next handler begins from the loop, not from within this one. */
const isThrown = Promise.resolve()

export class QueueWorker {
  readonly drawn: readonly Drawn[]
  readonly #handler: QueueHandler | BatchHandler
  readonly #settings: WorkSettings
  #ground: WorkerGround | undefined
  #seats: Seat[] = []
  #turn = 0
  /** Handlers that run: a batch is one. */
  readonly #runs = new Bag<Run>()
  #begun = 0
  #filling = false
  #pace: Pace | undefined
  #closing: Promise<void> | undefined
  #changed: (() => void)[] = []

  constructor(drawn: readonly Drawn[], handler: QueueHandler | BatchHandler, settings: WorkSettings) {
    this.drawn = drawn
    this.#handler = handler
    this.#settings = settings
  }

  /** Called again after it has failed, it starts what has not started yet. */
  async start(ground: WorkerGround): Promise<void> {
    if (this.#closing) return
    if (!this.#ground) this.#sitDown(ground)
    const missing = this.#seats.filter(({ source }) => !source.isStarted)
    await Promise.all(missing.map(({ source }) => source.start()))
    this.#pump()
  }

  #sitDown(ground: WorkerGround): void {
    this.#ground = ground
    this.#pace = new Pace(this.#capacity, ground.network.monotonicMs())
    const { worker, start, isNamed } = ground
    this.#seats = this.drawn.map(({ name, weight }) => {
      const seat: Seat = { source: undefined as unknown as Source, weight, credit: 0 }
      seat.source = new Source(ground, {
        ...{ queue: name, worker, start, isNamed, ...ground.sourceOf(name) },
        room: () => this.#room(seat),
        changed: () => this.#pump(),
      })
      return seat
    })
  }

  /** How many handlers have begun. */
  get begun(): number {
    return this.#begun
  }

  /** Nothing waits as far as the last look has shown, and nothing is held here. */
  get isDry(): boolean {
    return this.#runs.size === 0 && this.#seats.every(({ source }) => source.isDry && source.held === 0)
  }

  /** Resolves when it may have become dry, or something else has changed. */
  nextChange(): Promise<void> {
    return new Promise((resolve) => this.#changed.push(resolve))
  }

  /** Items were sent to this queue on the connection of its claims. */
  expect(queue: string): void {
    for (const { source } of this.#seats) if (source.queue === queue) source.expect()
  }

  /** Whether a claim of this worker goes along: see Source.takeBy. */
  takeBy(queue: string, take: Parameters<Source['takeBy']>[0]): boolean {
    return this.#seats.some(({ source }) => source.queue === queue && source.takeBy(take))
  }

  close(timeoutMs: number): Promise<void> {
    this.#closing ??= this.#close(timeoutMs)
    return this.#closing
  }

  async #close(timeoutMs: number): Promise<void> {
    const network = this.#ground?.network
    if (!network) return
    const until = network.monotonicMs() + timeoutMs
    const left = () => Math.max(50, until - network.monotonicMs())
    const sources = this.#seats.map(({ source }) => source)
    await Promise.all(sources.map((source) => source.handBack(left())))
    while (this.#runs.size > 0 && network.monotonicMs() < until) {
      await within(network, left(), this.nextChange())
    }
    // What ignores its signal is handed back as well: it runs on until the process ends.
    for (const { source, items } of this.#runs)
      for (const held of items) {
        held.abort(new Error('the worker ends'))
        if (held.state === 'running') source.settle(held, { kind: 'back' })
      }
    await Promise.all(sources.map((source) => source.end(left())))
  }

  /** Items that can be at work. */
  get #capacity(): number {
    return this.#settings.concurrency * this.#perSlot
  }

  get #perSlot(): number {
    return this.#settings.batch ?? 1
  }

  /**
   * How many one claim may bring: of what can start now and what is claimed ahead, its part of as many claims as are under way at once; and
   * no crumbs as long as there is something to do. Several queues share it by weight, unless the others have nothing.
   */
  #room(seat: Seat): number {
    const capacity = this.#capacity + this.#pace!.ahead(this.#ground!.network.monotonicMs())
    const free = capacity - this.#runs.size * this.#perSlot
    const others = this.#seats.filter((other) => other !== seat && !(other.source.isDry && other.source.waiting === 0))
    const share = seat.weight / others.reduce((sum, { weight }) => sum + weight, seat.weight)
    const { waiting, coming } = seat.source
    // Whatever the others have: the one whose turn it is could not begin otherwise.
    const n = Math.min(
      Math.ceil(free * share) - waiting - coming,
      Math.max(fewest, Math.ceil(capacity / seat.source.mostClaims)),
    )
    return n * crumbs < capacity && waiting + coming >= this.#perSlot ? 0 : n
  }

  #pump(): void {
    while (this.#runs.size < this.#settings.concurrency && !this.#closing) {
      if (!this.#beginNext()) break
    }
    const nowMs = this.#ground!.network.monotonicMs()
    if (this.#runs.size === 0) this.#pace!.rested(nowMs)
    if (this.#runs.size === this.#settings.concurrency) this.#keep(this.#pace!.keeps(nowMs))
    this.#fillSoon()
    for (const told of this.#changed.splice(0)) told()
  }

  /** Of what waits, so many stay. Several queues have their shares. */
  #keep(most: number): void {
    const waiting = this.#seats.reduce((sum, { source }) => sum + source.waiting, 0)
    if (waiting <= most) return
    for (const { source } of this.#seats) source.giveBack(Math.floor((source.waiting / waiting) * most))
  }

  /** When all that ends in this tick has ended: one claim for all of it. */
  #fillSoon(): void {
    if (this.#filling || this.#closing) return
    this.#filling = true
    process.nextTick(() => {
      this.#filling = false
      if (this.#closing) return
      // The one whose turn it is first: it is waited for.
      const { length } = this.#seats
      for (let i = 0; i < length; i += 1) this.#seats[(this.#turn + i) % length]!.source.fill()
    })
  }

  /** Gives a handler as many as it takes, from the queue whose turn it is. Answers whether there were any. */
  #beginNext(): boolean {
    for (let passed = 0; passed < this.#seats.length; ) {
      const seat = this.#seats[this.#turn]!
      const { source } = seat
      if (this.#perSlot > 1 && this.#moreIsComing(source)) return false
      if (seat.credit === 0) seat.credit = seat.weight
      const first = source.take()
      if (first) {
        seat.credit -= 1
        if (seat.credit === 0) this.#turn = (this.#turn + 1) % this.#seats.length
        this.#begin(source, first)
        return true
      }
      // It has more, on its way: who passes it over gives its turn to the others.
      if (source.isStarted && !source.isDry) return false
      seat.credit = 0
      this.#turn = (this.#turn + 1) % this.#seats.length
      passed += 1
    }
    return false
  }

  /** What one handler takes. */
  #withMore(source: Source, first: Held): Held[] {
    const items = [first]
    while (items.length < this.#perSlot) {
      const held = source.take()
      if (!held) break
      items.push(held)
    }
    return items
  }

  /** A batch that is not whole waits for what there is room for. */
  #moreIsComing(source: Source): boolean {
    if (source.waiting >= this.#perSlot || source.isDry) return false
    source.fill()
    return source.coming > 0
  }

  #begin(source: Source, first: Held): void {
    const items = this.#withMore(source, first)
    this.#begun += 1
    const run: Run = { source, items, timer: undefined, place: -1 }
    this.#runs.add(run)
    if (this.#settings.timeoutMs !== undefined) this.#limit(run, this.#settings.timeoutMs)
    if (this.#settings.batch === undefined) void this.#runOne(run, first)
    else void this.#runBatch(run)
  }

  /** Its slot is free, once. */
  #end(run: Run): void {
    if (!this.#runs.remove(run)) return
    run.timer?.cancel()
    this.#pace!.ended(run.items.length)
    this.#pump()
  }

  async #runOne(run: Run, held: Held): Promise<void> {
    const { source } = run
    try {
      const context = new WorkContext(source, this.#ground!.worker, held)
      const value = await (this.#handler as QueueHandler)(held.event, context)
      source.settle(held, value instanceof Decision ? value.outcome : source.doneWith(value))
    } catch (error) {
      await isThrown
      this.#fail(source, held, error)
    }
    this.#end(run)
  }

  async #runBatch(run: Run): Promise<void> {
    const { source, items } = run
    const context: BatchContext = {
      ...{ queue: source.queue, worker: this.#ground!.worker },
      get signal() {
        return AbortSignal.any(items.map(({ signal }) => signal))
      },
    }
    const open = new Set(items)
    const decide = (held: Held, decision: Decision | undefined, output: unknown) => {
      source.settle(held, decision?.outcome ?? source.doneWith(output))
      open.delete(held)
    }
    try {
      const parts = items.map((held) => new BatchItem(held, (decision, output) => decide(held, decision, output)))
      await (this.#handler as BatchHandler)(parts, context)
      for (const held of open) source.settle(held, source.doneWith(undefined))
    } catch (error) {
      await isThrown
      for (const held of open) this.#fail(source, held, error)
    }
    this.#end(run)
  }

  /** A handler that takes too long is told so, its items are tried again, and its slot is free, whether or not it listens. */
  #limit(run: Run, timeoutMs: number): void {
    run.timer = this.#ground!.clock.after(timeoutMs, () => {
      const error = new Error(`the handler took longer than ${timeoutMs} ms`)
      for (const held of run.items) {
        if (held.state !== 'running') continue
        held.abort(error)
        this.#fail(run.source, held, error)
      }
      this.#end(run)
    })
  }

  #fail(source: Source, held: Held, error: unknown): void {
    if (held.state !== 'running') return source.settle(held, doneOutcome)
    const { telemetry, randomness } = this.#ground!
    const { attempts, backoffMs: waits } = source.settings
    const { attempt } = held
    const problem = errorText(error, (text) => shownText(source.settings, text))
    const afterMs = Math.round(backoffMs(waits, attempt, randomness))
    const told = { queue: source.queue, id: held.item.id, attempt, problem }
    telemetry.emit('queue.failed', told)
    if (attempts > 0 && attempt >= attempts && !held.isCancelled) this.#tellGivenUp(source, held, told)
    source.settle(held, { kind: 'retry', afterMs, reason: problem })
  }

  /** As the store will do it, unless so many objects are parked that it makes a dead letter of the item after all. */
  #tellGivenUp({ settings }: Source, { item }: Held, told: Record<string, string | number>): void {
    const { telemetry } = this.#ground!
    const { lane, key } = item
    if (settings.onPoison === 'skip' || key === undefined) telemetry.emit('queue.buried', told)
    else telemetry.emit('queue.parked', { ...told, object: `${lane}/${key}` })
  }
}
