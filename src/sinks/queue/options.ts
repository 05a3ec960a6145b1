/** What a queue and a worker can be told, checked when it is declared. A queue's options are data, stored for everyone. */
import type { Duration } from '../../duration.ts'
import { BusbarError, shown } from '../../errors.ts'
import { checkTenant } from '../../event-checks.ts'
import type { Overflow, QueueLimits, Rate } from '../../lanes/limits.ts'
import type { Track } from '../../lanes/operation.ts'
import { defaultSecrets, redactorOf } from '../../operations/redact.ts'
import { Checks, isPair, isStart } from '../../option-checks.ts'
import { type Pattern, parsePattern } from '../../pattern.ts'
import { backoffProblems } from '../../runtime/backoff.ts'
import { groupProblems, unknownOptions } from '../../unknown-name.ts'

export interface QueueRetry {
  /** How often an item is tried in all. Default 5; Infinity never gives up. */
  attempts?: number
  /** The wait doubles from the one to the other; each time it is from half of that to all of it, at random. Default ['1s', '5m']. */
  backoff?: readonly [first: Duration, most: Duration]
}

/** So many in so long, and so many at once. */
export interface RateOption {
  max: number
  per: Duration
}

export interface LimitOptions {
  /** Items that all workers together hold at once. */
  inFlight?: number
  /** The same, of one tenant. */
  inFlightPerTenant?: number
  /** Of what is held, the most that one tenant may have while others wait: 0.01 to 1. */
  maxShare?: number
  rate?: RateOption
  ratePerTenant?: RateOption
  /** Items of one tenant that may wait. Then `send` is refused, and events follow `overflow`. */
  backlog?: number
  /** `hold` (default): they stay in the log until there is room; `drop-oldest`: the tenant's oldest item goes; `dead`: the new one is a dead letter. */
  overflow?: Overflow
}

export interface QueueOptions<P extends Pattern = Pattern> {
  /** Events that enter by themselves. Without it only what is sent. */
  match?: P
  /** Where a new queue begins. Default 'now'. */
  from?: 'beginning' | 'now' | number | Date
  /** Items per turn, by tenant; 1 where it says nothing, 0 pauses. */
  weights?: Readonly<Record<string, number>>
  retry?: QueueRetry
  /** Of the items of one tenant with the same key one at a time, in order, through retries and crashes. Cannot be changed. Default false. */
  ordered?: boolean
  /**
   * After the last attempt of an item: `skip` makes it a dead letter and goes on; `park`, of an ordered queue, sets its object aside with
   * all that comes of it, until someone resumes or discards it. Default skip.
   */
  onPoison?: 'skip' | 'park'
  limits?: LimitOptions
  /**
   * Whether each item is an operation that can be asked about until 24 hours after its end: `bus.operations`. With `'failures'` only those that
   * failed or were cancelled are kept after it; the others are counted. Default false.
   */
  track?: boolean | 'failures'
  /** Fields that are never shown of a tracked queue's inputs, outputs and errors, at any depth. Default: password, token and the like. */
  redact?: readonly string[]
  /** For how long a claimed item is its worker's. Renewed as long as the worker lives. Default '10s'. */
  lease?: Duration
  /** Puts this definition in place although another one was, less than ten minutes ago. */
  force?: boolean
}

/** The definition as it is stored. */
export interface QueueSettings {
  weights: Readonly<Record<string, number>>
  /** 0: for ever. */
  attempts: number
  backoffMs: readonly [first: number, most: number]
  leaseMs: number
  ordered: boolean
  onPoison: 'skip' | 'park'
  limits: QueueLimits
  track: boolean | 'failures'
  redact: readonly string[]
}

/** As a subscription has it; one that an earlier version has stored says less. */
export const settingsOf = (options: Readonly<Record<string, unknown>>): QueueSettings => ({
  ...{ ordered: false, onPoison: 'skip' as const, limits: {}, track: false, redact: [] },
  ...(options as unknown as QueueSettings),
})

/** As a subscription has it. One that is not tracked says nothing of it: it is the definition that it was. */
export function storedOptions({ track, redact, ...settings }: QueueSettings): Readonly<Record<string, unknown>> {
  return track === false ? settings : { ...settings, track, redact }
}

/** As its store has it. */
export const trackOf = ({ track, redact }: QueueSettings): Track | undefined =>
  track === false ? undefined : { mode: track === true ? 'all' : track, hides: redactorOf(redact).list }

export interface CheckedQueue {
  /** Null: only what is sent. */
  match: Pattern | null
  from: 'beginning' | 'now' | number | Date
  force: boolean
  settings: QueueSettings
}

export interface WorkOptions {
  /** Handlers at once. Default 10. */
  concurrency?: number
  /** Given, the handler gets up to so many items at once and settles each on its own. */
  batch?: number
  /** After this its signal fires and the item is tried again. */
  timeout?: Duration
}

/** A queue that a worker draws from, and its share of the slots. */
export interface Drawn {
  name: string
  weight: number
}

export interface WorkSettings {
  concurrency: number
  batch: number | undefined
  timeoutMs: number | undefined
}

const knownOfQueue = new Set<keyof QueueOptions>([
  ...['match', 'from', 'weights', 'retry', 'ordered', 'onPoison', 'limits', 'track', 'redact', 'lease', 'force'],
] as (keyof QueueOptions)[])
const knownOfRetry = new Set<keyof QueueRetry>(['attempts', 'backoff'])
const knownOfLimits = new Set<keyof LimitOptions>([
  ...['inFlight', 'inFlightPerTenant', 'maxShare', 'rate', 'ratePerTenant', 'backlog', 'overflow'],
] as (keyof LimitOptions)[])
const overflows: readonly Overflow[] = ['hold', 'drop-oldest', 'dead']
const knownOfWork = new Set<string>(['concurrency', 'batch', 'timeout', 'weights'])
const nameShape = /^[a-z0-9][a-z0-9_-]{0,63}$/
const secretShape = /^[\w$.@ -]{1,64}$/
const limits = { secrets: 100, leastLeaseMs: 100, mostLeaseMs: 86_400_000, batch: 1_000 } as const

export function checkQueueName(name: unknown): string {
  if (typeof name === 'string' && nameShape.test(name)) return name
  const problem = `the name of a queue must be 1 to 64 of a-z 0-9 _ -, beginning with a letter or digit; got ${shown(name)}`
  throw BusbarError.of('SETTING_INVALID', { problems: [problem] })
}

/** Throws SETTING_INVALID with every problem at once. */
export function checkQueue(options: QueueOptions): CheckedQueue {
  const checks = new Checks([
    ...unknownOptions(options, knownOfQueue),
    ...groupProblems('retry', options.retry, knownOfRetry),
    ...groupProblems('limits', options.limits, knownOfLimits),
  ])
  const { match = null, from = 'now', weights = {}, retry = {}, lease = '10s', force = false } = options
  const { ordered = false, onPoison = 'skip' } = options
  const { attempts = 5, backoff = ['1s', '5m'] } = retry
  if (!isPair(backoff))
    checks.problems.push(`retry.backoff must be two durations, as in ['1s', '5m']; got ${shown(backoff)}`)
  const [first, most] = isPair(backoff) ? backoff : ([0, 0] as const)
  checks.problems.push(...backoffProblems(first, most))
  if (!isStart(from))
    checks.problems.push(`from must be 'beginning', 'now', or a time in ms or Date; got ${shown(from)}`)
  if (typeof ordered !== 'boolean') checks.problems.push(`ordered must be true or false; got ${shown(ordered)}`)
  if (onPoison !== 'skip' && onPoison !== 'park')
    checks.problems.push(`onPoison must be 'skip' or 'park'; got ${shown(onPoison)}`)
  if (onPoison === 'park' && ordered !== true)
    checks.problems.push("onPoison: 'park' sets objects aside, so it needs ordered: true")
  if (typeof force !== 'boolean') checks.problems.push(`force must be true or false; got ${shown(force)}`)
  const yearMs = 31_622_400_000
  const settings: QueueSettings = {
    weights: checks.weights(weights, 0),
    attempts: attempts === Number.POSITIVE_INFINITY ? 0 : checks.whole('retry.attempts', attempts, 1, 1_000_000),
    backoffMs: [
      checks.duration('retry.backoff[0]', first, 0, yearMs),
      checks.duration('retry.backoff[1]', most, 0, yearMs),
    ],
    leaseMs: checks.duration('lease', lease, limits.leastLeaseMs, limits.mostLeaseMs),
    ordered,
    onPoison,
    limits: checkLimits(checks, options.limits ?? {}),
    ...checkTrack(checks, options),
  }
  checks.done()
  for (const tenant of Object.keys(settings.weights)) checkTenant(tenant)
  if (match !== null) parsePattern(match)
  return { match, from, force, settings }
}

function checkRate(checks: Checks, name: string, value: RateOption): Rate {
  checks.problems.push(...groupProblems(name, value, new Set(['max', 'per'])))
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return { max: 1, perMs: 1 }
  const { max, per } = value
  return {
    max: checks.whole(`${name}.max`, max, 1, 1_000_000_000),
    perMs: checks.duration(`${name}.per`, per, 1, 86_400_000),
  }
}

function checkTrack(
  { problems }: Checks,
  { track = false, redact }: QueueOptions,
): Pick<QueueSettings, 'track' | 'redact'> {
  if (typeof track !== 'boolean' && track !== 'failures')
    problems.push(`track must be true, false or 'failures'; got ${shown(track)}`)
  if (track === false && redact !== undefined)
    problems.push('redact says what is not shown of operations, so it needs track')
  const isList = Array.isArray(redact) && redact.every((name) => typeof name === 'string' && secretShape.test(name))
  if (redact !== undefined && (!isList || redact.length > limits.secrets))
    problems.push(`redact must be a list of at most ${limits.secrets} names of fields; got ${shown(redact)}`)
  return { track, redact: track === false ? [] : (redact ?? defaultSecrets) }
}

/** Only what was given: an equal definition is the same text. */
function checkLimits(checks: Checks, options: LimitOptions): QueueLimits {
  const limits: QueueLimits = {}
  for (const name of ['inFlight', 'inFlightPerTenant', 'backlog'] as const)
    if (options[name] !== undefined) limits[name] = checks.whole(`limits.${name}`, options[name], 1, 1_000_000_000)
  for (const name of ['rate', 'ratePerTenant'] as const)
    if (options[name] !== undefined) limits[name] = checkRate(checks, `limits.${name}`, options[name])
  const { maxShare, overflow } = options
  if (maxShare !== undefined) {
    if (typeof maxShare !== 'number' || !(maxShare >= 0.01 && maxShare <= 1))
      checks.problems.push(`limits.maxShare must be from 0.01 to 1; got ${shown(maxShare)}`)
    limits.maxShare = maxShare
  }
  if (overflow !== undefined) {
    if (!overflows.includes(overflow))
      checks.problems.push(`limits.overflow must be one of ${overflows.join(', ')}; got ${shown(overflow)}`)
    if (options.backlog === undefined)
      checks.problems.push('limits.overflow says what becomes of events beyond limits.backlog, so it needs that')
    limits.overflow = overflow
  }
  return limits
}

/** Which queues one worker draws from, by weight; 1 where none is given. */
export function checkDrawn(names: readonly string[], weights: unknown): Drawn[] {
  const checks = new Checks([])
  if (names.length === 0) checks.problems.push('a worker must have a queue to draw from')
  const twice = names.find((name, i) => names.indexOf(name) !== i)
  if (twice !== undefined) checks.problems.push(`queue ${shown(twice)} is named twice`)
  const given = new Map(Object.entries(checks.weights(weights, 1)))
  for (const name of given.keys())
    if (!names.includes(name))
      checks.problems.push(`weights names ${shown(name)}, which is none of the worker's queues`)
  checks.done()
  return names.map((name) => ({ name, weight: given.get(name) ?? 1 }))
}

export function checkWork(options: WorkOptions): WorkSettings {
  const checks = new Checks(unknownOptions(options, knownOfWork))
  const { concurrency = 10, batch, timeout } = options
  const settings = {
    concurrency: checks.whole('concurrency', concurrency, 1, 10_000),
    batch: batch === undefined ? undefined : checks.whole('batch', batch, 1, limits.batch),
    timeoutMs: timeout === undefined ? undefined : checks.duration('timeout', timeout, 1, limits.mostLeaseMs),
  }
  checks.done()
  return settings
}
