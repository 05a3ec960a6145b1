/** Options that people give, checked one by one; what is wrong is said all at once. */
import { asked, type Duration, formatDuration, parseDuration } from './duration.ts'
import { BusbarError, shown } from './errors.ts'

const mostWeights = 1_000
const mostWeight = 1_000

export class Checks {
  readonly problems: string[]

  constructor(problems: string[]) {
    this.problems = problems
  }

  duration(name: string, value: Duration, least: number, most: number): number {
    const parsed = asked(parseDuration(value), value)
    if (!parsed.ok) this.problems.push(`${name} ${parsed.problem}`)
    else if (parsed.value < least || parsed.value > most)
      this.problems.push(
        `${name} must be from ${formatDuration(least)} to ${formatDuration(most)}; got ${shown(value)}`,
      )
    return parsed.ok ? parsed.value : 0
  }

  whole(name: string, value: unknown, least: number, most: number): number {
    if (Number.isInteger(value) && (value as number) >= least && (value as number) <= most) return value as number
    this.problems.push(`${name} must be a whole number from ${least} to ${most}; got ${shown(value)}`)
    return least
  }

  /** By name, each of at least so much. */
  weights(weights: unknown, least: number): Record<string, number> {
    if (typeof weights !== 'object' || weights === null || Array.isArray(weights)) {
      this.problems.push(`weights must be an object, as in { acme: 3 }; got ${shown(weights)}`)
      return {}
    }
    const entries = Object.entries(weights as Record<string, number>)
    if (entries.length > mostWeights)
      this.problems.push(`weights may name ${mostWeights} at most; got ${entries.length}`)
    for (const [name, weight] of entries.slice(0, mostWeights))
      this.whole(`weights.${shown(name).slice(1, -1)}`, weight, least, mostWeight)
    return Object.fromEntries(entries)
  }

  done(): void {
    if (this.problems.length > 0) throw BusbarError.of('SETTING_INVALID', { problems: this.problems })
  }
}

export const isPair = (value: unknown): value is readonly [Duration, Duration] =>
  Array.isArray(value) && value.length === 2

/** Where a subscription may begin. */
export function isStart(from: unknown): boolean {
  if (from === 'beginning' || from === 'now') return true
  const ms = from instanceof Date ? from.getTime() : from
  return typeof ms === 'number' && ms >= 0 && ms <= 8.64e15
}
