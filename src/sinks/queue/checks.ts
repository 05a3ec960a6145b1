/** What calls to a queue are given, checked where it comes in: PARAMETER_INVALID says what is wrong. */
import { type Duration, parseDuration } from '../../duration.ts'
import { BusbarError, shown } from '../../errors.ts'

const yearMs = 31_622_400_000

export const invalid = (name: string, value: unknown, problem: string): BusbarError =>
  BusbarError.of('PARAMETER_INVALID', { name, value: shown(value), problem })

/** In ms. */
export function checkTime(name: string, value: Duration): number {
  const parsed = parseDuration(value)
  if (!parsed.ok) throw invalid(name, value, parsed.problem)
  if (parsed.value > yearMs) throw invalid(name, value, 'must be at most 366 days')
  return parsed.value
}

export function checkCount(name: string, value: unknown, most: number): number {
  if (Number.isInteger(value) && (value as number) >= 1 && (value as number) <= most) return value as number
  throw invalid(name, value, `must be a whole number from 1 to ${most}`)
}
