/** Receivers on loopback that say exactly what a test wants, and posters that can reach them. */
import { once } from 'node:events'
import { type AddressInfo, createServer, type Server, Socket } from 'node:net'
import { onTestFinished } from 'vitest'
import type { Dial, Dialled } from '../../src/sinks/webhook/dial.ts'
import { Guard, type GuardOptions, type Resolve } from '../../src/sinks/webhook/guard.ts'
import { Poster, type PosterOptions, type PostRequest } from '../../src/sinks/webhook/post.ts'

export const loopbacks = ['127.0.0.0/8', '::1/128']

export interface Receiver {
  port: number
  url: string
  /** Sockets that are open now. */
  open: ReadonlySet<Socket>
  /** How many there were in all. */
  accepted(): number
}

/** Calls `speak` with each connection, once TLS is agreed where the server has it. */
export async function receiver(speak: (socket: Socket) => void, server: Server = createServer()): Promise<Receiver> {
  const open = new Set<Socket>()
  let accepted = 0
  server.on('connection', (socket: Socket) => {
    accepted += 1
    open.add(socket)
    socket.on('error', () => {})
    socket.on('close', () => open.delete(socket))
  })
  server.on('tlsClientError', () => {})
  server.on('setSecureContext' in server ? 'secureConnection' : 'connection', speak)
  await once(server.listen(0, '127.0.0.1'), 'listening')
  onTestFinished(() => {
    for (const socket of open) socket.destroy()
    server.close()
  })
  const { port } = server.address() as AddressInfo
  return { port, url: `http://127.0.0.1:${port}/hook`, open, accepted: () => accepted }
}

/** Answers each request with this text, as it is. Requests must be small enough to come in one piece. */
export const saying = (text: string | Uint8Array) => (socket: Socket) =>
  void socket.on('data', () => socket.write(text))

export const ok = 'HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok'

/** With these only what a receiver does ends a request, however slow the machine is. */
const ample = { connectMs: 60_000, totalMs: 60_000, bodyMs: 60_000 }

export function posterOf(options: Omit<PosterOptions, 'guard'> = {}, guard: GuardOptions = {}): Poster {
  const poster = new Poster({ guard: new Guard({ allow: loopbacks, allowHttp: true, ...guard }), ...ample, ...options })
  onTestFinished(() => poster.close())
  return poster
}

export const requestTo = (url: string): PostRequest => ({
  url,
  headers: { 'content-type': 'application/json' },
  body: '{}',
})

/** Notes what would be dialled, and never dials: each socket fails at once. */
export function recordingDial(): { dialled: Dialled[]; dial: Dial } {
  const dialled: Dialled[] = []
  const dial: Dial = (to) => {
    dialled.push(to)
    const socket = new Socket()
    queueMicrotask(() => socket.destroy(Object.assign(new Error('not dialled'), { code: 'ECONNREFUSED' })))
    return socket
  }
  return { dialled, dial }
}

/** Answers with these addresses, in this order, and notes who was asked for. */
export function resolverOf(answers: (hostname: string) => string[]): { asked: string[]; resolve: Resolve } {
  const asked: string[] = []
  const resolve: Resolve = (hostname, _options, callback) => {
    asked.push(hostname)
    callback(
      null,
      answers(hostname).map((address) => ({ address, family: address.includes(':') ? 6 : 4 })),
    )
  }
  return { asked, resolve }
}
