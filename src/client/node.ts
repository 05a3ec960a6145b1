/** A receiver in servers of Node: node:http, Express and whatever else hands on its requests. */
import type { IncomingMessage, ServerResponse } from 'node:http'
import { BusbarError } from '../errors.ts'
import type { Answer } from './answer.ts'
import { readStream, tooLarge } from './body.ts'
import { type Door, wrongMethod } from './door.ts'

/** With what a body parser may have left: parsed as `body`, or as it came. */
export type NodeRequest = IncomingMessage & { body?: unknown; rawBody?: unknown }

export type NodeListener = (request: NodeRequest, response: ServerResponse) => Promise<void>

export function nodeListener(door: Door): NodeListener {
  return async (request, response) => {
    const answer = await answerTo(request, door, () => bodyOf(request, door.maxBytes))
    // Someone else may have lost patience and answered.
    if (!answer || response.headersSent) return
    response.writeHead(answer.status, answer.headers).end(answer.body)
    lingerFor(request)
  }
}

/** Undefined when the sender has gone. */
export async function answerTo(
  request: IncomingMessage,
  door: Door,
  readBody: () => Promise<Uint8Array | string | undefined>,
): Promise<Answer | undefined> {
  const { method = 'GET', url = '/', headers } = request
  try {
    if (method !== 'POST') throw wrongMethod(method, url)
    if (Number(headers['content-length'] ?? 0) > door.maxBytes) throw tooLarge(door.maxBytes)
    const body = await readBody()
    return body === undefined ? undefined : await door.handle(headers, body)
  } catch (error) {
    return door.refuse(error)
  }
}

async function bodyOf(request: NodeRequest, maxBytes: number): Promise<Uint8Array | string | undefined> {
  for (const left of [request.rawBody, request.body])
    if (typeof left === 'string' || left instanceof Uint8Array) return left
  // Some parsers leave an empty object behind where they have read nothing.
  if (!request.readableDidRead) return readStream(request, maxBytes)
  throw BusbarError.of('BODY_ALREADY_READ')
}

const lingerMs = 2_000

/** One that was answered before it had arrived may go on sending for a while, to read its answer. */
export function lingerFor(request: IncomingMessage): void {
  if (request.complete) return
  const timer = setTimeout(() => {
    if (!request.complete) request.socket.destroy()
  }, lingerMs)
  request.once('close', () => clearTimeout(timer))
}
