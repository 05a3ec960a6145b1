/** What a receiver answers: 204 when everything is handled, else a problem (RFC 9457) with its code. */
import { BusbarError } from '../errors.ts'
import { problemType, toProblem } from '../problem.ts'

export interface Answer {
  status: number
  headers: Record<string, string>
  /** Empty with 204. */
  body: string
}

export const handled = (): Answer => ({ status: 204, headers: {}, body: '' })

/** Ours for whatever was thrown. */
export const refusalOf = (error: unknown): BusbarError =>
  error instanceof BusbarError ? error : BusbarError.of('INTERNAL', undefined, error)

export function refused(error: BusbarError): Answer {
  const { status, retryable } = error
  return {
    status,
    headers: { 'content-type': problemType, ...(status === 503 && retryable ? { 'retry-after': '1' } : {}) },
    body: JSON.stringify(toProblem(error)),
  }
}
