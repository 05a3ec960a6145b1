/** A door of its own per test, and clients for it: plain requests, bare sockets, server-sent events. */
import { once } from 'node:events'
import { type IncomingMessage, request } from 'node:http'
import { connect, type Socket } from 'node:net'
import { onTestFinished } from 'vitest'
import type { Bus } from '../../src/bus.ts'
import type { BusOptions } from '../../src/bus-options.ts'
import { type Door, type DoorOptions, openDoor } from '../../src/http/server.ts'
import type { TelemetryEvent } from '../../src/runtime/telemetry.ts'
import { testBus } from './bus.ts'

export const rootToken = 'the-root-token-of-the-tests'
const authorization = `Bearer ${rootToken}`

export interface Answer {
  status: number
  headers: Headers
  text: string
  // biome-ignore lint/suspicious/noExplicitAny: tests look into answers of every shape.
  json: any
}

export interface TestDoor {
  bus: Bus
  door: Door
  telemetry: TelemetryEvent[]
  /** Posts a body as it is; with the token unless told otherwise. */
  post(body: string | Uint8Array, headers?: Record<string, string>): Promise<Answer>
  get(path: string, headers?: Record<string, string>): Promise<Answer>
  /** Any method; a body that is no text is sent as JSON. */
  send(method: string, path: string, body?: unknown): Promise<Answer>
  /** Opens a live stream and waits for its head. */
  live(query: string, headers?: Record<string, string>): Promise<SseClient>
  /** Sends bytes over a bare socket. */
  socket(): Promise<BareClient>
}

export async function testDoor(
  options: Partial<Omit<DoorOptions, 'bus'>> & { bus?: BusOptions } = {},
): Promise<TestDoor> {
  const telemetry: TelemetryEvent[] = []
  const { bus: busOptions, ...doorOptions } = options
  const onTelemetry = (event: TelemetryEvent) => {
    telemetry.push(event)
    busOptions?.onTelemetry?.(event)
  }
  const bus: Bus = testBus({ ...busOptions, onTelemetry })
  const door = await openDoor({ bus, host: '127.0.0.1', port: 0, bodyMaxBytes: 2 ** 20, rootToken, ...doorOptions })
  onTestFinished(() => door.close({ timeoutMs: 0 }))
  const { hostname, port } = new URL(door.url)
  return {
    bus,
    door,
    telemetry,
    post: (body, headers = {}) =>
      ask(door, '/v1/events', {
        method: 'POST',
        body: body as string,
        headers: { authorization, 'content-type': 'application/json', ...headers },
      }),
    get: (path, headers = {}) => ask(door, path, { headers: { authorization, ...headers } }),
    send: (method, path, body) =>
      ask(door, path, {
        method,
        body: body === undefined ? null : typeof body === 'string' ? body : JSON.stringify(body),
        headers: { authorization, ...(body === undefined ? {} : { 'content-type': 'application/json' }) },
      }),
    live: (query, headers = {}) => openSse(`${door.url}/v1/live?${query}`, { authorization, ...headers }),
    socket: () => openSocket(hostname, Number(port)),
  }
}

async function ask({ url }: Door, path: string, init: RequestInit): Promise<Answer> {
  const response = await fetch(url + path, init)
  const text = await response.text()
  const isJson = /json/.test(response.headers.get('content-type') ?? '')
  return { status: response.status, headers: response.headers, text, json: isJson ? JSON.parse(text) : undefined }
}

/** The start of a POST /v1/events for a bare socket, up to the empty line. */
export const postHead = (...headers: string[]): string =>
  `${[`POST /v1/events HTTP/1.1`, 'host: busbar', `authorization: ${authorization}`, 'content-type: application/json', ...headers].join('\r\n')}\r\n\r\n`

export interface BareClient {
  socket: Socket
  /** What has come back so far. */
  readonly received: string
  readonly ended: Promise<void>
}

async function openSocket(host: string, port: number): Promise<BareClient> {
  const socket = connect({ host, port })
  onTestFinished(() => void socket.destroy())
  let received = ''
  socket.on('data', (chunk) => {
    received += chunk
  })
  socket.on('error', () => undefined)
  const ended = new Promise<void>((resolve) => socket.once('close', () => resolve()))
  await once(socket, 'connect')
  return {
    socket,
    ended,
    get received() {
      return received
    },
  }
}

export interface SseFrame {
  id?: string
  event?: string
  data?: string
  comment?: string
  retry?: string
}

export interface SseClient {
  readonly response: IncomingMessage
  /** Every frame so far. */
  readonly frames: readonly SseFrame[]
  /** The data of the events so far, without gaps. */
  // biome-ignore lint/suspicious/noExplicitAny: tests look into events of every shape.
  readonly events: any[]
  /** What a browser would send as Last-Event-ID. */
  readonly lastEventId: string
  readonly ended: Promise<void>
  close(): void
}

async function openSse(url: string, headers: Record<string, string>): Promise<SseClient> {
  const sent = request(url, { headers, agent: false })
  sent.end()
  const [response] = (await once(sent, 'response')) as [IncomingMessage]
  onTestFinished(() => void response.destroy())
  const frames: SseFrame[] = []
  const events: unknown[] = []
  let rest = ''
  response.setEncoding('utf8')
  response.on('data', (chunk: string) => {
    const parts = (rest + chunk).split('\n\n')
    rest = parts.pop()!
    for (const frame of parts.map(readFrame)) {
      frames.push(frame)
      if (!frame.event && frame.data !== undefined) events.push(JSON.parse(frame.data))
    }
  })
  response.on('error', () => undefined)
  const ended = new Promise<void>((resolve) => response.once('close', resolve))
  return {
    response,
    frames,
    ended,
    events,
    get lastEventId() {
      return frames.findLast(({ id }) => id !== undefined)?.id ?? ''
    },
    close: () => void response.destroy(),
  }
}

/** As the standard says: a line is `field: value`, data lines are joined, a line that begins with a colon is a comment. */
function readFrame(text: string): SseFrame {
  const frame: SseFrame = {}
  for (const line of text.split('\n')) {
    const colon = line.indexOf(':')
    const field = line.slice(0, colon)
    const value = line.slice(colon + 1).replace(/^ /, '')
    if (field === 'data' && frame.data !== undefined) frame.data += `\n${value}`
    else if (field === '') frame.comment = value
    else if (field === 'id' || field === 'event' || field === 'data' || field === 'retry') frame[field] = value
  }
  return frame
}
