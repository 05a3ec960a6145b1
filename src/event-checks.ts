/** What an event may be: every refusal is a coded error that names the field, what was wrong and the limit. */
import { BusbarError, shown } from './errors.ts'
import { limits, RawJson } from './event.ts'
import { checkValue } from './json-slices.ts'

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
    throw BusbarError.of('DATA_UNSERIALISABLE', { field, problem: placeOfFault(text), isText: true }, error)
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

/** Where nothing is published, what cannot be an event's is a wrong parameter. */
export function checkParameter(check: (value: unknown) => string, given: string): void {
  try {
    check(given)
  } catch (error) {
    const { field, value, problem } = (error as BusbarError).details as {
      field: string
      value: string
      problem: string
    }
    throw BusbarError.of('PARAMETER_INVALID', { name: field, value, problem }, error)
  }
}
