/** Turns the answer of one flush into the answers of its calls. Pure. */
import { BusbarError, shown } from '../errors.ts'
import { idWriter } from '../event.ts'
import type { Exception, StoredReply } from '../log/flush.ts'
import type { Call, Conditions, Published } from './call.ts'

/** Answers all calls of a flush; `events` is how many were sent. */
export function settleCalls(calls: readonly Call[], events: number, partition: number, reply: StoredReply): void {
  const { exceptions } = reply
  const prevs = new Prevs(reply.prevs)
  let exception = 0
  let first = 1
  let seq = reply.last - events + hinderedEvents(calls, exceptions)
  const idOf = idWriter(partition)
  const answer = () => {
    seq += 1
    return { id: idOf(seq), seq, prev: prevs.next(), duplicate: false }
  }
  for (const call of calls) {
    const hindrance = exceptions[exception]
    if (hindrance && hindrance[0] === first) {
      settleException(call, partition, hindrance)
      exception += 1
    } else {
      settle(call, answer(), call.rest.length === 0 ? noAnswers : call.rest.map(answer))
    }
    first += 1 + call.rest.length
  }
}

/** The events of calls that met an exception. */
function hinderedEvents(calls: readonly Call[], exceptions: readonly Exception[]): number {
  if (exceptions.length === 0) return 0
  const hindered = new Set(exceptions.map(([first]) => first))
  let events = 0
  let first = 1
  for (const call of calls) {
    if (hindered.has(first)) events += 1 + call.rest.length
    first += 1 + call.rest.length
  }
  return events
}

const space = 32
const zero = 48

/** Takes the numbers of a text like `12  7` one by one, null where there is none, without making texts of them. */
class Prevs {
  readonly #text: string
  readonly #length: number
  #at = 0

  constructor(text: string) {
    this.#text = text
    this.#length = text.length
  }

  next(): number | null {
    const text = this.#text
    const length = this.#length
    const start = this.#at
    let at = start
    let number = 0
    for (; at < length; at += 1) {
      const code = text.charCodeAt(at)
      if (code === space) break
      number = number * 10 + code - zero
    }
    this.#at = at + 1
    return at === start ? null : number
  }
}

const noAnswers: readonly Published[] = []

function settle(call: Call, first: Published, rest: readonly Published[]): void {
  if (call.settled) return
  call.settled = true
  call.resolve(first, rest)
}

export function failCall(call: Call, error: unknown): void {
  if (call.settled) return
  call.settled = true
  call.reject(error)
}

/** What Redis answered instead of running the script: nothing was stored. */
export function refusalOf(error: unknown): unknown {
  if (error instanceof BusbarError || !(error instanceof Error)) return error
  return error.message.startsWith('OOM')
    ? BusbarError.of('REDIS_OUT_OF_MEMORY', undefined, error)
    : BusbarError.of('WRITE_REFUSED', { problem: error.message.split(' ')[0]! }, error)
}

const keyOf = ({ object }: Conditions): string => object.slice(object.indexOf('/') + 1)

function settleException(call: Call, partition: number, exception: Exception): void {
  const conditions = call.conditions!
  switch (exception[1]) {
    case 'duplicate':
      return settleDuplicate(call, partition, exception)
    case 'conflict':
      return failCall(
        call,
        BusbarError.of('CONFLICT', {
          key: shown(keyOf(conditions)),
          expectPrev: conditions.options.expectPrev ?? null,
          head: exception[2] ? Number(exception[2]) : null,
        }),
      )
    case 'reused':
      return failCall(
        call,
        BusbarError.of('IDEMPOTENCY_KEY_REUSED', { idempotencyKey: shown(conditions.options.idempotencyKey) }),
      )
  }
}

function settleDuplicate(
  call: Call,
  partition: number,
  [, , last, events, prev]: Extract<Exception, { 1: 'duplicate' }>,
): void {
  const idOf = idWriter(partition)
  const count = Number(events)
  const firstSeq = Number(last) - count + 1
  const answers = Array.from({ length: count }, (_, i): Published => {
    const seq = firstSeq + i
    return { id: idOf(seq), seq, prev: i > 0 ? seq - 1 : prev ? Number(prev) : null, duplicate: true }
  })
  settle(call, answers[0]!, answers.slice(1))
}
