/** What a webhook can be told, checked when it is declared. Its options are data, stored for everyone. */
import type { Bytes, Duration } from '../../duration.ts'
import { asked, parseBytes } from '../../duration.ts'
import { BusbarError, shown } from '../../errors.ts'
import { Checks, isPair, isStart } from '../../option-checks.ts'
import { type Pattern, parsePattern } from '../../pattern.ts'
import type { From } from '../../route/change.ts'
import { backoffProblems } from '../../runtime/backoff.ts'
import { groupProblems, unknownOptions } from '../../unknown-name.ts'
import { checkSecret } from '../../webhook-signature.ts'
import { type Format, formats } from './format.ts'
import { checkHeaders } from './headers.ts'

export interface BatchOptions {
  /** Events of a batch. Default 100, at most 1,000. */
  maxEvents?: number
  /** How long the first event of a batch waits for others. Default 500ms; 0 waits for none. */
  maxWait?: Duration
  /** Of a batch. Default 256kB, at most 1MiB. */
  maxBytes?: Bytes
}

export interface WebhookRetry {
  /**
   * The wait doubles from the one to the other; each time it is from half of that to all of it, at random. Default ['1s', '5m'].
   * 'ladder' waits 5 s, 5 min, 30 min, 2 h, 5 h, 10 h, 14 h, 20 h, 24 h: only with `parallel`, else the head would block all for a day.
   */
  backoff?: readonly [first: Duration, most: Duration] | 'ladder'
  /** After so long a batch that keeps failing is a dead letter. Default 3d. */
  giveUpAfter?: Duration
  /** The same after so many attempts. Default: whenever giveUpAfter says. */
  attempts?: number
}

export interface WebhookOptions<P extends Pattern = Pattern> {
  /** https, unless the bus allows http. */
  url: string
  match: P
  /** Where a new one begins: with the next event ('now', the default), with the oldest that is kept, or at a time. */
  from?: From
  batch?: BatchOptions
  retry?: WebhookRetry
  /** How a batch is written. Default busbar. */
  format?: Format
  /** So many sequences side by side; events are divided by key, so each key stays in order. Default 1. */
  parallel?: number
  /** Sent with every request. */
  headers?: Readonly<Record<string, string>>
  /** `whsec_…`; default: one is made, see `bus.webhooks.secrets`. */
  secret?: string
  /** Sent as the user name of HTTP Basic authentication, with the password x. */
  basic?: string
  /** How long a request may take, from when it has a connection. Default 20s. */
  timeout?: Duration
  /** Failing for so long without a good attempt, it is disabled. Default 5d. */
  disableAfter?: Duration
  /**
   * Events that are kept for it; beyond that the oldest are dropped, and counted. Default 100,000; at least a full batch of each sequence,
   * which would be dropped as soon as it is sealed otherwise.
   */
  keep?: number
  /** Replaces a definition although it was itself replaced a short while ago. */
  force?: boolean
}

/** As it is stored. */
export interface WebhookSettings {
  url: string
  format: Format
  maxEvents: number
  maxWaitMs: number
  maxBytes: number
  backoffMs: readonly [number, number] | 'ladder'
  giveUpAfterMs: number
  /** 0: no limit but the time. */
  maxAttempts: number
  parallel: number
  headers: Readonly<Record<string, string>>
  secret?: string
  basic?: string
  timeoutMs: number
  disableAfterMs: number
  keepEvents: number
}

/** What people may see of it. */
export interface ShownSettings extends Omit<WebhookSettings, 'secret' | 'headers' | 'basic'> {
  /** Their names. */
  headers: readonly string[]
  /** Whether requests have HTTP Basic authentication. */
  basic: boolean
}

export interface CheckedWebhook {
  match: Pattern
  from: From
  force: boolean
  settings: WebhookSettings
}

const knownOfWebhook = new Set<keyof WebhookOptions>([
  ...(['url', 'match', 'from', 'batch', 'retry', 'format', 'parallel', 'headers', 'secret', 'basic'] as const),
  ...(['timeout', 'disableAfter', 'keep', 'force'] as const),
])
const knownOfBatch = new Set<keyof BatchOptions>(['maxEvents', 'maxWait', 'maxBytes'])
const knownOfRetry = new Set<keyof WebhookRetry>(['backoff', 'giveUpAfter', 'attempts'])
const nameShape = /^[a-z0-9][a-z0-9_-]{0,63}$/
const basicShape = /^[\x21-\x39\x3b-\x7e]{1,200}$/
const [hourMs, dayMs] = [3_600_000, 86_400_000]
const leastBytes = 1_024
const mostBytes = 1_048_576

export const webhookLimits = { events: 1_000, bytes: mostBytes, parallel: 64, keep: 10_000_000 } as const

export function checkWebhookName(name: unknown): string {
  if (typeof name === 'string' && nameShape.test(name)) return name
  const problem = `the name of a webhook must be 1 to 64 of a-z 0-9 _ -, beginning with a letter or digit; got ${shown(name)}`
  throw BusbarError.of('SETTING_INVALID', { problems: [problem] })
}

/** Throws SETTING_INVALID with every problem at once. Whether its URL may be used is for the guard to say. */
export function checkWebhook(options: WebhookOptions): CheckedWebhook {
  const checks = new Checks([
    ...unknownOptions(options, knownOfWebhook),
    ...groupProblems('batch', options.batch, knownOfBatch),
    ...groupProblems('retry', options.retry, knownOfRetry),
  ])
  const { url, match, from = 'now', force = false, format = 'busbar', parallel = 1, keep = 100_000 } = options
  const { maxEvents = 100, maxWait = '500ms', maxBytes = '256kB' } = options.batch ?? {}
  const { giveUpAfter = '3d', attempts } = options.retry ?? {}
  const { headers = {}, secret, basic, timeout = '20s', disableAfter = '5d' } = options
  const { problems } = checks
  if (typeof url !== 'string') problems.push(`url must be a text, as in 'https://example.com/hook'; got ${shown(url)}`)
  if (match === undefined || match === null) problems.push("match must be a pattern, as in 'order.>'")
  if (!isStart(from)) problems.push(`from must be 'beginning', 'now', or a time in ms or Date; got ${shown(from)}`)
  if (typeof force !== 'boolean') problems.push(`force must be true or false; got ${shown(force)}`)
  if (!formats.includes(format)) problems.push(`format must be one of ${formats.join(', ')}; got ${shown(format)}`)
  if (basic !== undefined && !(typeof basic === 'string' && basicShape.test(basic)))
    problems.push('basic must be 1 to 200 printable characters, without a colon or a space')
  const ofBatch = checks.whole('batch.maxEvents', maxEvents, 1, webhookLimits.events)
  const sequences = checks.whole('parallel', parallel, 1, webhookLimits.parallel)
  const settings: WebhookSettings = {
    ...{ url, format, headers: {}, maxEvents: ofBatch, parallel: sequences },
    maxWaitMs: checks.duration('batch.maxWait', maxWait, 0, hourMs),
    maxBytes: checkBytes(checks, maxBytes),
    backoffMs: checkBackoff(checks, options.retry?.backoff ?? ['1s', '5m'], parallel),
    giveUpAfterMs: checks.duration('retry.giveUpAfter', giveUpAfter, 1, 366 * dayMs),
    maxAttempts: attempts === undefined ? 0 : checks.whole('retry.attempts', attempts, 1, 1_000_000),
    ...(secret === undefined ? {} : { secret }),
    ...(basic === undefined ? {} : { basic }),
    timeoutMs: checks.duration('timeout', timeout, 100, 120_000),
    disableAfterMs: checks.duration('disableAfter', disableAfter, 1, 366 * dayMs),
    keepEvents: checks.whole('keep', keep, ofBatch * sequences, webhookLimits.keep),
  }
  checks.done()
  settings.headers = checkHeaders(headers, { hasCredentials: basic !== undefined })
  if (secret !== undefined) checkSecret(secret)
  parsePattern(match)
  return { match, from, force, settings }
}

function checkBytes(checks: Checks, value: Bytes): number {
  const parsed = asked(parseBytes(value), value)
  if (parsed.ok && parsed.value >= leastBytes && parsed.value <= mostBytes) return parsed.value
  checks.problems.push(
    `batch.maxBytes ${parsed.ok ? `must be from 1KiB to 1MiB; got ${shown(value)}` : parsed.problem}`,
  )
  return leastBytes
}

function checkBackoff(
  checks: Checks,
  backoff: WebhookRetry['backoff'],
  parallel: unknown,
): [number, number] | 'ladder' {
  if (backoff === 'ladder') {
    if (parallel === 1)
      checks.problems.push(
        "retry.backoff: 'ladder' waits for up to a day, and the head of a sequence blocks it: it needs parallel",
      )
    return backoff
  }
  if (!isPair(backoff)) {
    checks.problems.push(`retry.backoff must be two durations, as in ['1s', '5m'], or 'ladder'; got ${shown(backoff)}`)
    return [0, 0]
  }
  const [first, most] = backoff
  checks.problems.push(...backoffProblems(first, most))
  return [
    checks.duration('retry.backoff[0]', first, 1, 366 * dayMs),
    checks.duration('retry.backoff[1]', most, 1, 366 * dayMs),
  ]
}

export function shownSettings({ secret: _secret, headers, basic, ...settings }: WebhookSettings): ShownSettings {
  return { ...settings, headers: Object.keys(headers), basic: basic !== undefined }
}

/** Of a definition that is stored. */
export const settingsOf = (options: Readonly<Record<string, unknown>>): WebhookSettings =>
  options as unknown as WebhookSettings
