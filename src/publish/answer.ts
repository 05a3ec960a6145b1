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
  const answer = () => {
    stored += 1
    return published(partition, seqBefore + stored, reply.prevs[stored - 1], false)
  }
  for (const call of calls) {
    const count = 1 + call.rest.length
    const hindrance = reply.exceptions[exception]
    if (hindrance && hindrance[0] === first) {
      settleException(call, partition, hindrance)
      exception += 1
    } else {
      settle(call, answer(), count === 1 ? noAnswers : call.rest.map(answer))
    }
    first += count
  }
}

/** All events but those of calls that met an exception. */
function storedEvents(calls: readonly Call[], exceptions: readonly Exception[]): number {
  let events = 0
  for (const call of calls) events += 1 + call.rest.length
  if (exceptions.length === 0) return events
  const hindered = new Set(exceptions.map(([first]) => first))
  let first = 1
  for (const call of calls) {
    if (hindered.has(first)) events -= 1 + call.rest.length
    first += 1 + call.rest.length
  }
  return events
}

const published = (partition: number, seq: number, prev: string | undefined, duplicate: boolean): Published => ({
  id: `${partition}-${seq}`,
  seq,
  prev: prev ? Number(prev) : null,
  duplicate,
})

const noAnswers: readonly Published[] = []

function settle(call: Call, first: Published, rest: readonly Published[]): void {
  if (call.state === 'settled') return
  call.state = 'settled'
  call.resolve(first, rest)
}

export function failCall(call: Call, error: unknown): void {
  if (call.state === 'settled') return
  call.state = 'settled'
  call.reject(error)
}

const keyOf = ({ first: { object } }: Call): string => object.slice(object.indexOf('/') + 1)

function settleException(call: Call, partition: number, exception: Exception): void {
  switch (exception[1]) {
    case 'duplicate':
      return settleDuplicate(call, partition, exception)
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

function settleDuplicate(
  call: Call,
  partition: number,
  [, , last, events, prev]: Extract<Exception, { 1: 'duplicate' }>,
): void {
  const count = Number(events)
  const firstSeq = Number(last) - count + 1
  const rest = Array.from({ length: count - 1 }, (_, i) =>
    published(partition, firstSeq + i + 1, String(firstSeq + i), true),
  )
  settle(call, published(partition, firstSeq, prev, true), rest)
}
