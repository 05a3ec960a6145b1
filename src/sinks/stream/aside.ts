/**
 * What the owner of a partition puts down besides its cursor: dead letters, shelves, and that the partition is blocked.
 *
 * Everything goes through one fenced script. A Redis that is away is waited for, as long as the partition is held:
 * nothing may pass an event whose fate is not stored.
 */

import type { Redis } from 'ioredis'
import { errorText } from '../../errors.ts'
import type { Event } from '../../event.ts'
import { mayPass } from '../../redis/connection.ts'
import type { ProcessorKeys } from '../../redis/keys.ts'
import { runScript } from '../../redis/script.ts'
import type { Clock } from '../../runtime/clock.ts'
import type { Telemetry } from '../../runtime/telemetry.ts'
import { type Fate, settleScript } from './scripts.ts'
import { letterText, objectOf, type Reason, shelfText } from './set-aside.ts'
import { type ShelvedEvent, Shelves } from './shelves.ts'

export interface AsideContext {
  redis: Redis
  keys: ProcessorKeys
  clock: Clock
  /** For waiting until Redis is back. */
  network: Clock
  telemetry: Telemetry
  /** Redis says that this process is not the owner any more. */
  stale(partition: number, epoch: number): void
}

export interface AsideOptions {
  processor: string
  partition: number
  epoch: number
  /** How far the partition is right now. */
  cursor(): number
  /** Whether it is still worth trying. */
  isHeld(): boolean
  /** Something is due, blocked or resumed. */
  changed(): void
  /** Takes events out that wait to be given. */
  takeWaiting(fits: (event: Event) => boolean): Event[]
  /** Nothing is given before this has come to its end. */
  owe(promise: Promise<unknown>): void
}

export type Outcome = 'settled' | 'stale' | 'full'

const retryMs = 100

export class Aside {
  readonly #context: AsideContext
  readonly #options: AsideOptions
  readonly #shelves: Shelves
  /** From shelves, given out and not yet taken off: text → object. */
  readonly #inHand = new Map<string, string>()
  #blocked = false
  /** How often something was put down that a load may not have seen. */
  #puts = 0
  /** One after the other: a shelf takes only what is newer than its last. */
  #shelving: Promise<void> = Promise.resolve()

  constructor(context: AsideContext, options: AsideOptions) {
    this.#context = context
    this.#options = options
    this.#shelves = new Shelves(context.keys, options.partition)
  }

  get isBlocked(): boolean {
    return this.#blocked
  }

  get inHand(): number {
    return this.#inHand.size
  }

  /** Whether what the log brings of this object has to wait behind what was set aside. */
  has(object: string): boolean {
    return this.#shelves.has(object)
  }

  get isEmpty(): boolean {
    return this.#shelves.size === 0
  }

  /** The next event of a released shelf. */
  shift(): ShelvedEvent | undefined {
    const shelved = this.#shelves.shift()
    if (shelved) this.#inHand.set(shelved.text, shelved.object)
    return shelved
  }

  /**
   * Reads what was set aside before, or has been changed by someone else. What this owner puts down meanwhile makes it read
   * again: taken over is only what was there at one moment.
   */
  async load(): Promise<void> {
    const { redis, keys } = this.#context
    for (let read = -1; read !== this.#puts; ) {
      read = this.#puts
      const blocked = await redis.hexists(keys.blocked, String(this.#options.partition))
      const found = await this.#shelves.read(redis)
      if (found.empty.length > 0) {
        await this.#settle(found.empty.map((object): Fate => ['close', object]))
        read = -1
      } else if (read === this.#puts) {
        this.#shelves.takeOver(found, this.#inHand)
        this.#blocked = blocked === 1
        this.#shelveWaiting()
      }
      if (!this.#options.isHeld()) return
    }
    this.#options.changed()
  }

  /** Done: off their shelves. A shelf from which all that was read is gone is looked at again. */
  async takeOff(shelved: readonly ShelvedEvent[]): Promise<void> {
    await this.#settle(shelved.map(({ object, text }): Fate => ['unshelve', object, text]))
    await this.#tookOff(shelved)
  }

  /** Sets these aside behind the others of their objects; when there is no room the partition is blocked meanwhile. */
  shelve(events: readonly Event[]): Promise<void> {
    if (events.length === 0) return Promise.resolve()
    this.#shelving = this.#shelving.then(() => this.#shelve(events))
    return this.#shelving
  }

  async #shelve(events: readonly Event[]): Promise<void> {
    const fates = events.map((event): Fate => ['shelve', objectOf(event), String(event.seq), shelfText(event)])
    while ((await this.#settle(fates)) === 'full') {
      await this.block({
        id: events[0]!.id,
        error: 'The shelves of parked objects are full: resume or discard some, then resume this partition',
        attempts: 0,
        at: Math.floor(this.#context.clock.now()),
      })
      await this.#whileBlocked()
      if (!this.#options.isHeld()) return
    }
    // A shelf that was gone by then is there again.
    if (events.some((event) => !this.has(objectOf(event)))) await this.insist(() => this.load())
  }

  async bury(event: Event, shelved: ShelvedEvent | undefined, reason: Reason): Promise<Outcome> {
    const fates: Fate[] = [['dead', event.id, letterText(event, reason)]]
    if (shelved) fates.push(['unshelve', shelved.object, shelved.text])
    const outcome = await this.#settle(fates)
    if (outcome === 'settled' && shelved) await this.#tookOff([shelved])
    return outcome
  }

  /**
   * Sets an object aside: `events` are those of it that are not on its shelf yet, in order; `late` takes out what has come in
   * meanwhile, in the same turn in which the object begins to be set aside.
   */
  async park(object: string, events: readonly Event[], reason: Reason, late: () => Event[]): Promise<Outcome> {
    const fates: Fate[] = [['park', object, JSON.stringify(reason)]]
    for (const event of events) fates.push(['shelve', object, String(event.seq), shelfText(event)])
    const outcome = await this.#settle(fates)
    if (outcome !== 'settled') return outcome
    this.#shelves.park(object)
    for (const [text, its] of this.#inHand) if (its === object) this.#inHand.delete(text)
    await this.shelve(late())
    return this.#options.isHeld() ? outcome : 'stale'
  }

  async block(reason: Reason): Promise<void> {
    this.#blocked = true
    await this.#settle([['block', JSON.stringify(reason)]])
    this.#options.changed()
  }

  /** Tries until it succeeds or the partition is not held any more. */
  async insist(work: () => Promise<void>): Promise<void> {
    const { network, telemetry } = this.#context
    const { processor, partition, isHeld } = this.#options
    while (isHeld()) {
      try {
        return await work()
      } catch (error) {
        if (!mayPass(error)) telemetry.emit('stream.stuck', { processor, partition, problem: errorText(error) })
        await new Promise<void>((resolve) => network.after(retryMs, resolve))
      }
    }
  }

  async #tookOff(shelved: readonly ShelvedEvent[]): Promise<void> {
    for (const { text } of shelved) this.#inHand.delete(text)
    if (shelved.some(({ object }) => !this.#shelves.isDue(object))) await this.insist(() => this.load())
  }

  /** Of objects that have a shelf now, what waits to be given goes behind what lies there. */
  #shelveWaiting(): void {
    const waiting = this.#options.takeWaiting((event) => this.has(objectOf(event)))
    if (waiting.length > 0) this.#options.owe(this.shelve(waiting))
  }

  async #whileBlocked(): Promise<void> {
    const { clock } = this.#context
    while (this.#blocked && this.#options.isHeld()) await new Promise<void>((resolve) => clock.after(retryMs, resolve))
  }

  async #settle(fates: readonly Fate[]): Promise<Outcome> {
    const { redis, keys, clock, stale } = this.#context
    const { partition, epoch, cursor } = this.#options
    const input = { keys, partition, epoch, cursor: cursor(), nowUs: clock.serverUs?.(), fates }
    let outcome: Outcome = 'stale'
    // A load that began before, or meanwhile, has not seen it for certain.
    this.#puts += 1
    await this.insist(async () => {
      outcome = await runScript(redis, settleScript, input)
    })
    this.#puts += 1
    if (outcome === 'stale') stale(partition, epoch)
    return outcome
  }
}
