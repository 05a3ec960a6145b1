/**
 * A store of lanes as plainly as it can be said: lists, maps, and a line of lanes. What the scripts must agree with.
 *
 * The line holds exactly the lanes that can give, next one first. In an ordered store an object is there as long as an item of it is that
 * may be claimed, is held, is to be tried again or is parked; the others of it lie behind.
 */
import type { Outcome } from '../../src/lanes/acts.ts'

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

interface Lane {
  waiting: Work[]
  weight: number
  credit: number
  waitsUntil: number
}

interface Lease {
  ends: number
  worker: string
  start: string
  claimed: number
  items: Map<string, Work>
}

const sweepMost = 100

const objectOf = ({ lane, key }: Work): string => `${lane} ${key}`

const oldestFirst = (works: readonly Work[]): Work[] =>
  [...works].sort((a, b) => a.enqueued - b.enqueued || (a.id < b.id ? -1 : 1))

export class ReferenceStore {
  now = 1_000_000
  attempts = 3
  paused = false
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
  readonly #touched = new Set<string>()
  /** In the last claim. */
  #expired: Work[] = []
  readonly counts = { in: 0, out: 0, expired: 0, dropped: 0, discarded: 0 }

  constructor({ ordered = false, parks = false } = {}) {
    this.ordered = ordered
    this.parks = parks
  }

  lane(name: string): Lane {
    let lane = this.lanes.get(name)
    if (!lane) {
      lane = { waiting: [], weight: 1, credit: 0, waitsUntil: 0 }
      this.lanes.set(name, lane)
    }
    return lane
  }

  /** What an operation touches lines up at its end, in the order in which it was first touched. */
  #touch(...names: readonly string[]): void {
    for (const name of names) this.#touched.add(name)
  }

  #lineUp(): void {
    for (const name of this.#touched) this.#turn(name)
    this.#touched.clear()
  }

  /** Puts a lane that can give at the end of the line, unless it is in it, and takes out one that cannot. */
  #turn(name: string): void {
    const { waiting, weight, waitsUntil } = this.lane(name)
    const gives = waiting.length > 0 && weight > 0 && waitsUntil === 0
    if (gives && !this.line.includes(name)) this.line.push(name)
    if (gives) return
    this.line = this.line.filter((other) => other !== name)
    this.lane(name).credit = 0
  }

  /** Behind those of the same or a higher priority, or before those of the same or a lower one. */
  #enqueue(work: Work, atHead = false): void {
    const { waiting } = this.lane(work.lane)
    const at = waiting.findIndex(({ priority }) => (atHead ? priority <= work.priority : priority < work.priority))
    waiting.splice(at === -1 ? waiting.length : at, 0, work)
  }

  /** It lines up, or lies behind the one of its object that is there. */
  #arrive(work: Work): void {
    const object = this.ordered && work.key !== '' ? objectOf(work) : undefined
    const behind = object && this.objects.get(object)
    if (behind) {
      behind.push(work)
      return
    }
    if (object) this.objects.set(object, [])
    this.#enqueue(work)
    this.#touch(work.lane)
  }

  /** They are there no more: the next of their objects line up. */
  #passOn(gone: readonly Work[]): void {
    for (const work of gone) {
      const behind = this.objects.get(objectOf(work))
      const next = behind?.shift()
      if (next) {
        this.#enqueue(next)
        this.#touch(next.lane)
      } else this.objects.delete(objectOf(work))
    }
  }

  /** Answers whether it is there no more. */
  #giveUp(work: Work, reason: string): boolean {
    if (this.parks && work.key !== '') {
      this.parked.set(objectOf(work), { work, reason })
      return false
    }
    this.dead.set(work.id, { work, reason, died: this.now })
    return true
  }

  accept(partition: number, works: readonly (Work & { seq: number })[]): number {
    const applied = this.applied.get(partition) ?? 0
    const fresh = works.filter(({ seq }) => seq > applied)
    for (const { seq: _, ...work } of fresh) this.#arrive(work)
    this.#lineUp()
    this.applied.set(partition, Math.max(applied, works.at(-1)!.seq))
    this.counts.in += fresh.length
    return fresh.length
  }

  send(work: Work, delay: number): void {
    this.counts.in += 1
    if (delay > 0) this.later.set(work.id, { due: this.now + delay, work })
    else this.#arrive(work)
    this.#lineUp()
  }

  #putBack(works: readonly Work[]): void {
    const sorted = oldestFirst(works)
    for (const work of sorted.toReversed()) this.#enqueue(work, true)
    this.#touch(...sorted.map(({ lane }) => lane))
  }

  #tried = (work: Work, claimed: number): Work => ({
    ...work,
    expires: 0,
    attempts: work.attempts + 1,
    first: work.first === 0 ? claimed : work.first,
  })

  #givesUp = (work: Work): boolean => this.attempts > 0 && work.attempts >= this.attempts

  /** Answers those that had their last attempt. */
  #bringBack(): Work[] {
    const gone: Work[] = []
    const lapsed = [...this.leases].filter(([, { ends }]) => ends <= this.now)
    lapsed.sort(([a, { ends: aEnds }], [b, { ends: bEnds }]) => aEnds - bEnds || (a < b ? -1 : 1))
    const back: Work[] = []
    for (const [token, { items, claimed }] of lapsed.slice(0, sweepMost)) {
      this.leases.delete(token)
      const after = oldestFirst([...items.values()]).map((work) => this.#tried(work, claimed))
      this.#touch(...after.map(({ lane }) => lane))
      gone.push(...after.filter(this.#givesUp).filter((work) => this.#giveUp(work, 'lapsed')))
      back.push(...after.filter((work) => !this.#givesUp(work)))
    }
    this.#putBack(back)
    const due = [...this.later].filter(([, one]) => one.due <= this.now)
    due.sort(([a, { due: aDue }], [b, { due: bDue }]) => aDue - bDue || (a < b ? -1 : 1))
    for (const [id, { work }] of due) {
      this.later.delete(id)
      // What was tried before is there already.
      if (work?.attempts === 0) this.#arrive(work)
      else if (work) this.#enqueue(work)
      else this.lane(id.slice(1)).waitsUntil = 0
      if (work?.attempts !== 0) this.#touch(work?.lane ?? id.slice(1))
    }
    this.#lineUp()
    return gone
  }

  /** Takes the next item by turns; the rest of a turn is credit only as long as the claim lasts no longer. */
  #next(left: number): Work | undefined {
    const [name] = this.line
    if (name === undefined) return undefined
    const lane = this.lane(name)
    if (lane.credit === 0) lane.credit = lane.weight
    const work = this.#shiftLive(lane)
    lane.credit -= 1
    const ends = lane.credit === 0 || lane.waiting.length === 0
    if (ends) {
      lane.credit = 0
      this.line.shift()
      this.#turn(name)
    }
    return work ?? (left > 0 ? this.#next(left) : undefined)
  }

  #shiftLive(lane: Lane): Work | undefined {
    for (;;) {
      const work = lane.waiting.shift()
      if (!work || work.expires === 0 || work.expires > this.now) return work
      this.counts.expired += 1
      this.#expired.push(work)
    }
  }

  #take(n: number): Work[] {
    const taken: Work[] = []
    this.#expired = []
    while (taken.length < n && !this.paused) {
      const work = this.#next(n - taken.length)
      if (!work) break
      taken.push(work)
    }
    return taken
  }

  claim(token: string, n: number, leaseMs: number, worker: string, start: string): Work[] {
    const held = this.leases.get(token)
    if (held) {
      held.ends = this.now + leaseMs
      return [...held.items.values()]
    }
    const lapsed = this.#bringBack()
    const taken = this.#take(n)
    this.#afterClaim([...lapsed, ...this.#expired])
    const items = new Map(taken.map((work) => [work.id, work]))
    if (taken.length > 0) this.leases.set(token, { ends: this.now + leaseMs, worker, start, claimed: this.now, items })
    return taken
  }

  pop(n: number): Work[] {
    const lapsed = this.#bringBack()
    const taken = this.#take(n)
    this.#afterClaim([...lapsed, ...this.#expired, ...taken])
    this.counts.out += taken.length
    return taken
  }

  /** Who lines up by what a claim has ended does so lane by lane. */
  #afterClaim(gone: readonly Work[]): void {
    if (!this.ordered) return
    this.#passOn([...gone].sort((a, b) => (a.lane < b.lane ? -1 : a.lane > b.lane ? 1 : 0)))
    this.#lineUp()
  }

  /** Settles items of one lease alike. Answers the ids that it did not hold. */
  settle(token: string, ids: readonly string[], outcome: Outcome): string[] {
    const lease = this.leases.get(token)
    const held: Work[] = []
    for (const id of ids) {
      const work = lease?.items.get(id)
      if (work) held.push(work)
      lease?.items.delete(id)
    }
    if (lease?.items.size === 0) this.leases.delete(token)
    const isPut = outcome.kind === 'back' || outcome.kind === 'throttle'
    if (isPut) this.#touch(...held.map(({ lane }) => lane))
    const gone = held.filter((work) => this.#settleOne(work, lease!.claimed, outcome))
    if (isPut) this.#putBack(held)
    if (this.ordered) this.#passOn(gone)
    this.#lineUp()
    return ids.filter((id, i) => !held.some((work) => work.id === id) || ids.indexOf(id) !== i)
  }

  /** Answers whether it is there no more. */
  #settleOne(work: Work, claimed: number, outcome: Outcome): boolean {
    const after = this.#tried(work, claimed)
    if (outcome.kind === 'ack') {
      this.counts.out += 1
      return true
    }
    if (outcome.kind === 'throttle') {
      const lane = this.lane(work.lane)
      lane.waitsUntil = Math.max(lane.waitsUntil, this.now + outcome.forMs)
      this.later.set(`@${work.lane}`, { due: lane.waitsUntil })
    } else if (outcome.kind === 'dead' || (outcome.kind === 'retry' && this.#givesUp(after)))
      return this.#giveUp(after, outcome.reason)
    else if (outcome.kind === 'retry' && outcome.afterMs > 0)
      this.later.set(work.id, { due: this.now + outcome.afterMs, work: after })
    else if (outcome.kind === 'retry') {
      this.#enqueue(after)
      this.#touch(after.lane)
    }
    return false
  }

  renew(token: string, leaseMs: number): boolean {
    const lease = this.leases.get(token)
    if (lease) lease.ends = this.now + leaseMs
    return lease !== undefined
  }

  extend(token: string, id: string, ms: number, ownToken: string): 'extended' | 'released' | 'stale' {
    const lease = this.leases.get(token)
    const work = lease?.items.get(id)
    if (!lease || !work) return 'stale'
    lease.items.delete(id)
    if (lease.items.size === 0) this.leases.delete(token)
    if (ms > 0) {
      this.leases.set(ownToken, { ...lease, ends: this.now + ms, items: new Map([[id, work]]) })
      return 'extended'
    }
    const after = this.#tried(work, lease.claimed)
    if (!this.#givesUp(after)) {
      this.#enqueue(after, true)
      this.#touch(work.lane)
    } else if (this.#giveUp(after, 'released') && this.ordered) this.#passOn([after])
    this.#lineUp()
    return 'released'
  }

  weigh(weights: Readonly<Record<string, number>>): void {
    const named = [...Object.keys(weights)]
    const others = [...this.lanes].filter(([name, { weight }]) => weight !== 1 && !named.includes(name))
    for (const name of [...named, ...others.map(([other]) => other)]) {
      this.lane(name).weight = weights[name] ?? 1
      this.lane(name).credit = 0
      this.#touch(name)
    }
    this.#lineUp()
  }

  redrive(ids: readonly string[]): number {
    const found = ids.filter((id) => this.dead.has(id))
    for (const id of found) {
      const { work } = this.dead.get(id)!
      this.dead.delete(id)
      this.#arrive({ ...work, attempts: 0, first: 0, expires: 0 })
    }
    this.#lineUp()
    return found.length
  }

  discard(ids: readonly string[]): number {
    const found = ids.filter((id) => this.dead.delete(id))
    this.counts.discarded += found.length
    return found.length
  }

  resume(objects: readonly string[]): number {
    const found = objects.filter((object) => this.parked.has(object))
    for (const object of found) {
      const { work } = this.parked.get(object)!
      this.parked.delete(object)
      this.#enqueue({ ...work, attempts: 0, first: 0, expires: 0 })
      this.#touch(work.lane)
    }
    this.#lineUp()
    return found.length
  }

  /** Answers how many items they were. */
  discardParked(objects: readonly string[]): number {
    const found = objects.filter((object) => this.parked.delete(object))
    const items = found.reduce((sum, object) => sum + 1 + this.objects.get(object)!.length, 0)
    for (const object of found) this.objects.delete(object)
    this.counts.discarded += items
    return items
  }

  /** What other starts of this name hold goes back. */
  enter(worker: string, start: string): number {
    const others = [...this.leases].filter(([, lease]) => lease.worker === worker && lease.start !== start)
    const items = others.flatMap(([, lease]) => [...lease.items.values()])
    for (const [token] of others) this.leases.delete(token)
    this.#putBack(items)
    this.#lineUp()
    return items.length
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
