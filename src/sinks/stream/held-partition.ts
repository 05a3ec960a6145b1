/**
 * A partition in the hands of its owner: gives events out, in order, and puts down what became of them.
 *
 *   open       gives events: those to be tried again, those of released shelves, those of the log
 *   blocked    an event could not be handled: gives nothing until someone resumes it
 *   closing    gives nothing more; what is in hand may still be finished and is committed
 *   over       lost or let go: whatever still comes back from handlers is ignored
 *
 * Who handles the events (iterate.ts, each.ts) pulls, and says done, or that an event cannot be handled.
 */
import type { Redis } from 'ioredis'
import type { Event } from '../../event.ts'
import type { Commits } from '../../group/commits.ts'
import type { Grant } from '../../group/scripts.ts'
import { moveHold } from '../../log/holds.ts'
import { mayPass } from '../../redis/connection.ts'
import type { ProcessorKeys } from '../../redis/keys.ts'
import { runScript } from '../../redis/script.ts'
import type { ProcessorSettings } from './options.ts'
import { Progress } from './progress.ts'
import { type Fate, settleScript } from './scripts.ts'
import { errorText, letterText, objectOf, type Reason, shelfText } from './set-aside.ts'
import { type ShelvedEvent, Shelves } from './shelves.ts'
import { Supply, type SupplyContext } from './supply.ts'

export interface HeldContext extends SupplyContext {
  keys: ProcessorKeys
  commits: Commits
  /** Whether this process is certain to be the owner. */
  isSure(): boolean
  /** Redis says that it is not. */
  stale(partition: number, epoch: number): void
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

const maxUncommitted = 100
const retryMs = 100

export const holdName = (processor: string): string => `stream.${processor}`

export class HeldPartition {
  readonly #context: HeldContext
  readonly #options: HeldOptions
  readonly #progress: Progress
  readonly #shelves: Shelves
  readonly #supply: Supply
  readonly #onShelfInHand = new Set<string>()
  readonly #abort = new AbortController()
  #again: Item[] = []
  #state: 'open' | 'closing' | 'over' = 'open'
  #blocked = false
  #handled = 0
  #uncommitted = 0
  #given = 0
  #owed: Promise<void> | undefined
  #heldAt = 0
  #wakes: (() => void)[] = []

  constructor(context: HeldContext, options: HeldOptions) {
    const { grant, settings, processor, wants } = options
    this.#context = context
    this.#options = options
    this.#progress = new Progress(grant.cursor)
    this.#shelves = new Shelves(context.keys, grant.partition)
    this.#supply = new Supply(context, {
      processor,
      partition: grant.partition,
      from: grant.cursor,
      prefetch: settings.prefetch,
      wants,
      admit: (events) => this.#admit(events),
      changed: () => this.#wake(),
    })
  }

  get partition(): number {
    return this.#options.grant.partition
  }

  get epoch(): number {
    return this.#options.grant.epoch
  }

  /** How many events were given out so far. */
  get given(): number {
    return this.#given
  }

  get isOpen(): boolean {
    return this.#state === 'open'
  }

  get isBlocked(): boolean {
    return this.#blocked
  }

  /** Nothing is in hand, and nothing is left to give that is known of. */
  get isIdle(): boolean {
    const waits = this.#again.length + this.#supply.length + this.#progress.open + this.#onShelfInHand.size
    return this.#blocked || (waits === 0 && this.#owed === undefined)
  }

  get position(): number {
    return this.#supply.position
  }

  /** Before the first event: retention is told where this owner begins, and what was set aside is read. */
  async open(): Promise<void> {
    await this.#insist(async () => {
      await this.moveHold()
      await this.reload()
    })
    if (this.isOpen) this.#supply.start()
  }

  /** Someone has resumed, released or discarded something. */
  async reload(): Promise<void> {
    const { redis, keys } = this.#context
    this.#blocked = (await redis.hexists(keys.blocked, String(this.partition))) === 1
    const empty = await this.#shelves.load(redis, this.#onShelfInHand)
    for (const object of empty) await this.#closeShelf(object)
    this.#wake()
  }

  async moveHold(): Promise<void> {
    const { redis, namespace } = this.#context
    const { processor, grant } = this.#options
    const seq = this.#progress.cursor
    if (seq === this.#heldAt && seq > 0) return
    await moveHold(redis, namespace, holdName(processor), { partition: this.partition, seq, epoch: grant.epoch })
    this.#heldAt = seq
  }

  /** The next event if there is one right now. */
  tryPull(): Item | undefined {
    if (!this.isOpen || this.#blocked || this.#owed || !this.#context.isSure()) return undefined
    const item = this.#again.shift() ?? this.#fromShelf() ?? this.#fromLog()
    if (item) this.#given += 1
    else this.#passUnwanted()
    return item
  }

  /** Waits for the next event; undefined when there will be none, or none for now because the partition is blocked. */
  async pull(): Promise<Item | undefined> {
    for (;;) {
      const item = this.tryPull()
      if (item || !this.isOpen || this.#blocked) return item
      // Who was paused is unsure for a moment: the next answer to a heartbeat, or the loss of the partition, comes soon.
      if (this.#context.isSure()) await (this.#owed ?? this.change())
      else await this.pause(retryMs)
    }
  }

  /** Waits so long, or until it is closed. */
  async pause(ms: number): Promise<void> {
    const until = this.#context.clock.monotonicMs() + ms
    for (let left = ms; left > 0 && this.isOpen; left = until - this.#context.clock.monotonicMs()) await this.more(left)
  }

  /** Waits until something has changed, at most so long. */
  async more(ms: number): Promise<void> {
    const timer = this.#context.clock.after(Math.ceil(ms), () => this.#wake())
    await Promise.race([this.change(), ...(this.#owed ? [this.#owed] : [])])
    timer.cancel()
  }

  /** Fires when handlers must not go on: lost, or out of time. */
  get signal(): AbortSignal {
    return this.#abort.signal
  }

  abort(): void {
    this.#abort.abort()
  }

  /** Resolves at the next change: something came in, was resumed, or is over. */
  change(): Promise<void> {
    return new Promise((resolve) => this.#wakes.push(resolve))
  }

  /** Handled. What came from a shelf is taken off it before the next event is given. */
  done(items: readonly Item[]): void {
    if (this.#state === 'over' || items.length === 0) return
    const fates: Fate[] = []
    for (const { event, shelved } of items) {
      if (shelved) fates.push(['unshelve', shelved.object, shelved.text])
      else this.#progress.end(event.seq)
    }
    this.#handled += items.length
    this.#uncommitted += items.length
    if (fates.length > 0) this.#owe(this.#settle(fates).then(() => this.#tookOff(items)))
    this.#commit(items.length)
  }

  /** To be tried again, before anything else. */
  putBack(items: readonly Item[]): void {
    if (this.#state === 'over') return
    this.#again = [...items, ...this.#again].sort((a, b) => a.event.seq - b.event.seq)
    this.#wake()
  }

  /** Its last attempt failed: does with it what was declared. */
  async giveUp(item: Item, error: unknown, attempts: number): Promise<void> {
    const { event } = item
    const { processor, settings } = this.#options
    const { telemetry, clock } = this.#context
    const reason: Reason = { id: event.id, error: errorText(error), attempts, at: Math.floor(clock.now()) }
    const told = { processor, event: event.id, attempts, problem: reason.error }
    if (settings.onPoison === 'skip') {
      await this.#bury(item, reason)
      telemetry.emit('stream.buried', told)
    } else if (settings.onPoison === 'park' && (await this.#park(item, reason)) === 'settled') {
      telemetry.emit('stream.parked', { ...told, object: objectOf(event) })
    } else {
      await this.#block(item, reason)
      telemetry.emit('stream.blocked', { ...told, partition: this.partition })
    }
  }

  /** Gives nothing more. */
  close(): void {
    if (this.#state === 'open') this.#state = 'closing'
    this.#wake()
  }

  /** Commits what is done and lets go, if it still can. */
  async finish({ release }: { release: boolean }): Promise<void> {
    this.close()
    await this.#owed
    if (this.#state !== 'over') await this.#commitNow(release)
    this.abandon()
  }

  /** Not ours any more. */
  abandon(): void {
    this.#state = 'over'
    this.#abort.abort()
    this.#supply.end()
    this.#context.commits.forget(this.partition)
    this.#wake()
  }

  #fromShelf(): Item | undefined {
    const shelved = this.#shelves.shift()
    if (!shelved) return undefined
    this.#onShelfInHand.add(shelved.text)
    return { event: shelved.event, shelved }
  }

  #fromLog(): Item | undefined {
    const event = this.#supply.shift()
    if (!event) return undefined
    this.#progress.begin(event.seq)
    return { event }
  }

  /** The cursor also moves past what nobody wants, when nothing else is to be done. */
  #passUnwanted(): void {
    const before = this.#progress.cursor
    if (this.#supply.length > 0) return
    this.#progress.skipTo(this.#supply.position)
    if (this.#progress.cursor > before) this.#note()
  }

  #commit(units: number): void {
    const { commit } = this.#options.settings
    const eager = commit !== 'batch' || units > 1 || this.#supply.length === 0
    if (typeof commit === 'object' || this.#uncommitted < maxUncommitted) {
      if (eager) this.#note()
      return
    }
    // Every hundred events Redis has it before more is handed out: so much is repeated after a crash, at most.
    this.#uncommitted = 0
    this.#owe(this.#commitNow(false))
  }

  #note(): void {
    const { epoch } = this.#options.grant
    this.#context.commits.note(this.partition, epoch, this.#progress.cursor, this.#takeHandled())
  }

  #commitNow(release: boolean): Promise<void> {
    const { epoch } = this.#options.grant
    const handled = this.#takeHandled()
    return this.#context.commits.now(this.partition, epoch, this.#progress.cursor, { release, handled })
  }

  #takeHandled(): number {
    const handled = this.#handled
    this.#handled = 0
    return handled
  }

  /** Nothing is given before this has come to its end. */
  #owe(promise: Promise<unknown>): void {
    const owed = Promise.all([this.#owed, promise]).then(() => {
      if (this.#owed === owed) this.#owed = undefined
    })
    this.#owed = owed
  }

  /** Of what came from the log, the events of objects that are set aside go to their shelves. */
  async #admit(events: readonly Event[]): Promise<readonly Event[]> {
    if (this.#shelves.size === 0) return events
    const aside = events.filter((event) => this.#shelves.has(objectOf(event)))
    await this.#shelve(aside)
    return events.filter((event) => !this.#shelves.has(objectOf(event)))
  }

  async #shelve(events: readonly Event[]): Promise<void> {
    if (events.length === 0) return
    const fates = events.map((event): Fate => ['shelve', objectOf(event), String(event.seq), shelfText(event)])
    if ((await this.#settle(fates)) !== 'full') return
    const reason: Reason = {
      id: events[0]!.id,
      error: 'The shelves of parked objects are full: resume or discard some, then resume this partition',
      attempts: 0,
      at: Math.floor(this.#context.clock.now()),
    }
    // Nothing may pass them: the partition stops until there is room.
    await this.#stopHere(reason)
    while (this.#blocked && this.isOpen) await this.change()
    if (this.isOpen) await this.#shelve(events)
  }

  async #bury({ event, shelved }: Item, reason: Reason): Promise<void> {
    const fates: Fate[] = [['dead', event.id, letterText(event, reason)]]
    if (shelved) fates.push(['unshelve', shelved.object, shelved.text])
    await this.#settle(fates)
    this.#passed({ event, shelved })
  }

  async #park({ event, shelved }: Item, reason: Reason): Promise<'settled' | 'stale' | 'full'> {
    const object = objectOf(event)
    const fates: Fate[] = [['park', object, JSON.stringify(reason)]]
    const waiting = this.#supply.remove((other) => objectOf(other) === object)
    const behind = this.#again.filter((item) => objectOf(item.event) === object)
    const following = [...behind.map((item) => item.event), ...waiting].filter((other) => other.seq > event.seq)
    const set = shelved ? following : [event, ...following]
    for (const other of set) fates.push(['shelve', object, String(other.seq), shelfText(other)])
    const outcome = await this.#settle(fates)
    if (outcome !== 'settled') {
      this.#supply.putBack(waiting)
      return outcome
    }
    this.#shelves.park(object)
    this.#again = this.#again.filter((item) => objectOf(item.event) !== object)
    for (const item of behind) if (!item.shelved) this.#progress.end(item.event.seq)
    if (shelved) this.#onShelfInHand.delete(shelved.text)
    else this.#passed({ event })
    return outcome
  }

  async #block(item: Item, reason: Reason): Promise<void> {
    this.putBack([item])
    await this.#stopHere(reason)
  }

  async #stopHere(reason: Reason): Promise<void> {
    this.#blocked = true
    await this.#settle([['block', JSON.stringify(reason)]])
    this.#wake()
  }

  #passed({ event, shelved }: Item): void {
    if (shelved) this.#tookOff([{ event, shelved }])
    else this.#progress.end(event.seq)
    this.#note()
  }

  /** Taken off their shelves: a shelf from which all that was read is gone is looked at again. */
  #tookOff(items: readonly Item[]): void {
    for (const { shelved } of items) {
      if (!shelved) continue
      this.#onShelfInHand.delete(shelved.text)
      if (!this.#shelves.isDue(shelved.object)) this.#owe(this.#insist(() => this.reload()))
    }
  }

  async #closeShelf(object: string): Promise<void> {
    await this.#settle([['close', object]])
    this.#shelves.close(object)
  }

  /** Puts it down in Redis; waits for a Redis that is away as long as the partition is held. */
  async #settle(fates: readonly Fate[]): Promise<'settled' | 'stale' | 'full'> {
    const { redis, keys, clock, stale } = this.#context
    const { epoch } = this.#options.grant
    const cursor = this.#progress.cursor
    const input = { keys, partition: this.partition, epoch, cursor, nowUs: clock.serverUs?.(), fates }
    let outcome: 'settled' | 'stale' | 'full' = 'stale'
    await this.#insist(async () => {
      outcome = await runScript(redis as Redis, settleScript, input)
    })
    if (outcome === 'stale') stale(this.partition, epoch)
    return outcome
  }

  async #insist(work: () => Promise<void>): Promise<void> {
    while (this.#state !== 'over') {
      try {
        return await work()
      } catch (error) {
        const { telemetry } = this.#context
        if (!mayPass(error)) telemetry.emit('stream.stuck', { ...this.#told(), problem: errorText(error) })
        await new Promise<void>((resolve) => this.#context.clock.after(retryMs, resolve))
      }
    }
  }

  #told() {
    return { processor: this.#options.processor, partition: this.partition }
  }

  #wake(): void {
    for (const wake of this.#wakes.splice(0)) wake()
  }
}
