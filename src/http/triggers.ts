/**
 * Triggers: /v1/triggers looks after them, with the token; `/_<secret>` starts an operation and `/_status/<id>` shows it, without one.
 *
 * A secret is in no message and no log line. A body is not read: what the handler gets was said when the trigger was made.
 */
import type { TypeBoxTypeProvider } from '@fastify/type-provider-typebox'
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import { Type } from 'typebox'
import type { Bus } from '../bus.ts'
import { BusbarError, shown } from '../errors.ts'
import type { Operation, TriggerOptions } from '../index.ts'
import { parseBody } from './json-body.ts'
import { waitFor } from './operations.ts'

const strict = { additionalProperties: false } as const
const params = Type.Object({ name: Type.String() })
const createBody = Type.Object(
  {
    name: Type.String(),
    queue: Type.String(),
    tenant: Type.Optional(Type.String()),
    key: Type.Optional(Type.String()),
    data: Type.Optional(Type.Unknown()),
  },
  strict,
)
const bodyLimit = 300_000
const requestIdShape = /^[\x21-\x7e]{1,128}$/

export const triggerRoutes =
  ({ triggers }: Bus) =>
  async (routes: FastifyInstance): Promise<void> => {
    routes.addHook('preValidation', parseBody)
    const typed = routes.withTypeProvider<TypeBoxTypeProvider>()
    typed.get('/', async () => ({ triggers: await triggers.list() }))
    typed.post('/', { schema: { body: createBody }, bodyLimit }, ({ body: { name, ...options } }, reply) => {
      reply.code(201)
      return triggers.create(name, options as TriggerOptions)
    })
    typed.get('/:name', { schema: { params } }, ({ params: { name } }) => triggers.get(name))
    for (const act of ['rotate', 'enable', 'disable'] as const)
      typed.post(`/:name/${act}`, { schema: { params } }, ({ params: { name } }) => triggers[act](name))
    typed.delete('/:name', { schema: { params } }, async ({ params: { name } }) => {
      await triggers.remove(name)
      return { removed: name }
    })
  }

/** What is open to whoever has the URL. */
export function addTriggerDoor(routes: FastifyInstance, bus: Bus, ending: AbortSignal): void {
  const typed = routes.withTypeProvider<TypeBoxTypeProvider>()
  // A HEAD must start nothing; and nobody's body is of interest.
  typed.get('/_:secret', { exposeHeadRoute: false }, (request, reply) => fire(bus, request, reply))
  routes.register(async (bodied) => {
    bodied.addContentTypeParser('*', (_request, payload, done) => {
      payload.resume()
      done(null)
    })
    bodied.post('/_:secret', (request, reply) => fire(bus, request, reply))
  })
  const schema = {
    params: Type.Object({ id: Type.String() }),
    querystring: Type.Object({ wait: Type.Optional(Type.String()) }, strict),
  }
  typed.get('/_status/:id', { schema }, async ({ params: { id }, query: { wait } }, reply) => {
    const { operations } = bus
    // Others are for who has the token, and so is which queues there are.
    const unknown = () => BusbarError.of('OPERATION_NOT_FOUND', { id: shown(id) })
    const now = await operations.get(id).catch(unlessThereIsNone)
    if (now === undefined || now.trigger === null) throw unknown()
    if (wait === undefined) return statusOf(now)
    const then = await waitFor(operations, id, wait, reply, ending).catch(unlessThereIsNone)
    if (then === undefined) throw unknown()
    return statusOf(then)
  })
}

function unlessThereIsNone(error: unknown): undefined {
  if (!(error instanceof BusbarError) || error.code !== 'OPERATION_NOT_FOUND') throw error
}

async function fire(bus: Bus, request: FastifyRequest, reply: FastifyReply) {
  const { secret } = request.params as { secret: string }
  const given = request.headers['x-request-id']
  const requestId = typeof given === 'string' && requestIdShape.test(given) ? given : undefined
  const { id } = await bus.triggers.fire(secret, requestId === undefined ? {} : { requestId })
  const path = `/_status/${id}`
  reply.code(201).header('location', path)
  return { id, statusUrl: `${request.protocol}://${request.host}${path}` }
}

/** What whoever started it may know. */
const statusOf = (operation: Operation) => {
  const { id, status, requestId, queuedAt, startedAt, finishedAt, dueAt, attempts, progress, output, error } = operation
  return { id, status, requestId, queuedAt, startedAt, finishedAt, dueAt, attempts, progress, output, error }
}
