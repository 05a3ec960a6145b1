/** Where a processor is to go on, as people write it. */
import { BusbarError, shown } from '../../errors.ts'
import { readTime, timeForms } from '../../time.ts'
import type { ResetTo } from './view.ts'

export function readPosition(value: string | number): ResetTo {
  if (value === 'beginning' || value === 'now') return value
  const time = readTime(String(value))
  if (time !== undefined) return time
  const problem = `must be beginning, now, or a time: ${timeForms}`
  throw BusbarError.of('PARAMETER_INVALID', { name: 'to', value: shown(value), problem })
}
