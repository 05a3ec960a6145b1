/** Claims, as plainly as they can be said: what is due comes back, then lane by lane, item by item, whoever is next gives one. */
import { type Lane, type Lease, ReferenceLanes, type Work } from './reference-lanes.ts'
import { orNone, shareOf } from './reference-limits.ts'

const sweepMost = 100

export class ReferenceClaims extends ReferenceLanes {
  /** Since the last claim: it is the store's rate that allows no more. */
  #waitsForRate = false

  /** Answers what is held then. */
  claim(token: string, n: number, leaseMs: number, worker: string, start: string): Work[] {
    const before = this.leases.get(token)
    if (before) {
      before.ends = this.now + leaseMs
      return [...before.items.values()]
    }
    const lease = { ends: this.now + leaseMs, worker, start, claimed: this.now, items: new Map<string, Work>() }
    this.#passOnByLane(this.#claimUnder(token, n, lease))
    if (lease.items.size === 0) this.leases.delete(token)
    return [...lease.items.values()]
  }

  /** Takes for good: a claim whose items are done at once. */
  pop(n: number): Work[] {
    const lease = { ends: 0, worker: '', start: '', claimed: this.now, items: new Map<string, Work>() }
    const gone = this.#claimUnder('', n, lease)
    this.leases.delete('')
    const taken = [...lease.items.values()]
    this.touch(...taken.map(({ lane }) => lane))
    this.#passOnByLane([...gone, ...taken])
    this.counts.out += taken.length
    return taken
  }

  /** Answers what was there before, and is no more. */
  #claimUnder(token: string, n: number, lease: Lease): Work[] {
    const gone = this.#bringBackLapsed()
    this.#bringBackDue()
    const most = this.paused ? 0 : this.#allowed(n)
    this.#waitsForRate =
      this.jar.room(this.now, this.limits.rate) < Math.min(n, orNone(this.limits.inFlight) - this.held)
    this.leases.set(token, lease)
    this.lineUp()
    this.#take(most, lease, gone)
    this.#waitsForRate &&= lease.items.size === most
    return gone
  }

  /** Answers those that had their last attempt. */
  #bringBackLapsed(): Work[] {
    const gone: Work[] = []
    const lapsed = [...this.leases].filter(([, { ends }]) => ends <= this.now)
    lapsed.sort(([a, { ends: aEnds }], [b, { ends: bEnds }]) => aEnds - bEnds || (a < b ? -1 : 1))
    const back: Work[] = []
    for (const [token, { items, claimed }] of lapsed.slice(0, sweepMost)) {
      this.leases.delete(token)
      const after = [...items.values()].map((work) => this.tried(work, claimed))
      this.loosen(after)
      for (const work of after) {
        if (this.givesAway(work)) gone.push(work)
        else if (!this.givesUp(work)) back.push(work)
        else if (this.giveUp(work, 'lapsed')) gone.push(work)
      }
    }
    this.putBack(back)
    return gone
  }

  #bringBackDue(): void {
    const due = [...this.later].filter(([, one]) => one.due <= this.now)
    due.sort(([a, { due: aDue }], [b, { due: bDue }]) => aDue - bDue || (a < b ? -1 : 1))
    for (const [id, { work }] of due) {
      this.later.delete(id)
      // What was tried before is there already.
      if (work?.attempts === 0) this.arrive(work)
      else if (work) this.enqueue(work)
      else this.lane(id.slice(1)).waitsUntil = 0
      if (work?.attempts !== 0) this.touch(work?.lane ?? id.slice(1))
    }
  }

  /** How many may be given now, of n, as far as that is for the whole store. */
  #allowed(n: number): number {
    const room = Math.max(0, orNone(this.limits.inFlight) - this.held)
    return Math.min(n, room, this.jar.room(this.now, this.limits.rate))
  }

  /** By turns; when all lanes have their share, whoever holds least. */
  #take(n: number, lease: Lease, gone: Work[]): void {
    const share = shareOf(this.limits, this.held + n)
    while (lease.items.size < n) {
      const name = this.#nextBelow(share)
      if (name === undefined) break
      this.#serve(name, lease, gone)
    }
    const above = [...this.line]
    while (lease.items.size < n && this.line.length > 0) {
      const giving = above.filter((name) => this.line.includes(name))
      const least = giving.reduce((a, b) => (this.heldOf(b) < this.heldOf(a) ? b : a))
      this.lane(least).credit = 1
      this.#serve(least, lease, gone)
    }
  }

  /** The first in line that has less than its share. One whose rate is used up, by another definition of it, has to wait. */
  #nextBelow(share: number): string | undefined {
    const { ratePerTenant } = this.limits
    for (const name of [...this.line]) {
      const { jar } = this.lane(name)
      if (jar.room(this.now, ratePerTenant) < 1) {
        jar.spill(this.now, ratePerTenant)
        this.waitUntil(name, jar.opens(this.now, ratePerTenant!))
        this.turn(name)
      } else if (this.heldOf(name) < share) return name
    }
    return undefined
  }

  /** Takes one of this lane, whose turn goes on as long as it has credit and can give. */
  #serve(name: string, lease: Lease, gone: Work[]): void {
    const lane = this.lane(name)
    if (lane.credit === 0) lane.credit = lane.weight
    const work = this.#shiftLive(lane, gone)
    if (work) this.#give(work, lease)
    lane.credit -= 1
    if (lane.credit > 0 && this.gives(name)) return
    lane.credit = 0
    this.line = this.line.filter((other) => other !== name)
    this.turn(name)
  }

  #give(work: Work, lease: Lease): void {
    const { rate, ratePerTenant } = this.limits
    const { jar } = this.lane(work.lane)
    lease.items.set(work.id, work)
    this.jar.pour(this.now, rate)
    jar.pour(this.now, ratePerTenant)
    if (jar.room(this.now, ratePerTenant) < 1) this.waitUntil(work.lane, jar.opens(this.now, ratePerTenant!))
  }

  #shiftLive(lane: Lane, gone: Work[]): Work | undefined {
    for (;;) {
      const work = lane.waiting.shift()
      const isCancelled = work && this.givesAway(work)
      if (!work || (!isCancelled && (work.expires === 0 || work.expires > this.now))) return work
      if (!isCancelled) this.counts.expired += 1
      gone.push(work)
    }
  }

  /** Who lines up by what a claim has ended does so lane by lane. */
  #passOnByLane(gone: readonly Work[]): void {
    if (this.ordered) this.passOn([...gone].sort((a, b) => (a.lane < b.lane ? -1 : a.lane > b.lane ? 1 : 0)))
    this.lineUp()
  }

  /** When the next thing is due; undefined for never. */
  due(): number | undefined {
    const { rate } = this.limits
    const times = [
      ...[...this.leases.values()].map(({ ends }) => ends),
      ...[...this.later.values()].map(({ due }) => due),
      ...(this.#waitsForRate ? [Math.ceil(this.jar.opens(this.now, rate!))] : []),
    ]
    return times.length > 0 ? Math.min(...times) : undefined
  }

  /** Whether a claim of n gives what a look at the line shows: nothing is due, nothing has expired, nothing is held back. */
  givesAtOnce(n: number): boolean {
    const dues = [...this.leases.values()]
      .map(({ ends }) => ends)
      .concat([...this.later.values()].map(({ due }) => due))
    const waiting = [...this.lanes.values()].flatMap((lane) => lane.waiting)
    const isGone = ({ id, expires }: Work) => this.cancels.has(id) || (expires > 0 && expires <= this.now)
    const isOver = dues.some((due) => due <= this.now) || waiting.some(isGone)
    const { ratePerTenant } = this.limits
    const isUsed = this.line.some((name) => this.lane(name).jar.room(this.now, ratePerTenant) < 1)
    return n > 0 && !this.paused && !isOver && !isUsed && this.#allowed(n) === n
  }
}
