/**
 * The items of a queue over HTTP: sent, claimed under a lease, settled by its token, popped.
 *
 * A claim that waits ends when something comes, when its time is over, when the client goes away or when the door closes. What
 * was claimed for a client that is gone goes back as if never claimed.
 */
import type { TypeBoxTypeProvider } from '@fastify/type-provider-typebox'
import type { FastifyInstance, FastifyReply } from 'fastify'
import { type Static, Type } from 'typebox'
import { type Duration, parseDuration } from '../duration.ts'
import { BusbarError, shown } from '../errors.ts'
import type { ClaimedItem, ClaimedLease, ClaimOptions, QueuesView, SendOptions, Sent } from '../index.ts'
import { checkValue, kindOfJson, NotJson } from '../json-slices.ts'
import { readFields } from './event-body.ts'
import { bodyNotJson, parseBody, sendJson } from './json-body.ts'

const strict = { additionalProperties: false } as const
const params = Type.Object({ name: Type.String() })
const most = 1_000
const longestWaitMs = 30_000
const count = Type.Integer({ minimum: 1, maximum: most, description: `a whole number from 1 to ${most}` })
const duration = Type.Union([Type.String(), Type.Number()], { description: 'a duration like "30s", or a number of ms' })
const id = Type.String({ description: 'the id of a claimed item' })
const token = Type.String({ description: 'the token of a claim' })
const claimBody = Type.Object(
  { max: Type.Optional(count), wait: Type.Optional(duration), lease: Type.Optional(duration) },
  strict,
)
const ackBody = Type.Object(
  {
    token,
    ids: Type.Array(Type.String(), { minItems: 1, maxItems: most, description: `a list of 1 to ${most} ids` }),
    output: Type.Optional(Type.Unknown()),
  },
  strict,
)
const nackBody = Type.Object(
  {
    token,
    id,
    after: Type.Optional(duration),
    reason: Type.Optional(Type.String({ maxLength: 1_000, description: 'a text of at most 1,000 characters' })),
    dead: Type.Optional(Type.Boolean()),
  },
  strict,
)
const extendBody = Type.Object({ token, id, time: duration }, strict)
const popBody = Type.Object({ max: Type.Optional(count) }, strict)
// 1,000 ids of 100 characters.
const bodyLimit = 131_072
const sendFields = [
  ...(['data', 'tenant', 'key', 'delay', 'ttl', 'priority', 'idempotencyKey', 'kind', 'requestId', 'trace'] as const),
] as const

export const addItemRoutes =
  (queues: QueuesView, ending: AbortSignal) =>
  async (routes: FastifyInstance): Promise<void> => {
    // As text: the data goes on as it came.
    routes.withTypeProvider<TypeBoxTypeProvider>().post('/:name/items', { schema: { params } }, (request, reply) => {
      reply.code(201)
      return send(queues, request.params.name, (request.body as string | undefined) ?? '')
    })
    routes.register(async (plain) => {
      plain.addHook('preValidation', parseBody)
      const typed = plain.withTypeProvider<TypeBoxTypeProvider>()
      const taking = <const B>(body: B) => ({ schema: { params, body }, bodyLimit })
      typed.post('/:name/claim', taking(claimBody), ({ params: { name }, body }, reply) =>
        claim(queues, name, body, reply, ending),
      )
      typed.post('/:name/ack', taking(ackBody), async ({ params: { name }, body }) =>
        (await queues.open(name)).lease(body.token).ack(body.ids, body.output),
      )
      typed.post('/:name/nack', taking(nackBody), ({ params: { name }, body }) => nack(queues, name, body))
      typed.post('/:name/extend', taking(extendBody), async ({ params: { name }, body }) =>
        (await queues.open(name)).lease(body.token).extend(body.id, body.time as Duration),
      )
      typed.post('/:name/pop', taking(popBody), async ({ params: { name }, body }, reply) => {
        const events = await (await queues.open(name)).pop(body)
        return sendJson(reply, `{"events":[${events.map((event) => event.toText()).join(',')}]}`)
      })
    })
  }

async function send(queues: QueuesView, name: string, text: string): Promise<Sent> {
  const { data, ...options } = readItem(text)
  return (await queues.open(name)).send(data, options as SendOptions)
}

function readItem(text: string): Record<string, unknown> {
  try {
    if (text !== '' && kindOfJson(text) === 'object') return readFields(text, sendFields, 'an item')
    if (text !== '') checkValue(text)
  } catch (error) {
    if (!(error instanceof NotJson)) throw error
    throw bodyNotJson(error)
  }
  throw BusbarError.of('BODY_INVALID', { problem: 'must be a JSON object, as in {"data":{"to":"a@b.c"}}' })
}

async function claim(
  queues: QueuesView,
  name: string,
  { wait = 0, ...rest }: Static<typeof claimBody>,
  reply: FastifyReply,
  ending: AbortSignal,
): Promise<FastifyReply> {
  const leaving = new AbortController()
  reply.raw.once('close', () => leaving.abort())
  const signal = AbortSignal.any([leaving.signal, ending])
  const options = { ...rest, wait: waitMs(wait), signal } as ClaimOptions
  const lease = await (await queues.open(name)).claim(options)
  if (leaving.signal.aborted) await Promise.all(lease.items.map((item) => item.handBack()))
  return sendJson(reply, leaseJson(lease))
}

function waitMs(wait: string | number): number {
  const parsed = parseDuration(wait)
  if (parsed.ok && parsed.value <= longestWaitMs) return parsed.value
  const problem = parsed.ok ? 'must be at most 30s' : parsed.problem
  throw BusbarError.of('PARAMETER_INVALID', { name: 'wait', value: shown(wait), problem })
}

function leaseJson({ token: itsToken, items, dueInMs }: ClaimedLease): string {
  // A claim that got nothing holds nothing.
  const held = items.length > 0 ? JSON.stringify(itsToken) : null
  return `{"token":${held},"items":[${items.map(itemJson).join(',')}],"dueInMs":${dueInMs ?? null}}`
}

function itemJson({ id: itsId, attempt, enqueuedAt, firstClaimedAt, event }: ClaimedItem): string {
  const head = JSON.stringify({ id: itsId, attempt, enqueuedAt, firstClaimedAt })
  return `${head.slice(0, -1)},"event":${event.toText()}}`
}

async function nack(queues: QueuesView, name: string, body: Static<typeof nackBody>) {
  const { token: itsToken, id: itsId, after, reason, dead = false } = body
  if (dead && after !== undefined)
    throw BusbarError.of('BODY_INVALID', { problem: 'must have "after" or "dead", not both' })
  const lease = (await queues.open(name)).lease(itsToken)
  if (dead) return lease.dead(itsId, reason)
  return lease.retry(itsId, {
    ...(after === undefined ? {} : { after: after as Duration }),
    ...(reason === undefined ? {} : { reason }),
  })
}
