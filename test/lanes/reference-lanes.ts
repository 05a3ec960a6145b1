/**
 * What lies in a store of lanes, as plainly as it can be said: lists, maps, and a line of lanes. How things come to wait there and leave.
 *
 * The line holds exactly the lanes that can give, next one first. In an ordered store an object is there as long as an item of it is that
 * may be claimed, is held, is to be tried again or is parked; the others of it lie behind.
 */
import type { QueueLimits } from '../../src/lanes/limits.ts'
import { forever } from '../../src/lanes/record.ts'
import { Jar, orNone } from './reference-limits.ts'

export interface Work {
  id: string
  lane: string
  expires: number
  priority: number
  enqueued: number
  attempts: number
  first: number
  /** Of an ordered store; '' without one. */
  key: string
}

export interface Lane {
  waiting: Work[]
  weight: number
  credit: number
  waitsUntil: number
  jar: Jar
}

export interface Lease {
  ends: number
  worker: string
  start: string
  claimed: number
  items: Map<string, Work>
}

const objectOf = ({ lane, key }: Work): string => `${lane} ${key}`

const oldestFirst = (works: readonly Work[]): Work[] =>
  [...works].sort((a, b) => a.enqueued - b.enqueued || (a.id < b.id ? -1 : 1))

export class ReferenceLanes {
  now = 1_000_000
  attempts = 3
  paused = false
  limits: QueueLimits
  readonly jar = new Jar()
  readonly ordered: boolean
  readonly parks: boolean
  readonly objects = new Map<string, Work[]>()
  readonly parked = new Map<string, { work: Work; reason: string }>()
  readonly lanes = new Map<string, Lane>()
  line: string[] = []
  readonly later = new Map<string, { due: number; work?: Work }>()
  readonly leases = new Map<string, Lease>()
  readonly dead = new Map<string, { work: Work; reason: string; died: number }>()
  readonly applied = new Map<number, number>()
  /** Someone wants them cancelled, and they are still there. */
  readonly cancels = new Set<string>()
  /** By an operation: lanes to which something came that could give then, and all lanes. */
  readonly #entered = new Set<string>()
  protected readonly touched = new Set<string>()
  /** Those that wait out of the order in which they came. */
  protected readonly moved = new WeakSet<Work>()
  readonly counts = { in: 0, out: 0, expired: 0, dropped: 0, discarded: 0 }

  constructor({ ordered, parks, limits }: { ordered: boolean; parks: boolean; limits: QueueLimits }) {
    this.ordered = ordered
    this.parks = parks
    this.limits = limits
  }

  lane(name: string): Lane {
    let lane = this.lanes.get(name)
    if (!lane) {
      lane = { waiting: [], weight: 1, credit: 0, waitsUntil: 0, jar: new Jar() }
      this.lanes.set(name, lane)
    }
    return lane
  }

  /** Something comes to lanes, or they need not wait any more. */
  protected touch(...names: readonly string[]): void {
    for (const name of names) {
      if (this.#mayGive(name)) this.#entered.add(name)
      this.touched.add(name)
    }
  }

  /** Lanes may have room now: they line up behind those to which something came. */
  protected loosen(works: readonly Work[]): void {
    for (const { lane } of works) this.touched.add(lane)
  }

  /** What an operation touches lines up at its end, in this order. */
  protected lineUp(): void {
    for (const name of [...this.#entered, ...this.touched]) this.turn(name)
    this.#entered.clear()
    this.touched.clear()
  }

  /** Whatever waits there. */
  #mayGive(name: string): boolean {
    const { weight, waitsUntil } = this.lane(name)
    return weight > 0 && waitsUntil === 0 && this.heldOf(name) < orNone(this.limits.inFlightPerTenant)
  }

  protected gives(name: string): boolean {
    return this.lane(name).waiting.length > 0 && this.#mayGive(name)
  }

  /** Puts a lane that can give at the end of the line, unless it is in it, and takes out one that cannot. */
  protected turn(name: string): void {
    const gives = this.gives(name)
    if (gives && !this.line.includes(name)) this.line.push(name)
    if (gives) return
    this.line = this.line.filter((other) => other !== name)
    this.lane(name).credit = 0
  }

  protected waitUntil(name: string, ms: number): void {
    const lane = this.lane(name)
    if (lane.waitsUntil === forever) return
    lane.waitsUntil = Math.max(lane.waitsUntil, Math.ceil(ms))
    this.later.set(`@${name}`, { due: lane.waitsUntil })
  }

  /** Behind those of the same or a higher priority, or before those of the same or a lower one. */
  protected enqueue(work: Work, atHead = false): void {
    const { waiting } = this.lane(work.lane)
    if (atHead || work.priority !== 0) this.moved.add(work)
    else this.moved.delete(work)
    const at = waiting.findIndex(({ priority }) => (atHead ? priority <= work.priority : priority < work.priority))
    waiting.splice(at === -1 ? waiting.length : at, 0, work)
  }

  /** It lines up, or lies behind the one of its object that is there. */
  protected arrive(work: Work): void {
    const object = this.ordered && work.key !== '' ? objectOf(work) : undefined
    const behind = object && this.objects.get(object)
    if (behind) {
      behind.push(work)
      return
    }
    if (object) this.objects.set(object, [])
    this.enqueue(work)
    this.touch(work.lane)
  }

  /** They are there no more: the next of their objects line up. */
  protected passOn(gone: readonly Work[]): void {
    for (const work of gone) {
      const behind = this.objects.get(objectOf(work))
      const next = behind?.shift()
      if (next) {
        this.enqueue(next)
        this.touch(next.lane)
      } else this.objects.delete(objectOf(work))
    }
  }

  /** One that is to be cancelled is given up by that, whatever became of it: answers whether it was. */
  protected givesAway({ id }: Work): boolean {
    if (!this.cancels.delete(id)) return false
    this.counts.discarded += 1
    return true
  }

  /** Answers whether it is there no more. */
  protected giveUp(work: Work, reason: string): boolean {
    if (this.parks && work.key !== '') {
      this.parked.set(objectOf(work), { work, reason })
      return false
    }
    this.bury(work, reason)
    return true
  }

  protected bury(work: Work, reason: string): void {
    this.dead.set(work.id, { work, reason, died: this.now })
  }

  protected putBack(works: readonly Work[]): void {
    const sorted = oldestFirst(works)
    for (const work of sorted.toReversed()) this.enqueue(work, true)
    this.touch(...sorted.map(({ lane }) => lane))
  }

  protected tried = (work: Work, claimed: number): Work => ({
    ...work,
    expires: 0,
    attempts: work.attempts + 1,
    first: work.first === 0 ? claimed : work.first,
  })

  protected givesUp = (work: Work): boolean => this.attempts > 0 && work.attempts >= this.attempts

  /** What waits in a lane, in line or behind others. */
  worksOf(name: string): Work[] {
    const behind = [...this.objects.values()].flat().filter(({ lane }) => lane === name)
    return [...this.lane(name).waiting, ...behind]
  }

  /** What a lane's record says. */
  facts(name: string) {
    const ofLane = (works: Iterable<{ work?: Work }>) => [...works].filter(({ work }) => work?.lane === name).length
    const { waiting, credit, waitsUntil } = this.lane(name)
    return {
      waiting: waiting.length,
      later: ofLane(this.later.values()),
      held: this.heldOf(name),
      dead: ofLane(this.dead.values()),
      parked: ofLane(this.parked.values()),
      behind: this.worksOf(name).length - waiting.length,
      notBefore: waitsUntil,
      credit,
    }
  }

  heldOf(name: string): number {
    let held = 0
    for (const { items } of this.leases.values()) for (const { lane } of items.values()) if (lane === name) held += 1
    return held
  }

  get held(): number {
    return [...this.leases.values()].reduce((sum, { items }) => sum + items.size, 0)
  }

  get behind(): number {
    return [...this.objects.values()].reduce((sum, { length }) => sum + length, 0)
  }

  get waiting(): number {
    return [...this.lanes.values()].reduce((sum, { waiting }) => sum + waiting.length, 0)
  }
}
