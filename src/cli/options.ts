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
