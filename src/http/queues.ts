/** /v1/queues: what is registered, what waits for whom, and what to do about it. Their items are in queue-items.ts. */
import type { TypeBoxTypeProvider } from '@fastify/type-provider-typebox'
import type { FastifyInstance } from 'fastify'
import { type Static, Type } from 'typebox'
import type { Bus } from '../bus.ts'
import { letterJson } from '../dead-letters.ts'
import type { Duration } from '../duration.ts'
import { BusbarError } from '../errors.ts'
import type { QueueOptions } from '../index.ts'
import { readStart, startForms } from '../sinks/queue/start.ts'
import { addDeadRoutes } from './dead-letters.ts'
import { parseBody, sendJson } from './json-body.ts'
import { addItemRoutes } from './queue-items.ts'

const strict = { additionalProperties: false } as const
const params = Type.Object({ name: Type.String() })
const duration = Type.Union([Type.String(), Type.Number()], { description: 'a duration like "30s", or a number of ms' })
const putBody = Type.Object(
  {
    match: Type.Optional(
      Type.Union([Type.String(), Type.Array(Type.String(), { minItems: 1, maxItems: 1_000 })], {
        description: 'a pattern, or a list of them',
      }),
    ),
    weights: Type.Optional(
      Type.Record(Type.String(), Type.Integer(), { description: 'items per turn by tenant, as in {"acme":3}' }),
    ),
    retry: Type.Optional(
      Type.Object(
        {
          attempts: Type.Optional(Type.Union([Type.Integer(), Type.Literal('Infinity')])),
          backoff: Type.Optional(Type.Array(duration, { minItems: 2, maxItems: 2 })),
        },
        {
          ...strict,
          description: 'like {"attempts":5,"backoff":["1s","5m"]}, attempts a whole number or "Infinity"',
        },
      ),
    ),
    ordered: Type.Optional(Type.Boolean()),
    // The bus says what is wrong with these, with all that is at once.
    onPoison: Type.Optional(Type.Unknown()),
    limits: Type.Optional(Type.Unknown()),
    track: Type.Optional(Type.Unknown()),
    redact: Type.Optional(Type.Unknown()),
    lease: Type.Optional(duration),
    from: Type.Optional(Type.Union([Type.String(), Type.Integer()], { description: startForms })),
    force: Type.Optional(Type.Boolean()),
  },
  strict,
)
// 1,000 weights of tenants with 128 characters.
const putLimit = 262_144
const tenantBody = Type.Object({ tenant: Type.Optional(Type.String()) }, strict)
const resumeBody = Type.Object({ tenant: Type.Optional(Type.String()), object: Type.Optional(Type.String()) }, strict)
const objectQuery = Type.Object({ object: Type.String() }, strict)
const emptyLimit = 1_024
const limitQuery = Type.Object({ limit: Type.Optional(Type.Integer({ minimum: 1, maximum: 10_000 })) }, strict)
const statsQuery = Type.Object(
  { last: Type.Optional(Type.String({ description: 'a duration of at most 24h' })) },
  strict,
)
const peekQuery = Type.Object({ max: Type.Optional(Type.Integer({ minimum: 1, maximum: 1_000 })) }, strict)

/** `ending` fires when the door closes: then nobody waits any more. */
export const queueRoutes =
  (bus: Bus, ending: AbortSignal) =>
  async (routes: FastifyInstance): Promise<void> => {
    const { queues } = bus
    routes.register(addItemRoutes(queues, ending))
    routes.register(async (plain) => {
      plain.addHook('preValidation', parseBody)
      const typed = plain.withTypeProvider<TypeBoxTypeProvider>()
      typed.get('/', async () => ({ queues: await queues.list() }))
      typed.put('/:name', { schema: { params, body: putBody }, bodyLimit: putLimit }, async (request, reply) => {
        const put = await queues.put(request.params.name, optionsOf(request.body))
        reply.code(put.change === 'created' ? 201 : 200)
        return put
      })
      typed.get('/:name', { schema: { params } }, ({ params: { name } }) => queues.get(name))
      typed.delete('/:name', { schema: { params } }, async ({ params: { name } }) => {
        await queues.remove(name)
        return { removed: name }
      })
      typed.get('/:name/tenants', { schema: { params, querystring: limitQuery } }, async (request) => ({
        tenants: await queues.tenants(request.params.name, request.query),
      }))
      typed.get('/:name/stats', { schema: { params, querystring: statsQuery } }, (request) =>
        bus.operations.stats(request.params.name, request.query as { last?: Duration }),
      )
      typed.get('/:name/peek', { schema: { params, querystring: peekQuery } }, async (request, reply) => {
        const events = await queues.peek(request.params.name, request.query)
        return sendJson(reply, `{"events":[${events.map((event) => event.toText()).join(',')}]}`)
      })
      typed.post('/:name/pause', { schema: { params, body: tenantBody }, bodyLimit: emptyLimit }, async (request) => {
        await queues.pause(request.params.name, request.body)
        return { name: request.params.name, ...request.body, paused: true }
      })
      typed.post('/:name/resume', { schema: { params, body: resumeBody }, bodyLimit: emptyLimit }, async (request) => {
        const { name } = request.params
        const { object, ...ofTenant } = request.body
        if (object !== undefined && ofTenant.tenant !== undefined)
          throw BusbarError.of('BODY_INVALID', { problem: 'must have "tenant" or "object" (tenant/key), not both' })
        if (object !== undefined) return { name, objects: (await queues.parked.resume(name, object)) ? 1 : 0 }
        await queues.resume(name, ofTenant)
        return { name, ...ofTenant, paused: false }
      })
      typed.get('/:name/parked', { schema: { params, querystring: tenantBody } }, async (request, reply) => {
        const { tenant } = request.query
        const all = await queues.parked.list(request.params.name)
        const parked = tenant === undefined ? all : all.filter(({ event }) => event.tenant === tenant)
        return sendJson(reply, `{"parked":[${parked.map(letterJson).join(',')}]}`)
      })
      typed.delete('/:name/parked', { schema: { params, querystring: objectQuery } }, async (request) => ({
        discarded: await queues.parked.discard(request.params.name, request.query.object),
      }))
      addDeadRoutes(plain, queues.dead)
    })
  }

/** What JSON cannot say is said as text there. */
function optionsOf({ retry, from, ...rest }: Static<typeof putBody>): QueueOptions {
  const { attempts, backoff } = retry ?? {}
  const options = {
    ...rest,
    ...(from === undefined ? {} : { from: readStart(from) }),
    ...(retry === undefined
      ? {}
      : {
          retry: {
            ...(attempts === undefined ? {} : { attempts: Number(attempts) }),
            ...(backoff === undefined ? {} : { backoff }),
          },
        }),
  }
  // Which durations and patterns are right is the bus's to say.
  return options as QueueOptions
}

export const matchQuery = Type.Object(
  { tenant: Type.String(), type: Type.String(), name: Type.Optional(Type.String()) },
  strict,
)

/** GET /v1/match: who would get an event of this kind, and why not. */
export async function matchOf({ subscriptions }: Bus, { tenant, type, name }: Static<typeof matchQuery>) {
  return { matches: await subscriptions.match(tenant, type, name) }
}
