/** Where a new queue or webhook begins, as people and programs write it at the doors. */
import { BusbarError, shown } from '../../errors.ts'
import { readTime, timeForms } from '../../time.ts'

export const startForms = `beginning, now, or a time: ${timeForms}`

export function readStart(from: string | number): 'beginning' | 'now' | number {
  if (from === 'beginning' || from === 'now') return from
  const time = readTime(String(from))
  if (time !== undefined) return time
  throw BusbarError.of('PARAMETER_INVALID', { name: 'from', value: shown(from), problem: `must be ${startForms}` })
}
