/** Bodies of routes that take a few values. Where an event's data comes along, event-body.ts reads it. */
import type { FastifyReply, FastifyRequest } from 'fastify'
import { BusbarError } from '../errors.ts'
import { checkValue, NotJson } from '../json-slices.ts'

/** Before the route's schema looks at it. Nothing at all is an empty object: some routes need no more. */
export async function parseBody(request: FastifyRequest): Promise<void> {
  request.body = readBody(request.body as string | undefined)
}

function readBody(text: string | undefined): unknown {
  if (text === undefined || text === '') return {}
  try {
    return JSON.parse(text)
  } catch (error) {
    throw notJson(text, error)
  }
}

/** BODY_INVALID that says where the text stops being JSON: what JSON.parse says differs between versions of Node. */
function notJson(text: string, cause: unknown): BusbarError {
  try {
    checkValue(text)
  } catch (error) {
    if (error instanceof NotJson) return bodyNotJson(error)
  }
  return BusbarError.of('BODY_INVALID', { problem: 'is not JSON' }, cause)
}

export const bodyNotJson = (error: NotJson): BusbarError =>
  BusbarError.of('BODY_INVALID', { problem: `is not JSON: ${error.message}` }, error)

/** As bytes: parsed and written again, the data of events would not be the publisher's any more. */
export const sendJson = (reply: FastifyReply, text: string): FastifyReply =>
  reply.type('application/json').send(Buffer.from(text))
