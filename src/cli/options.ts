/** Values of flags and arguments that more than one command reads. */
import { parseDuration } from '../duration.ts'
import { BusbarError, shown } from '../errors.ts'
import { checkTime } from '../time.ts'

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
  return (value) => checkTime(name, value)
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

/** The first wait before a retry and the longest. */
export function backoffOption(value: string): [first: string, most: string] {
  const [first, most, ...more] = value.split(',')
  if (first && most && more.length === 0) return [first, most]
  throw BusbarError.of('PARAMETER_INVALID', {
    ...{ name: 'backoff', value: shown(value), problem: 'must be two durations, as in 1s,5m' },
  })
}

/** Of a flag that may be repeated. */
export const collect =
  <T>(read: (value: string) => T) =>
  (value: string, before: readonly T[] = []): T[] => [...before, read(value)]

/** As an option of the library is called on the command line: `maxEvents` is `max-events`. */
export const kebab = (name: string): string => name.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`)
