/**
 * One publish, commit or publishAll item on its way: checked, written as envelopes, waiting for its answer until it is
 * settled: answered or failed. What comes later is ignored.
 */
import { createHash } from 'node:crypto'
import { BusbarError, shown } from '../errors.ts'
import { checkTenant, checkText, checkTime, checkType, defaultTenant, limits, writeJson } from '../event.ts'

export interface EventInput {
  type: string
  data?: unknown
  tenant?: string | undefined
  key?: string | undefined
  time?: number | Date | null | undefined
  trace?: string | undefined
}

export interface CallOptions {
  idempotencyKey?: string | undefined
  expectPrev?: number | null | undefined
  state?: unknown
}

/** The answer for one event. */
export interface Published {
  id: string
  seq: number
  /** seq of the object's event before; null = first, or no longer kept, or no key. */
  prev: number | null
  /** True when an earlier call with the same idempotency key stored it. */
  duplicate: boolean
}

/** Checked and written as it will lie in the log. */
export interface WrittenEvent {
  /** `"<tenant>:<type>"` */
  kind: string
  /** `"<tenant>/<key>"`, '' without key. */
  object: string
  envelope: string
}

/** The call's first event, and what belongs to it. */
export interface Call extends WrittenEvent {
  /** Further events of the same object. */
  readonly rest: readonly WrittenEvent[]
  readonly conditions: Conditions | undefined
  readonly size: number
  readonly timeoutMs: number
  readonly deadlineAt: number
  settled: boolean
  resolve(first: Published, rest: readonly Published[]): void
  reject(error: unknown): void
}

/** What a call with options asks for. */
export interface Conditions {
  readonly options: CallOptions
  /** The options as publish.lua gets them. */
  readonly json: string
  /** What chooses the partition: the object, else the idempotency key; '' = any. */
  readonly partitionBy: string
}

interface Kind {
  text: string
  headerStart: string
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
  const kind = { text: `${tenant}:${type}`, headerStart: `{"type":"${type}","tenant":"${tenant}"` }
  const ofTenant = kinds.get(tenant) ?? new Map<string, Kind>()
  kinds.set(tenant, ofTenant.set(type, kind))
  kindCount += 1
  return kind
}

/** Whose event it is, what it is about, when it happened. */
export type EventPlace = Omit<EventInput, 'type' | 'data'>

const needsNoEscape = /^[ !#-[\]-~]*$/

/** As JSON.stringify, which takes three times as long for the plain ASCII that keys mostly are. */
const quoted = (text: string): string => (needsNoEscape.test(text) ? `"${text}"` : JSON.stringify(text))

/** Checks an event and writes it down; throws the coded error of the first field that is wrong. */
export function writeEvent(type: string, data: unknown, place: EventPlace): WrittenEvent {
  const { tenant = defaultTenant, key, time, trace } = place
  const kind = kindFor(tenant, type)
  let header = kind.headerStart
  let object = ''
  if (key !== undefined && key !== null) {
    header += `,"key":${quoted(checkText('key', key, limits.keyBytes))}`
    object = `${tenant}/${key}`
  }
  if (time !== undefined && time !== null)
    header += `,"time":${checkTime(time instanceof Date ? time.getTime() : time)}`
  if (trace !== undefined) header += `,"trace":${JSON.stringify(checkText('trace', trace, limits.traceBytes))}`
  return { kind: kind.text, object, envelope: `${header}}\n${writeJson(data)}` }
}

const noEvents: readonly WrittenEvent[] = []

/** A call of one event without options: the hot path. */
export function simpleCall(
  { kind, object, envelope }: WrittenEvent,
  timeoutMs: number,
  deadlineAt: number,
  resolve: Call['resolve'],
  reject: Call['reject'],
): Call {
  return {
    kind,
    object,
    envelope,
    rest: noEvents,
    conditions: undefined,
    size: envelope.length,
    timeoutMs,
    deadlineAt,
    settled: false,
    resolve,
    reject,
  }
}

/** Gives a call options, or several events of one object: then it is all or nothing. */
export function withOptions(call: Call, events: readonly WrittenEvent[], options: CallOptions): Call {
  const { object, kind } = call
  const scope = object || `${kind.slice(0, kind.indexOf(':'))}/`
  const option: Record<string, unknown> = {}
  let partitionBy = object
  if (options.idempotencyKey !== undefined) {
    option.once = checkText('idempotencyKey', options.idempotencyKey, limits.idempotencyKeyBytes)
    option.scope = scope
    option.body = fingerprint(events, options)
    partitionBy ||= scope + options.idempotencyKey
  }
  if (options.expectPrev !== undefined) option.expectPrev = checkExpectPrev(options.expectPrev, object)
  if (options.state !== undefined) option.state = writeJson(options.state, 'state')
  const json = JSON.stringify(option)
  // A state waits and travels like the events, so it counts like them.
  const size = events.reduce((sum, event) => sum + event.envelope.length, json.length)
  return { ...call, rest: events.slice(1), conditions: { options, json, partitionBy }, size }
}

function checkExpectPrev(expectPrev: number | null, object: string): string {
  const invalid = (problem: string) =>
    BusbarError.of('EVENT_INVALID', { field: 'expectPrev', value: shown(expectPrev), problem })
  if (object === '') throw invalid('needs a key: only objects have a head')
  if (expectPrev === null) return ''
  if (!Number.isSafeInteger(expectPrev) || expectPrev < 1) throw invalid('must be the seq of an event, or null')
  return String(expectPrev)
}

/** Equal exactly when types, data and state are: time and trace may differ between two tries of one publish. */
function fingerprint(events: readonly WrittenEvent[], options: CallOptions): string {
  const hash = createHash('sha256')
  for (const event of events) {
    hash.update(`${event.kind}\n${event.envelope.slice(event.envelope.indexOf('\n') + 1)}\n`)
  }
  if (options.state !== undefined) hash.update(writeJson(options.state, 'state'))
  return hash.digest('base64url')
}
