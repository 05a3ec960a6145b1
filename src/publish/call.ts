/**
 * One publish, commit or publishAll item on its way: checked, written as envelopes, waiting for its answer.
 *
 *   waiting    in its lane, nothing sent: at its deadline it is NOT_STORED
 *   sent       part of a flush: at its deadline its outcome is unknown
 *   settled    answered or failed; what comes later is ignored
 */
import { createHash } from 'node:crypto'
import { BusbarError } from '../errors.ts'
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

export interface Call {
  /** `"<tenant>/<key>"`, '' without key. */
  object: string
  /** What chooses the partition: the object, else the idempotency key; '' = any. */
  partitionBy: string
  kinds: readonly string[]
  envelopes: readonly string[]
  /** JSON for publish.lua, '' when the call has no options. */
  option: string
  options: CallOptions
  size: number
  deadlineAt: number
  timeoutMs: number
  state: 'waiting' | 'sent' | 'settled'
  resolve(answer: Published[]): void
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

export interface WrittenEvent {
  kind: string
  object: string
  envelope: string
}

/** Checks an event and writes it down; throws the coded error of the first field that is wrong. */
export function writeEvent(event: EventInput): WrittenEvent {
  const tenant = event.tenant ?? defaultTenant
  const kind = kindFor(tenant, event.type)
  let header = kind.headerStart
  let object = ''
  if (event.key !== undefined && event.key !== null) {
    const key = checkText('key', event.key, limits.keyBytes)
    header += `,"key":${JSON.stringify(key)}`
    object = `${tenant}/${key}`
  }
  if (event.time !== undefined && event.time !== null)
    header += `,"time":${checkTime(event.time instanceof Date ? event.time.getTime() : event.time)}`
  if (event.trace !== undefined)
    header += `,"trace":${JSON.stringify(checkText('trace', event.trace, limits.traceBytes))}`
  return { kind: kind.text, object, envelope: `${header}}\n${writeJson(event.data)}` }
}

export type Unsettled = Pick<Call, 'deadlineAt' | 'timeoutMs' | 'resolve' | 'reject'>

/** A call of one event without options: the hot path. */
export function simpleCall(event: WrittenEvent, unsettled: Unsettled): Call {
  return {
    object: event.object,
    partitionBy: event.object,
    kinds: [event.kind],
    envelopes: [event.envelope],
    option: '',
    options: noOptions,
    size: event.envelope.length,
    state: 'waiting',
    ...unsettled,
  }
}

const noOptions: CallOptions = {}

/** A call with options, or of several events of one object: all or nothing. */
export function optionCall(events: readonly WrittenEvent[], options: CallOptions, unsettled: Unsettled): Call {
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
  if (options.state !== undefined) option.state = writeJson(options.state)
  return {
    object: first.object,
    partitionBy,
    kinds: events.map((event) => event.kind),
    envelopes: events.map((event) => event.envelope),
    option: JSON.stringify(option),
    options,
    size: events.reduce((sum, event) => sum + event.envelope.length, 0),
    state: 'waiting',
    ...unsettled,
  }
}

function checkExpectPrev(expectPrev: number | null, object: string): string {
  const invalid = (problem: string) =>
    BusbarError.of('EVENT_INVALID', { field: 'expectPrev', value: String(expectPrev), problem })
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
  if (options.state !== undefined) hash.update(writeJson(options.state))
  return hash.digest('base64url')
}
