/**
 * What an attempt means for its batch and its webhook. Pure.
 *
 *   2xx                           delivered
 *   410                           the webhook is disabled; the batch stays
 *   anything else, or no answer   tried again later, with a growing wait; the receiver may ask for a longer one
 *   that, for too long            a dead letter; or, when nothing was delivered for even longer, the webhook is disabled
 */
import { formatDuration } from '../../duration.ts'
import { backoffMs } from '../../runtime/backoff.ts'
import type { Randomness } from '../../runtime/clock.ts'
import type { WebhookSettings } from './options.ts'
import type { Posted } from './post.ts'

export type Verdict =
  | { became: 'delivered' }
  | { became: 'failed'; afterMs: number; reason: string }
  | { became: 'dead'; reason: string }
  | { became: 'back'; disable: string }

export interface Tried {
  posted: Posted
  /** This one included. */
  attempts: number
  /** When the first of them began: what waited before that, paused or behind others, has not failed for that long. */
  firstTriedMs: number
  /** Since when no attempt of the webhook was good; undefined when the one before was. */
  failingSince: number | undefined
  nowMs: number
}

// The head of a sequence blocks it: a receiver may ask for patience, not for a standstill.
const mostRetryAfterMs = 3_600_000
const [second, minute, hour] = [1_000, 60_000, 3_600_000]
const ladderMs = [
  ...[5 * second, 5 * minute, 30 * minute, 2 * hour, 5 * hour],
  ...[10 * hour, 14 * hour, 20 * hour, 24 * hour],
]
const gone = 410

export function judge(tried: Tried, settings: WebhookSettings, randomness: Randomness): Verdict {
  const { posted, attempts, firstTriedMs, failingSince, nowMs } = tried
  if (posted.kind === 'answered' && posted.status >= 200 && posted.status < 300) return { became: 'delivered' }
  if (posted.kind === 'answered' && posted.status === gone) return { became: 'back', disable: 'it answered 410 Gone' }
  if (failingSince !== undefined && nowMs - failingSince >= settings.disableAfterMs)
    return { became: 'back', disable: `no attempt was good for ${formatDuration(settings.disableAfterMs)}` }
  const reason = reasonOf(posted)
  const isLast = settings.maxAttempts > 0 && attempts >= settings.maxAttempts
  if (isLast || nowMs - firstTriedMs >= settings.giveUpAfterMs) return { became: 'dead', reason }
  return { became: 'failed', afterMs: waitMs(posted, attempts, settings, randomness), reason }
}

export const reasonOf = (posted: Posted): string =>
  posted.kind === 'answered' ? answered(posted.status) : posted.problem

export const answered = (status: number): string => `it answered ${status}`

function waitMs(
  posted: Posted,
  attempts: number,
  { backoffMs: pair }: WebhookSettings,
  randomness: Randomness,
): number {
  const wait =
    pair === 'ladder'
      ? ladderMs[Math.min(attempts, ladderMs.length) - 1]! * (0.9 + 0.2 * randomness.float())
      : backoffMs(pair, attempts, randomness)
  const askedMs = posted.kind === 'answered' ? (posted.retryAfterMs ?? 0) : 0
  return Math.ceil(Math.max(wait, Math.min(askedMs, mostRetryAfterMs)))
}
