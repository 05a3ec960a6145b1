/** /v1/streams: processors, how far they are, and what to do about what they could not handle. */
import type { TypeBoxTypeProvider } from '@fastify/type-provider-typebox'
import type { FastifyInstance } from 'fastify'
import { type Static, Type } from 'typebox'
import type { Bus } from '../bus.ts'
import { BusbarError } from '../errors.ts'
import { positionForms, readPosition } from '../sinks/stream/position.ts'
import { addDeadRoutes } from './dead-letters.ts'
import { parseBody } from './json-body.ts'

const strict = { additionalProperties: false } as const
const params = Type.Object({ name: Type.String() })
const resetBody = Type.Object(
  {
    to: Type.Union([Type.String(), Type.Integer()], { description: positionForms }),
    preview: Type.Optional(Type.Boolean()),
  },
  strict,
)
const resumeBody = Type.Object(
  { partition: Type.Optional(Type.Integer({ minimum: 0 })), object: Type.Optional(Type.String()) },
  strict,
)
// A key is any text, so an object cannot stand in a path.
const objectQuery = Type.Object({ object: Type.String() }, strict)

export const streamRoutes =
  ({ streams }: Bus) =>
  async (routes: FastifyInstance): Promise<void> => {
    routes.addHook('preValidation', parseBody)
    const typed = routes.withTypeProvider<TypeBoxTypeProvider>()
    typed.get('/', async () => ({ streams: await streams.list() }))
    typed.get('/:name', { schema: { params } }, ({ params: { name } }) => streams.get(name))
    typed.delete('/:name', { schema: { params } }, async ({ params: { name } }) => {
      await streams.remove(name)
      return { removed: name }
    })
    typed.post('/:name/reset', { schema: { params, body: resetBody } }, ({ params: { name }, body }) =>
      reset(streams, name, body),
    )
    typed.post('/:name/resume', { schema: { params, body: resumeBody } }, ({ params: { name }, body }) =>
      resume(streams, name, body),
    )
    typed.get('/:name/parked', { schema: { params } }, async ({ params: { name } }) => ({
      parked: await streams.parked.list(name),
    }))
    typed.delete('/:name/parked', { schema: { params, querystring: objectQuery } }, async (request) => ({
      discarded: await streams.parked.discard(request.params.name, request.query.object),
    }))
    addDeadRoutes(routes, streams.dead)
  }

async function reset(streams: Bus['streams'], name: string, { to, preview = false }: Static<typeof resetBody>) {
  const facts = await streams.reset(name, readPosition(to), { preview })
  return { done: !preview, ...facts }
}

async function resume(streams: Bus['streams'], name: string, { partition, object }: Static<typeof resumeBody>) {
  if (object === undefined) return streams.resume(name, partition === undefined ? {} : { partition })
  if (partition !== undefined)
    throw BusbarError.of('BODY_INVALID', { problem: 'must name a partition or an object, not both' })
  return { partitions: 0, objects: (await streams.parked.resume(name, object)) ? 1 : 0 }
}
