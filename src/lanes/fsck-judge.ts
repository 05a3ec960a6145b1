/**
 * What is right and what is wrong in a store of lanes, decided without reading anything.
 *
 *   local   what one answer shows at one instant: judged whatever happens meanwhile
 *   whole   what only all answers together show (an id in two places, sums): judged when nothing changed while they came
 */
import { shown } from '../errors.ts'
import type { Finding, FsckCheck } from '../fsck-checks.ts'
import { OperationJudge } from './fsck-operations.ts'
import { OrderJudge } from './fsck-order.ts'
import { forever } from './record.ts'
import type { FsckAnswer, FsckAsk, FsckSeen } from './scripts.ts'

/** Of a whole store, as its counters say. */
export interface StoreCounts {
  waiting: number
  behind: number
  held: number
  bytes: number
  in: number
  out: number
  expired: number
  dropped: number
  discarded: number
  /** Of the dead letters' items. */
  deadBytes: number
  later: number
  dead: number
  lanes: number
  /** Places in use. */
  places: number
  remembered: number
  weights: number
  objects: number
  /** Items behind others of their objects that are there. */
  laid: number
  parked: number
  weighted: number
  leases: number
  operations: number
}

const countNames: readonly (keyof StoreCounts)[] = [
  ...(['waiting', 'behind', 'held', 'bytes', 'in', 'out', 'expired', 'dropped', 'discarded', 'deadBytes'] as const),
  ...(['later', 'dead', 'lanes', 'places', 'remembered', 'weights', 'objects', 'laid', 'parked'] as const),
  ...(['weighted', 'leases', 'operations'] as const),
]

export const readCounts = (counters: readonly string[]): StoreCounts =>
  Object.fromEntries(countNames.map((name, i) => [name, Number(counters[i] ?? 0)])) as unknown as StoreCounts

/** A lane's record, and what is there. */
interface Lane {
  waiting: number
  bytes: number
  later: number
  held: number
  dead: number
  parked: number
  behind: number
}

interface DescribedItem {
  id: string
  lane: string
  bytes: number
  priority: number
  tenant: string
}

type Place = 'waiting' | 'later' | 'held' | 'dead' | 'parked' | 'behind'

const inRecord = ['waiting', 'bytes', 'later', 'held', 'dead', 'parked', 'behind'] as const

const waitingOf = (name: string, pieces: number): FsckAsk => ({ what: 'waiting', from: '0', name, pieces })

const nothing = (): Lane => ({ waiting: 0, bytes: 0, later: 0, held: 0, dead: 0, parked: 0, behind: 0 })

/** Takes answers in, in any order; knows what is wrong in them. */
export class StoreJudge {
  readonly #queue: string
  readonly #local: Finding[] = []
  readonly #whole: Finding[] = []
  readonly #lanes = new Map<string, Lane>()
  /** What was met of each lane's items. */
  readonly #met = new Map<string, Lane>()
  /** Item → where it was met. */
  readonly #places = new Map<string, Place>()
  /** HSCAN may answer a field twice. */
  readonly #taken = new Set<string>()
  readonly #order: OrderJudge
  readonly #operations: OperationJudge
  #counts = readCounts([])
  #deadBytes = 0
  #marks: string | undefined
  #changed = false

  constructor(queue: string) {
    this.#queue = queue
    this.#order = new OrderJudge(queue)
    this.#operations = new OperationJudge(queue)
  }

  /** It looked the same with every answer. */
  get isStill(): boolean {
    return !this.#changed
  }

  /** As last seen. */
  get counts(): StoreCounts {
    return this.#counts
  }

  /** Asks for what waits, lane by lane. */
  waitingLanes(): FsckAsk[] {
    return [...this.#lanes].flatMap(([name, { waiting }]) => (waiting > 0 ? [waitingOf(name, waiting)] : []))
  }

  /** Answers what has to be asked next. */
  take(asks: readonly FsckAsk[], { marks, counters, answers }: FsckSeen): FsckAsk[] {
    if (this.#marks !== undefined && this.#marks !== marks) this.#changed = true
    this.#marks = marks
    this.#counts = readCounts(counters)
    this.#judgeCounts(this.#counts)
    return answers.flatMap((answer, i) => this.#takeAnswer(asks[i]!, answer))
  }

  /** `isWhole`: everything was asked for, and nothing changed meanwhile. */
  findings(isWhole: boolean): Finding[] {
    const local = [...this.#local, ...this.#operations.local]
    if (!isWhole) return local
    for (const [name, lane] of this.#lanes) this.#judgeMet(name, lane, this.#met.get(name) ?? nothing())
    for (const name of this.#met.keys())
      if (!this.#lanes.has(name)) this.#suspectLane(this.#whole, 'queue-lanes', name, 'it has items, but no record')
    this.#judgeSums(this.#counts)
    return [...local, ...this.#whole, ...this.#order.findings(), ...this.#operations.whole(this.#places)]
  }

  #takeAnswer(ask: FsckAsk, answer: FsckAnswer): FsckAsk[] {
    const { what } = ask
    const next = answer.next === '' ? [] : [{ ...ask, from: answer.next }]
    if (what === 'waiting') {
      this.#takeWaiting(ask, answer)
      return next
    }
    for (const row of answer.rows) {
      const key = `${what} ${row[0]}`
      if (this.#taken.has(key)) continue
      this.#taken.add(key)
      if (what === 'lanes') next.push(...this.#takeLane(row))
      else this.#takeRow(what, row)
    }
    return next
  }

  #takeLane([name, ...values]: readonly string[]): FsckAsk[] {
    if (values.length === 0) {
      this.#suspectLane(this.#local, 'queue-lanes', name!, 'its record cannot be read')
      return []
    }
    const [
      head = 0,
      tail = 0,
      bytes = 0,
      ranked = 0,
      later = 0,
      held = 0,
      dead = 0,
      notBefore = 0,
      parked = 0,
      behind = 0,
      paced = 0,
      weight = 0,
      mayHoldMore = 0,
      rankedThere,
    ] = values.slice(0, 14).map(Number)
    const [turn, due] = values.slice(14) as [string, string]
    const suspect = (check: FsckCheck, problem: string) => this.#suspectLane(this.#local, check, name!, problem)
    const waiting = tail - head + ranked
    this.#lanes.set(name!, { waiting, bytes, later, held, dead, parked, behind })
    if (head > tail) suspect('queue-lanes', `its places go from ${head} to before ${tail}`)
    if (ranked !== rankedThere)
      suspect('queue-lanes', `its record says ${ranked} out of their order, there are ${rankedThere}`)
    if (waiting + later + held + dead + parked + behind + notBefore + paced === 0)
      suspect('queue-lanes', 'it has a record, but nothing to count')
    const gives = waiting > 0 && weight > 0 && notBefore === 0 && mayHoldMore === 1
    if (gives && turn === '') suspect('queue-turns', 'it can give, but is not in line: nobody gets its items')
    if (!gives && turn !== '') suspect('queue-turns', 'it is in line, but cannot give')
    if (notBefore > 0 && notBefore < forever && due === '') suspect('queue-later', 'it has to wait, but is never due')
    // One that waits for nothing may be due, for its rate to be forgotten.
    const isKept = notBefore === 0 && paced > 0
    if (due !== '' && !isKept && notBefore !== forever && notBefore !== Number(due))
      suspect('queue-later', `it waits until ${notBefore}, but is due at ${due}`)
    return waiting > 0 ? [waitingOf(name!, waiting)] : []
  }

  #takeWaiting({ name, from }: FsckAsk, { next, rows: [record, ...rows] }: FsckAnswer): void {
    if (!record) return
    const met = this.#metOf(name)
    let bytes = 0
    for (const [place, kind, ...item] of rows) {
      if (item[0] === '') this.#suspectLane(this.#local, 'queue-lanes', name, `nothing is at its place ${place}`)
      else {
        bytes += this.#takeOneWaiting(name, `${kind} place ${place}`, kind!, item)
        met.waiting += 1
      }
    }
    met.bytes += bytes
    // All of the lane in one answer: its bytes can be judged whatever else goes on, unless some lie behind others.
    if (from === '0' && next === '' && this.#lanes.get(name)?.behind === 0 && Number(record[0]) !== bytes)
      this.#suspectLane(this.#local, 'queue-lanes', name, `its record says ${record[0]} bytes, there are ${bytes}`)
  }

  /** Answers its bytes. */
  #takeOneWaiting(lane: string, place: string, kind: string, described: readonly string[]): number {
    const item = this.#takeItem(described, 'waiting', `${place} of lane ${shown(lane)}`)
    if (!item) return Number(described[1])
    if (item.lane !== lane)
      this.#suspectItem(item.id, `it waits in the lane ${shown(lane)}, but is of ${shown(item.lane)}`)
    if (kind === 'plain' && item.priority !== 0)
      this.#suspectItem(item.id, `its priority is ${item.priority}, but its place is ${kind}`)
    return item.bytes
  }

  #takeRow(what: string, row: readonly string[]): void {
    const [name, second, third, fourth] = row as readonly [string, string, string, string]
    const suspect = (check: FsckCheck, where: string, problem: string): void =>
      void this.#local.push({ check, where: `${where} of queue ${shown(this.#queue)}`, problem })
    switch (what) {
      case 'turns':
        return suspect('queue-turns', `lane ${shown(name)}`, 'it is in line, but has no record')
      case 'later':
        if (name.startsWith('@'))
          return suspect('queue-later', `lane ${shown(name.slice(1))}`, 'it is due at some time, but has no record')
        return suspect('queue-later', `item ${shown(name)}`, 'it is due at some time, but not there')
      case 'laterItems':
        if (second === '') suspect('queue-later', `item ${shown(name)}`, 'it waits for a time, but is never due')
        return this.#takeStored(name, third, 'later')
      case 'leases':
        return this.#takeLease(row, suspect)
      case 'objects':
        if (second === undefined) return suspect('queue-order', `object ${shown(name)}`, 'it cannot be read')
        return this.#order.takeObject(name, Number(second), Number(third))
      case 'behind':
        return this.#takeBehind(name, second)
      case 'parked':
        return void this.#takeOfObject(name, second, 'parked')
      case 'dead':
        if (second === '') suspect('queue-dead', `letter ${shown(name)}`, 'it is not in the order')
        else if (third === '') suspect('queue-dead', `letter ${shown(name)}`, 'it cannot be read')
        else if (Number(second) !== Number(third))
          suspect('queue-dead', `letter ${shown(name)}`, `it died at ${third}, but stands in the order at ${second}`)
        return third === '' ? undefined : this.#takeStored(name, fourth, 'dead')
      case 'deadOrder':
        return suspect('queue-dead', `letter ${shown(name)}`, 'it is in the order, but not there')
      case 'remembered':
        return suspect('queue-remembered', `field ${shown(name)}`, 'it is never forgotten')
      case 'ops':
      case 'opItems':
        return this.#operations.takeOperation(row)
      case 'opsEnded':
        return this.#operations.takeListed(second)
      case 'opsLast':
      case 'opsOf':
        return this.#operations.takePlace(name)
      case 'opNotes':
        return this.#operations.takeNote(name)
      case 'opCounts':
        return this.#operations.takeCounts(second, Number(third), row.slice(3))
      case 'forget':
        return suspect('queue-remembered', `field ${shown(name)}`, 'it is to be forgotten, but not there')
    }
  }

  #takeLease(
    [token, , ...items]: readonly string[],
    suspect: (check: FsckCheck, where: string, problem: string) => void,
  ): void {
    const where = `lease ${shown(token)}`
    if (items.length === 0) suspect('queue-leases', where, 'it holds nothing')
    for (let i = 0; i < items.length; i += 2) {
      if (items[i + 1] === '')
        suspect('queue-leases', where, `it holds the item ${shown(items[i])}, which is not there`)
      else this.#takeStored(items[i]!, items[i + 1]!, 'held')
    }
  }

  /** An item under its object. */
  #takeOfObject(object: string, text: string, place: Place): DescribedItem | undefined {
    const item = this.#takeItem(text.split(' '), place, `object ${shown(object)}`)
    if (!item) return undefined
    this.#metOf(item.lane)[place] += 1
    const key = text.split(' ')[6]
    if (`${item.lane} ${key}` !== object) this.#suspectItem(item.id, `it lies under the object ${shown(object)}`)
    return item
  }

  #takeBehind(field: string, text: string): void {
    const end = field.lastIndexOf(' ')
    const [object, place] = [field.slice(0, end), Number(field.slice(end + 1))]
    const item = this.#takeOfObject(object, text, 'behind')
    this.#order.takeBehind(object, place)
    if (item) this.#metOf(item.lane).bytes += item.bytes
  }

  /** An item under its id in a hash. */
  #takeStored(field: string, text: string, place: Place): void {
    const item = this.#takeItem(text.split(' '), place, `item ${shown(field)}`)
    if (item && item.id !== field) this.#suspectItem(item.id, `it is stored under ${shown(field)}`)
    if (item) this.#metOf(item.lane)[place] += 1
    if (place === 'dead') this.#deadBytes += item?.bytes ?? 0
  }

  #takeItem(described: readonly string[], place: Place, where: string): DescribedItem | undefined {
    const [id, lane, bytes, priority, tenant, attempts, key] = described
    if (id === '?') {
      this.#local.push({
        ...{ check: 'queue-items', where: `${where} of queue ${shown(this.#queue)}` },
        problem: 'it cannot be read as an item',
      })
      return undefined
    }
    if (tenant === '-') this.#suspectItem(id!, 'what follows its header is no envelope with data')
    else if (tenant !== lane)
      this.#suspectItem(id!, `it is of the lane ${shown(lane)}, but its event of the tenant ${shown(tenant)}`)
    // What waits for its first time is nobody's yet.
    const isOwner = place !== 'dead' && place !== 'behind' && (place !== 'later' || attempts !== '0')
    if (key !== undefined && key !== '-' && isOwner) this.#order.takeOwner(`${lane} ${key}`, id!)
    const before = this.#places.get(id!)
    if (before === undefined) this.#places.set(id!, place)
    else
      this.#whole.push({
        ...{ check: 'queue-items', where: this.#itemName(id!) },
        problem: `it is in two places: ${before} and ${place}`,
      })
    return { id: id!, lane: lane!, bytes: Number(bytes), priority: Number(priority), tenant: tenant! }
  }

  #judgeCounts(counts: StoreCounts): void {
    const { waiting, behind, later, held, dead, parked, out, expired, dropped, discarded, weights, weighted } = counts
    const accounted = waiting + behind + later + held + dead + parked + out + expired + dropped + discarded
    const where = `queue ${shown(this.#queue)}`
    if (waiting + held !== counts.places)
      this.#local.push({
        ...{ check: 'queue-counters', where },
        problem: `${waiting} items wait and ${held} are held, but ${counts.places} places are in use`,
      })
    if (behind !== counts.laid)
      this.#local.push({
        ...{ check: 'queue-counters', where },
        problem: `${behind} items lie behind others, but ${counts.laid} are there`,
      })
    if (counts.in !== accounted)
      this.#local.push({
        check: 'queue-counters',
        where,
        problem: `${counts.in} items entered, ${accounted} are accounted for`,
      })
    if (weights > 0 !== (weighted === 1))
      this.#local.push({
        check: 'queue-turns',
        where,
        problem: `${weights} weights are stored, but the store says otherwise`,
      })
  }

  #judgeMet(name: string, lane: Lane, met: Lane): void {
    for (const what of inRecord)
      if (lane[what] !== met[what])
        this.#suspectLane(
          this.#whole,
          'queue-lanes',
          name,
          `its record says ${lane[what]} ${what}, there are ${met[what]}`,
        )
  }

  #judgeSums(counts: StoreCounts): void {
    for (const what of inRecord) {
      let sum = 0
      for (const lane of this.#lanes.values()) sum += lane[what]
      if (sum !== counts[what])
        this.#whole.push({
          ...{ check: 'queue-counters', where: `queue ${shown(this.#queue)}` },
          problem: `its counters say ${counts[what]} ${what}, its lanes ${sum}`,
        })
    }
    if (counts.deadBytes !== this.#deadBytes)
      this.#whole.push({
        ...{ check: 'queue-counters', where: `queue ${shown(this.#queue)}` },
        problem: `its counters say ${counts.deadBytes} bytes of dead letters, there are ${this.#deadBytes}`,
      })
  }

  #metOf(lane: string): Lane {
    const known = this.#met.get(lane)
    if (known) return known
    const met = nothing()
    this.#met.set(lane, met)
    return met
  }

  #suspectLane(to: Finding[], check: FsckCheck, lane: string, problem: string): void {
    to.push({ check, where: `lane ${shown(lane)} of queue ${shown(this.#queue)}`, problem })
  }

  #suspectItem(id: string, problem: string): void {
    this.#local.push({ check: 'queue-items', where: this.#itemName(id), problem })
  }

  #itemName(id: string): string {
    return `item ${shown(id)} of queue ${shown(this.#queue)}`
  }
}
