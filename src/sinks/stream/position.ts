/** Where a processor is to go on, as people write it and as code says it. */
import { BusbarError, shown } from '../../errors.ts'
import { readTime, timeForms } from '../../time.ts'
import { isStart } from './options.ts'
import type { ResetTo } from './view.ts'

export function checkPosition(to: unknown): void {
  if (isStart(to)) return
  const problem = "must be 'beginning', 'now', a Date, or a time in ms"
  throw BusbarError.of('PARAMETER_INVALID', { name: 'to', value: shown(to), problem })
}

export const positionForms = `beginning, now, or a time: ${timeForms}`

export function readPosition(value: string | number): ResetTo {
  if (value === 'beginning' || value === 'now') return value
  const time = readTime(String(value))
  if (time !== undefined) return time
  const problem = `must be ${positionForms}`
  throw BusbarError.of('PARAMETER_INVALID', { name: 'to', value: shown(value), problem })
}
