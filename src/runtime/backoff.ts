/** How long to wait before the next attempt: twice as long each time, between half of that and all of it. */
import type { Randomness } from './clock.ts'

export function backoffMs(
  [first, most]: readonly [first: number, most: number],
  attempt: number,
  randomness: Randomness,
): number {
  const full = Math.min(most, first * 2 ** Math.min(attempt - 1, 30))
  return full * (0.5 + randomness.float() / 2)
}
