/**
 * Walks one partition from its first entry to its end and judges every event up to the horizon, the `last` at the start:
 * what is published meanwhile is only counted.
 *
 * Memory: the last event of each object (about 100 bytes each, so 100 MB for a partition of a million objects) and three
 * numbers per entry. One partition at a time.
 */
import type { Finding, FsckCheck } from '../fsck-checks.ts'
import {
  type Counts,
  countProblem,
  type Edges,
  entryProblem,
  judgeEnvelope,
  linkProblem,
  metaProblems,
  placeProblem,
  readPrev,
  type Walked,
} from './fsck-judge.ts'
import {
  askMeta,
  atOneInstant,
  type Entry,
  type Meta,
  type RawEvent,
  readEntry,
  readMeta,
  readPages,
  type StoredEntry,
  type StoredMeta,
} from './fsck-read.ts'
import type { LogSource } from './view.ts'

/** Something that looks wrong in an entry: asked again with the meta of another instant before it is reported. */
interface Suspicion {
  check: FsckCheck
  entry: Entry
  where: string
  problem: (meta: Meta) => string | undefined
}

type Suspect = (check: FsckCheck, where: string, problem: Suspicion['problem']) => void

/** Reports what is wrong with meta. Answers whether the rest of the partition can be judged by it. */
export async function* checkMeta(source: LogSource, partition: number): AsyncGenerator<Finding, boolean> {
  if (metaProblems(await readEdges(source, partition)).length === 0) return true
  const again = await readEdges(source, partition)
  for (const problem of metaProblems(again)) yield { check: 'meta', where: `partition ${partition}`, problem }
  return !Object.values(again.meta).some(Number.isNaN)
}

async function readEdges(source: LogSource, partition: number): Promise<Edges> {
  const [meta, [first], [last]] = await source.read((redis, { partitions }) => {
    const keys = partitions[partition]!
    return atOneInstant<[StoredMeta, StoredEntry[], StoredEntry[]]>(redis, (transaction) =>
      askMeta(transaction, keys)
        .xrangeBuffer(keys.log, '-', '+', 'COUNT', 1)
        .xrevrangeBuffer(keys.log, '+', '-', 'COUNT', 1),
    )
  })
  return { meta: readMeta(meta), first: first && readEntry(first), last: last && readEntry(last) }
}

/** Judges entries, envelopes and chains, then the counts of meta. Answers what it has learned of the objects. */
export async function* walkLog(
  source: LogSource,
  partition: number,
  partitions: number,
): AsyncGenerator<Finding, Walked> {
  const walk = new Walk(partition, partitions)
  let counted: string | undefined
  for await (const { entries, meta, complete } of readPages(source, partition)) {
    for (const suspicion of walk.judge(entries, meta)) {
      const problem = await lookAgain(source, partition, suspicion)
      if (problem !== undefined) yield { check: suspicion.check, where: suspicion.where, problem }
    }
    if (complete) counted = countProblem(meta, walk.tally.above(meta.trimmed))
    if (walk.isTooFarBehind) break
  }
  const problem = counted && (await countAgain(source, partition))
  if (problem) yield { check: 'meta', where: `partition ${partition}`, problem }
  return walk
}

async function lookAgain(
  source: LogSource,
  partition: number,
  { entry, problem }: Suspicion,
): Promise<string | undefined> {
  const [[there], meta] = await source.read((redis, { partitions }) => {
    const keys = partitions[partition]!
    return atOneInstant<[StoredEntry[], StoredMeta]>(redis, (transaction) =>
      askMeta(transaction.xrangeBuffer(keys.log, entry.id, entry.id), keys),
    )
  })
  return there && problem(readMeta(meta))
}

/** A count can only be looked at again as a whole. */
async function countAgain(source: LogSource, partition: number): Promise<string | undefined> {
  const tally = new Tally()
  for await (const { entries, meta, complete } of readPages(source, partition)) {
    for (const entry of entries) tally.add(entry)
    if (complete) return countProblem(meta, tally.above(meta.trimmed))
  }
}

/** Sums over entries, such that those which retention has taken meanwhile can be left out again. */
class Tally {
  readonly #seqs: number[] = []
  /** Events and bytes of all entries up to and including this one. */
  readonly #events: number[] = []
  readonly #bytes: number[] = []

  get entries(): number {
    return this.#seqs.length
  }

  add({ seq, events, bytes }: Entry): void {
    this.#seqs.push(seq)
    this.#events.push((this.#events.at(-1) ?? 0) + events.length)
    this.#bytes.push((this.#bytes.at(-1) ?? 0) + bytes)
  }

  /** What lies in entries above this seq. */
  above(seq: number): Counts {
    let low = 0
    for (let high = this.#seqs.length; low < high; ) {
      const middle = (low + high) >> 1
      if (this.#seqs[middle]! > seq) high = middle
      else low = middle + 1
    }
    return {
      events: (this.#events.at(-1) ?? 0) - (this.#events[low - 1] ?? 0),
      bytes: (this.#bytes.at(-1) ?? 0) - (this.#bytes[low - 1] ?? 0),
    }
  }
}

// A log that grows as fast as it is read would never be read to its end: after so much of it the count is left out.
const maxEntriesPastHorizon = 100_000

class Walk implements Walked {
  readonly lasts = new Map<string, number>()
  readonly unreadable = new Set<number>()
  readonly tally = new Tally()
  readonly #partition: number
  readonly #partitions: number
  #horizon: number | undefined
  #before = 0
  #entriesToHorizon = 0

  constructor(partition: number, partitions: number) {
    this.#partition = partition
    this.#partitions = partitions
  }

  get horizon(): number {
    return this.#horizon ?? 0
  }

  get isTooFarBehind(): boolean {
    return this.tally.entries - this.#entriesToHorizon > maxEntriesPastHorizon
  }

  /** Takes the next entries in; answers what looks wrong in them. */
  judge(entries: readonly Entry[], meta: Meta): Suspicion[] {
    this.#horizon ??= meta.last
    const suspicions: Suspicion[] = []
    for (const entry of entries) {
      this.tally.add(entry)
      if (entry.seq > this.#horizon) continue
      this.#entriesToHorizon = this.tally.entries
      const suspect = (check: FsckCheck, where: string, problem: Suspicion['problem']) =>
        suspicions.push({ check, entry, where, problem })
      const problem = entryProblem(entry, this.#before)
      if (problem) suspect('entry-ids', `entry ${entry.id} of partition ${this.#partition}`, () => problem)
      this.#before = entry.seq
      for (const event of entry.events) this.#judgeEvent(event, meta, suspect)
    }
    return suspicions
  }

  #judgeEvent(event: RawEvent, meta: Meta, suspect: Suspect): void {
    const { seq } = event
    const where = `event ${this.#partition}-${seq}`
    const envelope = judgeEnvelope(event.envelope)
    if (envelope.problem !== undefined) {
      this.unreadable.add(seq)
      return void suspect('envelopes', where, () => envelope.problem)
    }
    const { object } = envelope
    const misplaced = object === '' ? undefined : placeProblem(object, this.#partition, this.#partitions)
    if (misplaced) suspect('partition', where, () => misplaced)
    const link = { seq, prev: readPrev(event.prev), object, known: this.lasts.get(object), unreadable: this.unreadable }
    if (object !== '') this.lasts.set(object, seq)
    if (linkProblem(link, meta.trimmed)) suspect('chain', where, ({ trimmed }) => linkProblem(link, trimmed))
  }
}
