/**
 * One event, checked and written as it will lie in the log, in the form in which it travels there.
 *
 * Publishing is mostly the making of text, so it is made once, and byte counts are added up from the parts instead of being
 * counted again over the whole.
 */
import { defaultTenant, limits } from '../event.ts'
import { checkTenant, checkText, checkTime, checkType, writeJson } from '../event-checks.ts'
import { separator } from '../log/entry.ts'
import { objectHash, objectHashStart, plainKeyHash } from '../log/partition.ts'

export interface EventInput {
  type: string
  data?: unknown
  tenant?: string | undefined
  key?: string | undefined
  time?: number | Date | null | undefined
  trace?: string | undefined
}

/** Whose event it is, what it is about, when it happened. */
export type EventPlace = Omit<EventInput, 'type' | 'data'>

export interface WrittenEvent {
  /** `"<tenant>:<type>"` */
  readonly kind: string
  /** `"<tenant>/<key>"`, '' without key. */
  readonly object: string
  /** Of the object, to choose the partition; undefined without key. */
  readonly hash: number | undefined
  readonly data: string
  /** The object as an argument on the wire. */
  readonly objectArg: string
  /** The envelope as it lies in its entry. */
  readonly record: string
  /** Of the envelope. */
  readonly bytes: number
}

interface Kind {
  text: string
  /** The record up to the tenant. ASCII, so its length is its bytes. */
  recordStart: string
  objectStart: string
  hashStart: number
}

const maxKinds = 10_000
const kinds = new Map<string, Map<string, Kind>>()
let kindCount = 0

/** Type and tenant are checked once per pair: most events repeat one. */
function kindFor(tenant: string, type: string): Kind {
  const known = kinds.get(tenant)?.get(type)
  if (known) return known
  checkType(type)
  checkTenant(tenant)
  if (kindCount >= maxKinds) {
    kinds.clear()
    kindCount = 0
  }
  const kind = {
    text: `${tenant}:${type}`,
    recordStart: `${separator}{"type":"${type}","tenant":"${tenant}"`,
    objectStart: `${tenant}/`,
    hashStart: objectHashStart(tenant),
  }
  const ofTenant = kinds.get(tenant) ?? new Map<string, Kind>()
  kinds.set(tenant, ofTenant.set(type, kind))
  kindCount += 1
  return kind
}

/** Keys are mostly plain: then one walk over the characters answers everything. */
const plainHash = (key: unknown, hashStart: number): number | undefined =>
  typeof key === 'string' && key.length > 0 && key.length <= limits.keyBytes ? plainKeyHash(hashStart, key) : undefined

/** Checks an event and writes it down; throws the coded error of the first field that is wrong. */
export function writeEvent(type: string, data: unknown, place: EventPlace): WrittenEvent {
  const { tenant = defaultTenant, key, time, trace } = place
  const kind = kindFor(tenant, type)
  let header = kind.recordStart
  let bytes = header.length - separator.length
  let object = ''
  let objectArg = noObject
  let hash: number | undefined
  if (key !== undefined && key !== null) {
    hash = plainHash(key, kind.hashStart)
    const text = hash === undefined ? checkText('key', key, limits.keyBytes) : key
    const keyJson = hash === undefined ? JSON.stringify(text) : `"${key}"`
    object = kind.objectStart + text
    objectArg = `$${hash === undefined ? Buffer.byteLength(object) : object.length}\r\n${object}\r\n`
    header += `,"key":${keyJson}`
    bytes += 7 + (hash === undefined ? Buffer.byteLength(keyJson) : keyJson.length)
    hash ??= objectHash(object)
  }
  if (time !== undefined || trace !== undefined) {
    const more = writeTimeAndTrace(time, trace)
    header += more
    bytes += Buffer.byteLength(more)
  }
  const json = writeJson(data)
  bytes += 2 + Buffer.byteLength(json)
  const record = `${header}}\n${json}`
  // Makes each one piece of memory. V8 would keep trees until they are sent, and copy them in garbage collections.
  objectArg.charCodeAt(0)
  record.charCodeAt(0)
  return { kind: kind.text, object, hash, data: json, objectArg, record, bytes }
}

const noObject = '$0\r\n\r\n'

export const envelopeOf = ({ record }: WrittenEvent): string => record.slice(1)

function writeTimeAndTrace(time: EventInput['time'], trace: string | undefined): string {
  let text = ''
  if (time !== undefined && time !== null) text += `,"time":${checkTime(time instanceof Date ? time.getTime() : time)}`
  if (trace !== undefined) text += `,"trace":${JSON.stringify(checkText('trace', trace, limits.traceBytes))}`
  return text
}
