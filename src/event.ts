/**
 * An event, its limits, and how it is written down.
 *
 * In the log an event is an **envelope**: one JSON header line (type, tenant, key, time, trace) + "\n" + the data's
 * own bytes. The header always begins with type and tenant, so that scripts and routers find them without parsing.
 * The data is opaque: it is never parsed and written again, so every consumer gets the publisher's bytes.
 * id, seq and prev travel beside the envelope.
 */
import { inspect } from 'node:util'
import { BusbarError, shown } from './errors.ts'
import { checkValue } from './json-slices.ts'

export const limits = {
  typeBytes: 200,
  typeSegments: 16,
  tenantBytes: 128,
  keyBytes: 256,
  idempotencyKeyBytes: 256,
  traceBytes: 256,
  dataBytes: 256 * 1024,
  stateBytes: 256 * 1024,
  callEvents: 1_000,
  callBytes: 1024 * 1024,
} as const

export const defaultTenant = 'default'

/** JSON text that is already written: published and delivered byte for byte. */
export class RawJson {
  readonly text: string
  constructor(text: string) {
    this.text = text
  }
}

const notParsed: unique symbol = Symbol('not parsed')

/**
 * What a consumer gets. Made from the envelope as it lies in the log; what is seldom looked at is read from it on first use,
 * `data` parsed. `json` is the data's exact text.
 */
export class Event<Data = unknown, Type extends string = string> {
  readonly seq: number
  readonly type: Type
  readonly tenant: string
  readonly #partition: number
  readonly #prev: string
  readonly #envelope: string
  readonly #kind: Kind
  #header: Header | undefined
  #data: Data | typeof notParsed = notParsed

  /** `prev` as it is stored: '' for none. */
  constructor(partition: number, seq: number, prev: string, envelope: string, kind = anyKindOf(envelope)) {
    this.seq = seq
    this.type = kind.type as Type
    this.tenant = kind.tenant
    this.#partition = partition
    this.#prev = prev
    this.#envelope = envelope
    this.#kind = kind
  }

  get id(): string {
    return `${this.#partition}-${this.seq}`
  }

  /** seq of the object's event before it; null: it was the first, or that one is no longer kept. */
  get prev(): number | null {
    return this.#prev === '' ? null : Number(this.#prev)
  }

  get key(): string | null {
    return this.#read().key ?? null
  }

  /** Without a time of its own an event has the server's: seq is the server's clock in µs. */
  get time(): number {
    return this.#read().time ?? Math.floor(this.seq / 1000)
  }

  get trace(): string | undefined {
    return this.#read().trace
  }

  get json(): string {
    return this.#envelope.slice(this.#envelope.indexOf('\n') + 1)
  }

  get data(): Data {
    if (this.#data === notParsed) this.#data = JSON.parse(this.json) as Data
    return this.#data
  }

  /** The whole event as JSON, its data byte-equal: line breaks between its tokens, if it was published with some, too. */
  toText(): string {
    const head = JSON.stringify({
      id: this.id,
      seq: this.seq,
      prev: this.prev,
      type: this.type,
      tenant: this.tenant,
      key: this.key,
      time: this.time,
      ...(this.trace === undefined ? {} : { trace: this.trace }),
    })
    return `${head.slice(0, -1)},"data":${this.json}}`
  }

  toJSON(): Record<string, unknown> {
    return JSON.parse(this.toText())
  }

  /** What console.log shows. */
  [inspect.custom](): Record<string, unknown> {
    return this.toJSON()
  }

  #read(): Header {
    this.#header ??= readHeader(this.#envelope, this.#kind)
    return this.#header
  }
}

export interface Header {
  type: string
  tenant: string
  key?: string
  time?: number
  trace?: string
}

/** Splits an envelope into its header and the data's text. */
export function readEnvelope(envelope: string): { header: Header; json: string } {
  return { header: readHeader(envelope, anyKindOf(envelope)), json: envelope.slice(envelope.indexOf('\n') + 1) }
}

function readHeader(envelope: string, kind: Kind): Header {
  const end = envelope.indexOf('\n')
  return readPlainHeader(envelope, kind, end) ?? (JSON.parse(envelope.slice(0, end)) as Header)
}

const keyStart = ',"key":"'
const timeStart = ',"time":'

/**
 * A header as Busbar writes it, behind its kind at most key and time, without an escape in it: a quarter of the time of
 * parsing it. Undefined for any other.
 */
function readPlainHeader(envelope: string, { type, tenant, start }: Kind, end: number): Header | undefined {
  if (start === '') return undefined
  const header: Header = { type, tenant }
  let at = start.length
  if (envelope.startsWith(keyStart, at)) {
    const keyAt = at + keyStart.length
    at = envelope.indexOf('"', keyAt)
    header.key = envelope.slice(keyAt, at)
    if (header.key.includes('\\')) return undefined
    at += 1
  }
  if (at + 1 === end) return header
  if (!envelope.startsWith(timeStart, at)) return undefined
  const time = envelope.slice(at + timeStart.length, end - 1)
  // Anything else behind it: a trace.
  if (!/^\d+$/.test(time)) return undefined
  header.time = Number(time)
  return header
}

/** An event as it would lie in the log again: its time written out, its data byte-equal. */
export function envelopeOf({ type, tenant, key, time, trace, json }: Event): string {
  const header: Header = {
    type,
    tenant,
    ...(key === null ? {} : { key }),
    time,
    ...(trace === undefined ? {} : { trace }),
  }
  return `${JSON.stringify(header)}\n${json}`
}

/** Type and tenant, and the text with which the envelopes of that kind begin. */
export interface Kind {
  type: string
  tenant: string
  start: string
}

const headerStart = /^\{"type":"([^"\\]*)","tenant":"([^"\\]*)"/

/** Type and tenant without parsing: neither can hold a quote or an escape. */
export function kindOf(envelope: string): Kind | undefined {
  const found = headerStart.exec(envelope)
  return found ? { start: found[0], type: found[1]!, tenant: found[2]! } : undefined
}

/** The same for what Busbar has not written. */
function anyKindOf(envelope: string): Kind {
  const known = kindOf(envelope)
  if (known) return known
  const { type, tenant } = JSON.parse(envelope.slice(0, envelope.indexOf('\n'))) as Header
  return { type, tenant, start: '' }
}

const typeShape = /^[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*$/
const tenantShape = /^[A-Za-z0-9._~@+-]+$/

export function checkType(type: unknown): string {
  const invalid = (problem: string) => BusbarError.of('EVENT_INVALID', { field: 'type', value: shown(type), problem })
  if (typeof type !== 'string') throw invalid('must be a string like "order.paid"')
  if (type.length > limits.typeBytes) throw invalid(`must have at most ${limits.typeBytes} bytes`)
  if (!typeShape.test(type)) throw invalid('must be segments of A-Z a-z 0-9 _ - joined by dots, like "order.paid"')
  if (type.split('.').length > limits.typeSegments) throw invalid(`must have at most ${limits.typeSegments} segments`)
  return type
}

export function checkTenant(tenant: unknown): string {
  const invalid = (problem: string) =>
    BusbarError.of('EVENT_INVALID', { field: 'tenant', value: shown(tenant), problem })
  if (typeof tenant !== 'string') throw invalid('must be a string')
  if (tenant.length === 0 || tenant.length > limits.tenantBytes)
    throw invalid(`must have 1 to ${limits.tenantBytes} bytes`)
  if (!tenantShape.test(tenant)) throw invalid('must be of A-Z a-z 0-9 . _ ~ @ + -')
  return tenant
}

/** Any text of the given size that UTF-8 can carry. */
export function checkText(field: string, value: unknown, maxBytes: number): string {
  const invalid = (problem: string) => BusbarError.of('EVENT_INVALID', { field, value: shown(value), problem })
  if (typeof value !== 'string') throw invalid('must be a string')
  // A UTF-16 unit takes at most three bytes, so short texts need no counting.
  if (value.length === 0 || (value.length * 3 > maxBytes && Buffer.byteLength(value) > maxBytes))
    throw invalid(`must have 1 to ${maxBytes} bytes`)
  if (!value.isWellFormed()) throw invalid('must not hold half of a surrogate pair')
  return value
}

export function checkTime(time: unknown): number {
  if (typeof time === 'number' && Number.isSafeInteger(time) && time >= 0 && time <= 8.64e15) return time
  throw BusbarError.of('EVENT_INVALID', {
    field: 'time',
    value: shown(time),
    problem: 'must be an integer, ms since the epoch, from 0 to 8640000000000000',
  })
}

/** The JSON text of a value, or DATA_UNSERIALISABLE, EVENT_TOO_LARGE. */
export function writeJson(value: unknown, field = 'data'): string {
  const raw = value instanceof RawJson
  const text = raw ? value.text : stringify(value, field)
  if (typeof text !== 'string') throw unserialisable(field, `it is a ${typeof value}`)
  // Before anything looks into it: what is too large is refused without being parsed or walked.
  if (text.length * 3 > limits.dataBytes) {
    const bytes = Buffer.byteLength(text)
    if (bytes > limits.dataBytes) throw BusbarError.of('EVENT_TOO_LARGE', { field, bytes, maxBytes: limits.dataBytes })
  }
  if (raw) checkRaw(text, field)
  // JSON writes NaN and Infinity as null: a silent loss. Only a text with a null in it can hide one.
  else if (text.includes('null')) refuseNonFinite(value, field)
  return text
}

const unserialisable = (field: string, problem: string, cause?: unknown): BusbarError =>
  BusbarError.of('DATA_UNSERIALISABLE', { field, problem }, cause)

function stringify(value: unknown, field: string): string | undefined {
  try {
    return value === undefined ? 'null' : JSON.stringify(value)
  } catch (error) {
    throw unserialisable(field, problemOf(error), error)
  }
}

function checkRaw(text: string, field: string): void {
  let value: unknown
  try {
    value = JSON.parse(text)
  } catch (error) {
    throw unserialisable(field, `it is not JSON text: ${placeOfFault(text)}`, error)
  }
  if (!text.isWellFormed()) throw unserialisable(field, 'it holds half a surrogate pair')
  // 199 digits and an exponent of two stay below 1e298: only longer ones can be beyond what a number holds.
  if (/[eE]\+?\d{3}|\d{200}/.test(text)) refuseNonFinite(value, field)
}

/** The parser's own words depend on the version of Node, and do not always say where. */
function placeOfFault(text: string): string {
  try {
    checkValue(text)
    return 'it cannot be parsed'
  } catch (error) {
    return shown(problemOf(error)).slice(1, -1).replaceAll('\\"', '"')
  }
}

const maxProblemLength = 200

function problemOf(error: unknown): string {
  return (error instanceof Error ? error.message.split('\n')[0]! : String(error)).slice(0, maxProblemLength)
}

function refuseNonFinite(root: unknown, field: string): void {
  const open: unknown[] = [root]
  const seen = new Set<unknown>()
  while (open.length > 0) {
    const value = open.pop()
    if (typeof value === 'number' && !Number.isFinite(value))
      throw unserialisable(field, `it holds the number ${value}`)
    if (typeof value !== 'object' || value === null || seen.has(value)) continue
    seen.add(value)
    for (const part of partsOf(value, field)) open.push(part)
  }
}

/** What JSON wrote of an object; getters run a second time here, and may throw the second time. */
function partsOf(value: object, field: string): unknown[] {
  try {
    return typeof (value as { toJSON?: unknown }).toJSON === 'function' ? [] : Object.values(value)
  } catch (error) {
    throw unserialisable(field, problemOf(error), error)
  }
}

const lowDigits = 6
const lowSpan = 10 ** lowDigits

/** Writes ids of neighbours: the digits they share are written once, a third of the time of writing each number. */
export function idWriter(partition: number): (seq: number) => string {
  let high = Number.NaN
  let start = ''
  return (seq) => {
    const itsHigh = Math.floor(seq / lowSpan)
    // What is no more than its low digits has no zeros before them.
    if (itsHigh === 0) return `${partition}-${seq}`
    if (itsHigh !== high) {
      high = itsHigh
      start = `${partition}-${high}`
    }
    return start + String(seq - high * lowSpan + lowSpan).slice(1)
  }
}

const idShape = /^(0|[1-9]\d{0,2})-([1-9]\d{0,15})$/

/** PARAMETER_INVALID for a text that cannot be an event's id. */
export function checkId(name: string, id: string): string {
  if (parseId(id)) return id
  const problem = 'must be an event id, "<partition>-<seq>"'
  throw BusbarError.of('PARAMETER_INVALID', { name, value: shown(id), problem })
}

/** `"<partition>-<seq>"`, or undefined when the text cannot be an event's id. */
export function parseId(id: string): { partition: number; seq: number } | undefined {
  const found = idShape.exec(id)
  if (!found) return undefined
  const seq = Number(found[2])
  return Number.isSafeInteger(seq) ? { partition: Number(found[1]), seq } : undefined
}
