/**
 * An envelope, the text in which an event lies in the log, and what its header says.
 *
 * One JSON header line (type, tenant, key, time, trace) + "\n" + the data's own bytes. The header always begins with type and
 * tenant, so that scripts and routers find them without parsing.
 */
import type { Event } from './event.ts'

export interface Header {
  type: string
  tenant: string
  key?: string
  time?: number
  trace?: string
  /** Of what was sent into a queue: on whose behalf, and by which request. */
  kind?: 'manual' | 'automatic'
  request?: string
  /** The trigger that sent it. */
  trigger?: string
}

/** Splits an envelope into its header and the data's text. */
export function readEnvelope(envelope: string): { header: Header; json: string } {
  return { header: readHeader(envelope, anyKindOf(envelope)), json: envelope.slice(envelope.indexOf('\n') + 1) }
}

export function readHeader(envelope: string, kind: Kind): Header {
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

/** Undefined when it has none. */
export const keyOf = (envelope: string): string | undefined => readHeader(envelope, anyKindOf(envelope)).key

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

const typeStart = '{"type":"'
const tenantStart = '","tenant":"'

/** Type and tenant without parsing: neither can hold a quote or an escape. No regular expression: its answer is made for each event. */
export function kindOf(envelope: string): Kind | undefined {
  if (!envelope.startsWith(typeStart)) return undefined
  const typeEnd = envelope.indexOf('"', typeStart.length)
  if (!envelope.startsWith(tenantStart, typeEnd)) return undefined
  const tenantAt = typeEnd + tenantStart.length
  const tenantEnd = envelope.indexOf('"', tenantAt)
  if (tenantEnd === -1) return undefined
  const start = envelope.slice(0, tenantEnd + 1)
  if (start.includes('\\')) return undefined
  return { start, type: envelope.slice(typeStart.length, typeEnd), tenant: envelope.slice(tenantAt, tenantEnd) }
}

/** The same for what Busbar has not written. */
export function anyKindOf(envelope: string): Kind {
  const known = kindOf(envelope)
  if (known) return known
  const { type, tenant } = JSON.parse(envelope.slice(0, envelope.indexOf('\n'))) as Header
  return { type, tenant, start: '' }
}
