/**
 * One publish, commit or publishAll item on its way: checked, written as envelopes, waiting for its answer.
 *
 *   waiting    in its lane, nothing sent: at its deadline it is NOT_STORED
 *   sent       part of a flush: at its deadline its outcome is unknown
 *   settled    answered or failed; what comes later is ignored
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

export interface Call {
  first: WrittenEvent
  /** Further events of the same object. */
  rest: readonly WrittenEvent[]
  /** What chooses the partition: the object, else the idempotency key; '' = any. */
  partitionBy: string
  /** JSON for publish.lua, '' when the call has no options. */
  option: string
  options: CallOptions
  size: number
  timeoutMs: number
  deadlineAt: number
  state: 'waiting' | 'sent' | 'settled'
  resolve(first: Published, rest: readonly Published[]): void
  reject(error: unknown): void
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

/** Checks an event and writes it down; throws the coded error of the first field that is wrong. */
export function writeEvent(type: string, data: unknown, place: EventPlace): WrittenEvent {
  const { tenant = defaultTenant, key, time, trace } = place
  const kind = kindFor(tenant, type)
  let header = kind.headerStart
  let object = ''
  if (key !== undefined && key !== null) {
    header += `,"key":${JSON.stringify(checkText('key', key, limits.keyBytes))}`
    object = `${tenant}/${key}`
  }
  if (time !== undefined && time !== null)
    header += `,"time":${checkTime(time instanceof Date ? time.getTime() : time)}`
  if (trace !== undefined) header += `,"trace":${JSON.stringify(checkText('trace', trace, limits.traceBytes))}`
  return { kind: kind.text, object, envelope: `${header}}\n${writeJson(data)}` }
}

const noOptions: CallOptions = {}
const noEvents: readonly WrittenEvent[] = []

/** A call of one event without options: the hot path. */
export function simpleCall(
  event: WrittenEvent,
  timeoutMs: number,
  deadlineAt: number,
  resolve: Call['resolve'],
  reject: Call['reject'],
): Call {
  return {
    first: event,
    rest: noEvents,
    partitionBy: event.object,
    option: '',
    options: noOptions,
    size: event.envelope.length,
    timeoutMs,
    deadlineAt,
    state: 'waiting',
    resolve,
    reject,
  }
}

/** Gives a call options, or several events of one object: then it is all or nothing. */
export function withOptions(call: Call, events: readonly WrittenEvent[], options: CallOptions): Call {
  const first = events[0]!
  const scope = first.object || `${first.kind.slice(0, first.kind.indexOf(':'))}/`
  const option: Record<string, unknown> = {}
  let partitionBy = first.object
  if (options.idempotencyKey !== undefined) {
    option.once = checkText('idempotencyKey', options.idempotencyKey, limits.idempotencyKeyBytes)
    option.scope = scope
    option.body = fingerprint(events, options)
    partitionBy ||= scope + options.idempotencyKey
  }
  if (options.expectPrev !== undefined) option.expectPrev = checkExpectPrev(options.expectPrev, first.object)
  if (options.state !== undefined) option.state = writeJson(options.state, 'state')
  const text = JSON.stringify(option)
  // A state waits and travels like the events, so it counts like them.
  const size = events.reduce((sum, event) => sum + event.envelope.length, text.length)
  return { ...call, first, rest: events.slice(1), partitionBy, option: text, options, size }
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
