/** Receivers that do everything a receiver should not: each request ends in time, with what is right to say of it, and little is read. */
import { getEventListeners } from 'node:events'
import { connect as connectTcp, Socket } from 'node:net'
import { connect as connectTls, createServer as createTlsServer, type TLSSocket } from 'node:tls'
import { gzipSync } from 'node:zlib'
import { describe, expect, onTestFinished, test, vi } from 'vitest'
import { excerptOf, retryAfterMs } from '../../src/sinks/webhook/answer.ts'
import { Attempt } from '../../src/sinks/webhook/attempt.ts'
import type { Dial } from '../../src/sinks/webhook/dial.ts'
import type { Posted, PosterOptions } from '../../src/sinks/webhook/post.ts'
import { eventually } from '../support/eventually.ts'
import { selfSigned } from './certificate.ts'
import { ok, posterOf, type Receiver, receiver, recordingDial, requestTo, resolverOf, saying } from './receivers.ts'

/** Writes for as long as someone takes it. */
const endless = (start: string, piece: string | Buffer) => (socket: Socket) => {
  const more = () => {
    while (socket.writable && socket.write(piece));
  }
  socket.once('data', () => {
    socket.write(start)
    socket.on('drain', more)
    more()
  })
}

/** A character every 10 ms. */
const trickling = (start: string, rest: string) => (socket: Socket) => {
  socket.once('data', () => {
    socket.write(start)
    let at = 0
    const timer = setInterval(() => socket.write(rest[at++ % rest.length]!), 10)
    socket.once('close', () => clearInterval(timer))
  })
}

/** Hears all and says nothing. */
const mute = (socket: Socket) => socket.resume()

const shortly = 10_000

async function posted(speak: (socket: Socket) => void, times: Omit<PosterOptions, 'guard'> = {}) {
  const at = await receiver(speak)
  const startedAt = performance.now()
  const answer = await posterOf(times).post(requestTo(at.url))
  return { posted: answer, at, took: performance.now() - startedAt }
}

const failed = (problem: string) => ({ kind: 'failed', problem, tookMs: expect.any(Number) })
const answered = (status: number, excerpt: string | RegExp) => ({
  ...{ kind: 'answered', status, excerpt: excerpt instanceof RegExp ? expect.stringMatching(excerpt) : excerpt },
  ...{ retryAfterMs: undefined, tookMs: expect.any(Number) },
})

describe('an answer', () => {
  test('[W16] has status, time and excerpt; the request is what was given, byte for byte', async () => {
    const heard: string[] = []
    const at = await receiver((socket) =>
      socket.on('data', (data) => {
        heard.push(data.toString())
        socket.write(ok)
      }),
    )
    const headers = { 'content-type': 'application/json', 'webhook-id': 'batch_1', 'x-own': 'a b' }
    const body = '{"text":"grüße €"}'
    const answer = await posterOf().post({ url: `${at.url}?a=%20b#c`, headers, body })
    expect(answer).toEqual(answered(200, 'ok'))
    expect(answer.tookMs).toBeLessThan(shortly)
    const [head, sent] = heard.join('').split('\r\n\r\n')
    expect(sent).toBe(body)
    expect(head!.split('\r\n')).toEqual([
      ...['POST /hook?a=%20b HTTP/1.1', `host: 127.0.0.1:${at.port}`, 'connection: keep-alive'],
      ...[
        'content-type: application/json',
        'webhook-id: batch_1',
        'x-own: a b',
        `content-length: ${Buffer.byteLength(body)}`,
      ],
    ])
  })

  test.each([204, 301, 304, 307, 400, 404, 410, 429, 500, 503])('[W16] %i is just a status', async (status) => {
    const text = `HTTP/1.1 ${status} X\r\nlocation: /hook\r\ncontent-length: 0\r\n\r\n`
    const { posted: answer, at } = await posted(saying(text))
    expect(answer).toEqual(answered(status, ''))
    expect(at.accepted()).toBe(1)
  })

  test('[W16] Retry-After comes along, in ms from the time that was given', async () => {
    const date = 'Wed, 21 Oct 2026 07:28:00 GMT'
    const at = await receiver(saying(`HTTP/1.1 503 X\r\nretry-after: ${date}\r\ncontent-length: 0\r\n\r\n`))
    const poster = posterOf({ now: () => Date.parse(date) - 90_000 })
    expect(await poster.post(requestTo(at.url))).toMatchObject({ status: 503, retryAfterMs: 90_000 })
  })

  test('a connection is used again, and closed after some time without requests', async () => {
    const at = await receiver(saying(ok))
    const poster = posterOf({ keepAliveMs: 100 })
    for (let n = 0; n < 5; n += 1) expect(await poster.post(requestTo(at.url))).toMatchObject({ status: 200 })
    expect(at.accepted()).toBe(1)
    await eventually(() => at.open.size === 0 && poster.endpoints === 0)
  })
})

describe('receivers that never end', () => {
  const silent = failed('no answer within 0.4 s')
  const chunked = 'HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n'

  test.each<[string, (socket: Socket) => void, object]>([
    ['that say nothing', mute, silent],
    ['whose headers trickle', trickling('HTTP/1.1 200 OK\r\n', 'x-a: b\r\n'), silent],
    ['with an endless status line', endless('HTTP/1.1 200 ', 'O'.repeat(50_000)), silent],
  ])('[W16] %s are cut when the time is over', async (_, speak, expected) => {
    const { posted: answer, at, took } = await posted(speak, { totalMs: 400 })
    expect(answer).toEqual(expected)
    expect(took).toBeLessThan(shortly)
    await eventually(() => at.open.size === 0, { what: 'The connection being closed' })
  })

  test.each<[string, (socket: Socket) => void, object]>([
    ['whose body trickles', trickling('HTTP/1.1 202 OK\r\ncontent-length: 9999\r\n\r\n', 'a'), answered(202, /^a+$/)],
    ['with an endless chunk extension', endless(`${chunked}3;`, 'x'.repeat(50_000)), answered(200, /^$/)],
  ])('[W16] %s are cut when the time for the body is over, and have answered', async (_, speak, expected) => {
    const { posted: answer, at, took } = await posted(speak, { bodyMs: 200 })
    expect(answer).toEqual(expected)
    expect(took).toBeLessThan(shortly)
    await eventually(() => at.open.size === 0, { what: 'The connection being closed' })
  })

  test.each<[string, (socket: Socket) => void, object]>([
    [
      'with endless headers',
      endless('HTTP/1.1 200 OK\r\n', 'x-header: and one more\r\n'.repeat(2_000)),
      failed('headers of the answer too large'),
    ],
    [
      'with one endless header',
      endless('HTTP/1.1 200 OK\r\nx-a: ', 'a'.repeat(50_000)),
      failed('headers of the answer too large'),
    ],
    [
      'with endless interim answers',
      endless('', 'HTTP/1.1 103 Early Hints\r\nlink: a\r\n\r\n'.repeat(500)),
      failed('interim answers without end'),
    ],
    ['with an endless body', endless('HTTP/1.1 200 OK\r\n\r\n', 'b'.repeat(50_000)), answered(200, 'b'.repeat(1_000))],
    [
      'with endless chunks',
      endless('HTTP/1.1 500 X\r\ntransfer-encoding: chunked\r\n\r\n', '3\r\nccc\r\n'.repeat(1_000)),
      answered(500, 'c'.repeat(1_000)),
    ],
    [
      'with endless trailers',
      endless(
        'HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\nd\r\n0\r\n',
        'x-trailer: and one more\r\n'.repeat(2_000),
      ),
      answered(200, 'd'),
    ],
    [
      'with a body larger than all',
      endless('HTTP/1.1 200 OK\r\ncontent-length: 99999999999\r\n\r\n', 'e'.repeat(50_000)),
      answered(200, 'e'.repeat(1_000)),
    ],
  ])('[W16] %s are cut', async (_, speak, expected) => {
    const { posted: answer, at, took } = await posted(speak)
    expect(answer).toMatchObject(expected)
    expect(took).toBeLessThan(shortly)
    await eventually(() => at.open.size === 0, { what: 'The connection being closed' })
  })

  test('[W16] a gzip bomb is not unpacked', async () => {
    const bomb = gzipSync(Buffer.alloc(20_000_000))
    const head = `HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: ${bomb.length}\r\n\r\n`
    const before = process.memoryUsage()
    const { posted: answer } = await posted(saying(Buffer.concat([Buffer.from(head), bomb])))
    expect(answer).toEqual(answered(200, '(compressed)'))
    const after = process.memoryUsage()
    expect(after.heapUsed + after.external - before.heapUsed - before.external).toBeLessThan(10_000_000)
  })

  test('[W16] of 30 endless answers at once little is read, and nothing is left', async () => {
    let most = 0
    const speak = endless('HTTP/1.1 200 OK\r\n\r\n', Buffer.alloc(65_536, 'f'))
    const at = await receiver((socket) => {
      speak(socket)
      socket.on('close', () => (most = Math.max(most, socket.bytesWritten)))
    })
    const poster = posterOf({ connectionsPerEndpoint: 30 })
    const before = process.memoryUsage().rss
    const answers = await Promise.all(Array.from({ length: 30 }, () => poster.post(requestTo(at.url))))
    expect(new Set(answers.map((answer) => answer.kind === 'answered' && answer.status))).toEqual(new Set([200]))
    await eventually(() => at.open.size === 0 && poster.endpoints === 0)
    // What the kernel's buffers take, not what was read: some MB per connection.
    expect(most).toBeLessThan(20_000_000)
    expect(process.memoryUsage().rss - before).toBeLessThan(200_000_000)
  })

  test('[W16] 3xx in a circle: one request, and the answer is the status', async () => {
    let requests = 0
    const circle = await receiver((socket) =>
      socket.on('data', () => {
        requests += 1
        socket.write(`HTTP/1.1 307 X\r\nlocation: ${circle.url}\r\ncontent-length: 0\r\n\r\n`)
      }),
    )
    expect(await posterOf().post(requestTo(circle.url))).toEqual(answered(307, ''))
    expect(requests).toBe(1)
  })
})

describe('receivers that break', () => {
  const partly = 'HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\npart'

  test.each<[string, (socket: Socket) => void, object]>([
    ['reset at once', (socket) => socket.resetAndDestroy(), failed('connection reset')],
    [
      'reset after the request',
      (socket) => socket.once('data', () => socket.resetAndDestroy()),
      failed('connection reset'),
    ],
    [
      'close after the request',
      (socket) => socket.once('data', () => socket.end()),
      failed('connection closed without an answer'),
    ],
    [
      'close within the headers',
      (socket) => socket.once('data', () => socket.end('HTTP/1.1 200 OK\r\nx-a')),
      failed('connection closed without an answer'),
    ],
    [
      'reset within the body',
      (socket) => socket.once('data', () => socket.write(partly, () => setTimeout(() => socket.resetAndDestroy(), 20))),
      answered(200, 'part'),
    ],
    ['send less than they said', (socket) => socket.once('data', () => socket.end(partly)), answered(200, 'part')],
    [
      'send more than they said',
      saying('HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nokHTTP/1.1 500 X\r\n\r\n'),
      answered(200, 'ok'),
    ],
    [
      'say two lengths',
      saying('HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\nok'),
      failed('answer is not HTTP'),
    ],
    [
      'say a length and chunks',
      saying('HTTP/1.1 200 OK\r\ncontent-length: 2\r\ntransfer-encoding: chunked\r\n\r\nok'),
      failed('answer is not HTTP'),
    ],
    ['speak something else', saying('-ERR unknown command\r\n'), failed('answer is not HTTP')],
    ['speak first', (socket) => mute(socket).write('220 mail.example.com ESMTP\r\n'), { kind: 'failed' }],
    [
      'change the protocol',
      saying('HTTP/1.1 101 X\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n'),
      failed('connection closed without an answer'),
    ],
    ['say go on', saying('HTTP/1.1 100 Continue\r\n\r\n'), failed('connection closed without an answer')],
  ])('[W16] that %s', async (_, speak, expected) => {
    const { posted: answer, at, took } = await posted(speak)
    expect(answer).toMatchObject(expected)
    expect(took).toBeLessThan(shortly)
    await eventually(() => at.open.size === 0, { what: 'The connection being closed' })
  })

  test('[W16] that are not there', async () => {
    const poster = posterOf({}, { dial: recordingDial().dial })
    expect(await poster.post(requestTo('http://127.0.0.1:9999/'))).toEqual(failed('connection refused'))
  })

  test('[W16] that never come to be connected: on their way, their name looked up, or without a word of TLS', async () => {
    const connectMs = 300
    const sockets: Socket[] = []
    const never: Dial = () => {
      const socket = new Socket()
      sockets.push(socket)
      return socket
    }
    const nowhere = posterOf({ connectMs }, { dial: never })
    expect(await nowhere.post(requestTo('http://127.0.0.1:9999/'))).toEqual(failed('no connection within 0.3 s'))
    expect(sockets.map((socket) => socket.destroyed)).toEqual([true])
    const unnamed = posterOf({ connectMs }, { resolve: () => {} })
    const answer = await unnamed.post(requestTo('http://slow.example.com/'))
    expect(answer).toEqual(failed('name not resolved: no answer in time'))
    const silent = await receiver(mute)
    const secure = await posterOf({ connectMs }).post(requestTo(silent.url.replace('http', 'https')))
    expect(secure).toEqual(failed('no connection within 0.3 s'))
    await eventually(() => silent.open.size === 0)
  })

  test('[W16] that do not take the request', async () => {
    const at = await receiver((socket) => socket.pause())
    const answer = await posterOf({ totalMs: 400 }).post({ ...requestTo(at.url), body: 'x'.repeat(20_000_000) })
    expect(answer).toEqual(failed('no answer within 0.4 s'))
  })
})

describe('TLS', () => {
  const secureReceiver = (certificate: { key: string; cert: string }) =>
    receiver(saying(ok), createTlsServer({ ...certificate, rejectUnauthorized: false }))
  /** As the usual one, but this certificate is an authority too. */
  const trusting =
    (ca: string): Dial =>
    ({ address, port, servername }) =>
      connectTls({ host: address, port, servername, ca, rejectUnauthorized: true })
  const { resolve } = resolverOf(() => ['127.0.0.1'])

  test('[W16] certificates that are not to be trusted', async () => {
    const good = selfSigned('hooks.example.com')
    const expired = selfSigned('hooks.example.com', { untilMs: Date.now() - 1_000 })
    const url = (at: Receiver) => `https://hooks.example.com:${at.port}/`
    const self = await posterOf({}, { resolve }).post(requestTo(url(await secureReceiver(good))))
    expect(self).toEqual(failed('TLS: self-signed certificate'))
    const late = posterOf({}, { resolve, dial: trusting(expired.cert) })
    expect(await late.post(requestTo(url(await secureReceiver(expired))))).toEqual(
      failed('TLS: certificate has expired'),
    )
    const other = posterOf({}, { resolve, dial: trusting(good.cert) })
    const elsewhere = url(await secureReceiver(good)).replace('hooks', 'other')
    expect(await other.post(requestTo(elsewhere))).toEqual(failed('TLS: certificate is for another name'))
    const plain = await receiver(saying(ok))
    expect(await posterOf({}, { resolve }).post(requestTo(url(plain)))).toEqual(
      failed('TLS: no agreement with the receiver'),
    )
  })

  test('the environment cannot switch the check off', async () => {
    const at = await secureReceiver(selfSigned('hooks.example.com'))
    vi.stubEnv('NODE_TLS_REJECT_UNAUTHORIZED', '0')
    onTestFinished(() => void vi.unstubAllEnvs())
    const answer = await posterOf({}, { resolve }).post(requestTo(`https://hooks.example.com:${at.port}/`))
    expect(answer).toEqual(failed('TLS: self-signed certificate'))
  })

  test('the name in the URL is what TLS and the receiver are told, whatever address is dialled', async () => {
    const certificate = selfSigned('hooks.example.com')
    const heard: string[] = []
    const speak = (socket: Socket) =>
      void socket.on('data', (data) => {
        heard.push(
          String((socket as TLSSocket & { servername: string }).servername),
          /host: (.*)\r/.exec(data.toString())![1]!,
        )
        socket.write(ok)
      })
    const at = await receiver(speak, createTlsServer(certificate))
    const poster = posterOf({}, { resolve, dial: trusting(certificate.cert) })
    expect(await poster.post(requestTo(`https://hooks.example.com:${at.port}/`))).toEqual(answered(200, 'ok'))
    expect(heard).toEqual(['hooks.example.com', `hooks.example.com:${at.port}`])
  })
})

describe('connections', () => {
  /** Answers when told to. */
  async function patient(): Promise<Receiver & { requests: Socket[] }> {
    const requests: Socket[] = []
    const at = await receiver((socket) => socket.on('data', () => requests.push(socket)))
    return { ...at, requests }
  }

  test('at most so many to one endpoint; the others wait in line', async () => {
    const at = await patient()
    const poster = posterOf()
    const order: number[] = []
    const posts = Array.from({ length: 20 }, async (_, n) => {
      await poster.post(requestTo(at.url))
      order.push(n)
    })
    await eventually(() => at.requests.length === 8)
    for (let n = 0; n < 20; n += 1) {
      await eventually(() => at.requests.length > n)
      expect(at.open.size).toBeLessThanOrEqual(8)
      at.requests[n]!.write(ok)
    }
    await Promise.all(posts)
    expect(order.sort((a, b) => a - b)).toEqual(Array.from({ length: 20 }, (_, n) => n))
    expect(at.accepted()).toBe(8)
  })

  test('who waits in line for a connection waits no longer than for an answer', async () => {
    const limits = { totalMs: 50, bodyMs: 50, maxResponseBytes: 1, now: Date.now }
    const left: boolean[] = []
    const answer = await new Promise<Posted>((resolve) => {
      const attempt = new Attempt('/', requestTo('http://127.0.0.1/'), limits, resolve)
      attempt.waitsAt({ left: (_, isReusable) => left.push(isReusable) })
    })
    expect(answer).toEqual({ ...failed('no free connection within 0.05 s'), isUnsent: true })
    expect(left).toEqual([false])
  })

  test('the time that one was in line is not taken from its answer', async () => {
    const at = await receiver((socket) => socket.on('data', () => setTimeout(() => socket.write(ok), 250)))
    const poster = posterOf({ connectionsPerEndpoint: 1, totalMs: 400 })
    const answers = await Promise.all([1, 2].map(() => poster.post(requestTo(at.url))))
    expect(answers).toEqual(answers.map(() => answered(200, 'ok')))
    for (const { tookMs } of answers) expect(tookMs).toBeLessThan(400)
  })

  test('there are as many as a request asks for, from then on', async () => {
    const at = await receiver(mute)
    const poster = posterOf({ connectionsPerEndpoint: 1 })
    const posts = [1, 1, 3, 1, 1].map((connections) => poster.post({ ...requestTo(at.url), connections }))
    await eventually(() => at.open.size === 3)
    await poster.close()
    expect(await Promise.all(posts)).toHaveLength(5)
    expect(at.accepted()).toBe(3)
  })

  test('one whose request failed is not used again, and its place is free', async () => {
    let n = 0
    const at = await receiver((socket) => {
      n += 1
      if (n % 2 === 1) socket.once('data', () => socket.resetAndDestroy())
      else saying(ok)(socket)
    })
    const poster = posterOf({ connectionsPerEndpoint: 1 })
    const answers = await Promise.all([1, 2, 3].map(() => poster.post(requestTo(at.url))))
    expect(answers).toEqual([failed('connection reset'), answered(200, 'ok'), answered(200, 'ok')])
    expect(at.accepted()).toBe(2)
  })

  test('many that fail at once go on one after the other, never more than so many', async () => {
    let dialling = 0
    let most = 0
    const dial: Dial = () => {
      dialling += 1
      most = Math.max(most, dialling)
      const socket = new Socket()
      socket.on('close', () => (dialling -= 1))
      setImmediate(() => socket.destroy(Object.assign(new Error('no'), { code: 'ECONNREFUSED' })))
      return socket
    }
    const poster = posterOf({}, { dial })
    const answers = await Promise.all(
      Array.from({ length: 300 }, () => poster.post(requestTo('http://127.0.0.1:9999/'))),
    )
    expect(new Set(answers.map((answer) => answer.kind === 'failed' && answer.problem))).toEqual(
      new Set(['connection refused']),
    )
    expect(most).toBe(8)
    expect(poster.endpoints).toBe(0)
  })

  test('a receiver that closes after each answer is connected to anew', async () => {
    const at = await receiver((socket) =>
      socket.on('data', () => socket.end('HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok')),
    )
    const poster = posterOf({ connectionsPerEndpoint: 2 })
    const answers = await Promise.all(Array.from({ length: 20 }, () => poster.post(requestTo(at.url))))
    expect(answers).toEqual(answers.map(() => answered(200, 'ok')))
    expect(at.accepted()).toBe(20)
  })

  test('so many endpoints are kept, those used last; one with something under way is never closed', async () => {
    const at = await receiver(saying(ok))
    const hung = await patient()
    const { resolve } = resolverOf(() => ['127.0.0.1'])
    const poster = posterOf({ maxEndpoints: 3 }, { resolve })
    const url = (name: string, port = at.port) => `http://${name}.example.com:${port}/`
    const slow = poster.post(requestTo(url('slow', hung.port)))
    await eventually(() => hung.requests.length === 1)
    for (let n = 0; n < 50; n += 1) {
      expect(await poster.post(requestTo(url(`n${n}`)))).toMatchObject({ status: 200 })
      expect(await poster.post(requestTo(url('often')))).toMatchObject({ status: 200 })
      expect(poster.endpoints).toBeLessThanOrEqual(3)
    }
    await eventually(() => at.open.size === 2)
    // Fifty that were used once, and one that was never the oldest.
    expect(at.accepted()).toBe(51)
    hung.requests[0]!.write(ok)
    expect(await slow).toMatchObject({ status: 200 })
  })

  test('an endpoint that is closed to make room takes nothing from one that was made for the same origin', async () => {
    const at = await receiver(saying(ok))
    const hung = await patient()
    const poster = posterOf({ maxEndpoints: 1 })
    await poster.post(requestTo(at.url))
    const posts = [poster.post(requestTo(hung.url)), poster.post(requestTo(at.url))]
    expect(await posts[1]).toMatchObject({ status: 200 })
    expect(poster.endpoints).toBe(2)
    await poster.close()
    await eventually(() => at.open.size === 0 && hung.open.size === 0)
    expect(await posts[0]).toMatchObject({ kind: 'failed' })
  })

  test('a connection that was used for long enough is made anew', async () => {
    const at = await receiver(saying(ok))
    const poster = posterOf({ longestUseMs: 0, connectionsPerEndpoint: 2 })
    const answers = await Promise.all(Array.from({ length: 10 }, () => poster.post(requestTo(at.url))))
    expect(answers).toEqual(answers.map(() => answered(200, 'ok')))
    expect(at.accepted()).toBe(10)
    await eventually(() => at.open.size === 0)
  })

  test('a signal ends it wherever it is: in line, connecting, before and within the answer', async () => {
    const at = await receiver(mute)
    let hasAnswered = false
    const partly = await receiver((socket) =>
      socket.on('data', () =>
        socket.write('HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\na', () =>
          setTimeout(() => (hasAnswered = true), 100),
        ),
      ),
    )
    const never = new Socket()
    const connecting = posterOf({}, { dial: () => never })
    const poster = posterOf({ connectionsPerEndpoint: 1 })
    const stop = new AbortController()
    const { signal } = stop
    const posts = [
      ...[poster.post({ ...requestTo(at.url), signal }), poster.post({ ...requestTo(at.url), signal })],
      ...[connecting.post({ ...requestTo(at.url), signal }), poster.post({ ...requestTo(partly.url), signal })],
    ]
    await eventually(() => at.open.size === 1 && hasAnswered)
    stop.abort()
    const stopped = failed('stopped before there was an answer')
    expect(await Promise.all(posts)).toEqual([stopped, stopped, stopped, answered(200, /^a?$/)])
    await eventually(() => at.open.size === 0 && partly.open.size === 0)
    expect(never.destroyed).toBe(true)
    expect(await poster.post({ ...requestTo(at.url), signal })).toEqual(failed('stopped before it was sent'))
    expect(at.accepted()).toBe(1)
  })

  test('a signal that never fires is let go of', async () => {
    const at = await receiver(saying(ok))
    const { signal } = new AbortController()
    const poster = posterOf()
    for (let n = 0; n < 20; n += 1) await poster.post({ ...requestTo(at.url), signal })
    expect(getEventListeners(signal, 'abort')).toEqual([])
  })

  test('closed: what is under way fails, and nothing is left that could keep a process alive', async () => {
    const at = await patient()
    const answering = await receiver(saying(ok))
    const sockets = () =>
      process.getActiveResourcesInfo().filter((kind) => /TCPSocket|TLS|Timeout|GetAddrInfo/.test(kind)).length
    const before = sockets()
    const poster = posterOf({ connectionsPerEndpoint: 1 })
    const mute = posterOf({}, { dial: () => connectTcp({ host: '127.0.0.1', port: at.port }), resolve: () => {} })
    await poster.post(requestTo(answering.url))
    const posts = [poster, poster, mute].map((each, n) =>
      each.post(requestTo(n === 2 ? 'http://slow.example.com/' : at.url)),
    )
    await eventually(() => at.requests.length === 1)
    await Promise.all([poster.close(), mute.close()])
    for (const answer of await Promise.all(posts)) expect(answer).toEqual(failed('stopped: webhooks are being closed'))
    expect(await poster.post(requestTo(at.url))).toEqual(failed('stopped: webhooks are being closed'))
    await eventually(() => at.open.size === 0 && answering.open.size === 0)
    await eventually(() => sockets() <= before, { what: 'No timer and no socket being left' })
  })

  test('what cannot be sent fails alone', async () => {
    const at = await receiver(saying(ok))
    const poster = posterOf()
    const bad = { ...requestTo(at.url), headers: { 'x-a': 'b\r\nx-c: d' } }
    expect(await poster.post(bad)).toEqual(failed('request cannot be sent: its path or a header is not valid'))
    expect(await poster.post(requestTo(at.url))).toEqual(answered(200, 'ok'))
  })
})

describe('what is kept of an answer', () => {
  const excerpt = (text: string | Uint8Array) => excerptOf([Buffer.from(text)])

  test('[W16] an excerpt is at most 1,000 characters, in one line, and nothing in it acts on a terminal or a page of text', () => {
    expect(excerpt('a\r\nb\tc\u0000d\u001b[31me\u2028f\u202eg\u200bh\u009bi')).toBe('a  b c d [31me f g h i')
    expect(excerpt(Buffer.from([0x61, 0xff, 0xfe, 0x62, 0xc3]))).toBe('a\ufffd\ufffdb\ufffd')
    expect(excerpt('€'.repeat(2_000))).toBe('€'.repeat(1_000))
    expect(excerpt(`a${'😀'.repeat(2_000)}`)).toBe(`a${'😀'.repeat(499)}\ufffd`)
    expect(excerptOf([])).toBe('')
    // A character that two chunks share.
    expect(excerptOf([Buffer.from([0xe2, 0x82]), Buffer.from([0xac])])).toBe('€')
  })

  test('[W16] an excerpt has nothing of what is secret in the headers, however a receiver repeats it', () => {
    const headers = {
      ...{ 'content-type': 'application/json', 'user-agent': 'busbar/1', 'webhook-id': 'the-id' },
      ...{
        'x-token': 'the "token"',
        'x-n': '1',
        authorization: `Basic ${Buffer.from('the-user:x').toString('base64')}`,
      },
      'webhook-signature': 'v1,c2lnbmF0dXJl v1a,b3RoZXI=',
    }
    const plain = 'application/json busbar/1 the-id 1'
    const secret = ['the "token"', headers.authorization, 'the-user:x', 'the-user', 'c2lnbmF0dXJl', 'b3RoZXI=']
    const echoed = [plain, JSON.stringify(headers), ...secret].join(' | ')
    const kept = excerptOf([Buffer.from(echoed)], headers)
    expect(kept).not.toMatch(/the ..?token|dGhl|the-user|c2ln|b3Ro/)
    expect(kept).toContain(plain)
    expect(kept).toContain('"x-token":"[redacted]"')
    // Also one that is only half within it.
    const long = { 'x-token': 's'.repeat(4_000) }
    const half = excerptOf([Buffer.from(`${'€'.repeat(990)}${long['x-token']}`)], long)
    expect(half).toBe(`${'€'.repeat(990)}[redacted]`)
  })

  test('[W16] Retry-After: seconds or a date, a day at most; anything else says nothing', () => {
    const nowMs = Date.parse('2026-11-15T12:00:00Z')
    const read = (header: string | string[] | undefined) => retryAfterMs(header, nowMs)
    expect(['0', '1', ' 120 ', '86400', '86401', '999999999999999'].map(read)).toEqual([
      0, 1e3, 12e4, 864e5, 864e5, 864e5,
    ])
    expect(read('Sun, 15 Nov 2026 12:00:30 GMT')).toBe(30_000)
    expect(read('Sun, 15 Nov 2026 11:00:00 GMT')).toBe(0)
    expect(read('Sun, 15 Nov 2099 12:00:00 GMT')).toBe(86_400_000)
    const garbage = [
      '',
      '-1',
      '1.5',
      '1e3',
      '0x10',
      'soon',
      '5 s',
      'Nov 2099',
      '2099-01-01',
      'Xxx, 99 Xxx 2099 99:99:99 GMT',
      '9'.repeat(400),
    ]
    expect([...garbage, ['1', '2'], undefined].map(read)).toEqual([...garbage, 0, 0].map(() => undefined))
  })
})
