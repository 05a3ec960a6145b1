/**
 * Reads the log: pages of a partition, one event by id, an object's history, its state, the topics.
 *
 * A page is budgeted in bytes: an entry may hold one event or 256, so the number of entries to ask for follows from
 * the mean size of those seen before. Nothing here writes.
 */
import type { Redis } from 'ioredis'
import { BusbarError, shown } from '../errors.ts'
import { Event, parseId } from '../event.ts'
import type { PartitionKeys } from '../redis/keys.ts'
import { defineScript, runScript } from '../redis/script.ts'
import { type Entry, entryRecords, type LogRecord, lastSeqOf } from './entry.ts'
import type { Namespace } from './namespace.ts'
import { partitionOf } from './partition.ts'

/** A page as it came: entries whose events may lie before the position asked for. */
export interface RawPage {
  entries: Entry[]
  /** Everything up to here has been read: the last entry's id, or the position asked for. */
  last: number
  /** The log had no more at the time of reading. */
  complete: boolean
  /** Highest seq that retention has removed. */
  trimmed: number
}

export interface Page extends Omit<RawPage, 'entries'> {
  records: LogRecord[]
}

export const toEvent = ({ partition, seq, prev, envelope }: LogRecord): Event =>
  new Event(partition, seq, prev, envelope)

const pageBytes = 256 * 1024
// The mean says nothing of what comes next: behind a thousand small entries may lie large ones of 256 KiB, and a page
// of 32 of those is 8 MiB. More would hardly be faster: 32 lone events per round trip are some 100,000 a second.
const maxPageEntries = 32

/** Pages through partitions; learns how large entries are. One per process is enough. */
export class LogPages {
  // Until it has seen some it takes them for large: the first page of a reader is small, whatever lies there.
  #meanEntryBytes = 64 * 1024
  #hasSeen = false

  async read(redis: Redis, namespace: Namespace, partition: number, after: number): Promise<Page> {
    const { entries, ...page } = await this.readRaw(redis, namespace, partition, after)
    return { ...page, records: entries.flatMap((entry) => entryRecords(partition, entry, after)) }
  }

  async readRaw(redis: Redis, namespace: Namespace, partition: number, after: number): Promise<RawPage> {
    const keys = namespace.partitions[partition]!
    const count = Math.max(1, Math.min(maxPageEntries, Math.floor(pageBytes / this.#meanEntryBytes)))
    // Together, so that what was trimmed and what is left fit: a trim in between would hide a gap.
    const answers = await redis
      .multi()
      .xrange(keys.log, `(${after}-0`, '+', 'COUNT', count)
      .hget(keys.meta, 'trimmed')
      .exec()
    const [[rangeError, entries], [metaError, trimmed]] = answers as [
      [Error | null, Entry[]],
      [Error | null, string | null],
    ]
    if (rangeError ?? metaError) throw rangeError ?? metaError
    this.#learn(entries)
    const lastEntry = entries.at(-1)
    return {
      entries,
      last: lastEntry ? lastSeqOf(lastEntry) : after,
      complete: entries.length < count,
      trimmed: Number(trimmed ?? 0),
    }
  }

  #learn(entries: readonly Entry[]): void {
    for (const [, [prevs, records]] of entries) {
      const bytes = 64 + prevs.length + records.length
      this.#meanEntryBytes += (bytes - this.#meanEntryBytes) / (this.#hasSeen ? 8 : 2)
    }
    if (entries.length > 0) this.#hasSeen = true
  }
}

export async function readEvent(redis: Redis, namespace: Namespace, id: string): Promise<Event | undefined> {
  const parsed = parseId(id)
  const keys = parsed && namespace.partitions[parsed.partition]
  if (!keys) return undefined
  // The first step of a walk that begins there; whose object it is does not matter.
  const [, prev, envelope] = await runScript(redis, historyScript, { keys, object: '', from: parsed.seq, limit: 1 })
  return envelope === undefined ? undefined : toEvent({ ...parsed, prev: prev!, envelope })
}

interface HistoryStep {
  keys: PartitionKeys
  object: string
  from: number | undefined
  limit: number
}

export const historyScript = defineScript({
  file: new URL('./history.lua', import.meta.url),
  keys: ({ keys }: HistoryStep) => [keys.log, keys.heads, keys.headsOld],
  args: ({ object, from, limit }) => [object, from ?? '', limit],
  reply: (raw: string[]) => raw,
})

export interface HistoryOptions {
  /** Only events before this one: the id of the first event of the page that came after. */
  before?: string
  /** At most this many, the newest ones. Default 100, at most 1,000. */
  limit?: number
}

const maxHistory = 1_000
// Each step may look through an entry of 256 events, about 50 µs: 32 of them hold Redis up for at most 2 ms.
const stepsPerScript = 32

/** An object's events in order, the newest `limit` of them. */
export async function readHistory(
  redis: Redis,
  namespace: Namespace,
  object: string,
  { before, limit = 100 }: HistoryOptions,
): Promise<Event[]> {
  const partition = partitionOf(object, namespace.partitions.length)
  const keys = namespace.partitions[partition]!
  if (!Number.isInteger(limit) || limit < 1 || limit > maxHistory)
    throw BusbarError.of('PARAMETER_INVALID', {
      name: 'limit',
      value: shown(limit),
      problem: `must be from 1 to ${maxHistory}`,
    })
  const events: Event[] = []
  let from: number | undefined
  if (before !== undefined) {
    const follower = await readEvent(redis, namespace, before)
    if (!follower || `${follower.tenant}/${follower.key}` !== object || follower.prev === null) return []
    from = follower.prev
  }
  while (events.length < limit) {
    const step = Math.min(stepsPerScript, limit - events.length)
    const flat = await runScript(redis, historyScript, { keys, object, from, limit: step })
    for (let i = 0; i < flat.length; i += 3) {
      events.push(toEvent({ partition, seq: Number(flat[i]), prev: flat[i + 1]!, envelope: flat[i + 2]! }))
    }
    from = events.at(-1)?.prev ?? undefined
    if (flat.length < 3 * step || from === undefined) break
  }
  return events.reverse()
}

export async function readState(redis: Redis, namespace: Namespace, object: string): Promise<string | null> {
  return redis.hget(namespace.partitions[partitionOf(object, namespace.partitions.length)]!.states, object)
}

/** Topic → number of events ever published, over all partitions. */
export async function readTopics(redis: Redis, namespace: Namespace): Promise<Map<string, number>> {
  const metas = await Promise.all(namespace.partitions.map((keys) => redis.hgetall(keys.meta)))
  const topics = new Map<string, number>()
  for (const [field, count] of metas.flatMap(Object.entries<string>)) {
    const topic = /^topic:(.*)/.exec(field)?.[1]
    if (topic !== undefined) topics.set(topic, (topics.get(topic) ?? 0) + Number(count))
  }
  return new Map([...topics].sort(([a], [b]) => (a < b ? -1 : 1)))
}

/** The newest seq of each partition. */
export async function readLasts(redis: Redis, namespace: Namespace): Promise<number[]> {
  const lasts = await Promise.all(namespace.partitions.map((keys) => redis.hget(keys.meta, 'last')))
  return lasts.map((last) => Number(last ?? 0))
}
