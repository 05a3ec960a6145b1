/** Turns the answer of one flush into the answers of its calls. Pure. */
import { BusbarError, shown } from '../errors.ts'
import type { Call, Published } from './call.ts'
import type { Exception, FlushReply } from './scripts.ts'

type Stored = Extract<FlushReply, { kind: 'stored' }>

export function settleCalls(calls: readonly Call[], partition: number, reply: Stored): void {
  let exception = 0
  let first = 1
  let stored = 0
  const seqBefore = reply.last - storedEvents(calls, reply.exceptions)
  for (const call of calls) {
    const count = call.events.length
    const hindrance = reply.exceptions[exception]
    if (hindrance && hindrance[0] === first) {
      settleException(call, partition, hindrance)
      exception += 1
    } else {
      const answers: Published[] = []
      for (let i = 0; i < count; i += 1) {
        answers.push(published(partition, seqBefore + stored + 1, reply.prevs[stored], false))
        stored += 1
      }
      settle(call, answers)
    }
    first += count
  }
}

/** All events but those of calls that met an exception. */
function storedEvents(calls: readonly Call[], exceptions: readonly Exception[]): number {
  let events = 0
  for (const call of calls) events += call.events.length
  if (exceptions.length === 0) return events
  const hindered = new Set(exceptions.map(([first]) => first))
  let first = 1
  for (const call of calls) {
    if (hindered.has(first)) events -= call.events.length
    first += call.events.length
  }
  return events
}

const published = (partition: number, seq: number, prev: string | undefined, duplicate: boolean): Published => ({
  id: `${partition}-${seq}`,
  seq,
  prev: prev ? Number(prev) : null,
  duplicate,
})

function settle(call: Call, answers: Published[]): void {
  if (call.state === 'settled') return
  call.state = 'settled'
  call.resolve(answers)
}

export function failCall(call: Call, error: unknown): void {
  if (call.state === 'settled') return
  call.state = 'settled'
  call.reject(error)
}

const keyOf = ({ events: [first] }: Call): string => first!.object.slice(first!.object.indexOf('/') + 1)

function settleException(call: Call, partition: number, exception: Exception): void {
  switch (exception[1]) {
    case 'duplicate':
      return settle(call, firstAnswers(partition, exception))
    case 'conflict':
      return failCall(
        call,
        BusbarError.of('CONFLICT', {
          key: shown(keyOf(call)),
          expectPrev: call.options.expectPrev ?? null,
          head: exception[2] ? Number(exception[2]) : null,
        }),
      )
    case 'reused':
      return failCall(
        call,
        BusbarError.of('IDEMPOTENCY_KEY_REUSED', { idempotencyKey: shown(call.options.idempotencyKey) }),
      )
  }
}

function firstAnswers(
  partition: number,
  [, , last, events, prev]: Extract<Exception, { 1: 'duplicate' }>,
): Published[] {
  const count = Number(events)
  const first = Number(last) - count + 1
  return Array.from({ length: count }, (_, i) =>
    published(partition, first + i, i === 0 ? prev : String(first + i - 1), true),
  )
}
