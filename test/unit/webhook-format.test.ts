/** The bodies of webhooks: each format as those who receive it take it, and the data as it was published. */
import { HTTP } from 'cloudevents'
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import type { Header } from '../../src/envelope.ts'
import { Event } from '../../src/event.ts'
import { forEachElement, forEachMember } from '../../src/json-slices.ts'
import {
  contentType,
  type Format,
  formats,
  type LoggedEvent,
  renderEvent,
  wrapping,
} from '../../src/sinks/webhook/format.ts'
import { jsonText, spacedJsonText } from '../support/json-texts.ts'

const seq = 1_794_823_913_522_017

function logged(json: string, header: Partial<Header> = {}, more: Partial<LoggedEvent> = {}): LoggedEvent {
  const line = JSON.stringify({ type: 'order.paid', tenant: 'acme', ...header })
  return { partition: 3, seq, prev: '', envelope: `${line}\n${json}`, ...more }
}

function bodyOf(format: Format, events: readonly LoggedEvent[], subscription = 'acme-erp'): string {
  const { start, end } = wrapping(format, subscription)
  return start + events.map((event) => renderEvent(format, event)).join(',') + end
}

/** The data's text in each event of the body. */
function dataIn(format: Format, body: string): string[] {
  const found: string[] = []
  const readEvent = (raw: string) => forEachMember(raw, (name, value) => name === 'data' && found.push(value))
  if (format !== 'busbar') forEachElement(body, readEvent)
  else forEachMember(body, (name, raw) => name === 'events' && forEachElement(raw, readEvent))
  return found
}

const header = fc.record(
  {
    type: fc.constantFrom('order.paid', 'a', 'x.y-z.create'),
    tenant: fc.constantFrom('default', 'a.b~c@d+e-f_0'),
    key: fc.string({ unit: 'grapheme', minLength: 1 }),
    time: fc.integer({ min: 0, max: 8.64e15 }),
    trace: fc.string({ unit: 'grapheme', minLength: 1 }),
  },
  { requiredKeys: ['type', 'tenant'] },
)
const event = fc
  .record({ header, json: spacedJsonText, prev: fc.constantFrom('', '1794823913522016') })
  .map(({ header, json, prev }) => ({ json, ...logged(json, header, { prev }) }))
const batch = fc.array(event, { minLength: 1, maxLength: 5 })

describe('[W18] data is copied as the text that was published', () => {
  test.each(['busbar', 'cloudevents-batch'] as const)('%s: any JSON text', (format) => {
    fc.assert(
      fc.property(batch, (events) => {
        const body = bodyOf(format, events)
        expect(dataIn(format, body)).toEqual(events.map(({ json }) => json.trim()))
        for (const { json } of events) expect(body).toContain(`"data":${json}}`)
        JSON.parse(body)
      }),
    )
  })

  test.each(formats)('%s: big numbers, odd names, deep nesting, any sign', (format) => {
    const deep = `${'['.repeat(50_000)}${']'.repeat(50_000)}`
    const texts = [
      '{"b":12345678901234567890.10,"a":1E5,"2":3,"1":4,"__proto__":5}',
      `{"deep":${deep}}`,
      '{ "text" : "ü\\u0001€😀\\ud800",\n "u2028":"\u2028" }',
      '{"twice":1,"twice":2}',
    ]
    expect(
      dataIn(
        format,
        bodyOf(
          format,
          texts.map((text) => logged(text)),
        ),
      ),
    ).toEqual(texts)
  })
})

describe('[W18] busbar', () => {
  test('is one object: the subscription, and the events as every door writes them', () => {
    const first = logged('{"total":42}', { key: 'order:42', trace: 'abc' }, { prev: '1794823913522016' })
    expect(bodyOf('busbar', [first, logged('null', { time: 5 })])).toBe(
      '{"subscription":"acme-erp","events":[{"id":"3-1794823913522017","seq":1794823913522017,"prev":1794823913522016,' +
        '"type":"order.paid","tenant":"acme","key":"order:42","time":1794823913522,"trace":"abc","data":{"total":42}},' +
        '{"id":"3-1794823913522017","seq":1794823913522017,"prev":null,"type":"order.paid","tenant":"acme","key":null,' +
        '"time":5,"data":null}]}',
    )
    expect(contentType.busbar).toBe('application/json')
    expect(JSON.parse(bodyOf('busbar', [], 'a"b'))).toEqual({ subscription: 'a"b', events: [] })
  })

  test('an event has its members in one order, whatever its header holds and however it is written', () => {
    fc.assert(
      fc.property(event, fc.boolean(), ({ envelope, json, ...rest }, isForeign) => {
        const line = envelope.slice(0, envelope.indexOf('\n'))
        // Another writer may put a space, or its members, where Busbar does not.
        const written = isForeign ? `${line.replace('{"type"', '{ "type"')}\n${json}` : envelope
        const { type, tenant, key = null, time = Math.floor(seq / 1000), trace } = JSON.parse(line) as Header
        const { partition, prev } = rest
        const head = { id: `3-${seq}`, seq, prev: prev === '' ? null : Number(prev), type, tenant, key, time }
        const expected = JSON.stringify({ ...head, ...(trace === undefined ? {} : { trace }) })
        const text = `${expected.slice(0, -1)},"data":${json}}`
        expect(new Event(partition, seq, prev, written).toText()).toBe(text)
        expect(renderEvent('busbar', { partition, seq, prev, envelope: written })).toBe(text)
      }),
    )
  })
})

const readCloudEvents = (body: string) =>
  HTTP.toEvent({ headers: { 'content-type': contentType['cloudevents-batch'] }, body }) as unknown as Record<
    string,
    unknown
  >[]

describe('[W18] cloudevents-batch', () => {
  test('is read by the package of CloudEvents, with every attribute', () => {
    const about = { key: 'order:42 ü', trace: 'abc', time: 1_769_860_800_123 }
    const events = [
      logged('{"total":42}', about, { prev: '1794823913522016' }),
      logged('[1]', { tenant: 'a.b~c@d+e-f_0' }),
    ]
    const [first, second, ...rest] = readCloudEvents(bodyOf('cloudevents-batch', events)).map((one) => ({ ...one }))
    expect(rest).toEqual([])
    expect(first).toEqual({
      specversion: '1.0',
      id: '3-1794823913522017',
      source: '/busbar/acme',
      type: 'order.paid',
      subject: 'order:42 ü',
      time: '2026-01-31T12:00:00.123Z',
      datacontenttype: 'application/json',
      tenant: 'acme',
      busbarseq: '1794823913522017',
      busbarprev: '1794823913522016',
      trace: 'abc',
      data: { total: 42 },
    })
    expect(second).toEqual({
      specversion: '1.0',
      id: '3-1794823913522017',
      source: '/busbar/a.b~c@d+e-f_0',
      type: 'order.paid',
      time: new Date(Math.floor(seq / 1_000)).toISOString(),
      datacontenttype: 'application/json',
      tenant: 'a.b~c@d+e-f_0',
      busbarseq: '1794823913522017',
      data: [1],
    })
    expect(contentType['cloudevents-batch']).toBe('application/cloudevents-batch+json')
  })

  test('whatever the events hold, the package takes them all', () => {
    fc.assert(
      fc.property(batch, (events) => {
        const read = readCloudEvents(bodyOf('cloudevents-batch', events))
        expect(read.map(({ data }) => data)).toEqual(events.map(({ json }) => JSON.parse(json)))
      }),
    )
  })

  test('a time that RFC 3339 cannot write is left out', () => {
    const timeIn = (time: number) => JSON.parse(renderEvent('cloudevents-batch', logged('1', { time }))).time
    expect(timeIn(253_402_300_799_999)).toBe('9999-12-31T23:59:59.999Z')
    expect([timeIn(253_402_300_800_000), timeIn(8.64e15)]).toEqual([undefined, undefined])
  })
})

/** What Routemaster's drain answers to a delivery. */
function drain(type: string, body: string): number {
  if (type !== 'application/json') return 415
  const events: unknown = JSON.parse(body)
  if (!Array.isArray(events)) return 400
  const fields = ['t', 'type', 'topic', 'url']
  const isEvent = (one: Record<string, unknown>) => fields.every((name) => one[name] !== undefined && one[name] !== '')
  return events.every((one) => isEvent(one) && Number.isInteger(one.t)) ? 204 : 400
}

describe('[W18] routemaster', () => {
  const urn = 'urn:busbar:event:3-1794823913522017'
  const url = 'https://shop.example/orders/42'
  const t = Math.floor(seq / 1_000)
  const cases: [string, LoggedEvent, object][] = [
    [
      'a verb, and a url without data',
      logged(`{"url":"${url}"}`, { type: 'order.create' }),
      { topic: 'order', type: 'create', url, t },
    ],
    [
      'a url with data',
      logged(`{"url":"${url}","data":{"n":1}}`, { type: 'order.delete' }),
      { topic: 'order', type: 'delete', url, t, data: { n: 1 } },
    ],
    [
      'deeper types, and a time',
      logged(`{"url":"${url}"}`, { type: 'order.line.noop', time: 5 }),
      { topic: 'order', type: 'noop', url, t: 5 },
    ],
    ['any other verb', logged('{"total":42}'), { topic: 'order', type: 'update', url: urn, t, data: { total: 42 } }],
    ['a verb alone', logged('{}', { type: 'update' }), { topic: 'update', type: 'update', url: urn, t, data: {} }],
    ['data that is no object', logged('[{"url":"x"}]'), { topic: 'order', type: 'update', url: urn, t }],
    [
      'a url that is no text',
      logged('{"url":7,"data":1}'),
      { topic: 'order', type: 'update', url: urn, t, data: { url: 7, data: 1 } },
    ],
    ['an empty url', logged('{"url":""}'), { topic: 'order', type: 'update', url: urn, t, data: { url: '' } }],
    [
      'members given twice: the last counts',
      logged(`{"url":1,"url":"${url}"}`),
      { topic: 'order', type: 'update', url, t },
    ],
    ['names that are escaped', logged(` {"\\u0075rl":"${url}"}`), { topic: 'order', type: 'update', url, t }],
  ]

  test.each(cases)('%s', (_, event, expected) => {
    const body = bodyOf('routemaster', [event, event])
    expect(JSON.parse(body)).toEqual([expected, expected])
    expect(drain(contentType.routemaster, body)).toBe(204)
  })

  test('the drain takes whatever was published', () => {
    fc.assert(fc.property(batch, (events) => drain(contentType.routemaster, bodyOf('routemaster', events)) === 204))
  })

  test('the url and what it has beside it are copied as they are', () => {
    const event = logged(`{"data": {"b":1.0, "a":1E2} , "url":"https:\\/\\/shop.example\\/\\u0031"}`)
    expect(renderEvent('routemaster', event)).toContain(
      `"url":"https:\\/\\/shop.example\\/\\u0031","t":${t},"data":{"b":1.0, "a":1E2}}`,
    )
  })
})

test('a router gets past what no one could have published', () => {
  const broken = ['{"url":', '', 'nonsense', '{"url":"x"}}'].flatMap((json) => [
    logged(json),
    logged(json, { time: -1e300, tenant: '\ud800' }),
  ])
  for (const format of formats) for (const event of broken) expect(renderEvent(format, event)).toContain('{')
})

test('every text of JSON is rendered in every format', () => {
  fc.assert(fc.property(jsonText, (json) => formats.every((format) => JSON.parse(renderEvent(format, logged(json))))))
})
