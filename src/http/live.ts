/** GET /v1/live: follow the log as server-sent events. */
import type { FastifyReply, FastifyRequest } from 'fastify'
import { Type } from 'typebox'
import type { Bus } from '../bus.ts'
import type { Since } from '../sinks/live/reader.ts'
import { LiveStream, type LiveStreams, type LiveTimes } from './live-stream.ts'

export const liveQuery = Type.Object(
  { match: Type.Array(Type.String(), { minItems: 1 }), since: Type.Optional(Type.String()) },
  { additionalProperties: false },
)

// A Redis that is away is waited for once the stream is open; before that the client had better hear of it.
const readyMs = 2_000

export interface LiveContext {
  bus: Bus
  times: LiveTimes
  streams: LiveStreams
  failed(request: FastifyRequest, error: unknown): void
}

/** Whatever is wrong with the request is answered before the stream opens; after that only the stream can end. */
export async function followLive(
  { bus, times, streams, failed }: LiveContext,
  request: FastifyRequest<{ Querystring: Type.Static<typeof liveQuery> }>,
  reply: FastifyReply,
): Promise<void> {
  const { match, since: asked } = request.query
  const since = startingPoint(request.headers['last-event-id'], asked)
  const stream = new LiveStream({
    response: reply.raw,
    telemetry: bus.telemetry,
    times,
    follow: (onGap) => bus.live(match, { since, onGap }),
  })
  try {
    await stream.ready(readyMs)
  } catch (error) {
    stream.end()
    throw error
  }
  reply.hijack()
  await streams.run(stream).catch((error) => failed(request, error))
}

/** A client that comes back says how far it got; what its address says was for the first time. */
export function startingPoint(lastEventId: string | string[] | undefined, since: string | undefined): Since {
  if (typeof lastEventId === 'string' && lastEventId !== '') return lastEventId
  if (since === undefined || since === '') return 'now'
  // A cursor is longer than any time: 16 digits of ms reach beyond the last date there is.
  return /^\d{1,16}$/.test(since) ? Number(since) : since
}
