/** busbar/client: receivers in every kind of server, over real HTTP, and what they do with what comes. */
import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { createServer, type RequestListener } from 'node:http'
import { connect } from 'node:net'
import { setImmediate } from 'node:timers/promises'
import { build } from 'esbuild'
import fc from 'fast-check'
import Fastify from 'fastify'
import { describe, expect, onTestFinished, test } from 'vitest'
import { memoryOrder, memorySeen } from '../src/client/memory.ts'
import {
  BusbarError,
  type Event,
  type NodeRequest,
  type ReceiveHandler,
  type ReceiverOptions,
  receiver,
  type SeenStore,
} from '../src/client.ts'
import { formats } from '../src/sinks/webhook/format.ts'
import { newSecret, publicKeyOf, signedHeaders } from '../src/webhook-signature.ts'
import { eventually } from './support/eventually.ts'
import { jsonText } from './support/json-texts.ts'
import {
  batchOf,
  post,
  readAnswer,
  requestOf,
  secret,
  type WebhookAnswer,
  type WebhookRequest,
} from './support/webhooks.ts'

// biome-ignore lint/suspicious/noExplicitAny: its types are a package of their own.
const { default: express } = (await import('express' as string)) as any

const quiet = () => undefined
const receiverOf = (options: Partial<ReceiverOptions> = {}) => receiver({ secret, onError: quiet, ...options })
type Receiver = ReturnType<typeof receiverOf>

/** Posts to a receiver in some kind of server. */
type Post = (request: Pick<WebhookRequest, 'headers' | 'body'>) => Promise<WebhookAnswer>

async function listen(listener: RequestListener): Promise<string> {
  const server = createServer(listener).listen(0, '127.0.0.1')
  onTestFinished(() => {
    server.closeAllConnections()
    server.close()
  })
  await once(server, 'listening')
  return `http://127.0.0.1:${(server.address() as { port: number }).port}/hook`
}

const overHttp = async (listener: RequestListener): Promise<Post> => {
  const url = await listen(listener)
  return (request) => post(url, request)
}

const servers: [string, (receive: Receiver, handler: ReceiveHandler) => Promise<Post>][] = [
  ['node:http', (receive, handler) => overHttp(receive.node(handler))],
  ['Express', (receive, handler) => overHttp(express().post('/hook', receive.node(handler)))],
  [
    'Express, the body read before as bytes',
    (receive, handler) =>
      overHttp(express().post('/hook', express.raw({ type: () => true, limit: '9mb' }), receive.node(handler))),
  ],
  [
    'Express, the body read before as a text',
    (receive, handler) =>
      overHttp(express().post('/hook', express.text({ type: () => true, limit: '9mb' }), receive.node(handler))),
  ],
  [
    'Express, after a parser that was not meant',
    (receive, handler) =>
      overHttp(
        express()
          .use(express.urlencoded({ extended: true }))
          .post('/hook', receive.node(handler)),
      ),
  ],
  [
    'Fastify',
    async (receive, handler) => {
      const app = Fastify()
      app.register(receive.fastify('/hook', handler))
      app.post('/other', async ({ body }) => ({ parsed: body }))
      const url = await app.listen({ host: '127.0.0.1', port: 0 })
      onTestFinished(() => app.close())
      return (request) => post(`${url}/hook`, request)
    },
  ],
  [
    'Web',
    async (receive, handler) => {
      const answer = receive.web(handler)
      return async ({ headers, body }) =>
        readAnswer(await answer(new Request('http://shop.example/hook', { method: 'POST', headers, body })))
    },
  ],
  [
    'by hand',
    async (receive, handler) => async (request) => {
      const { status, headers, body } = await receive.answer(request.headers, request.body, handler)
      return readAnswer(new Response(body === '' ? null : body, { status, headers }))
    },
  ],
]

/** A receiver, what its handler was called with, and what to do with the next events. */
async function received(serve: (typeof servers)[number][1], options: Partial<ReceiverOptions> = {}) {
  const events: Event[] = []
  const failing = new Set<number>()
  const send = await serve(receiverOf(options), async (event) => {
    await setImmediate()
    if (failing.has(event.seq)) throw new Error('the database says no')
    events.push(event)
  })
  return { send, events, failing, seqs: () => events.map(({ seq }) => seq) }
}

describe.each(servers)('[W20] %s', (_, serve) => {
  test('a signed batch is handled event by event, and answered with 204', async () => {
    const { send, events } = await received(serve)
    const json = '{"b":12345678901234567890.10,"a":"ü€😀"}'
    const about = { key: 'order:42', trace: 'abc', time: 1_769_860_800_123 }
    const sent = batchOf([
      { seq: 20, prev: 10, json, ...about },
      { seq: 30, type: 'mail.sent' },
    ])
    expect(await send(sent)).toEqual({ status: 204, text: '', code: undefined })
    expect(events.map((event) => event.toText())).toEqual([
      `{"id":"3-20","seq":20,"prev":10,"type":"order.paid","tenant":"acme","key":"order:42","time":1769860800123,"trace":"abc","data":${json}}`,
      '{"id":"3-30","seq":30,"prev":null,"type":"mail.sent","tenant":"acme","key":"order:1","time":0,"data":null}',
    ])
    expect(events[0]).toMatchObject({ json, data: { a: 'ü€😀' } })
  })

  test('what is not signed by the secret is refused before it is looked at, and never handled', async () => {
    const { send, seqs } = await received(serve)
    const good = batchOf([{ seq: 1 }])
    const without = (name: string) => ({
      ...good,
      headers: Object.fromEntries(Object.entries(good.headers).filter(([is]) => is !== name)),
    })
    const refused: [string, Pick<WebhookRequest, 'headers' | 'body'>][] = [
      ['401 WEBHOOK_UNSIGNED', without('webhook-id')],
      ['401 WEBHOOK_UNSIGNED', without('webhook-timestamp')],
      ['401 WEBHOOK_UNSIGNED', without('webhook-signature')],
      ['401 WEBHOOK_SIGNATURE_REFUSED', { ...good, body: `${good.body} ` }],
      ['401 WEBHOOK_SIGNATURE_REFUSED', { ...good, headers: { ...good.headers, 'webhook-id': 'another' } }],
      ['401 WEBHOOK_SIGNATURE_REFUSED', batchOf([{ seq: 1 }], { secrets: [newSecret(randomBytes)] })],
      ['401 WEBHOOK_SIGNATURE_REFUSED', requestOf('{{{', { secrets: [newSecret(randomBytes)] })],
      ['401 WEBHOOK_TIMESTAMP_REFUSED', batchOf([{ seq: 1 }], { timestamp: Math.floor(Date.now() / 1_000) - 302 })],
      ['401 WEBHOOK_TIMESTAMP_REFUSED', batchOf([{ seq: 1 }], { timestamp: Math.floor(Date.now() / 1_000) + 302 })],
      ['415 MEDIA_TYPE_UNSUPPORTED', { ...good, headers: { ...good.headers, 'content-type': 'text/plain' } }],
      ['400 BODY_INVALID', requestOf('{"events":[')],
      ['400 BODY_INVALID', requestOf('7')],
    ]
    for (const [expected, request] of refused) {
      const { status, code, text } = await send(request)
      expect(`${status} ${code}`).toBe(expected)
      expect(JSON.parse(text)).toEqual({
        type: `urn:busbar:error:${code}`,
        ...{ title: expect.any(String), detail: expect.any(String), status, code, retryable: false },
      })
    }
    expect((await send(good)).status).toBe(204)
    expect(seqs()).toEqual([1])
  })

  test('a body over the limit is refused, however its length is said', async () => {
    const { send, seqs } = await received(serve, { maxBytes: '10kB' })
    const large = batchOf([{ seq: 1, json: `"${'x'.repeat(10_000)}"` }])
    expect(await send(large)).toMatchObject({ status: 413, code: 'BODY_TOO_LARGE' })
    expect((await send(batchOf([{ seq: 2, json: `"${'x'.repeat(9_000)}"` }]))).status).toBe(204)
    expect(seqs()).toEqual([2])
  })

  test('nothing is handled twice: the batch again, or its events in another one', async () => {
    const { send, seqs } = await received(serve)
    const batch = batchOf([{ seq: 1 }, { seq: 2 }])
    for (let i = 0; i < 3; i += 1) expect((await send(batch)).status).toBe(204)
    expect((await send(batchOf([{ seq: 2 }, { seq: 3 }, { seq: 3 }]))).status).toBe(204)
    expect(seqs()).toEqual([1, 2, 3])
  })

  test('a handler that fails ends the batch; sent again it goes on there, and the sender is not told why', async () => {
    const { send, seqs, failing } = await received(serve)
    const batch = batchOf([{ seq: 1 }, { seq: 2 }, { seq: 3 }])
    failing.add(2)
    for (let i = 0; i < 2; i += 1) {
      const { status, code, text } = await send(batch)
      expect([status, code]).toEqual([500, 'WEBHOOK_NOT_HANDLED'])
      expect(JSON.parse(text)).toMatchObject({ retryable: true, detail: expect.stringContaining('event 3-2.') })
      expect(text).not.toContain('database')
      expect(seqs()).toEqual([1])
    }
    failing.clear()
    expect((await send(batch)).status).toBe(204)
    expect(seqs()).toEqual([1, 2, 3])
  })
})

describe('[W20] node:http', () => {
  /** Sends a head and chunks over a bare socket; what has come back so far, and whether it was cut. */
  function bare(url: string, head: string[], chunks: readonly string[]) {
    const socket = connect(Number(new URL(url).port), '127.0.0.1')
    onTestFinished(() => void socket.destroy())
    const back = { text: '', isCut: false }
    socket.on('error', quiet)
    socket.once('close', () => {
      back.isCut = true
    })
    socket.on('data', (data) => {
      back.text += data
    })
    socket.write(`${['POST /hook HTTP/1.1', 'host: shop', ...head].join('\r\n')}\r\n\r\n`)
    for (const chunk of chunks) socket.write(chunk)
    return back
  }

  test('a body that never ends is refused as soon as it is too large, and cut when it goes on', async () => {
    const url = await listen(receiverOf({ maxBytes: 1_000 }).node(quiet))
    const chunk = `1f4\r\n${'x'.repeat(500)}\r\n`
    const back = bare(url, ['transfer-encoding: chunked'], [chunk, chunk, chunk, chunk])
    await eventually(() => back.text.startsWith('HTTP/1.1 413') && back.text.includes('BODY_TOO_LARGE'))
    await eventually(() => back.isCut)
  })

  test('a length over the limit is refused before anything comes', async () => {
    const url = await listen(receiverOf({ maxBytes: 1_000 }).node(quiet))
    const back = bare(url, ['content-length: 1001'], [])
    await eventually(() => back.text.includes('BODY_TOO_LARGE'))
  })

  test('whoever sends far too much can still read the answer', async () => {
    const url = await listen(receiverOf({ maxBytes: 1_000 }).node(quiet))
    const body = 'x'.repeat(16 * 1024 * 1024)
    expect(await post(url, { headers: {}, body })).toMatchObject({ status: 413, code: 'BODY_TOO_LARGE' })
  })

  test('who goes away in the middle is not heard of any more', async () => {
    const errors: BusbarError[] = []
    const url = await listen(receiverOf({ onError: (error) => void errors.push(error) }).node(quiet))
    const socket = connect(Number(new URL(url).port), '127.0.0.1')
    socket.write('POST /hook HTTP/1.1\r\nhost: shop\r\ncontent-length: 100\r\n\r\nhalf')
    await once(socket, 'connect')
    await setImmediate()
    socket.destroy()
    expect((await post(url, batchOf([{ seq: 1 }]))).status).toBe(204)
    expect(errors).toEqual([])
  })

  test('an onError that throws, at once or later, ends nothing and changes no answer', async () => {
    const warned: string[] = []
    const hear = ({ message }: Error) => void (message.startsWith('onError threw') && warned.push(message))
    process.on('warning', hear)
    onTestFinished(() => void process.off('warning', hear))
    const throws = () => {
      throw new Error('at once')
    }
    const rejects = async () => throws()
    for (const onError of [throws, rejects]) {
      const url = await listen(receiverOf({ onError }).node(quiet))
      expect(await post(url, { headers: {}, body: '{}' })).toMatchObject({ status: 415 })
    }
    await eventually(() => warned.length === 2)
  })

  test('only POST', async () => {
    const url = await listen(receiverOf().node(quiet))
    const answer = await readAnswer(await fetch(`${url}?secret=1`))
    expect(answer).toMatchObject({ status: 404, code: 'ROUTE_NOT_FOUND', text: expect.stringContaining('GET /hook.') })
    const web = receiverOf().web(quiet)
    expect((await web(new Request('http://shop.example/hook'))).status).toBe(404)
  })

  test('who parses the body before is told what to do', async () => {
    const errors: BusbarError[] = []
    const receive = receiverOf({ onError: (error) => void errors.push(error) })
    const url = await listen(express().use(express.json()).post('/hook', receive.node(quiet)))
    expect(await post(url, batchOf([{ seq: 1 }]))).toMatchObject({ status: 500, code: 'BODY_ALREADY_READ' })
    expect(errors[0]!.message).toContain('Put the receiver before express.json()')
    // Unless that one has kept the bytes.
    const verify = (request: NodeRequest, _: unknown, bytes: Buffer) => {
      request.rawBody = bytes
    }
    const kept = await listen(express().use(express.json({ verify })).post('/hook', receive.node(quiet)))
    expect((await post(kept, batchOf([{ seq: 1 }]))).status).toBe(204)
    const request = new Request('http://shop.example/hook', { method: 'POST', ...batchOf([{ seq: 1 }]) })
    await request.text()
    expect(await readAnswer(await receive.web(quiet)(request))).toMatchObject({
      status: 500,
      code: 'BODY_ALREADY_READ',
    })
  })
})

describe('[W20] Fastify', () => {
  test('the routes around it parse their bodies as before', async () => {
    const app = Fastify()
    app.register(receiverOf().fastify('/hook', quiet), { prefix: '/v1' })
    app.post('/other', async ({ body }) => ({ parsed: body }))
    onTestFinished(() => app.close())
    const url = await app.listen({ host: '127.0.0.1', port: 0 })
    expect((await post(`${url}/v1/hook`, batchOf([{ seq: 1 }]))).status).toBe(204)
    const other = await fetch(`${url}/other`, {
      ...{ method: 'POST', headers: { 'content-type': 'application/json' }, body: '{"a":1}' },
    })
    expect(await other.json()).toEqual({ parsed: { a: 1 } })
  })

  test('a post without a body is an unsigned one', async () => {
    const app = Fastify()
    app.register(receiverOf().fastify('/hook', quiet))
    onTestFinished(() => app.close())
    const url = await app.listen({ host: '127.0.0.1', port: 0 })
    const headers = { 'content-type': 'application/json' }
    expect(await readAnswer(await fetch(`${url}/hook`, { method: 'POST', headers }))).toMatchObject({
      code: 'WEBHOOK_UNSIGNED',
    })
    expect(await readAnswer(await fetch(`${url}/hook`, { method: 'POST' }))).toMatchObject({
      code: 'MEDIA_TYPE_UNSUPPORTED',
    })
  })
})

/** Sends straight to a receiver. */
const sender =
  (receive: Receiver, handler: ReceiveHandler): Post =>
  async (request) => {
    const { status, headers, body } = await receive.answer(request.headers, request.body, handler)
    return readAnswer(new Response(body === '' ? null : body, { status, headers }))
  }

describe('[W20] [W18] formats', () => {
  test.each(formats)('%s: read as it is sent, with the data as it was published', (format) =>
    fc.assert(
      fc.asyncProperty(fc.array(jsonText, { minLength: 1, maxLength: 4 }), async (jsons) => {
        const receive = receiverOf()
        const texts = format === 'routemaster' ? jsons.map((json) => `{"it":${json}}`) : jsons
        const { headers, body, id } = batchOf(
          texts.map((json, n) => ({ seq: n + 1, json })),
          { format },
        )
        const batch = await receive.verify(headers, body)
        expect(batch).toMatchObject({ id, format, subscription: format === 'busbar' ? 'acme-erp' : null })
        expect(batch.events.map(({ json }) => json)).toEqual(texts)
      }),
    ),
  )

  test('cloudevents-batch: the event as it was published, its seq and prev too', async () => {
    const about = { key: 'order:42', trace: 'abc', time: 1_769_860_800_123 }
    const events = [
      { seq: 1_794_823_913_522_017, prev: 1_794_823_913_522_016, json: '{"total":42}', ...about },
      { seq: 5 },
    ]
    const { headers, body } = batchOf(events, { format: 'cloudevents-batch' })
    const plain = batchOf(events)
    const read = await receiverOf().verify(headers, body)
    expect(read.events).toHaveLength(2)
    expect(read.events.map((event) => event.toText())).toEqual(
      (await receiverOf().verify(plain.headers, plain.body)).events.map((event) => event.toText()),
    )
  })

  test('routemaster: topic and type together, the url as the key; known by its batch, as it has no id', async () => {
    const seen: Event[] = []
    const failing = new Set(['https://shop.example/2'])
    const send = sender(receiverOf({ order: 'monotone' }), (event) => {
      if (failing.has(event.key!)) throw new Error('no')
      seen.push(event)
    })
    const data = (n: number) => `{"url":"https://shop.example/${n}","data":{"n":${n}}}`
    const events = [1, 2].map((n) => ({ seq: 10 + n, time: 5, type: 'order.create', json: data(n) }))
    const batch = batchOf(events, { format: 'routemaster', id: 'batch-1' })
    expect((await send(batch)).code).toBe('WEBHOOK_NOT_HANDLED')
    failing.clear()
    for (let i = 0; i < 2; i += 1) expect((await send(batch)).status).toBe(204)
    expect(seen.map((event) => event.toText())).toEqual([
      '{"id":"batch-1.0","seq":0,"prev":null,"type":"order.create","tenant":"default","key":"https://shop.example/1","time":5,"data":{"n":1}}',
      '{"id":"batch-1.1","seq":0,"prev":null,"type":"order.create","tenant":"default","key":"https://shop.example/2","time":5,"data":{"n":2}}',
    ])
    // Another batch is another delivery, whatever is in it.
    expect((await send(batchOf(events, { format: 'routemaster' }))).status).toBe(204)
    expect(seen).toHaveLength(4)
  })

  test('what has no place in the log is handled, and again in another batch', async () => {
    const ids: string[] = []
    const send = sender(receiverOf({ order: 'monotone' }), ({ id }) => void ids.push(id))
    const test =
      '{"subscription":"s","events":[{"id":"test","seq":0,"prev":null,"type":"busbar.test","tenant":"acme","key":"k","time":5,"data":1}]}'
    const batch = requestOf(test)
    for (const request of [batch, batch, requestOf(test)]) expect((await send(request)).status).toBe(204)
    const foreign = '[{"specversion":"1.0","id":"a/b","source":"/x","type":"t","data":1,"unknown":[[]]}]'
    expect((await send(requestOf(foreign, { type: 'application/cloudevents-batch+json' }))).status).toBe(204)
    expect(ids).toEqual(['test', 'test', 'a/b'])
  })

  test('a body that is none of them: what is wrong, and where', async () => {
    const event = (change: object) =>
      JSON.stringify({
        events: [{ ...{ id: '3-1', seq: 1, prev: null, type: 'a.b', tenant: 'acme', key: null, time: 5 }, ...change }],
      })
    const cases: [string, RegExp, string?][] = [
      ['', /must be an array of events/],
      ['{"events":[}', /is not JSON: unexpected "}" at character 12\./],
      ['{}', /has no "events"/],
      ['{"events":7}', /must be an array of events/],
      ['{"events":[7]}', /must hold event objects only; number 1 is none/],
      ['[[]]', /must hold event objects only; number 1 is none/],
      [event({ id: 7 }), /has a wrong event, number 1: "id" must be a text/],
      [event({ id: '3-"' }), /"id" must be a text/],
      [event({ seq: '1' }), /"seq" must be a whole number/],
      [event({ seq: -1 }), /"seq" must be a whole number/],
      [event({ seq: 2 }), /"seq" must be the number in its id/],
      [event({ prev: [[]] }), /"prev" must be a whole number/],
      [event({ type: '' }), /"type" must be a text/],
      [event({ tenant: null }), /"tenant" must be a text/],
      [event({ key: {} }), /"key" must be a text/],
      ['[{"topic":"order","url":"x","t":1}]', /"type" must be a text/],
      [
        '[{"id":"3-1","type":"a.b","busbarseq":"x"}]',
        /"busbarseq" must be digits/,
        'application/cloudevents-batch+json',
      ],
      ['{"events":[]}', /must be an array of events/, 'application/cloudevents-batch+json'],
    ]
    for (const [body, says, type = 'application/json'] of cases) {
      const { headers } = requestOf(body, { type })
      const error = await receiverOf()
        .verify(headers, body)
        .catch((caught) => caught)
      expect([body, error.code]).toEqual([body, 'BODY_INVALID'])
      expect(error.message).toMatch(says)
    }
    const bytes = Buffer.from([0x22, 0xff, 0x22])
    const timestamp = Math.floor(Date.now() / 1_000)
    const headers = {
      'content-type': 'application/json',
      ...signedHeaders({ id: 'b', timestamp, body: bytes }, [secret]),
    }
    expect(
      await receiverOf()
        .verify(headers, bytes)
        .catch(({ message }) => message),
    ).toBe('The request body is not UTF-8.')
  })
})

describe('[W20] secrets and time', () => {
  const one = () => batchOf([{ seq: 1 }])
  const codeOf = async (options: Partial<ReceiverOptions>, request: WebhookRequest) =>
    (await sender(receiverOf(options), quiet)(request)).code ?? 'handled'

  test('several secrets: what one of them has signed is taken', async () => {
    const [old, next] = [newSecret(randomBytes), newSecret(randomBytes)]
    const rotated = { secret: [next, old] }
    for (const secrets of [[old], [next], [next, old]])
      expect(await codeOf(rotated, batchOf([{ seq: 1 }], { secrets }))).toBe('handled')
    expect(await codeOf(rotated, one())).toBe('WEBHOOK_SIGNATURE_REFUSED')
  })

  test('a public key', async () => {
    const key = newSecret(randomBytes, 'whsk_')
    const request = batchOf([{ seq: 1 }], { secrets: [newSecret(randomBytes), key] })
    expect(await codeOf({ secret: publicKeyOf(key) }, request)).toBe('handled')
    expect(await codeOf({ secret: publicKeyOf(key) }, one())).toBe('WEBHOOK_SIGNATURE_REFUSED')
  })

  test('a tolerance of its own', async () => {
    const hourAgo = batchOf([{ seq: 1 }], { timestamp: Math.floor(Date.now() / 1_000) - 3_600 })
    expect(await codeOf({ tolerance: '2h' }, hourAgo)).toBe('handled')
    expect(await codeOf({ tolerance: '30m' }, hourAgo)).toBe('WEBHOOK_TIMESTAMP_REFUSED')
  })

  test('headers of any server: by name in any case, in a list, or asked for', async () => {
    const { headers, body } = one()
    const shouted = Object.fromEntries(Object.entries(headers).map(([name, value]) => [name.toUpperCase(), value]))
    const listed = Object.fromEntries(Object.entries(headers).map(([name, value]) => [name, [value]]))
    for (const given of [headers, shouted, listed, new Headers(headers)])
      expect((await receiverOf().verify(given, body)).events).toHaveLength(1)
    for (const given of [body, Buffer.from(body), new Uint8Array(Buffer.from(body))])
      expect((await receiverOf().verify(headers, given)).events).toHaveLength(1)
  })
})

describe('[W20] order', () => {
  const chain = [{ seq: 10 }, { seq: 20, prev: 10 }, { seq: 30, prev: 20 }]

  async function guarded(options: Partial<ReceiverOptions>) {
    const handled: string[] = []
    const receive = receiverOf(options)
    const send = sender(receive, ({ seq }, { isFork }) => void handled.push(`${isFork ? 'fork ' : ''}${seq}`))
    return { handled, send: (events: Parameters<typeof batchOf>[0]) => send(batchOf(events)) }
  }

  test('unless asked for, everything is handled as it comes', async () => {
    const { handled, send } = await guarded({})
    for (const n of [2, 0, 1]) expect((await send([chain[n]!])).status).toBe(204)
    expect(handled).toEqual(['30', '10', '20'])
  })

  test('monotone: what is older than the last one of its object is passed over; other objects are not touched', async () => {
    const { handled, send } = await guarded({ order: 'monotone' })
    expect((await send([chain[0]!, chain[2]!])).status).toBe(204)
    expect((await send([chain[1]!, { seq: 15, key: 'order:2' }, { seq: 12, tenant: 'globex' }])).status).toBe(204)
    expect((await send([{ seq: 40, prev: 20 }])).status).toBe(204)
    expect(handled).toEqual(['10', '30', '15', '12', 'fork 40'])
  })

  test('strict: one that comes too early is not handled, and is when the one before it was', async () => {
    const order = { mode: 'strict', store: memoryOrder(), maxWait: 0 } as const
    const { handled, send } = await guarded({ order })
    expect((await send([chain[0]!])).status).toBe(204)
    expect(await send([chain[2]!])).toMatchObject({ status: 503, code: 'WEBHOOK_TOO_EARLY' })
    expect((await send([chain[1]!, chain[2]!])).status).toBe(204)
    expect(handled).toEqual(['10', '20', '30'])
  })
})

describe('[W20] what was handled', () => {
  function slow() {
    const started: number[] = []
    const ends = new Map<number, () => void>()
    const handler: ReceiveHandler = ({ seq }) => {
      started.push(seq)
      return new Promise<void>((resolve) => ends.set(seq, resolve))
    }
    return { started, handler, end: (seq: number) => ends.get(seq)!() }
  }

  test('a batch that is sent again while it is in hand: each event once, in order, and both are answered', async () => {
    const { started, handler, end } = slow()
    const send = sender(receiverOf(), handler)
    const batch = batchOf([{ seq: 1 }, { seq: 2 }])
    const answers = [send(batch), send(batch), send(batchOf([{ seq: 2 }]))]
    await eventually(() => started.length === 2)
    expect(started).toEqual([1, 2])
    end(1)
    end(2)
    for (const answer of await Promise.all(answers)) expect(answer.status).toBe(204)
    expect(started).toEqual([1, 2])
  })

  test('a store of your own is asked first, and told after each event; a second receiver with it handles nothing again', async () => {
    const calls: string[] = []
    const ids = new Set<string>()
    const seen: SeenStore = {
      async has(id) {
        await setImmediate()
        return ids.has(id)
      },
      async add(id) {
        calls.push(`add ${id}`)
        ids.add(id)
      },
    }
    const handler = ({ id }: Event) => void calls.push(`handle ${id}`)
    const batch = batchOf([{ seq: 1 }, { seq: 2 }], { id: 'b1' })
    for (let i = 0; i < 2; i += 1) expect((await sender(receiverOf({ seen }), handler)(batch)).status).toBe(204)
    expect(calls).toEqual(['handle 3-1', 'add 3-1', 'handle 3-2', 'add 3-2', 'add b1'])
  })

  test('a store that fails: not handled, or handled again; never answered as if it was', async () => {
    const errors: BusbarError[] = []
    const answers: (boolean | Error)[] = []
    const seen: SeenStore = {
      has: () => false,
      add() {
        const answer = answers.shift()
        if (answer instanceof Error) throw answer
      },
    }
    const handled: number[] = []
    const onError = (error: BusbarError) => void errors.push(error)
    const send = sender(receiverOf({ seen, onError }), ({ seq }) => void handled.push(seq))
    const batch = batchOf([{ seq: 1 }])
    answers.push(new Error('gone'))
    expect(await send(batch)).toMatchObject({ status: 500, code: 'WEBHOOK_NOT_HANDLED' })
    answers.push(true, new Error('gone'))
    expect(await send(batch)).toMatchObject({ status: 500, code: 'WEBHOOK_NOT_HANDLED' })
    expect((await send(batch)).status).toBe(204)
    expect(handled).toEqual([1, 1, 1])
    expect(errors.map(({ message, cause }) => [message.split('.')[0], (cause as Error).message])).toEqual([
      ['The receiver failed at event 3-1', 'gone'],
      [`The receiver failed at batch ${batch.id}`, 'gone'],
    ])
  })

  test('memory holds so many ids and so long', () => {
    let now = 0
    const seen = memorySeen({ maxIds: 3, ttlMs: 100 }, () => now)
    const known = () => ['a', 'b', 'c', 'd'].filter((id) => seen.has(id)).join('')
    for (const id of ['a', 'b', 'c', 'a', 'd']) seen.add(id)
    expect(known()).toBe('acd')
    now = 99
    seen.add('b')
    expect(known()).toBe('abd')
    now = 100
    expect(known()).toBe('b')
  })

  test('bounds of its own are used', async () => {
    const handled: number[] = []
    const send = sender(receiverOf({ seen: { maxIds: 2 } }), ({ seq }) => void handled.push(seq))
    for (const seq of [1, 2, 3, 1]) expect((await send(batchOf([{ seq }]))).status).toBe(204)
    expect(handled).toEqual([1, 2, 3, 1])
  })

  test('memory of the order holds the objects that moved last', () => {
    const order = memoryOrder()
    for (let n = 0; n < 100_001; n += 1) order.save(`o${n}`, n)
    expect([order.last('o0'), order.last('o1'), order.last('o100000')]).toEqual([undefined, 1, 100_000])
  })
})

describe('[W20] errors', () => {
  test('what a handler throws is a warning of the process unless someone listens; what others send wrong is not', async () => {
    const warnings: (Error & { code?: string; detail?: string })[] = []
    const listener = (warning: Error) => void warnings.push(warning)
    process.on('warning', listener)
    onTestFinished(() => void process.off('warning', listener))
    const send = sender(receiver({ secret }), () => {
      throw new TypeError('total of undefined')
    })
    await send(requestOf('7'))
    await send({ ...batchOf([{ seq: 1 }]), body: '7' })
    await send(batchOf([{ seq: 1 }]))
    await eventually(() => warnings.length > 0)
    expect(warnings.map(({ code, detail }) => [code, detail?.split('\n')[0]])).toEqual([
      ['WEBHOOK_NOT_HANDLED', 'TypeError: total of undefined'],
    ])
  })

  test('options: everything that is wrong with them at once, and no secret in it', () => {
    const wrong = (options: unknown) => {
      try {
        receiver(options as ReceiverOptions)
      } catch (error) {
        return error instanceof BusbarError ? `${error.code}: ${error.message}` : String(error)
      }
      return 'taken'
    }
    expect(
      wrong({
        ...{
          secrets: secret,
          secret: 'hunter2',
          seen: { max: 5 },
          order: 'strict',
          tolerance: 'long',
          maxBytes: 0,
          onError: 7,
        },
      }),
    ).toBe(
      'SETTING_INVALID: 7 settings are not usable:\n' +
        '  - secrets is unknown (did you mean "secret"?)\n' +
        '  - secret must be "whsec_" and base64 of 24 to 64 bytes, or an ed25519 public key, "whpk_" and base64 of its 32 bytes; got another text of 7 characters\n' +
        '  - seen.max is unknown; there is maxIds, ttl\n' +
        "  - order must name a store that outlives the process to be strict, as in { mode: 'strict', store }\n" +
        '  - tolerance must be a duration like "250ms", "30s", "5m", "2h" or "7d", or a number of ms; got "long"\n' +
        '  - maxBytes must be more than 0\n' +
        '  - onError must be a function; got 7',
    )
    expect(wrong(undefined)).toContain('secret must be "whsec_"')
    expect(wrong({ secret: [] })).toContain('or a list of several; got an empty one')
    expect(wrong({ secret, seen: { maxIds: 0, ttl: 'x' } })).toMatch(/seen\.maxIds must be .*\n.*seen\.ttl must be/)
    expect(wrong({ secret, order: { mode: 'strict' } })).toContain('order.store must have last(object)')
    expect(wrong({ secret, order: 'yes' })).toContain(
      "order must be 'monotone', the options of an order guard, or false",
    )
    expect(() => receiver({ secret }).node(7 as never)).toThrow('Parameter "handler" must be a function')
  })
})

test('[W20] busbar/client loads nothing but itself and Node', async () => {
  const { metafile } = await build({
    ...{ entryPoints: ['src/client.ts'], bundle: true, write: false, metafile: true, platform: 'node', format: 'esm' },
  })
  const inputs = Object.keys(metafile.inputs)
  expect(inputs).toContain('src/order-guard.ts')
  expect(inputs.filter((file) => !file.startsWith('src/'))).toEqual([])
  expect(inputs.filter((file) => /^src\/(redis|runtime|http|log|route|lanes)\//.test(file))).toEqual([])
  const imported = Object.values(metafile.outputs).flatMap(({ imports }) => imports.map(({ path }) => path))
  expect(imported.filter((path) => !path.startsWith('node:'))).toEqual([])
})
