/**
 * Walks one partition from its first entry to its end and judges every event up to the horizon, the `last` at the start:
 * what is published meanwhile is only counted.
 *
 * Memory: the last event of each object (about 100 bytes each, so 100 MB for a partition of a million objects) and three
 * numbers per entry. One partition at a time.
 */
import type { Finding, FsckCheck } from './fsck-checks.ts'
import {
  type Counts,
  countProblem,
  type Edges,
  entryProblem,
  judgeEnvelope,
  type Link,
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

/** Reports what is wrong with meta. Answers whether the rest of the partition can be judged by it. */
export async function* checkMeta(source: LogSource, partition: number): AsyncGenerator<Finding, boolean> {
  let problems = metaProblems(await readEdges(source, partition))
  if (problems.length > 0) {
    const again = await readEdges(source, partition)
    problems = metaProblems(again)
    for (const problem of problems) yield { check: 'meta', where: `partition ${partition}`, problem }
    return !Object.values(again.meta).some(Number.isNaN)
  }
  return true
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

  *judge(entries: readonly Entry[], meta: Meta): Generator<Suspicion> {
    this.#horizon ??= meta.last
    for (const entry of entries) {
      this.tally.add(entry)
      if (entry.seq > this.#horizon) continue
      this.#entriesToHorizon = this.tally.entries
      yield* this.#judgeEntry(entry)
      for (const event of entry.events) yield* this.#judgeEvent(entry, event, meta)
    }
  }

  *#judgeEntry(entry: Entry): Generator<Suspicion> {
    const problem = entryProblem(entry, this.#before)
    this.#before = entry.seq
    const where = `entry ${entry.id} of partition ${this.#partition}`
    if (problem) yield { check: 'entry-ids', entry, where, problem: () => problem }
  }

  *#judgeEvent(entry: Entry, event: RawEvent, meta: Meta): Generator<Suspicion> {
    const where = `event ${this.#partition}-${event.seq}`
    const envelope = judgeEnvelope(event.envelope)
    if (envelope.problem !== undefined) {
      this.unreadable.add(event.seq)
      return yield { check: 'envelopes', entry, where, problem: () => envelope.problem }
    }
    const { object } = envelope
    const misplaced = object === '' ? undefined : placeProblem(object, this.#partition, this.#partitions)
    if (misplaced) yield { check: 'partition', entry, where, problem: () => misplaced }
    const link = this.#link(object, event)
    const problem = ({ trimmed }: Meta) => linkProblem({ ...link, trimmed })
    if (problem(meta)) yield { check: 'chain', entry, where, problem }
  }

  /** Takes the event into its object's chain. One without key stands alone. */
  #link(object: string, { seq, prev }: RawEvent): Omit<Link, 'trimmed'> {
    const known = object === '' ? undefined : this.lasts.get(object)
    if (object !== '') this.lasts.set(object, seq)
    return { seq, prev: readPrev(prev), known, keyless: object === '', unreadable: this.unreadable }
  }
}
