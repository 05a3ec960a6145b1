/** Values of flags and arguments that more than one command reads. */
import { parseDuration } from '../duration.ts'
import { BusbarError, shown } from '../errors.ts'
import { readTime, timeForms } from '../time.ts'

/** A whole number from 1 on. */
export function countOption(name: string, most = Number.MAX_SAFE_INTEGER): (value: string) => number {
  return (value) => {
    const count = /^\d{1,16}$/.test(value) ? Number(value) : 0
    if (count >= 1 && count <= most) return count
    const problem = `must be a whole number from 1 ${most === Number.MAX_SAFE_INTEGER ? 'on' : `to ${most}`}`
    throw BusbarError.of('PARAMETER_INVALID', { name, value: shown(value), problem })
  }
}

/** A whole number from 0 on. */
export function numberOption(name: string): (value: string) => number {
  return (value) => {
    if (/^\d{1,15}$/.test(value)) return Number(value)
    throw BusbarError.of('PARAMETER_INVALID', {
      name,
      value: shown(value),
      problem: 'must be a whole number from 0 on',
    })
  }
}

/** Ms since the epoch, or an ISO date. */
export function timeOption(name: string): (value: string) => number {
  return (value) => {
    const time = readTime(value)
    if (time !== undefined) return time
    throw BusbarError.of('PARAMETER_INVALID', { name, value: shown(value), problem: `must be ${timeForms}` })
  }
}

/** A whole number of either sign. */
export function integerOption(name: string): (value: string) => number {
  return (value) => {
    if (/^-?\d{1,15}$/.test(value)) return Number(value)
    throw BusbarError.of('PARAMETER_INVALID', { name, value: shown(value), problem: 'must be a whole number' })
  }
}

export function choiceOption<const C extends string>(name: string, choices: readonly C[]): (value: string) => C {
  return (value) => {
    const found = choices.find((choice) => choice === value)
    if (found !== undefined) return found
    const problem = `must be ${choices.join(' or ')}`
    throw BusbarError.of('PARAMETER_INVALID', { name, value: shown(value), problem })
  }
}

/** A duration, in ms. */
export function durationOption(name: string): (value: string) => number {
  return (value) => {
    const parsed = parseDuration(value)
    if (parsed.ok) return parsed.value
    throw BusbarError.of('PARAMETER_INVALID', { name, value: shown(value), problem: parsed.problem })
  }
}
