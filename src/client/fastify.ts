/** A receiver in Fastify, of any version: none of it is imported. */
import type { IncomingMessage } from 'node:http'
import type { Readable } from 'node:stream'
import { readStream } from './body.ts'
import type { Door } from './door.ts'
import { answerTo, lingerFor } from './node.ts'

/** As much of it as is used. */
export interface FastifyLike {
  removeAllContentTypeParsers(): void
  // biome-ignore lint/suspicious/noExplicitAny: each version has types of its own.
  addContentTypeParser(type: string, parser: (request: any, payload: any, done: any) => void): unknown
  // biome-ignore lint/suspicious/noExplicitAny: each version has types of its own.
  post(path: string, handler: (request: any, reply: any) => Promise<unknown>): unknown
}

export type FastifyPlugin = (instance: FastifyLike) => Promise<void>

interface FastifyReplyLike {
  code(status: number): FastifyReplyLike
  headers(headers: Record<string, string>): FastifyReplyLike
  send(body?: Buffer): FastifyReplyLike
}

/** A plugin, because what parses bodies is a plugin's own: here nothing does, and the routes around it are as they were. */
export function fastifyPlugin(path: string, door: Door): FastifyPlugin {
  return async (instance) => {
    instance.removeAllContentTypeParsers()
    instance.addContentTypeParser('*', (_, payload, done) => done(null, payload))
    instance.post(path, async ({ raw, body }: { raw: IncomingMessage; body?: Readable }, reply: FastifyReplyLike) => {
      const answer = await answerTo(raw, door, () => readStream(body ?? raw, door.maxBytes))
      if (!answer) return reply
      lingerFor(raw)
      reply.code(answer.status).headers(answer.headers)
      // As bytes: a text of this type would be written as a JSON string.
      return answer.body === '' ? reply.send() : reply.send(Buffer.from(answer.body))
    })
  }
}
