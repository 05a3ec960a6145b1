/** A receiver where requests are those of the Web: Next.js, Hono and the like. */
import { BusbarError } from '../errors.ts'
import type { Answer } from './answer.ts'
import { tooLarge } from './body.ts'
import { type Door, wrongMethod } from './door.ts'

export type WebHandler = (request: Request) => Promise<Response>

export function webHandler(door: Door): WebHandler {
  return async (request) => {
    const { status, headers, body } = await answerTo(request, door)
    return new Response(body === '' ? null : body, { status, headers })
  }
}

async function answerTo(request: Request, door: Door): Promise<Answer> {
  try {
    if (request.method !== 'POST') throw wrongMethod(request.method, new URL(request.url).pathname)
    return await door.handle(request.headers, await readBody(request, door.maxBytes))
  } catch (error) {
    return door.refuse(error)
  }
}

async function readBody({ body, bodyUsed, headers }: Request, maxBytes: number): Promise<Uint8Array> {
  if (bodyUsed) throw BusbarError.of('BODY_ALREADY_READ')
  if (Number(headers.get('content-length') ?? 0) > maxBytes) throw tooLarge(maxBytes)
  const chunks: Uint8Array[] = []
  let bytes = 0
  try {
    for await (const chunk of body ?? []) {
      bytes += chunk.length
      if (bytes > maxBytes) break
      chunks.push(chunk)
    }
  } catch (error) {
    throw BusbarError.of('BODY_INVALID', { problem: 'did not arrive as announced' }, error)
  }
  if (bytes > maxBytes) throw tooLarge(maxBytes)
  return Buffer.concat(chunks, bytes)
}
