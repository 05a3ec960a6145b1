/**
 * What fsck reads of a partition. Every answer is of one instant: what is judged is read in one transaction with the
 * meta it is judged against, so that publishing and trimming in between cannot make a sound log look wrong.
 */
import type { ChainableCommander, Redis } from 'ioredis'
import type { PartitionKeys } from '../redis/keys.ts'
import { separator } from './entry.ts'
import type { LogSource } from './view.ts'

/** NaN where the stored text is no whole number. */
export interface Meta {
  last: number
  trimmed: number
  events: number
  bytes: number
  /** Undefined: there is no older generation of heads. */
  headsClosed: number | undefined
}

export interface RawEvent {
  seq: number
  prev: string
  envelope: Buffer
}

export interface Entry {
  id: string
  /** How many: the prevs and the records, two. */
  fields: number
  /** seq of its last event. */
  seq: number
  /** How many there are: as many as events. */
  prevs: number
  events: readonly RawEvent[]
  bytes: number
}

export interface EntryPage {
  entries: readonly Entry[]
  meta: Meta
  /** The log had no more at that instant. */
  complete: boolean
}

export type StoredMeta = readonly (string | null)[]
export type StoredEntry = readonly [id: Buffer, fields: readonly Buffer[]]

export const metaFields = ['last', 'trimmed', 'events', 'bytes', 'headsClosed'] as const

export const wholeNumber = (text: string): number =>
  /^\d{1,16}$/.test(text) && Number.isSafeInteger(Number(text)) ? Number(text) : Number.NaN

export function readMeta(stored: StoredMeta): Meta {
  const [last, trimmed, events, bytes, headsClosed] = stored.map((text) =>
    text === null ? undefined : wholeNumber(text),
  )
  return { last: last ?? 0, trimmed: trimmed ?? 0, events: events ?? 0, bytes: bytes ?? 0, headsClosed }
}

export function readEntry([rawId, fields]: StoredEntry): Entry {
  const [prevs, records] = fields
  const id = rawId.toString()
  const seq = Number(id.slice(0, id.indexOf('-')))
  const envelopes = split(records!)
  const each = prevs!.toString().split(' ')
  return {
    id,
    fields: fields.length,
    seq,
    prevs: each.length,
    events: envelopes.map((envelope, i) => ({ seq: seq - envelopes.length + 1 + i, prev: each[i] ?? '', envelope })),
    bytes: envelopes.reduce((sum, envelope) => sum + envelope.length, 0),
  }
}

/** The envelopes as they are, not decoded: whether they are UTF-8 is to be judged. */
function split(records: Buffer): Buffer[] {
  const envelopes: Buffer[] = []
  if (records[0] !== separator.charCodeAt(0)) return envelopes
  for (let from = 1; from <= records.length; ) {
    const next = records.indexOf(separator, from)
    const to = next === -1 ? records.length : next
    envelopes.push(records.subarray(from, to))
    from = to + 1
  }
  return envelopes
}

/** Runs commands in one transaction and answers their replies. */
export async function atOneInstant<Replies extends readonly unknown[]>(
  redis: Redis,
  commands: (transaction: ChainableCommander) => ChainableCommander,
): Promise<Replies> {
  const answers = (await commands(redis.multi()).exec()) ?? []
  const failed = answers.find(([error]) => error)
  if (failed) throw failed[0]
  return answers.map(([, reply]) => reply) as unknown as Replies
}

export const askMeta = (transaction: ChainableCommander, keys: PartitionKeys): ChainableCommander =>
  transaction.hmget(keys.meta, ...metaFields)

// An entry holds at most 1 MiB, usually far less: a page of 256 KiB takes Redis about 1 ms.
const pageBytes = 256 * 1024
const firstPageEntries = 16
const maxPageEntries = 1_000

/** The partition from its start to where it ends when the reading gets there. */
export async function* readPages(source: LogSource, partition: number): AsyncGenerator<EntryPage, void, undefined> {
  let start = '-'
  let count = firstPageEntries
  for (;;) {
    const page = await source.read((redis, { partitions }) => readPage(redis, partitions[partition]!, start, count))
    yield page
    if (page.complete) return
    const bytes = page.entries.reduce((sum, entry) => sum + entry.bytes, 1)
    start = `(${page.entries.at(-1)!.id}`
    count = Math.max(1, Math.min(maxPageEntries, Math.floor((pageBytes * page.entries.length) / bytes)))
  }
}

async function readPage(redis: Redis, keys: PartitionKeys, start: string, count: number): Promise<EntryPage> {
  const [entries, meta] = await atOneInstant<[StoredEntry[], StoredMeta]>(redis, (transaction) =>
    askMeta(transaction.xrangeBuffer(keys.log, start, '+', 'COUNT', count), keys),
  )
  return { entries: entries.map(readEntry), meta: readMeta(meta), complete: entries.length < count }
}

const scanCount = 500

export interface FieldPage {
  fields: readonly (readonly [field: string, value: string])[]
  meta: Meta
}

/** The fields of a hash in bounded steps. One that is renamed meanwhile may be seen in part. */
export async function* scanFields(
  source: LogSource,
  partition: number,
  hash: 'heads' | 'headsOld' | 'holds',
): AsyncGenerator<FieldPage, void, undefined> {
  let cursor = '0'
  do {
    const [[next, flat], meta] = await source.read((redis, { partitions }) => {
      const keys = partitions[partition]!
      return atOneInstant<[[string, string[]], StoredMeta]>(redis, (transaction) =>
        askMeta(transaction.hscan(keys[hash], cursor, 'COUNT', scanCount), keys),
      )
    })
    const fields: [string, string][] = []
    for (let i = 0; i < flat.length; i += 2) fields.push([flat[i]!, flat[i + 1]!])
    yield { fields, meta: readMeta(meta) }
    cursor = next
  } while (cursor !== '0')
}
