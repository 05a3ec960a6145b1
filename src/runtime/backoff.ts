/** How long to wait before the next attempt: twice as long each time, between half of that and all of it. */
import { type Duration, parseDuration } from '../duration.ts'
import { shown } from '../errors.ts'
import type { Randomness } from './clock.ts'

export function backoffMs(
  [first, most]: readonly [first: number, most: number],
  attempt: number,
  randomness: Randomness,
): number {
  const full = Math.min(most, first * 2 ** Math.min(attempt - 1, 30))
  return full * (0.5 + randomness.float() / 2)
}

/** Of a pair in which the first wait is longer than the longest; what is no duration is said elsewhere. */
export function backoffProblems(first: Duration, most: Duration): string[] {
  const [least, longest] = [parseDuration(first), parseDuration(most)]
  if (!least.ok || !longest.ok || least.value <= longest.value) return []
  const pair = shown([first, most])
  return [`retry.backoff must be the first wait and then the longest, as in ['1s', '5m']; got ${pair}: swap them`]
}
