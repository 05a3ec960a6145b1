/** …/:name/dead, of queues, processors and webhooks: look, group by reason, put back in line, give up. */
import type { TypeBoxTypeProvider } from '@fastify/type-provider-typebox'
import type { FastifyInstance } from 'fastify'
import { type Static, Type } from 'typebox'
import { type AnyLetter, type DeadChoice, type DeadFilter, type DeadView, letterJson } from '../dead-letters.ts'
import { BusbarError } from '../errors.ts'
import { checkTime, timeForms } from '../time.ts'
import { sendJson } from './json-body.ts'

const strict = { additionalProperties: false } as const
const params = Type.Object({ name: Type.String() })
const filterFields = {
  tenant: Type.Optional(Type.String()),
  type: Type.Optional(Type.String()),
  reason: Type.Optional(Type.String()),
}
const deadQuery = Type.Object(
  {
    limit: Type.Optional(Type.Integer({ minimum: 1, maximum: 1_000 })),
    offset: Type.Optional(Type.Integer({ minimum: 0 })),
    ...filterFields,
    before: Type.Optional(Type.String({ description: timeForms })),
    by: Type.Optional(Type.Literal('reason', { description: '"reason"' })),
  },
  strict,
)
const choiceBody = Type.Object(
  {
    ids: Type.Optional(
      Type.Union([Type.Literal('all'), Type.Array(Type.String(), { maxItems: 10_000 })], {
        description: 'a list of at most 10,000 event ids, or "all"',
      }),
    ),
    ...filterFields,
    before: Type.Optional(Type.Union([Type.Integer({ minimum: 0 }), Type.String()], { description: timeForms })),
  },
  strict,
)
// 10,000 ids of queue items, which are the longest, are under 1 MB.
const bodyLimit = 1_048_576

export function addDeadRoutes(routes: FastifyInstance, dead: DeadView<AnyLetter>): void {
  const typed = routes.withTypeProvider<TypeBoxTypeProvider>()
  typed.get(
    '/:name/dead',
    { schema: { params, querystring: deadQuery } },
    async ({ params: { name }, query }, reply) => {
      const { by, before, limit, offset, ...texts } = query
      const filter = { ...texts, ...timeOf(before) }
      if (by === 'reason') return { reasons: await dead.reasons(name, filter) }
      const letters = await dead.list(name, { ...filter, ...given({ limit, offset }) })
      return sendJson(reply, `{"letters":[${letters.map(letterJson).join(',')}]}`)
    },
  )
  typed.post('/:name/dead/redrive', { schema: { params, body: choiceBody }, bodyLimit }, async (request) => ({
    redriven: await dead.redrive(request.params.name, choiceOf(request.body)),
  }))
  typed.post('/:name/dead/discard', { schema: { params, body: choiceBody }, bodyLimit }, async (request) => ({
    discarded: await dead.discard(request.params.name, choiceOf(request.body)),
  }))
}

function choiceOf({ ids, before, ...texts }: Static<typeof choiceBody>): DeadChoice {
  const filter: DeadFilter = { ...texts, ...timeOf(before) }
  const isFiltered = Object.keys(filter).length > 0
  if (ids === 'all' && isFiltered)
    throw BusbarError.of('BODY_INVALID', { problem: 'must have a filter or "ids": "all", not both' })
  if (ids === 'all') return 'all'
  if (ids === undefined && !isFiltered)
    throw BusbarError.of('BODY_INVALID', {
      problem: 'must say which: "ids", a list or "all", or a filter: "tenant", "type", "reason", "before"',
    })
  return ids === undefined ? filter : { ...filter, ids }
}

function timeOf(before: string | number | undefined): { before?: number } {
  return before === undefined ? {} : { before: checkTime('before', before) }
}

/** Without what was not given. */
function given<T extends object>(values: T): { [K in keyof T]?: Exclude<T[K], undefined> } {
  return Object.fromEntries(Object.entries(values).filter(([, value]) => value !== undefined)) as never
}
