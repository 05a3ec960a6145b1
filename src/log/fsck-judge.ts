/** What is right and what is wrong in a log, decided without reading anything. Each answers the problem, or undefined. */
import { isUtf8 } from 'node:buffer'
import { type Header, kindOf, readEnvelope } from '../envelope.ts'
import { BusbarError, shown } from '../errors.ts'
import { limits, RawJson } from '../event.ts'
import { checkTenant, checkText, checkTime, checkType, writeJson } from '../event-checks.ts'
import { type Entry, type Meta, metaFields } from './fsck-read.ts'
import { partitionOf } from './partition.ts'

type Problem = string | undefined

/** `before` is the seq of the entry before, 0 for the first one. */
export function entryProblem(entry: Entry, before: number): Problem {
  if (!/^[1-9]\d*-0$/.test(entry.id) || !Number.isSafeInteger(entry.seq)) return 'its id is not of the form <seq>-0'
  if (entry.fields !== 2) return `it has ${entry.fields} fields, not two`
  const count = entry.events.length
  if (entry.prevs !== count) return `it has ${entry.prevs} prevs for ${count} envelopes`
  if (entry.seq - count < before) return `its ${count} events do not fit between ${before} and its id`
  const strange = entry.events.findIndex(({ prev }) => readPrev(prev) === undefined)
  if (strange >= 0) return `the prev of its event ${strange + 1} is not a number`
  return undefined
}

/** Null for none, undefined for what cannot be a prev. */
export function readPrev(text: string): number | null | undefined {
  if (text === '') return null
  return /^[1-9]\d{0,15}$/.test(text) ? Number(text) : undefined
}

export type ReadEnvelope = { object: string; problem?: undefined } | { problem: string }

/** The object that an envelope is about ('' without key), or why it cannot be read. */
export function judgeEnvelope(bytes: Buffer): ReadEnvelope {
  if (!isUtf8(bytes)) return { problem: 'it is not UTF-8' }
  const envelope = bytes.toString()
  const kind = kindOf(envelope)
  if (!kind) return { problem: 'its header does not begin with type and tenant' }
  if (!envelope.includes('\n')) return { problem: 'no line of data follows its header' }
  try {
    const { header, json } = readEnvelope(envelope)
    checkHeader(header)
    // A name that stands in the header twice counts by its second place for one reader, by its first for another.
    if (header.type !== kind.type || header.tenant !== kind.tenant)
      return { problem: 'its header names two types or tenants' }
    writeJson(new RawJson(json))
    return { object: header.key === undefined ? '' : `${header.tenant}/${header.key}` }
  } catch (error) {
    return { problem: error instanceof BusbarError ? error.message : 'its header is not JSON' }
  }
}

function checkHeader({ type, tenant, key, time, trace }: Header): void {
  checkType(type)
  checkTenant(tenant)
  if (key !== undefined) checkText('key', key, limits.keyBytes)
  if (time !== undefined) checkTime(time)
  if (trace !== undefined) checkText('trace', trace, limits.traceBytes)
}

/** An object that is found in a partition other than its own. */
export function placeProblem(object: string, partition: number, partitions: number): Problem {
  const own = partitionOf(object, partitions)
  return own === partition ? undefined : `object ${shown(object)} belongs into partition ${own}`
}

export interface Link {
  seq: number
  prev: number | null | undefined
  /** '' without key. */
  object: string
  /** The object's event before it, as far as it was read. */
  known: number | undefined
  unreadable: ReadonlySet<number>
}

/** `trimmed` is that of the instant at which the event was read: everything above it was read too. */
export function linkProblem({ seq, prev, object, known, unreadable }: Link, trimmed: number): Problem {
  if (prev === (known ?? null) || prev === undefined) return undefined
  if (object === '') return `its prev is ${prev}, but it has no key`
  if (prev !== null && prev >= seq) return `its prev ${prev} is not before it`
  // Retention can pass the reading: then the object's events in between went unread.
  if (prev !== null && prev > (known ?? 0) && (prev <= trimmed || unreadable.has(prev))) return undefined
  if (known !== undefined) return `its prev is ${prev}, but the object's event before it is ${known}`
  return `its prev ${prev} is neither an event of the object nor trimmed`
}

/** The first and last entry that are there, with the meta of the same instant. */
export interface Edges {
  meta: Meta
  first: Entry | undefined
  last: Entry | undefined
}

export function metaProblems({ meta, first, last }: Edges): string[] {
  const problems: string[] = []
  for (const field of metaFields) if (Number.isNaN(meta[field])) problems.push(`${field} is not a whole number`)
  if (meta.trimmed > meta.last) problems.push(`trimmed ${meta.trimmed} is above last ${meta.last}`)
  if (last && last.seq > meta.last) problems.push(`last ${meta.last} is below the last entry ${last.id}`)
  if (first && first.events[0]!.seq <= meta.trimmed)
    problems.push(`trimmed ${meta.trimmed} is not below the first event ${first.events[0]!.seq}`)
  return problems
}

export interface Counts {
  events: number
  bytes: number
}

export function countProblem(meta: Counts, there: Counts): Problem {
  if (meta.events === there.events && meta.bytes === there.bytes) return undefined
  return `it says ${meta.events} events of ${meta.bytes} bytes, there are ${there.events} of ${there.bytes} bytes`
}

/** What is known of a partition's objects after reading it up to the horizon. */
export interface Walked {
  /** What was published later is not judged. */
  horizon: number
  /** Object → its last event. */
  lasts: ReadonlyMap<string, number>
  /** Events whose object is unknown, because their envelope cannot be read. */
  unreadable: ReadonlySet<number>
}

/** The head of an object whose last event up to the horizon is `event`. One that cannot be a head is for headProblem. */
export function keptHeadProblem(
  head: number | undefined,
  event: number,
  { horizon, unreadable }: Walked,
  meta: Meta,
): Problem {
  if (event <= meta.trimmed || head === event) return undefined
  if (head === undefined) return `it has no head, but its event ${event} is kept`
  if (!(head <= horizon) || unreadable.has(head)) return undefined
  return `its head is ${head}, but its last event is ${event}`
}

/** A head as it stands in one of the generations, whether or not its object has an event. */
export function headProblem(
  generation: 'heads' | 'headsOld',
  object: string,
  head: number,
  { horizon, lasts }: Walked,
  meta: Meta,
): Problem {
  if (Number.isNaN(head)) return `its entry in ${generation} is not a seq`
  if (head > meta.last) return `its head ${head} is above the partition's last ${meta.last}`
  if (generation === 'headsOld' && head > (meta.headsClosed ?? Number.POSITIVE_INFINITY))
    return `its head ${head} is in headsOld, which was closed at ${meta.headsClosed}`
  if (lasts.has(object) || head <= meta.trimmed || head > horizon) return undefined
  return `its head is ${head}, but no such event is kept, and it is not trimmed`
}
