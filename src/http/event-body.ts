/**
 * The body of POST /v1/events: one event, or an array of them.
 *
 * A body that is not JSON is refused as a whole, before anything of it is published. In an array of events one that is
 * wrong fails alone. Data is never read here: it goes on as the text that came.
 */
import type { DelayOptions, PublishAllEvent } from '../bus-types.ts'
import { BusbarError, shown } from '../errors.ts'
import { limits, RawJson } from '../event.ts'
import { checkValue, forEachElement, forEachMember, kindOfJson, NotJson } from '../json-slices.ts'
import { isUnknown, named } from '../unknown-name.ts'
import { bodyNotJson } from './json-body.ts'

export type BodyItem = { event: PublishAllEvent; error?: undefined } | { error: BusbarError }

/** One event on its own may be delayed. */
export type BodyEvent = PublishAllEvent & Pick<DelayOptions, 'delay' | 'at'>

export type EventBody = { kind: 'one'; event: BodyEvent } | { kind: 'many'; items: BodyItem[] }

const fields = [
  'type',
  'data',
  'tenant',
  'key',
  'time',
  'trace',
  'idempotencyKey',
  'expectPrev',
  'delay',
  'at',
] as const

const utf8 = new TextDecoder('utf-8', { fatal: true })

/** Bytes that are not UTF-8 are refused, never replaced. */
export function decodeBody(bytes: Uint8Array): string {
  try {
    return utf8.decode(bytes)
  } catch (error) {
    throw BusbarError.of('BODY_INVALID', { problem: 'is not UTF-8' }, error)
  }
}

export function readEventBody(text: string): EventBody {
  if (text === '') throw BusbarError.of('BODY_INVALID', { problem: 'is empty; send an event or an array of events' })
  try {
    switch (kindOfJson(text)) {
      case 'object':
        return { kind: 'one', event: readEvent(text) }
      case 'array':
        return { kind: 'many', items: readItems(text) }
      case 'other':
        checkValue(text)
        throw BusbarError.of('BODY_INVALID', { problem: 'must be an event object or an array of them' })
    }
  } catch (error) {
    if (!(error instanceof NotJson)) throw error
    throw bodyNotJson(error)
  }
}

function readItems(text: string): BodyItem[] {
  const raws: string[] = []
  let count = 0
  forEachElement(text, (raw) => {
    count += 1
    if (count <= limits.callEvents) raws.push(raw)
  })
  if (count === 0) throw BusbarError.of('BODY_INVALID', { problem: 'is an empty array; send at least one event' })
  if (count > limits.callEvents)
    throw BusbarError.of('CALL_TOO_LARGE', {
      events: count,
      maxEvents: limits.callEvents,
      maxBytes: limits.callBytes,
    })
  return raws.map(readItem)
}

function readItem(raw: string): BodyItem {
  if (kindOfJson(raw) !== 'object')
    return { error: BusbarError.of('BODY_INVALID', { problem: 'must hold event objects only' }) }
  try {
    return { event: readEvent(raw) }
  } catch (error) {
    if (error instanceof BusbarError) return { error }
    throw error
  }
}

const readEvent = (text: string): BodyEvent => readFields(text, fields, 'an event') as unknown as BodyEvent

/** The members of an object, of these names only, each once: texts and numbers as values, `data` as the text that it is. */
export function readFields(text: string, known: readonly string[], noun: string): Record<string, unknown> {
  const given = new Map<string, string>()
  const unknown = new Set<string>()
  const repeated = new Set<string>()
  forEachMember(text, (name, raw) => {
    if (!known.includes(name)) unknown.size < maxNamed && unknown.add(name)
    else if (given.has(name)) repeated.add(name)
    else given.set(name, raw)
  })
  // Only now is it known to be JSON to its end.
  const [first, ...more] = unknown
  if (first !== undefined) throw unknownFields([first, ...more], known, noun)
  for (const field of repeated) throw invalid(field, 'must be given once', 'it twice')
  const event: Record<string, unknown> = {}
  for (const [field, raw] of given) event[field] = field === 'data' ? readData(raw) : readField(field, raw)
  return event
}

/** Only the size is looked at, before anyone reads the text into a value. */
function readData(raw: string): RawJson {
  const bytes = Buffer.byteLength(raw)
  if (bytes > limits.dataBytes)
    throw BusbarError.of('EVENT_TOO_LARGE', { field: 'data', bytes, maxBytes: limits.dataBytes })
  return new RawJson(raw)
}

function readField(field: string, raw: string): unknown {
  // Which text or number is right is the bus's to say; a nest of brackets need not be built to be refused.
  if (kindOfJson(raw) !== 'other')
    throw invalid(field, 'must be a text or a number', raw[0] === '{' ? 'an object' : 'an array')
  return JSON.parse(raw)
}

const maxNamed = 5

const unknownFields = (names: readonly [string, ...string[]], known: readonly string[], noun: string): BusbarError =>
  invalid(
    named(names[0]),
    `${isUnknown(names[0], known)}; ${noun} has ${known.join(', ')}`,
    names.map(shown).join(', '),
  )

const invalid = (field: string, problem: string, value: string): BusbarError =>
  BusbarError.of('EVENT_INVALID', { field, value, problem })
