/** An error as it is answered over HTTP: a problem by RFC 9457. No stack and no Redis key is in it. */
import type { BusbarError } from './errors.ts'

export const problemType = 'application/problem+json'

export interface Problem {
  type: string
  title: string
  status: number
  code: string
  detail: string
  /** The same request may succeed later. */
  retryable: boolean
  /** Which field of the event, where one is meant. */
  field?: unknown
  /** With CONFLICT: what was expected, and the object's real head. */
  expectPrev?: unknown
  head?: unknown
}

const toldDetails = ['field', 'expectPrev', 'head'] as const

export function toProblem(error: BusbarError, status = error.status): Problem {
  const words = error.code.toLowerCase().replaceAll('_', ' ')
  const problem: Problem = {
    type: `urn:busbar:error:${error.code}`,
    title: words[0]!.toUpperCase() + words.slice(1),
    status,
    code: error.code,
    detail: error.message,
    retryable: error.retryable,
  }
  for (const name of toldDetails) if (name in error.details) problem[name] = error.details[name]
  return problem
}
