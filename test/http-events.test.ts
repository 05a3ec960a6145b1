import { describe, expect, test } from 'vitest'
import { take } from './support/bus.ts'
import { eventually } from './support/eventually.ts'
import { testDoor } from './support/http.ts'

describe('POST /v1/events with one event', () => {
  test('answers 201 with id, seq, prev and duplicate; the event can be read back', async () => {
    const { post, get } = await testDoor()
    const first = await post('{"type":"order.placed","data":{"eur":12},"tenant":"acme","key":"order:42","trace":"t-1"}')
    expect(first.status).toBe(201)
    expect(first.json).toEqual({
      id: expect.stringMatching(/^\d+-\d+$/),
      seq: expect.any(Number),
      prev: null,
      duplicate: false,
    })
    expect(first.headers.get('location')).toBe(`/v1/events/${first.json.id}`)
    const second = await post('{"type":"order.paid","tenant":"acme","key":"order:42","time":1700000000000}')
    expect(second.json.prev).toBe(first.json.seq)

    const read = await get(second.headers.get('location')!)
    expect(read.status).toBe(200)
    expect(read.headers.get('content-type')).toBe('application/json')
    expect(read.json).toEqual({
      id: second.json.id,
      seq: second.json.seq,
      prev: first.json.seq,
      type: 'order.paid',
      tenant: 'acme',
      key: 'order:42',
      time: 1_700_000_000_000,
      data: null,
    })
    expect((await get(`/v1/events/${first.json.id}`)).json).toMatchObject({ trace: 't-1', data: { eur: 12 } })
  })

  test('null for key and time counts as absent', async () => {
    const { post, bus } = await testDoor()
    const { json } = await post('{"type":"a.b","key":null,"time":null}')
    expect(await bus.log.get(json.id)).toMatchObject({
      tenant: 'default',
      key: null,
      time: Math.floor(json.seq / 1000),
    })
  })

  test('the same idempotency key: the first answer, marked; another body is refused', async () => {
    const { post, bus } = await testDoor()
    const body = (data: number) => `{"type":"a.b","key":"k","data":${data},"idempotencyKey":"once"}`
    const { json: first } = await post(body(1))
    expect((await post(body(1))).json).toEqual({ ...first, duplicate: true })
    expect(await post(body(2))).toMatchObject({ status: 409, json: { code: 'IDEMPOTENCY_KEY_REUSED' } })
    expect(await bus.topics()).toEqual(new Map([['a', 1]]))
  })

  test('[P20] delay or at: 202 with when it is due; visible then; not in an array', async () => {
    const { post, bus } = await testDoor()
    await bus.run({ signals: false })
    const at = Date.now() + 1_000
    const delayed = await post(`{"type":"a.b","key":"k","data":1,"at":${at},"idempotencyKey":"once"}`)
    expect(delayed).toMatchObject({ status: 202, json: { due: at, duplicate: false } })
    expect(delayed.headers.get('location')).toBeNull()
    expect(await post('{"type":"a.b","key":"k","data":1,"delay":"1h","idempotencyKey":"once"}')).toMatchObject({
      status: 202,
      json: { ...delayed.json, duplicate: true },
    })
    expect(await bus.log.history('k')).toEqual([])
    await eventually(async () => (await bus.log.history('k')).length === 1)
    for (const body of ['{"type":"a.b","delay":"soon"}', '{"type":"a.b","delay":1,"key":"k","expectPrev":null}'])
      expect(await post(body)).toMatchObject({ status: 400, json: { code: 'EVENT_INVALID' } })
    expect((await post('[{"type":"a.b","delay":1}]')).json).toMatchObject([{ code: 'EVENT_INVALID', field: 'delay' }])
  })

  test('expectPrev: a conflict carries the real head as a member', async () => {
    const { post } = await testDoor()
    const { json: first } = await post('{"type":"a.b","key":"k","expectPrev":null}')
    const refused = await post('{"type":"a.b","key":"k","expectPrev":null}')
    expect(refused.status).toBe(409)
    expect(refused.json).toMatchObject({ code: 'CONFLICT', expectPrev: null, head: first.seq, retryable: false })
    expect((await post(`{"type":"a.b","key":"k","expectPrev":${first.seq}}`)).status).toBe(201)
  })
})

describe('POST /v1/events with an array', () => {
  test('answers 200 with one answer per event, in order; one that is wrong fails alone and names its place', async () => {
    const { post, bus } = await testDoor()
    const { status, json } = await post(`[
      {"type":"a.b","key":"k"},
      {"type":"a b"},
      {"type":"a.b","key":"k","tpye":1},
      7,
      {"type":"a.b","key":"k","type":"a.c"},
      {"type":"a.b","key":"k","data":1e400},
      {"type":"a.c","key":"k"}
    ]`)
    expect(status).toBe(200)
    const invalid = { status: 400, code: 'EVENT_INVALID', retryable: false }
    expect(json).toMatchObject([
      { prev: null, duplicate: false },
      { ...invalid, field: 'type', index: 1 },
      { ...invalid, field: 'tpye', index: 2, detail: expect.stringContaining('did you mean "type"?') },
      { status: 400, code: 'BODY_INVALID', index: 3 },
      { ...invalid, field: 'type', index: 4, detail: expect.stringContaining('once') },
      { status: 400, code: 'DATA_UNSERIALISABLE', field: 'data', index: 5 },
      { prev: json[0].seq, duplicate: false },
    ])
    expect((await bus.log.history('k')).map(({ type }) => type)).toEqual(['a.b', 'a.c'])
  })

  test('all wrong: every one is answered, nothing is stored', async () => {
    const { post, bus } = await testDoor()
    const { status, json } = await post('[{"type":""},{"data":1},null]')
    expect(status).toBe(200)
    expect(json.map(({ code, index }: { code: string; index: number }) => [index, code])).toEqual([
      [0, 'EVENT_INVALID'],
      [1, 'EVENT_INVALID'],
      [2, 'BODY_INVALID'],
    ])
    expect(await bus.topics()).toEqual(new Map())
  })

  test('1,000 events in one request', async () => {
    const { post, bus } = await testDoor()
    const events = Array.from({ length: 1_000 }, (_, i) => ({ type: 'a.b', key: 'k', data: i }))
    const { status, json } = await post(JSON.stringify(events))
    expect(status).toBe(200)
    expect(json).toHaveLength(1_000)
    for (let i = 1; i < 1_000; i += 1) expect(json[i].prev).toBe(json[i - 1].seq)
    expect((await bus.topics()).get('a')).toBe(1_000)
  })
})

describe('data', () => {
  const deep = 5_000
  const payloads = {
    'big numbers': '[12345678901234567890,0.1000,1E2,-0.0,1e-400,123456789012345678901234567890.5]',
    'key order, repeated and odd names': '{"b":1,"a":2,"10":3,"2":4,"a":5,"__proto__":{"x":1},"constructor":null,"":0}',
    'space inside': '{ "a" :  [ 1,\t2 ,\n  3 ] }',
    escapes: '"\\u0041\\/\\n\\ud83d\\ude00\\u0000\\u2028"',
    'half a surrogate pair, escaped': '"\\ud800"',
    'any Unicode': '"é ✓ 😀 \u2028 \u202e עברית \ufeff \uffff \u{10ffff}"',
    'deep nesting': `${'[{"a":'.repeat(deep)}1${'}]'.repeat(deep)}`,
    'a bare string with the end of a frame': '"data: \\n\\n: event: gap"',
    'true, false, null': '[true,false,null]',
  }

  test.each(Object.entries(payloads))('[P11] %s: byte-equal for every consumer', async (_name, data) => {
    const { post, get, live, bus } = await testDoor()
    const sse = await live('match=a.>')
    const reader = bus.live('a.>')
    await reader.ready()
    const { status, json } = await post(` {"key":"k", "data" : ${data} ,"type":"a.one"}`)
    expect(status).toBe(201)
    const [other] = (await post(`[{"data":${data}\n,"type":"a.two"}]`)).json
    for (const id of [json.id, other.id]) {
      expect((await bus.log.get(id))!.json).toBe(data)
      expect((await get(`/v1/events/${id}`)).text).toMatch(endOf(data))
    }
    const events = await take(reader, 2)
    expect(events.map((event) => event.json)).toEqual([data, data])
    await expect.poll(() => sse.events.length).toBe(2)
    for (const { data: text } of sse.frames.filter((frame) => frame.data)) expect(text).toMatch(endOf(data))
  })

  /** An event's text ends with its data. */
  const endOf = (data: string) =>
    ({
      [Symbol.match]: (text: string) => (text.endsWith(`,"data":${data}}`) ? [text] : null),
    }) as unknown as RegExp

  test('a carriage return between tokens is stored as it is; a stream delivers it as a line feed', async () => {
    const { post, get, live } = await testDoor()
    const sse = await live('match=a.b')
    const { json } = await post('{"type":"a.b","data":[1,\r\n2]}')
    expect((await get(`/v1/events/${json.id}`)).text).toContain('[1,\r\n2]')
    await expect.poll(() => sse.events.length).toBe(1)
    expect(sse.frames.at(-1)!.data).toContain('[1,\n2]')
  })
})

describe('GET', () => {
  test('an id that nobody has, and what cannot be one', async () => {
    const { get } = await testDoor()
    expect(await get('/v1/events/3-1700000000000000')).toMatchObject({ status: 404, json: { code: 'EVENT_NOT_FOUND' } })
    for (const id of ['banana', '1', '-1', '1-', '01-5', '1-0', '9'.repeat(90), '%00', '1-2%0a', '..%2f']) {
      const { status, json } = await get(`/v1/events/${id}`)
      expect([id, status, json.code]).toEqual([id, 400, 'PARAMETER_INVALID'])
    }
    expect(await get('/v1/events/%zz')).toMatchObject({ status: 400, json: { code: 'PARAMETER_INVALID' } })
    expect(await get(`/v1/events/${'9'.repeat(2_000)}`)).toMatchObject({
      status: 400,
      json: { code: 'PARAMETER_INVALID' },
    })
  })

  test('/v1/topics lists every topic with its count, whatever it is called', async () => {
    const { post, get } = await testDoor()
    await post('[{"type":"order.paid"},{"type":"order.paid"},{"type":"__proto__.x"},{"type":"constructor"}]')
    expect((await get('/v1/topics')).json).toEqual({
      topics: [
        { topic: '__proto__', events: 1 },
        { topic: 'constructor', events: 1 },
        { topic: 'order', events: 2 },
      ],
    })
  })
})
