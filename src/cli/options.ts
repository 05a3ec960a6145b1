/** Values of flags and arguments that more than one command reads. */
import { BusbarError, shown } from '../errors.ts'

/** A whole number from 1 on. */
export function countOption(name: string, most = Number.MAX_SAFE_INTEGER): (value: string) => number {
  return (value) => {
    const count = /^\d{1,16}$/.test(value) ? Number(value) : 0
    if (count >= 1 && count <= most) return count
    const problem = `must be a whole number from 1 ${most === Number.MAX_SAFE_INTEGER ? 'on' : `to ${most}`}`
    throw BusbarError.of('PARAMETER_INVALID', { name, value: shown(value), problem })
  }
}

// A calendar date comes first, so that neither a cursor nor a number is ever taken for one.
const dateShape = /^[+-]?\d{4,6}-\d\d(-\d\d)?([T ].*)?$/

/** Ms since the epoch: written as such, or as an ISO date. Undefined when it is neither. */
export function readTime(value: string): number | undefined {
  if (/^\d{1,16}$/.test(value)) return Number(value)
  const ms = dateShape.test(value) ? Date.parse(value) : Number.NaN
  return Number.isNaN(ms) ? undefined : ms
}

export const timeForms = 'ms since the epoch, or an ISO date such as 2026-01-31T12:00:00Z'
