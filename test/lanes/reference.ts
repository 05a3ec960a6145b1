/** All that can be done to a store of lanes, as plainly as it can be said. What the scripts must agree with. */
import type { Outcome } from '../../src/lanes/acts.ts'
import type { QueueLimits, Rate } from '../../src/lanes/limits.ts'
import { forever } from '../../src/lanes/record.ts'
import { ReferenceClaims } from './reference-claims.ts'
import type { Work } from './reference-lanes.ts'
import { orNone } from './reference-limits.ts'

export type { Work } from './reference-lanes.ts'

export class ReferenceStore extends ReferenceClaims {
  /** Lanes that need not wait for their rate any more. */
  readonly #repaced: string[] = []

  /** Of events whose tenant has no room: 'full' holds back the first of them, and all behind it. */
  accept(partition: number, works: readonly (Work & { seq: number })[]): { kind: 'accepted' | 'full'; items: number } {
    let applied = this.applied.get(partition) ?? 0
    let items = 0
    let kind: 'accepted' | 'full' = 'accepted'
    for (const { seq, ...work } of works.filter((one) => one.seq > applied)) {
      const isFull = this.#isFull(work.lane)
      if (isFull && (this.limits.overflow ?? 'hold') === 'hold') {
        kind = 'full'
        break
      }
      applied = seq
      items += 1
      if (isFull && !this.#makesRoom(work.lane)) this.bury(work, 'full')
      else this.arrive(work)
    }
    this.lineUp()
    this.applied.set(partition, applied)
    this.counts.in += items
    return { kind, items }
  }

  #isFull(name: string): boolean {
    const behind = [...this.objects.values()].flat()
    const later = [...this.later.values()].flatMap(({ work }) => work ?? [])
    const others = [...behind, ...later].filter(({ lane }) => lane === name).length
    return this.lane(name).waiting.length + others >= orNone(this.limits.backlog)
  }

  /** Drops the first that came, or else the first that waits: answers whether there was one. */
  #makesRoom(name: string): boolean {
    if (this.limits.overflow !== 'drop-oldest') return false
    const { waiting } = this.lane(name)
    const first = waiting.find((work) => !this.moved.has(work)) ?? waiting[0]
    if (!first) return false
    waiting.splice(waiting.indexOf(first), 1)
    this.cancels.delete(first.id)
    this.counts.dropped += 1
    this.touch(name)
    if (this.ordered) this.passOn([first])
    return true
  }

  /** Answers whether there was room for it. */
  send(work: Work, delay: number): boolean {
    if (this.#isFull(work.lane)) return false
    this.counts.in += 1
    if (delay > 0) this.later.set(work.id, { due: this.now + delay, work })
    else this.arrive(work)
    return true
  }

  /** All that one call sends has come. */
  sent(): void {
    this.lineUp()
  }

  /** Settles items of one lease alike. Answers the ids that it did not hold. */
  settle(token: string, ids: readonly string[], outcome: Outcome): string[] {
    const lease = this.leases.get(token)
    const held = [...new Set(ids)].flatMap((id) => lease?.items.get(id) ?? [])
    const gone = held.filter((work) => {
      lease!.items.delete(work.id)
      if (this.gives(work.lane)) this.touch(work.lane)
      return this.#settleOne(work, lease!.claimed, outcome)
    })
    if (lease?.items.size === 0) this.leases.delete(token)
    if (outcome.kind === 'back' || outcome.kind === 'throttle')
      this.putBack(held.filter((work) => !gone.includes(work)))
    if (this.ordered) this.passOn(gone)
    this.lineUp()
    return ids.filter((id, i) => !held.some((work) => work.id === id) || ids.indexOf(id) !== i)
  }

  /** Answers whether it is there no more. */
  #settleOne(work: Work, claimed: number, outcome: Outcome): boolean {
    const after = this.tried(work, claimed)
    if (outcome.kind === 'ack') {
      this.counts.out += 1
      this.cancels.delete(work.id)
      return true
    }
    if (outcome.kind === 'throttle') this.waitUntil(work.lane, this.now + outcome.forMs)
    if (this.givesAway(work)) return true
    if (outcome.kind === 'back') this.touch(work.lane)
    else if (outcome.kind === 'dead' || (outcome.kind === 'retry' && this.givesUp(after)))
      return this.giveUp(after, outcome.reason)
    else if (outcome.kind === 'retry' && outcome.afterMs > 0)
      this.later.set(work.id, { due: this.now + outcome.afterMs, work: after })
    else if (outcome.kind === 'retry') {
      this.enqueue(after)
      this.touch(after.lane)
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
    const after = this.tried(work, lease.claimed)
    this.loosen([work])
    if (this.givesAway(work)) {
      if (this.ordered) this.passOn([after])
    } else if (!this.givesUp(after)) {
      this.enqueue(after, true)
      this.touch(work.lane)
    } else if (this.giveUp(after, 'released') && this.ordered) this.passOn([after])
    this.lineUp()
    return 'released'
  }

  /** Another definition. What was given counts for another rate too, as far as that has room for it. */
  redefine(weights: Readonly<Record<string, number>>, limits: QueueLimits): void {
    const before = this.limits.ratePerTenant
    this.limits = limits
    this.#repace(before)
    this.jar.spill(this.now, limits.rate)
    if (Object.keys(limits).length === 0) this.jar.empty()
    this.#weigh(weights)
  }

  #weigh(weights: Readonly<Record<string, number>>): void {
    const named = [...Object.keys(weights)]
    const others = [...this.lanes].filter(([name, { weight }]) => weight !== 1 && !named.includes(name))
    for (const name of [...named, ...others.map(([other]) => other)]) {
      const lane = this.lane(name)
      const weight = weights[name] ?? 1
      if (lane.weight !== weight) lane.credit = 0
      lane.weight = weight
      this.touched.add(name)
    }
    for (const name of this.#repaced.splice(0)) this.touched.add(name)
    this.lineUp()
  }

  /** Whoever waits for a rate that is another now does not wait for the old one. */
  #repace(before: Rate | undefined): void {
    const { ratePerTenant } = this.limits
    if (!before || (before.max === ratePerTenant?.max && before.perMs === ratePerTenant.perMs)) return
    const waiting = [...this.later].filter(([id, { work, due }]) => !work && id.startsWith('@') && due > this.now)
    waiting.sort(([a, { due: aDue }], [b, { due: bDue }]) => aDue - bDue || (a < b ? -1 : 1))
    for (const [id, { due }] of waiting) {
      const lane = this.lane(id.slice(1))
      if (due !== Math.ceil(lane.jar.opens(this.now, before))) continue
      lane.waitsUntil = 0
      this.later.delete(id)
      this.#repaced.push(id.slice(1))
    }
  }

  redrive(ids: readonly string[]): number {
    const found = ids.filter((id) => this.dead.has(id))
    for (const id of found) {
      const { work } = this.dead.get(id)!
      this.dead.delete(id)
      this.arrive({ ...work, attempts: 0, first: 0, expires: 0 })
    }
    this.lineUp()
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
      this.enqueue({ ...work, attempts: 0, first: 0, expires: 0 })
      this.touch(work.lane)
    }
    this.lineUp()
    return found.length
  }

  /** Answers how many items they were. */
  discardParked(objects: readonly string[]): number {
    const found = objects.filter((object) => this.parked.delete(object))
    const items = found.reduce((sum, object) => sum + 1 + this.objects.get(object)!.length, 0)
    for (const object of found) {
      for (const { id } of this.objects.get(object)!) this.cancels.delete(id)
      this.objects.delete(object)
    }
    this.counts.discarded += items
    return items
  }

  /** One that waits for a time is gone at once, one that waits in line when it comes up, one that is held when it is settled. */
  cancel(id: string): void {
    const work = this.later.get(id)?.work
    this.cancels.add(id)
    if (!work) return
    this.later.delete(id)
    this.givesAway(work)
    if (this.ordered && work.attempts > 0) this.passOn([work])
    this.lineUp()
  }

  /** What other starts of this name hold goes back, but for what is to be cancelled. */
  enter(worker: string, start: string): number {
    const others = [...this.leases].filter(([, lease]) => lease.worker === worker && lease.start !== start)
    const items = others.flatMap(([, lease]) => [...lease.items.values()])
    for (const [token] of others) this.leases.delete(token)
    const gone = items.filter((work) => this.givesAway(work))
    const back = items.filter((work) => !gone.includes(work))
    this.putBack(back)
    if (this.ordered) this.passOn(gone)
    this.lineUp()
    return back.length
  }

  /** Until it is resumed; resumed it gives at once, whatever it waited for. */
  pauseLane(name: string, act: 'pause' | 'resume'): void {
    this.lane(name).waitsUntil = act === 'pause' ? forever : 0
    this.later.delete(`@${name}`)
    this.touch(name)
    this.lineUp()
  }
}
