/**
 * A batch as it was received: its body, in any of the three formats, taken apart into events.
 *
 * An event's data is not read but cut out: `json` is the text that was published, without the space around it, and `data` is parsed when
 * someone asks for it. What an event has beyond what is known here is passed over: a later sender may say more.
 */
import { BusbarError, shown } from '../errors.ts'
import { defaultTenant, Event, parseId } from '../event.ts'
import { forEachElement, forEachMember, kindOfJson, NotJson } from '../json-slices.ts'
import { contentType, type Format } from '../sinks/webhook/format.ts'

export interface Batch {
  /** The same on every attempt. */
  id: string
  format: Format
  /** Which one sent it; only Busbar's own format says so. */
  subscription: string | null
  events: Event[]
}

export interface ReceivedBody {
  id: string
  contentType: string | undefined
  body: string | Uint8Array
}

/** MEDIA_TYPE_UNSUPPORTED unless a body of this type can be read. */
export function checkContentType(given: string | undefined): string {
  const type = (given ?? 'none').split(';', 1)[0]!.trim().toLowerCase()
  const accepted = [...new Set(Object.values(contentType))]
  if (accepted.includes(type)) return type
  throw BusbarError.of('MEDIA_TYPE_UNSUPPORTED', { given: shown(given ?? 'none'), accepted })
}

/** BODY_INVALID, which says where, for what is none of the formats. */
export function readBatch({ id, contentType: given, body }: ReceivedBody): Batch {
  const type = checkContentType(given)
  const text = typeof body === 'string' ? body : decode(body)
  try {
    if (type === contentType['cloudevents-batch'])
      return { id, format: 'cloudevents-batch', subscription: null, events: readEvents(text, readCloudEvent) }
    if (kindOfJson(text) === 'object') return { id, format: 'busbar', ...readBusbar(text) }
    const readEvent = (members: Members, n: number) => readRoutemaster(members, placelessId(id, n))
    return { id, format: 'routemaster', subscription: null, events: readEvents(text, readEvent) }
  } catch (error) {
    throw error instanceof NotJson ? invalid(`is not JSON: ${error.message}`, error) : error
  }
}

const invalid = (problem: string, cause?: unknown): BusbarError => BusbarError.of('BODY_INVALID', { problem }, cause)

const utf8 = new TextDecoder('utf-8', { fatal: true })

function decode(bytes: Uint8Array): string {
  try {
    return utf8.decode(bytes)
  } catch (error) {
    throw invalid('is not UTF-8', error)
  }
}

/** By which an event is known that has no place in the log: the n-th of its batch, whose body is the same on every attempt. */
export const placelessId = (batch: string, n: number): string => `${encodeURIComponent(batch.toWellFormed())}.${n}`

/** A test, or an event of another sender. */
class PlacelessEvent extends Event {
  readonly #id: string

  constructor(id: string, envelope: string) {
    super(0, 0, '', envelope)
    this.#id = id
  }

  override get id(): string {
    return this.#id
  }
}

/** Of an object: name → text of the value. */
type Members = ReadonlyMap<string, string>

function membersOf(text: string): Members {
  const members = new Map<string, string>()
  forEachMember(text, (name, raw) => members.set(name, raw))
  return members
}

function readEvents(text: string, readEvent: (members: Members, n: number) => Event): Event[] {
  if (kindOfJson(text) !== 'array') throw invalid('must be an array of events')
  const events: Event[] = []
  forEachElement(text, (raw) => {
    if (kindOfJson(raw) !== 'object') throw invalid(`must hold event objects only; number ${events.length + 1} is none`)
    try {
      events.push(readEvent(membersOf(raw), events.length))
    } catch (error) {
      throw error instanceof FieldError
        ? invalid(`has a wrong event, number ${events.length + 1}: ${error.message}`)
        : error
    }
  })
  return events
}

function readBusbar(text: string): Pick<Batch, 'subscription' | 'events'> {
  const members = membersOf(text)
  const events = members.get('events')
  if (events === undefined) throw invalid('has no "events"')
  return { subscription: textIn(members, 'subscription') ?? null, events: readEvents(events, readBusbarEvent) }
}

function readBusbarEvent(members: Members): Event {
  return eventOf({
    id: textIn(members, 'id'),
    seq: integerIn(members, 'seq'),
    prev: integerIn(members, 'prev'),
    type: textIn(members, 'type'),
    tenant: textIn(members, 'tenant'),
    key: textIn(members, 'key'),
    time: integerIn(members, 'time'),
    trace: textIn(members, 'trace'),
    json: members.get('data'),
  })
}

function readCloudEvent(members: Members): Event {
  const time = Date.parse(textIn(members, 'time') ?? '')
  return eventOf({
    id: textIn(members, 'id'),
    seq: digitsIn(members, 'busbarseq') ?? 0,
    prev: digitsIn(members, 'busbarprev'),
    type: textIn(members, 'type'),
    tenant: textIn(members, 'tenant') ?? defaultTenant,
    key: textIn(members, 'subject'),
    time: Number.isNaN(time) ? undefined : time,
    trace: textIn(members, 'trace'),
    json: members.get('data'),
  })
}

/** Routemaster names what changed and how; both together are the type, and the url is the object. */
function readRoutemaster(members: Members, id: string): Event {
  const [topic, verb] = [textIn(members, 'topic'), textIn(members, 'type')]
  return eventOf({
    id,
    seq: 0,
    type: topic && verb && `${topic}.${verb}`,
    tenant: defaultTenant,
    key: textIn(members, 'url'),
    time: integerIn(members, 't'),
    json: members.get('data'),
  })
}

interface Fields {
  id: string | undefined
  seq: number | undefined
  prev?: number | undefined
  type: string | undefined
  tenant: string | undefined
  key?: string | undefined
  time?: number | undefined
  trace?: string | undefined
  json: string | undefined
}

// It is written between quotes as it is.
const idShape = /^[^"\\\p{Cc}]{1,256}$/u

function eventOf({ id, seq, prev, json = 'null', ...header }: Fields): Event {
  if (id === undefined || !idShape.test(id)) throw new FieldError('id', 'a text')
  if (seq === undefined) throw new FieldError('seq', 'a whole number')
  if (!header.type) throw new FieldError('type', 'a text')
  if (!header.tenant) throw new FieldError('tenant', 'a text')
  const { type, tenant, key, time, trace } = header
  const envelope = `${JSON.stringify({ type, tenant, key, time, trace })}\n${json}`
  if (seq === 0) return new PlacelessEvent(id, envelope)
  const place = parseId(id)
  if (place?.seq !== seq) throw new FieldError('seq', 'the number in its id')
  return new Event(place.partition, seq, prev === undefined ? '' : String(prev), envelope)
}

class FieldError extends Error {
  constructor(name: string, wanted: string) {
    super(`"${name}" must be ${wanted}`)
  }
}

/** Undefined when it is missing or null. A nest of brackets is not built to be refused. */
function valueIn(members: Members, name: string, wanted: string): unknown {
  const raw = members.get(name)
  if (raw === undefined || raw === 'null') return undefined
  if (kindOfJson(raw) !== 'other') throw new FieldError(name, wanted)
  return JSON.parse(raw)
}

function textIn(members: Members, name: string): string | undefined {
  const value = valueIn(members, name, 'a text')
  if (value === undefined || typeof value === 'string') return value
  throw new FieldError(name, 'a text')
}

function integerIn(members: Members, name: string): number | undefined {
  const value = valueIn(members, name, 'a whole number')
  if (value === undefined || (typeof value === 'number' && Number.isSafeInteger(value) && value >= 0)) return value
  throw new FieldError(name, 'a whole number')
}

function digitsIn(members: Members, name: string): number | undefined {
  const text = textIn(members, name)
  if (text === undefined) return undefined
  if (/^\d{1,16}$/.test(text) && Number.isSafeInteger(Number(text))) return Number(text)
  throw new FieldError(name, 'digits')
}
