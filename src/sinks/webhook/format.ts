/**
 * The bodies of webhooks: how an event stands in one, and what stands around the events.
 *
 *   busbar             {"subscription":"acme-erp","events":[…]}, each event as every other door writes it
 *   cloudevents-batch  a batch of CloudEvents 1.0
 *   routemaster        the array that Routemaster delivered: topic, type, url, t, data
 *
 * A router writes each event when it hands it to the store, so nothing here throws, whatever the data is, and data is not read: it is
 * copied as the text that was published. Only routemaster looks into it, for a url.
 */
import { type Header, readEnvelope } from '../../envelope.ts'
import { Event } from '../../event.ts'
import { forEachMember, kindOfJson, NotJson } from '../../json-slices.ts'

export type Format = 'busbar' | 'cloudevents-batch' | 'routemaster'

export const formats: readonly Format[] = ['busbar', 'cloudevents-batch', 'routemaster']

/** Routemaster's drain takes exactly this text, without a charset. */
export const contentType: Readonly<Record<Format, string>> = {
  busbar: 'application/json',
  'cloudevents-batch': 'application/cloudevents-batch+json',
  routemaster: 'application/json',
}

/** An event as it lies in the log; `prev` is '' for none. */
export interface LoggedEvent {
  partition: number
  seq: number
  prev: string
  envelope: string
}

/** One event as it stands in the body, where events are joined by commas. */
export function renderEvent(format: Format, event: LoggedEvent): string {
  switch (format) {
    case 'busbar':
      return new Event(event.partition, event.seq, event.prev, event.envelope).toText()
    case 'cloudevents-batch':
      return renderCloudEvent(event)
    case 'routemaster':
      return renderRoutemaster(event)
  }
}

/** What stands before the events of a batch, and behind them. */
export function wrapping(format: Format, subscription: string): { start: string; end: string } {
  if (format !== 'busbar') return { start: '[', end: ']' }
  return { start: `{"subscription":${JSON.stringify(subscription)},"events":[`, end: ']}' }
}

const timeOf = (header: Header, seq: number): number => header.time ?? Math.floor(seq / 1_000)

/** seq and prev are texts: numbers of CloudEvents have 32 bits. An attribute without a value is left out. */
function renderCloudEvent({ partition, seq, prev, envelope }: LoggedEvent): string {
  const { header, json } = readEnvelope(envelope)
  const { type, tenant, key, trace } = header
  const about = `"id":"${partition}-${seq}","source":${sourceOf(tenant)},"type":${JSON.stringify(type)}`
  const subject = key === undefined ? '' : `,"subject":${JSON.stringify(key)}`
  const ours = `"tenant":${JSON.stringify(tenant)},"busbarseq":"${seq}"${prev === '' ? '' : `,"busbarprev":"${prev}"`}`
  const more = trace === undefined ? '' : `,"trace":${JSON.stringify(trace)}`
  const time = timeAttribute(timeOf(header, seq))
  return `{"specversion":"1.0",${about}${subject}${time},"datacontenttype":"application/json",${ours}${more},"data":${json}}`
}

/** A reference by RFC 3986: what Busbar allows in a tenant needs no escape in it. */
const sourceOf = (tenant: string): string => JSON.stringify(`/busbar/${encodeURI(tenant.toWellFormed())}`)

const lastRfc3339 = Date.parse('9999-12-31T23:59:59.999Z')

/** RFC 3339 has years of four digits only. */
const timeAttribute = (time: number): string =>
  time >= 0 && time <= lastRfc3339 ? `,"time":"${new Date(time).toISOString()}"` : ''

const verbs = ['create', 'update', 'delete', 'noop']

function renderRoutemaster({ partition, seq, envelope }: LoggedEvent): string {
  const { header, json } = readEnvelope(envelope)
  const segments = header.type.split('.')
  const verb = segments.at(-1)!
  const told = { topic: segments[0], type: verbs.includes(verb) ? verb : 'update' }
  const { url = JSON.stringify(`urn:busbar:event:${partition}-${seq}`), data } = entityIn(json)
  const text = `${JSON.stringify(told).slice(0, -1)},"url":${url},"t":${timeOf(header, seq)}`
  return data === undefined ? `${text}}` : `${text},"data":${data}}`
}

/** As JSON texts: what the event is about, if its data says so, and what is said of it. */
function entityIn(json: string): { url?: string; data?: string } {
  if (kindOfJson(json) !== 'object') return {}
  const members = new Map<string, string>()
  try {
    forEachMember(json, (name, raw) => {
      if (name === 'url' || name === 'data') members.set(name, raw)
    })
  } catch (error) {
    // Not written by Busbar, then; its router must get past it.
    if (error instanceof NotJson) return {}
    throw error
  }
  const [url, data] = [members.get('url'), members.get('data')]
  if (url === undefined || !/^"./.test(url) || url === '""') return { data: json }
  return data === undefined ? { url } : { url, data }
}
