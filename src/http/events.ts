/** POST /v1/events, GET /v1/events/:id and GET /v1/topics: into the log, and out of it. */
import type { FastifyReply, FastifyRequest } from 'fastify'
import { Type } from 'typebox'
import type { Bus } from '../bus.ts'
import type { PublishAllAnswer } from '../bus-types.ts'
import { BusbarError } from '../errors.ts'
import { checkId } from '../event.ts'
import type { Delayed, Published } from '../index.ts'
import { type Problem, toProblem } from '../problem.ts'
import { type BodyItem, readEventBody } from './event-body.ts'

type Answer = Published | (Problem & { index: number })

/** One event: 201, 202 if it is delayed, or the error. An array: 200 with an answer for each, in order; those that failed name their place. */
export async function publishBody(
  bus: Bus,
  request: FastifyRequest,
  reply: FastifyReply,
): Promise<Published | Delayed | Answer[]> {
  const body = readEventBody((request.body as string | undefined) ?? '')
  if (body.kind === 'many') return publishMany(bus, body.items)
  const { type, data, delay, at, ...options } = body.event
  if (delay !== undefined || at !== undefined) {
    const delayed = await bus.publish(type, data, { ...options, delay, at })
    reply.code(202)
    return delayed
  }
  const published = await bus.publish(type, data, options)
  reply.code(201).header('location', `/v1/events/${published.id}`)
  return published
}

async function publishMany(bus: Bus, items: readonly BodyItem[]): Promise<Answer[]> {
  const events = items.flatMap((item) => (item.error ? [] : [item.event]))
  const published = events.length === 0 ? [] : await bus.publishAll(events)
  let next = 0
  const answers: PublishAllAnswer[] = items.map((item) => (item.error ? item : published[next++]!))
  return answers.map((answer, index) => (answer.error ? { ...toProblem(answer.error), index } : answer))
}

export const idParams = Type.Object({ id: Type.String() })

export async function readById(bus: Bus, id: string, reply: FastifyReply): Promise<FastifyReply> {
  const event = await bus.log.get(checkId('id', id))
  if (!event) throw BusbarError.of('EVENT_NOT_FOUND', { id })
  // As bytes: parsed and written again, the data would not be the publisher's any more.
  return reply.type('application/json').send(Buffer.from(event.toText()))
}

/** A list, not an object: a topic may be called `__proto__`. */
export async function listTopics(bus: Bus): Promise<{ topics: { topic: string; events: number }[] }> {
  const topics = await bus.topics()
  return { topics: [...topics].map(([topic, events]) => ({ topic, events })) }
}
