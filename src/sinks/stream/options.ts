/** What a processor can be told, checked when it is declared. */
import { asked, type Duration, parseDuration } from '../../duration.ts'
import { BusbarError, shown } from '../../errors.ts'
import type { Event } from '../../event.ts'
import { type Pattern, parsePattern } from '../../pattern.ts'
import { backoffProblems } from '../../runtime/backoff.ts'
import { groupProblems, unknownOptions } from '../../unknown-name.ts'

/** One retry policy everywhere: so many attempts in all; the wait doubles from the one time to the other, with jitter (runtime/backoff.ts). */
export interface Retry {
  /** Default 5; Infinity never gives up. */
  attempts?: number
  /** Default ['100ms', '30s']. */
  backoff?: readonly [first: Duration, most: Duration]
}

/** What to do with an event whose last attempt failed. */
export type OnPoison = 'block' | 'skip' | 'park'

/** What a handler is told besides the events. */
export interface ProcessorContext {
  processor: string
  partition: number
  /** Grows with every change of owner: a fencing number for stores of your own. */
  epoch: number
  /** 1 for the first try. */
  attempt: number
  /** Fires when the partition is not this worker's any more, or when it has to be let go and grace is nearly over. */
  signal: AbortSignal
}

/** An async generator around the events, single ones or batches, whichever the handler asks for. */
export type Middleware = (
  events: AsyncIterable<Event | readonly Event[]>,
  context: ProcessorContext,
) => AsyncIterable<Event | readonly Event[]>

export interface ProcessorOptions<P extends Pattern = Pattern> {
  match: P
  /** Where a new processor begins. Default 'beginning'. */
  from?: 'beginning' | 'now' | number | Date
  retry?: Retry
  /** Default 'block'. */
  onPoison?: OnPoison
  /** When the cursor is stored: after each event (default), after each batch, or every so often. */
  commit?: 'each' | 'batch' | Duration
  /** Events read ahead per partition. Default 1,000. */
  prefetch?: number
  /** Around the events, the first one next to the log. */
  use?: readonly Middleware[]
  /** Given, the handler gets one event at a time, so many at once in a partition, those of one key in order. */
  concurrency?: number
}

export interface ProcessorSettings {
  match: Pattern
  from: 'beginning' | 'now' | number | Date
  attempts: number
  backoffMs: readonly [first: number, most: number]
  onPoison: OnPoison
  commit: 'each' | 'batch' | { everyMs: number }
  prefetch: number
  use: readonly Middleware[]
  concurrency: number | undefined
}

const nameShape = /^[a-z0-9][a-z0-9_-]{0,63}$/
const known = new Set<keyof ProcessorOptions>([
  'match',
  'from',
  'retry',
  'onPoison',
  'commit',
  'prefetch',
  'use',
  'concurrency',
])
const knownOfRetry = new Set<keyof Retry>(['attempts', 'backoff'])
const policies: readonly OnPoison[] = ['block', 'skip', 'park']

export function checkName(what: string, name: unknown): string {
  if (typeof name === 'string' && nameShape.test(name)) return name
  const problem = `${what} must be 1 to 64 of a-z 0-9 _ -, beginning with a letter or digit; got ${shown(name)}`
  throw BusbarError.of('SETTING_INVALID', { problems: [problem] })
}

/** Throws SETTING_INVALID with every problem at once. */
export function checkProcessor(options: ProcessorOptions): ProcessorSettings {
  const problems = optionProblems(options)
  const duration = (name: string, value: Duration): number => {
    const parsed = asked(parseDuration(value), value)
    if (parsed.ok) return parsed.value
    problems.push(`${name} ${parsed.problem}`)
    return 0
  }
  const whole = (name: string, value: unknown, most: number): number => {
    if (Number.isInteger(value) && (value as number) >= 1 && (value as number) <= most) return value as number
    problems.push(`${name} must be a whole number from 1 to ${most}; got ${shown(value)}`)
    return 1
  }
  const { match, from = 'beginning', retry, onPoison = 'block', commit = 'each', concurrency } = options
  const { attempts = 5, backoff } = retry ?? {}
  const [first, most] = isPair(backoff) ? backoff : (['100ms', '30s'] as const)
  problems.push(...backoffProblems(first, most))
  if (!policies.includes(onPoison))
    problems.push(`onPoison must be one of ${policies.join(', ')}; got ${shown(onPoison)}`)
  if (!isStart(from)) problems.push(`from must be 'beginning', 'now', or a time in ms or Date; got ${shown(from)}`)
  const settings: ProcessorSettings = {
    match,
    from,
    attempts: attempts === Number.POSITIVE_INFINITY ? attempts : whole('retry.attempts', attempts, 1_000_000),
    backoffMs: [duration('retry.backoff[0]', first), duration('retry.backoff[1]', most)],
    onPoison,
    commit:
      commit === 'each' || commit === 'batch'
        ? commit
        : { everyMs: duration("commit, unless 'each' or 'batch',", commit) },
    prefetch: whole('prefetch', options.prefetch ?? 1_000, 100_000),
    use: options.use ?? [],
    concurrency: concurrency === undefined ? undefined : whole('concurrency', concurrency, 10_000),
  }
  if (!settings.use.every((middleware) => typeof middleware === 'function')) problems.push('use must hold functions')
  if (problems.length > 0) throw BusbarError.of('SETTING_INVALID', { problems })
  parsePattern(match)
  return settings
}

function optionProblems(options: ProcessorOptions): string[] {
  const problems = [...unknownOptions(options, known), ...groupProblems('retry', options.retry, knownOfRetry)]
  if (options.match === undefined) problems.push("match is missing: which events, as in { match: 'order.*' }")
  const backoff = options.retry?.backoff
  if (backoff !== undefined && !isPair(backoff))
    problems.push(`retry.backoff must be two durations, as in ['100ms', '30s']; got ${shown(backoff)}`)
  return problems
}

const isPair = (backoff: Retry['backoff']): backoff is NonNullable<Retry['backoff']> =>
  Array.isArray(backoff) && backoff.length === 2

export function isStart(from: unknown): boolean {
  if (from === 'beginning' || from === 'now') return true
  const ms = from instanceof Date ? from.getTime() : from
  return typeof ms === 'number' && ms >= 0 && ms <= 8.64e15
}
