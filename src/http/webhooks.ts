/**
 * /v1/webhooks: what is posted where, how that goes, and what to do about it.
 *
 * Secrets are answered by `secrets` and `rotate` only; of headers the names are shown, nowhere their values.
 */
import type { TypeBoxTypeProvider } from '@fastify/type-provider-typebox'
import type { FastifyInstance } from 'fastify'
import { type Static, Type } from 'typebox'
import type { Bus } from '../bus.ts'
import type { ReplayOptions, WebhookOptions } from '../index.ts'
import { readStart, startForms } from '../sinks/queue/start.ts'
import { checkTime, timeForms } from '../time.ts'
import { addDeadRoutes } from './dead-letters.ts'
import { parseBody } from './json-body.ts'

const strict = { additionalProperties: false } as const
const params = Type.Object({ name: Type.String() })
const time = Type.Union([Type.String(), Type.Integer()], { description: timeForms })
// Which values are right is the bus's to say: it lists all that is wrong at once.
const putBody = Type.Object(
  {
    url: Type.Optional(Type.Unknown()),
    match: Type.Optional(Type.Unknown()),
    from: Type.Optional(Type.Union([Type.String(), Type.Integer()], { description: startForms })),
    batch: Type.Optional(Type.Unknown()),
    retry: Type.Optional(Type.Unknown()),
    format: Type.Optional(Type.Unknown()),
    parallel: Type.Optional(Type.Unknown()),
    headers: Type.Optional(Type.Unknown()),
    secret: Type.Optional(Type.Unknown()),
    basic: Type.Optional(Type.Unknown()),
    timeout: Type.Optional(Type.Unknown()),
    disableAfter: Type.Optional(Type.Unknown()),
    keep: Type.Optional(Type.Unknown()),
    force: Type.Optional(Type.Unknown()),
  },
  strict,
)
// 1,000 patterns, 8 kB of headers.
const putLimit = 262_144
const nothing = Type.Object({}, strict)
const rotateBody = Type.Object(
  { secret: Type.Optional(Type.Unknown()), overlap: Type.Optional(Type.Unknown()) },
  strict,
)
const replayBody = Type.Object({ since: time, until: Type.Optional(time) }, strict)
const fewValues = 1_024
const limitQuery = (maximum: number) =>
  Type.Object({ limit: Type.Optional(Type.Integer({ minimum: 1, maximum })) }, strict)

export const webhookRoutes =
  ({ webhooks }: Bus) =>
  async (routes: FastifyInstance): Promise<void> => {
    routes.addHook('preValidation', parseBody)
    const typed = routes.withTypeProvider<TypeBoxTypeProvider>()
    const taking = <const B>(body: B) => ({ schema: { params, body }, bodyLimit: fewValues })
    typed.get('/', async () => ({ webhooks: await webhooks.list() }))
    typed.put('/:name', { schema: { params, body: putBody }, bodyLimit: putLimit }, async (request, reply) => {
      const put = await webhooks.put(request.params.name, optionsOf(request.body))
      reply.code(put.change === 'created' ? 201 : 200)
      return put
    })
    typed.get('/:name', { schema: { params } }, ({ params: { name } }) => webhooks.get(name))
    typed.delete('/:name', { schema: { params } }, async ({ params: { name } }) => {
      await webhooks.remove(name)
      return { removed: name }
    })
    typed.post('/:name/pause', taking(nothing), async ({ params: { name } }) => {
      await webhooks.pause(name)
      return { name, paused: true }
    })
    typed.post('/:name/resume', taking(nothing), async ({ params: { name } }) => {
      await webhooks.resume(name)
      return { name, paused: false }
    })
    typed.post('/:name/test', taking(nothing), ({ params: { name } }) => webhooks.test(name))
    typed.get('/:name/secrets', { schema: { params } }, async ({ params: { name } }) => ({
      secrets: await webhooks.secrets(name),
    }))
    typed.post('/:name/rotate', taking(rotateBody), async ({ params: { name }, body }) => ({
      secret: await webhooks.rotate(name, body as Parameters<typeof webhooks.rotate>[1]),
    }))
    typed.post('/:name/replay', taking(replayBody), ({ params: { name }, body }) =>
      webhooks.replay(name, replayOf(body)),
    )
    typed.get('/:name/attempts', { schema: { params, querystring: limitQuery(100) } }, async (request) => ({
      attempts: await webhooks.attempts(request.params.name, request.query),
    }))
    typed.get('/:name/batches', { schema: { params, querystring: limitQuery(10_000) } }, (request) =>
      webhooks.batches(request.params.name, request.query),
    )
    addDeadRoutes(routes, webhooks.dead)
  }

function optionsOf({ from, ...rest }: Static<typeof putBody>): WebhookOptions {
  return { ...rest, ...(from === undefined ? {} : { from: readStart(from) }) } as WebhookOptions
}

const replayOf = ({ since, until }: Static<typeof replayBody>): ReplayOptions => ({
  since: checkTime('since', since),
  ...(until === undefined ? {} : { until: checkTime('until', until) }),
})
