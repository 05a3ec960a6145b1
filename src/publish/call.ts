/**
 * One publish, commit or publishAll item on its way: checked, written as envelopes, waiting for its answer until it is
 * settled: answered or failed. What comes later is ignored.
 */
import { createHash } from 'node:crypto'
import { BusbarError, shown } from '../errors.ts'
import { limits } from '../event.ts'
import { checkText, writeJson } from '../event-checks.ts'
import { objectHash } from '../log/partition.ts'
import type { WrittenEvent } from './written-event.ts'

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

/** Thousands of calls wait at once, and what they hold on to lives through garbage collections: no more than needed. */
export interface Call {
  /** Of the first event. */
  readonly kind: string
  readonly objectArg: string
  readonly record: string
  /** Of its envelope. */
  readonly bytes: number
  /** Further events of the same object. */
  readonly rest: readonly WrittenEvent[]
  /** Chooses the partition; undefined = any. */
  readonly hash: number | undefined
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
  readonly object: string
}

const noEvents: readonly WrittenEvent[] = []

/** A call of one event without options: the hot path. */
export function simpleCall(
  { kind, hash, objectArg, record, bytes }: WrittenEvent,
  timeoutMs: number,
  deadlineAt: number,
  resolve: Call['resolve'],
  reject: Call['reject'],
): Call {
  return {
    kind,
    objectArg,
    record,
    bytes,
    rest: noEvents,
    hash,
    conditions: undefined,
    size: bytes,
    timeoutMs,
    deadlineAt,
    settled: false,
    resolve,
    reject,
  }
}

/** Gives a call options, or several events of one object: then it is all or nothing. */
export function withOptions(call: Call, events: readonly WrittenEvent[], options: CallOptions): Call {
  const { object } = events[0]!
  const scope = scopeOf(events[0]!)
  const option: Record<string, unknown> = {}
  let { hash } = call
  if (options.idempotencyKey !== undefined) {
    option.once = checkText('idempotencyKey', options.idempotencyKey, limits.idempotencyKeyBytes)
    option.scope = scope
    option.body = fingerprint(events, options)
    hash ??= objectHash(scope + options.idempotencyKey)
  }
  if (options.expectPrev !== undefined) option.expectPrev = checkExpectPrev(options.expectPrev, object)
  if (options.state !== undefined) option.state = writeJson(options.state, 'state')
  const json = JSON.stringify(option)
  // A state waits and travels like the events, so it counts like them.
  const size = events.reduce((sum, event) => sum + event.bytes, Buffer.byteLength(json))
  return { ...call, rest: events.slice(1), hash, conditions: { options, json, object }, size }
}

/** Within which an idempotency key stands for one call. */
export const scopeOf = ({ object, kind }: WrittenEvent): string => object || `${kind.slice(0, kind.indexOf(':'))}/`

function checkExpectPrev(expectPrev: number | null, object: string): string {
  const invalid = (problem: string) =>
    BusbarError.of('EVENT_INVALID', { field: 'expectPrev', value: shown(expectPrev), problem })
  if (object === '') throw invalid('needs a key: only objects have a head')
  if (expectPrev === null) return ''
  if (!Number.isSafeInteger(expectPrev) || expectPrev < 1) throw invalid('must be the seq of an event, or null')
  return String(expectPrev)
}

/** Equal exactly when types, data and state are: time and trace may differ between two tries of one publish. */
export function fingerprint(events: readonly WrittenEvent[], options: CallOptions): string {
  const hash = createHash('sha256')
  for (const event of events) hash.update(`${event.kind}\n${event.data}\n`)
  if (options.state !== undefined) hash.update(writeJson(options.state, 'state'))
  return hash.digest('base64url')
}
