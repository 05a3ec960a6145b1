/** Checks the heads of a partition's objects, in both generations, and its holds, in bounded steps. */
import { shown } from '../errors.ts'
import type { Finding, FsckCheck } from '../fsck-checks.ts'
import { headProblem, keptHeadProblem, placeProblem, type Walked } from './fsck-judge.ts'
import {
  askMeta,
  atOneInstant,
  type Meta,
  readEntry,
  readMeta,
  type StoredEntry,
  type StoredMeta,
  scanFields,
  wholeNumber,
} from './fsck-read.ts'
import type { LogSource } from './view.ts'

type Generation = 'heads' | 'headsOld'

export async function* checkHeads(
  source: LogSource,
  partition: number,
  partitions: number,
  walked: Walked,
): AsyncGenerator<Finding> {
  yield* checkKeptObjects(source, partition, walked)
  for (const generation of ['heads', 'headsOld'] as const)
    yield* checkGeneration(source, partition, partitions, generation, walked)
  yield* checkOldGeneration(source, partition)
}

// HMGET of so many objects in both generations takes Redis about 1 ms.
const objectsPerStep = 500

/** Every object with a kept event has a head, and it is that event. */
async function* checkKeptObjects(source: LogSource, partition: number, walked: Walked): AsyncGenerator<Finding> {
  for (const objects of inGroups(walked.lasts.keys(), objectsPerStep)) {
    const { heads, meta } = await readHeads(source, partition, objects)
    for (const [i, object] of objects.entries()) {
      const event = walked.lasts.get(object)!
      if (!keptHeadProblem(heads[i], event, walked, meta)) continue
      const again = await readHeads(source, partition, [object])
      const problem = keptHeadProblem(again.heads[0], event, walked, again.meta)
      if (problem && (await isKept(source, partition, event)))
        yield { check: 'heads', where: whereOf(object, partition), problem }
    }
  }
}

/** Heads as publishing sees them: the old generation counts only while meta says so. */
async function readHeads(
  source: LogSource,
  partition: number,
  objects: readonly string[],
): Promise<{ heads: (number | undefined)[]; meta: Meta }> {
  const [current, old, stored] = await source.read((redis, { partitions }) => {
    const keys = partitions[partition]!
    return atOneInstant<[(string | null)[], (string | null)[], StoredMeta]>(redis, (transaction) =>
      askMeta(transaction.hmget(keys.heads, ...objects).hmget(keys.headsOld, ...objects), keys),
    )
  })
  const meta = readMeta(stored)
  const heads = current.map((head, i) => head ?? (meta.headsClosed === undefined ? null : old[i]!))
  return { heads: heads.map((head) => (head === null ? undefined : wholeNumber(head))), meta }
}

async function isKept(source: LogSource, partition: number, seq: number): Promise<boolean> {
  const [stored] = await source.read((redis, { partitions }) =>
    redis.xrangeBuffer(partitions[partition]!.log, seq, '+', 'COUNT', 1),
  )
  return stored !== undefined && readEntry(stored as StoredEntry).events[0]!.seq <= seq
}

/** Every head in one generation: its object belongs here, its event is there or was trimmed. */
async function* checkGeneration(
  source: LogSource,
  partition: number,
  partitions: number,
  generation: Generation,
  walked: Walked,
): AsyncGenerator<Finding> {
  for await (const { fields, meta } of scanFields(source, partition, generation)) {
    for (const [object, text] of fields) {
      // The name of an object whose event cannot be read may itself not be text.
      if (walked.unreadable.has(Number(text))) continue
      if (!judgeHead(object, text, meta)) continue
      const again = await readField(source, partition, generation, object)
      const found = again.value !== null && judgeHead(object, again.value, again.meta)
      if (found) yield { ...found, where: whereOf(object, partition) }
    }
  }

  function judgeHead(object: string, text: string, meta: Meta): { check: FsckCheck; problem: string } | undefined {
    const misplaced = placeProblem(object, partition, partitions)
    if (misplaced) return { check: 'partition', problem: `its head is in ${generation}, but ${misplaced}` }
    const problem = headProblem(generation, object, wholeNumber(text), walked, meta)
    return problem === undefined ? undefined : { check: 'heads', problem }
  }
}

async function* checkOldGeneration(source: LogSource, partition: number): AsyncGenerator<Finding> {
  const isIgnored = async () => {
    const [exists, meta] = await source.read((redis, { partitions }) => {
      const keys = partitions[partition]!
      return atOneInstant<[number, StoredMeta]>(redis, (transaction) =>
        askMeta(transaction.exists(keys.headsOld), keys),
      )
    })
    return exists === 1 && readMeta(meta).headsClosed === undefined
  }
  const problem = 'headsOld is there, but meta has no headsClosed: publishing does not look into it'
  if ((await isIgnored()) && (await isIgnored())) yield { check: 'heads', where: `partition ${partition}`, problem }
}

/** A hold above the end of the log keeps nothing, and would let go of what is published next. */
export async function* checkHolds(source: LogSource, partition: number): AsyncGenerator<Finding> {
  const judge = (text: string, meta: Meta): string | undefined => {
    const seq = wholeNumber(/^(\d+)(?: \d+)?$/.exec(text)?.[1] ?? '')
    if (Number.isNaN(seq)) return 'it is not a seq'
    return seq > meta.last ? `it is at ${seq}, above the partition's last ${meta.last}` : undefined
  }
  for await (const { fields, meta } of scanFields(source, partition, 'holds')) {
    for (const [name, text] of fields) {
      if (!judge(text, meta)) continue
      const again = await readField(source, partition, 'holds', name)
      const problem = again.value !== null && judge(again.value, again.meta)
      if (problem) yield { check: 'holds', where: `hold ${shown(name)} of partition ${partition}`, problem }
    }
  }
}

async function readField(
  source: LogSource,
  partition: number,
  hash: Generation | 'holds',
  field: string,
): Promise<{ value: string | null; meta: Meta }> {
  const [value, meta] = await source.read((redis, { partitions }) => {
    const keys = partitions[partition]!
    return atOneInstant<[string | null, StoredMeta]>(redis, (transaction) =>
      askMeta(transaction.hget(keys[hash], field), keys),
    )
  })
  return { value, meta: readMeta(meta) }
}

const whereOf = (object: string, partition: number): string => `object ${shown(object)} of partition ${partition}`

function* inGroups<T>(items: Iterable<T>, size: number): Generator<T[]> {
  let group: T[] = []
  for (const item of items) {
    if (group.push(item) < size) continue
    yield group
    group = []
  }
  if (group.length > 0) yield group
}
