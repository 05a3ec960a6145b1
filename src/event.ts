/**
 * An event, its limits and its id.
 *
 * In the log an event is an envelope (envelope.ts); id, seq and prev travel beside it. The data is opaque: it is never parsed
 * and written again, so every consumer gets the publisher's bytes.
 */
import { inspect } from 'node:util'
import { anyKindOf, type Header, type Kind, readHeader } from './envelope.ts'
import { BusbarError, shown } from './errors.ts'

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
    const { start, type, tenant } = this.#kind
    // As the envelope has it, or as anyone may have written it.
    const kind = start === '' ? JSON.stringify({ type, tenant }).slice(1, -1) : start.slice(1)
    const { key, trace } = this.#read()
    const head = `{"id":"${this.id}","seq":${this.seq},"prev":${this.prev},${kind}`
    const about = `"key":${key === undefined ? 'null' : JSON.stringify(key)},"time":${this.time}`
    return `${head},${about}${trace === undefined ? '' : `,"trace":${JSON.stringify(trace)}`},"data":${this.json}}`
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
