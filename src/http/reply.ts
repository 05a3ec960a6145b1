/**
 * Every error of the HTTP door becomes one of ours here, and one of ours becomes a problem (RFC 9457) here.
 *
 * What nobody expected is INTERNAL for the caller; telemetry has the rest. No stack and no Redis key leaves.
 */
import type { FastifyError, FastifyReply, FastifyRequest } from 'fastify'
import { BusbarError, shown } from '../errors.ts'
import { problemType, toProblem } from '../problem.ts'
import { mayPass } from '../redis/connection.ts'
import { isUnknown, named } from '../unknown-name.ts'

export const acceptedTypes = ['application/json']

/** `status` is given where the route says more than the error: not ready is 503 for whatever reason. */
export function sendProblem(reply: FastifyReply, error: BusbarError, status = error.status): FastifyReply {
  if (status === 401) reply.header('www-authenticate', 'Bearer realm="busbar"')
  if (status === 503 && error.retryable) reply.header('retry-after', '1')
  // The connection stays: to end it while the client still sends would take the answer from it.
  reply.removeHeader('connection')
  // As bytes: a text of this type would be written as a JSON string.
  const bytes = Buffer.from(JSON.stringify(toProblem(error, status)))
  return reply.code(status).type(problemType).send(bytes)
}

/** Ours for whatever was thrown; undefined for what nobody expected. */
export function expectedError(
  error: unknown,
  request: FastifyRequest,
  { bodyMaxBytes }: { bodyMaxBytes: number },
): BusbarError | undefined {
  if (error instanceof BusbarError) return error
  if (mayPass(error)) return BusbarError.of('REDIS_UNAVAILABLE', { problem: (error as Error).message }, error)
  const { code, statusCode = 500, validation } = error as Partial<FastifyError>
  if (validation) return violationError(error as FastifyError, request)
  switch (code) {
    case 'FST_ERR_CTP_BODY_TOO_LARGE':
      return BusbarError.of('BODY_TOO_LARGE', { maxBytes: bodyMaxBytes })
    case 'FST_ERR_CTP_INVALID_MEDIA_TYPE':
    case 'FST_ERR_ROUTE_MISSING_CONTENT_TYPE':
      return unsupportedType(shown(request.headers['content-type'] ?? 'none'))
    case 'FST_ERR_BAD_URL':
    case 'FST_ERR_MAX_PARAM_LENGTH':
      return BusbarError.of('PARAMETER_INVALID', {
        name: 'path',
        value: shown(request.url),
        problem: 'has a part that is too long or wrongly encoded',
      })
  }
  // The rest of what Fastify finds wrong with a request is a body that broke off, or is not as long as was said.
  return statusCode >= 400 && statusCode < 500
    ? BusbarError.of('BODY_INVALID', { problem: 'did not arrive as announced' }, error)
    : undefined
}

export const unsupportedType = (given: string): BusbarError =>
  BusbarError.of('MEDIA_TYPE_UNSUPPORTED', { given, accepted: acceptedTypes })

type Violations = NonNullable<FastifyError['validation']>
type Part = 'querystring' | 'params' | 'body'

/** What is wrong with a parameter, or with a field of the body, in the words of the route's schema. */
function violationError({ validation = [], validationContext }: Partial<FastifyError>, request: FastifyRequest) {
  const part = (validationContext ?? 'querystring') as Part
  const given = part === 'querystring' ? request.query : request[part]
  const { name, problem } = firstViolation(validation, schemasOf(request, part))
  if (part === 'body')
    return BusbarError.of('BODY_INVALID', {
      problem: name === '' ? problem : `has a wrong field: "${named(name)}" ${problem}`,
    })
  const value = (given as Record<string, unknown>)[name]
  if (value !== undefined)
    return BusbarError.of('PARAMETER_INVALID', { name: named(name), value: shown(value), problem })
  return BusbarError.of('PARAMETER_INVALID', { name, problem: `${problem}: add it to the query, as in ?${name}=…` })
}

type Schemas = Readonly<Record<string, { description?: string }>>

function firstViolation(violations: Violations, schemas: Schemas): { name: string; problem: string } {
  const listed = (name: string) =>
    violations.flatMap(({ params }) => (params[name] as unknown as string[] | undefined) ?? [])
  const [unknown] = listed('additionalProperties')
  if (unknown !== undefined) return { name: unknown, problem: isUnknown(unknown, Object.keys(schemas)) }
  const [missing] = listed('requiredProperties')
  if (missing !== undefined) return { name: missing, problem: 'is missing' }
  const { instancePath = '', message = 'is wrong' } = violations[0] ?? {}
  const name = instancePath.split('/')[1] ?? ''
  // The words of a choice would be those of its first alternative alone.
  const description = schemas[name]?.description
  return { name, problem: description === undefined ? message : `must be ${description}` }
}

/** What the route's schema has for this part of a request, by name. */
function schemasOf({ routeOptions }: FastifyRequest, part: Part): Schemas {
  const { properties = {} } = (routeOptions.schema?.[part] ?? {}) as { properties?: Schemas }
  return properties
}
