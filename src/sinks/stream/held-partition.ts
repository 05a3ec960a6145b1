/**
 * A partition in the hands of its owner: gives events out, in order, and puts down what became of them.
 *
 *   open       gives events: those to be tried again, those of released shelves, those of the log
 *   blocked    open, but an event could not be handled: gives nothing until someone resumes it
 *   closing    gives nothing more; what is in hand may still be finished and is committed
 *   over       lost or let go: whatever still comes back from handlers is ignored
 *
 * Who handles the events (iterate.ts, each.ts) pulls, and says done, or that an event cannot be handled.
 */
import { errorText } from '../../errors.ts'
import type { Event } from '../../event.ts'
import type { Commits } from '../../group/commits.ts'
import type { Grant } from '../../group/scripts.ts'
import { moveHold } from '../../log/holds.ts'
import { Aside, type AsideContext, type Outcome } from './aside.ts'
import { CommitPace } from './commit-pace.ts'
import { holdName } from './declare.ts'
import type { ProcessorSettings } from './options.ts'
import { Progress } from './progress.ts'
import { objectOf, type Reason } from './set-aside.ts'
import type { ShelvedEvent } from './shelves.ts'
import { Supply, type SupplyContext } from './supply.ts'

export interface HeldContext extends SupplyContext, AsideContext {
  commits: Commits
  /** Whether this process is certain to be the owner. */
  isSure(): boolean
}

export interface HeldOptions {
  processor: string
  grant: Grant
  settings: ProcessorSettings
  wants(tenant: string, type: string): boolean
}

/** An event in hand. */
export interface Item {
  event: Event
  shelved?: ShelvedEvent
}

const unsureMs = 100

export class HeldPartition {
  readonly #context: HeldContext
  readonly #options: HeldOptions
  readonly #progress: Progress
  readonly #pace: CommitPace
  readonly #aside: Aside
  readonly #supply: Supply
  readonly #abort = new AbortController()
  #again: Item[] = []
  #state: 'open' | 'closing' | 'over' = 'open'
  #given = 0
  /** What has to be stored before the next event is given. */
  #owed: Promise<void> | undefined
  #heldAt = -1
  #wakes: (() => void)[] = []
  #finishing: Promise<void> | undefined
  #isOver: () => void = () => undefined
  /** Resolves when it was let go, or lost. */
  readonly over = new Promise<void>((resolve) => {
    this.#isOver = resolve
  })

  constructor(context: HeldContext, options: HeldOptions) {
    const { grant, settings, processor, wants } = options
    const { partition, epoch, cursor } = grant
    this.#context = context
    this.#options = options
    this.#progress = new Progress(cursor)
    const { commits } = context
    this.#pace = new CommitPace({ commits, partition, epoch, commit: settings.commit, cursor: () => this.cursor })
    this.#aside = new Aside(context, {
      processor,
      partition,
      epoch,
      cursor: () => this.cursor,
      isHeld: () => this.#state !== 'over',
      changed: () => this.#wake(),
      takeWaiting: (fits) => this.#supply.remove(fits),
      owe: (promise) => this.#owe(promise),
    })
    this.#supply = new Supply(context, {
      processor,
      partition,
      from: cursor,
      prefetch: settings.prefetch,
      wants,
      isAnyAside: () => !this.#aside.isEmpty,
      isAside: (event) => this.#aside.has(objectOf(event)),
      setAside: (events) => this.#aside.shelve(events),
      changed: () => this.#wake(),
    })
  }

  get partition(): number {
    return this.#options.grant.partition
  }

  get epoch(): number {
    return this.#options.grant.epoch
  }

  /** Everything up to here is done. */
  get cursor(): number {
    return this.#progress.cursor
  }

  /** How many events were given out so far. */
  get given(): number {
    return this.#given
  }

  get isOpen(): boolean {
    return this.#state === 'open'
  }

  get isBlocked(): boolean {
    return this.#aside.isBlocked
  }

  /** Up to where the log was read. */
  get position(): number {
    return this.#supply.position
  }

  /** Nothing is in hand, and nothing is left to give that is known of. */
  get isIdle(): boolean {
    const waits = this.#again.length + this.#supply.length + this.#progress.open + this.#aside.inHand
    return this.isBlocked || (waits === 0 && this.#owed === undefined)
  }

  /** Fires when handlers must not go on: lost, or out of time. */
  get signal(): AbortSignal {
    return this.#abort.signal
  }

  /** Before the first event: retention is told where this owner begins, and what was set aside is read. */
  async open(): Promise<void> {
    await this.#aside.insist(async () => {
      await this.moveHold()
      await this.#aside.load()
    })
    if (this.isOpen) this.#supply.start()
  }

  /** Someone has resumed, released or discarded something. */
  reload(): Promise<void> {
    return this.#aside.insist(() => this.#aside.load())
  }

  async moveHold(): Promise<void> {
    const { redis, namespace } = this.#context
    const { partition, epoch } = this
    const seq = this.#progress.cursor
    if (seq === this.#heldAt) return
    await moveHold(redis, namespace, holdName(this.#options.processor), { partition, seq, epoch })
    this.#heldAt = seq
  }

  /** The next event if there is one right now. */
  tryPull(): Item | undefined {
    if (!this.isOpen || this.isBlocked || this.#owed || !this.#context.isSure()) return undefined
    const item = this.#fromBefore() ?? this.#fromLog()
    if (item) this.#given += 1
    else this.#passUnwanted()
    return item
  }

  /** Waits for the next event; undefined when there will be none, or none for now because the partition is blocked. */
  async pull(): Promise<Item | undefined> {
    for (;;) {
      const item = this.tryPull()
      if (item || !this.isOpen || this.isBlocked) return item
      await this.whenSome()
    }
  }

  /** When tryPull had nothing: resolves when it may have something. */
  async whenSome(): Promise<void> {
    // Who was paused is unsure for a moment: the next answer to a heartbeat, or the loss of the partition, comes soon.
    if (this.#context.isSure()) await (this.#owed ?? this.change())
    else await new Promise<void>((resolve) => this.#context.network.after(unsureMs, resolve))
  }

  /** Resolves at the next change: something came in, was resumed, or is over. */
  change(): Promise<void> {
    return new Promise((resolve) => this.#wakes.push(resolve))
  }

  /** Waits until something has changed, at most so long. */
  async more(ms: number): Promise<void> {
    const timer = this.#context.clock.after(Math.ceil(ms), () => this.#wake())
    await Promise.race([this.change(), ...(this.#owed ? [this.#owed] : [])])
    timer.cancel()
  }

  /** Waits so long, or until it is closed. */
  async pause(ms: number): Promise<void> {
    const { clock } = this.#context
    const until = clock.monotonicMs() + ms
    for (let left = ms; left > 0 && this.isOpen; left = until - clock.monotonicMs()) await this.more(left)
  }

  /** Handled. What came from a shelf is taken off it before the next event is given. */
  done(items: readonly Item[]): void {
    if (this.#state === 'over' || items.length === 0) return
    let offShelves: ShelvedEvent[] | undefined
    for (const { event, shelved } of items) {
      if (!shelved) this.#progress.end(event.seq)
      else if (offShelves) offShelves.push(shelved)
      else offShelves = [shelved]
    }
    if (offShelves) this.#owe(this.#aside.takeOff(offShelves))
    const owed = this.#pace.done(items.length, this.#supply.length === 0)
    if (owed) this.#owe(owed)
  }

  /** To be tried again, before anything else. */
  putBack(items: readonly Item[]): void {
    if (this.#state === 'over' || items.length === 0) return
    this.#again = [...items, ...this.#again].sort((a, b) => a.event.seq - b.event.seq)
    this.#wake()
  }

  /** Its last attempt failed: does with it what was declared. `behind` takes back later ones of its object. */
  async giveUp(item: Item, error: unknown, attempts: number, behind: () => Item[] = () => []): Promise<void> {
    const { processor, settings } = this.#options
    const { telemetry } = this.#context
    const { event } = item
    const object = objectOf(event)
    const reason = this.#reasonOf(item, error, attempts)
    const told = { processor, event: event.id, attempts, problem: reason.error }
    if (settings.onPoison === 'skip') {
      // Not stored, not passed: whoever has the partition next gets the event again.
      if ((await this.#aside.bury(event, item.shelved, reason)) !== 'settled') return
      this.#passed(item)
      telemetry.emit('stream.buried', told)
    } else if (settings.onPoison === 'park' && (await this.#park(item, behind, reason)) === 'settled') {
      telemetry.emit('stream.parked', { ...told, object })
    } else await this.#block(item, reason)
  }

  /** The handler failed its last attempt without taking anything: it, not an event, is what has to be mended. */
  async block(error: unknown, attempts: number): Promise<void> {
    const item = await this.pull()
    if (item) await this.#block(item, this.#reasonOf(item, error, attempts))
  }

  /** Gives nothing more. */
  close(): void {
    if (this.#state === 'open') this.#state = 'closing'
    this.#wake()
  }

  abort(): void {
    this.#abort.abort()
  }

  /** Commits what is done and lets go, if it still can. */
  finish({ release }: { release: boolean }): Promise<void> {
    this.#finishing ??= this.#finish(release)
    return this.#finishing
  }

  /** Not ours any more. */
  abandon(): void {
    this.#abort.abort()
    this.#end()
  }

  async #finish(release: boolean): Promise<void> {
    this.close()
    await this.#owed
    if (this.#state !== 'over') await this.#pace.now({ release })
    this.#end()
  }

  #end(): void {
    this.#state = 'over'
    this.#supply.end()
    this.#context.commits.forget(this.partition)
    this.#wake()
    this.#isOver()
  }

  /** What is to be tried again, or was set aside and is released: mostly there is nothing of the kind. */
  #fromBefore(): Item | undefined {
    if (this.#again.length > 0) return this.#again.shift()
    if (this.#aside.isEmpty) return undefined
    const shelved = this.#aside.shift()
    return shelved && { event: shelved.event, shelved }
  }

  #fromLog(): Item | undefined {
    const event = this.#supply.shift()
    if (event) this.#progress.begin(event.seq)
    return event && { event }
  }

  /** The cursor also moves past what nobody wants, when nothing else is to be done. */
  #passUnwanted(): void {
    const before = this.#progress.cursor
    this.#progress.skipTo(this.#supply.position)
    if (this.#progress.cursor > before) this.#pace.note()
  }

  #owe(promise: Promise<unknown>): void {
    const owed = Promise.all([this.#owed, promise]).then(() => {
      if (this.#owed === owed) this.#owed = undefined
    })
    this.#owed = owed
  }

  #reasonOf({ event }: Item, error: unknown, attempts: number): Reason {
    return { id: event.id, error: errorText(error), attempts, at: Math.floor(this.#context.clock.now()) }
  }

  async #block(item: Item, reason: Reason): Promise<void> {
    const { partition } = this
    const { processor } = this.#options
    this.putBack([item])
    await this.#aside.block(reason)
    const { id: event, attempts, error: problem } = reason
    this.#context.telemetry.emit('stream.blocked', { processor, event, attempts, problem, partition })
  }

  /** Sets its object aside, with all that was read of it, in order. */
  async #park(item: Item, behind: () => Item[], reason: Reason): Promise<Outcome> {
    const object = objectOf(item.event)
    const isOf = (event: Event) => event.seq > item.event.seq && objectOf(event) === object
    const again = this.#again.filter(({ event }) => isOf(event))
    // Those from its shelf lie there still.
    const begun = [...behind(), ...again].filter(({ shelved }) => !shelved).sort((a, b) => a.event.seq - b.event.seq)
    const unread = this.#supply.remove(isOf)
    const events = [...(item.shelved ? [] : [item.event]), ...begun.map(({ event }) => event), ...unread]
    this.#again = this.#again.filter(({ event }) => objectOf(event) !== object)
    const late: Item[] = []
    const outcome = await this.#aside.park(object, events, reason, () => {
      late.push(...behind().filter(({ shelved }) => !shelved))
      return [...late.map(({ event }) => event), ...this.#supply.remove(isOf)]
    })
    if (outcome !== 'settled') {
      this.#supply.putBack(unread)
      this.putBack(begun)
      return outcome
    }
    for (const { event } of [...begun, ...late]) this.#progress.end(event.seq)
    this.#passed(item)
    return outcome
  }

  #passed({ event, shelved }: Item): void {
    if (!shelved) this.#progress.end(event.seq)
    this.#pace.note()
  }

  #wake(): void {
    for (const wake of this.#wakes.splice(0)) wake()
  }
}
