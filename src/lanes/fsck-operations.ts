/**
 * What is right and wrong with the operations of a tracked store:
 *
 *   sound     a record can be read, its times are in order, and it has ended if and only if it says when
 *   truthful  it says of its item what the store says: that it waits, is held, was given up, or is gone
 *   found     it stands in the index of its object; and the index has nothing else
 *   bounded   what has ended is forgotten at some time
 */
import { shown } from '../errors.ts'
import type { Finding, FsckCheck } from '../fsck-checks.ts'
import { type OperationState, operationName, operationStates } from './operation.ts'

/** Where its item may be; '' is nowhere. */
const placesOf: Readonly<Record<OperationState, readonly string[]>> = {
  queued: ['waiting', 'later', 'behind'],
  running: ['held'],
  succeeded: [''],
  failed: ['dead', 'parked', ''],
  cancelled: [''],
}

interface Seen {
  state: OperationState
  endedMs: number
  /** It is to be cancelled, and its item has not come up yet. */
  isMarked: boolean
}

export class OperationJudge {
  readonly #queue: string
  readonly #local: Finding[] = []
  readonly #operations = new Map<string, Seen>()
  readonly #listed = new Set<string>()
  #listedCount = 0
  /** How many are listed, as the store counts them. */
  #kept = 0

  constructor(queue: string) {
    this.#queue = queue
  }

  /**
   * {operation, state, began, ended, whether it stands in its index: 1, 0 or - where it need not (it has no key, or its day is over), whether it is to
   * be cancelled}
   */
  takeOperation([name, state, began, ended, indexed, marked]: readonly string[]): void {
    const suspect = (check: FsckCheck, problem: string) => this.#suspect(this.#local, check, name!, problem)
    const its = operationStates[Number(state) - 1]
    if (its === undefined) return suspect('operations', 'its record, or what it is about, cannot be read')
    const [beganMs, endedMs] = [Number(began), Number(ended)]
    this.#operations.set(name!, { state: its, endedMs, isMarked: marked === '1' })
    const hasEnded = its !== 'queued' && its !== 'running'
    if (hasEnded !== endedMs > 0) suspect('operations', `it is ${its}, and ended at ${endedMs}`)
    if (hasEnded && endedMs < beganMs) suspect('operations', `it began at ${beganMs} and ended at ${endedMs}`)
    if (indexed === '0') suspect('operation-index', 'it does not stand in the index of its object')
  }

  /** "<ms> <operation>…", those that ended together. */
  takeListed(text: string): void {
    const [ms, ...names] = text.split(' ')
    for (const name of names) this.#listed.add(`${ms} ${name}`)
    this.#listedCount += names.length
  }

  takePlace(place: string): void {
    const problem = `it names the operation ${shown(place.slice(place.lastIndexOf(' ') + 1))}, which is not there`
    this.#local.push({
      check: 'operation-index',
      where: `place ${shown(place)} of queue ${shown(this.#queue)}`,
      problem,
    })
  }

  /** Of no record. */
  takeNote(name: string): void {
    this.#suspect(this.#local, 'operations', name, 'its handler has said something, but it is not there')
  }

  /** `total` and minutes, each "<succeeded> <failed> <cancelled> …". */
  takeCounts(total: string, kept: number, minutes: readonly string[]): void {
    this.#kept = kept
    const all = total.split(' ').slice(0, 3).map(Number)
    const sum = [0, 1, 2].map((i) => minutes.reduce((n, text) => n + Number(text.split(' ')[i]), 0))
    if (sum.every((n, i) => n <= all[i]!)) return
    const problem = `the last 24 hours have ${sum.join(', ')} ended operations, all time has ${all.join(', ')}`
    this.#local.push(this.#miscounted(problem))
  }

  get local(): readonly Finding[] {
    return this.#local
  }

  /** To be asked when everything was taken in. `places`: item → where it is. */
  whole(places: ReadonlyMap<string, string>): Finding[] {
    const findings: Finding[] = []
    if (this.#kept !== this.#listedCount)
      findings.push(
        this.#miscounted(`${this.#kept} have ended and are kept by their count, ${this.#listedCount} by their list`),
      )
    const placeOf = new Map([...places].map(([id, place]) => [operationName(id), place]))
    for (const [name, { state, endedMs, isMarked }] of this.#operations) {
      const place = placeOf.get(name) ?? ''
      const isOnItsWay = isMarked && state === 'cancelled' && place !== ''
      if (!placesOf[state].includes(place) && !isOnItsWay)
        this.#suspect(findings, 'operations', name, `it is ${state}, but its item is ${place === '' ? 'gone' : place}`)
      if (endedMs > 0 && !this.#listed.has(`${endedMs} ${name}`))
        this.#suspect(findings, 'operations', name, 'it has ended, but is never forgotten')
    }
    return findings
  }

  #miscounted(problem: string): Finding {
    return { check: 'operation-counts', where: `queue ${shown(this.#queue)}`, problem }
  }

  #suspect(to: Finding[], check: FsckCheck, name: string, problem: string): void {
    to.push({ check, where: `operation ${shown(`${this.#queue}.${name}`)}`, problem })
  }
}
