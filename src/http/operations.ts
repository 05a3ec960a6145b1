/** /v1/operations: where one is, what has happened to an object, cancel. Counts are with their queue, the way of an event with the event. */
import type { TypeBoxTypeProvider } from '@fastify/type-provider-typebox'
import type { FastifyInstance, FastifyReply } from 'fastify'
import { Type } from 'typebox'
import type { Bus } from '../bus.ts'
import { parseDuration } from '../duration.ts'
import { BusbarError, shown } from '../errors.ts'
import { checkId } from '../event.ts'
import type { Operation, OperationPage, OperationsView } from '../index.ts'
import { sendJson } from './json-body.ts'

const strict = { additionalProperties: false } as const
const params = Type.Object({ id: Type.String() })
const waitQuery = Type.Object(
  { wait: Type.Optional(Type.String({ description: 'a duration of at most 30s' })) },
  strict,
)
const ofQuery = Type.Object(
  {
    key: Type.String(),
    tenant: Type.Optional(Type.String()),
    detail: Type.Optional(Type.Boolean({ description: 'true or false' })),
    limit: Type.Optional(Type.Integer({ minimum: 1, maximum: 1_000, description: 'a whole number from 1 to 1000' })),
    cursor: Type.Optional(Type.String()),
  },
  strict,
)
const longestWaitMs = 30_000

/** `ending` fires when the door closes: then nobody waits any more. */
export const operationRoutes =
  (bus: Bus, ending: AbortSignal) =>
  async (routes: FastifyInstance): Promise<void> => {
    const { operations } = bus
    const typed = routes.withTypeProvider<TypeBoxTypeProvider>()
    typed.get('/', { schema: { querystring: ofQuery } }, ({ query }): Promise<OperationPage> => {
      const { key, ...options } = query
      return operations.page(key, options)
    })
    typed.get('/:id', { schema: { params, querystring: waitQuery } }, ({ params: { id }, query: { wait } }, reply) =>
      wait === undefined ? operations.get(id) : waitFor(operations, id, wait, reply, ending),
    )
    typed.post('/:id/cancel', { schema: { params } }, ({ params: { id } }) => operations.cancel(id))
  }

/** Answers at its end, or what it is when the time is over, the client has gone or the door closes. */
export function waitFor(
  operations: OperationsView,
  id: string,
  wait: string,
  reply: FastifyReply,
  ending: AbortSignal,
): Promise<Operation> {
  const parsed = parseDuration(/^\d+$/.test(wait) ? Number(wait) : wait)
  if (!parsed.ok || parsed.value > longestWaitMs) {
    const problem = parsed.ok ? 'must be at most 30s' : parsed.problem
    throw BusbarError.of('PARAMETER_INVALID', { name: 'wait', value: shown(wait), problem })
  }
  const leaving = new AbortController()
  reply.raw.once('close', () => leaving.abort())
  return operations.wait(id, { timeout: parsed.value, signal: AbortSignal.any([leaving.signal, ending]) })
}

/** GET /v1/events/:id/trace. The event as bytes: its data is the publisher's. */
export async function traceOf(bus: Bus, id: string, reply: FastifyReply): Promise<FastifyReply> {
  const { event, places } = await bus.trace(checkId('id', id))
  return sendJson(
    reply,
    `{"id":${JSON.stringify(id)},"event":${event?.toText() ?? null},"places":${JSON.stringify(places)}}`,
  )
}
