/** What arrives and is no request, or not a whole one: answered on the bare socket, since nobody has a reply for it. */
import { STATUS_CODES } from 'node:http'
import type { Socket } from 'node:net'
import type { FastifyRequest } from 'fastify'
import { BusbarError } from '../errors.ts'
import { problemType, toProblem } from '../problem.ts'

const problems: Readonly<Record<string, readonly [status: number, problem: string]>> = {
  ERR_HTTP_REQUEST_TIMEOUT: [408, 'cannot be read: the request took too long to arrive'],
  HPE_HEADER_OVERFLOW: [431, 'cannot be read: the headers of the request are too large'],
}

export function answerBrokenRequest(error: NodeJS.ErrnoException, socket: Socket): void {
  if (error.code === 'ECONNRESET' || !socket.writable) return
  const [status, problem] = problems[error.code ?? ''] ?? [400, 'cannot be read: the request is not valid HTTP']
  const body = JSON.stringify(toProblem(BusbarError.of('BODY_INVALID', { problem }), status))
  socket.end(
    `HTTP/1.1 ${status} ${STATUS_CODES[status]}\r\ncontent-type: ${problemType}\r\n` +
      `content-length: ${Buffer.byteLength(body)}\r\nconnection: close\r\n\r\n${body}`,
  )
  socket.destroySoon()
}

const lingerMs = 2_000

/**
 * A request that was answered before it had arrived (too large, no token): the rest is thrown away as it comes, so that
 * the client, still sending, can read the answer. One that goes on sending after that is cut.
 */
export function discardRest({ raw }: FastifyRequest): void {
  if (raw.complete) return
  raw.resume()
  const timer = setTimeout(() => {
    if (!raw.complete) raw.socket.destroy()
  }, lingerMs)
  raw.once('close', () => clearTimeout(timer))
}
