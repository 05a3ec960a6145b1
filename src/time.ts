/** Times as people and other programs write them. */
import { BusbarError, shown } from './errors.ts'

// A calendar date comes first, so that neither a cursor nor a number is ever taken for one.
const dateShape = /^[+-]?\d{4,6}-\d\d(-\d\d)?([T ].*)?$/

/** Ms since the epoch: written as such, or as an ISO date. Undefined when it is neither. */
export function readTime(value: string): number | undefined {
  if (/^\d{1,16}$/.test(value)) return Number(value)
  const ms = dateShape.test(value) ? Date.parse(value) : Number.NaN
  return Number.isNaN(ms) ? undefined : ms
}

export const timeForms = 'ms since the epoch, or an ISO date such as 2026-01-31T12:00:00Z'

/** PARAMETER_INVALID, which says what is a time, unless it is one. */
export function checkTime(name: string, value: string | number): number {
  const time = readTime(String(value))
  if (time !== undefined) return time
  throw BusbarError.of('PARAMETER_INVALID', { name, value: shown(value), problem: `must be ${timeForms}` })
}
