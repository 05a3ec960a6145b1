/** Whether a store and its subscription agree, decided without reading anything. */
import { readSubscription } from './definition.ts'
import type { Subscription } from './sink.ts'

// Whoever puts a subscription makes its store right after.
const makingMs = 10_000

export function readable(name: string, text: string): Subscription | undefined {
  try {
    return readSubscription(name, text)
  } catch {
    // For the check of subscriptions.
    return undefined
  }
}

/** What of a store does not go with its subscription. `stored`: revision, born and applied:<partition>. */
export function storeProblems(
  stored: Readonly<Record<string, string>>,
  { revision, born }: Subscription,
  ageMs: number,
  lasts: readonly number[],
): string[] {
  const isSettled = ageMs > makingMs
  if (stored.revision === undefined) return isSettled ? ['it is registered, but has no store'] : []
  const problems: string[] = []
  if (Number(stored.born) !== born && isSettled)
    problems.push(`its store is of the subscription of revision ${stored.born}, this one was created with ${born}`)
  if (Number(stored.revision) > revision)
    problems.push(`its store has revision ${stored.revision}, above the subscription's ${revision}`)
  for (const [partition, last] of lasts.entries()) {
    const applied = Number(stored[`applied:${partition}`] ?? 0)
    if (!(applied <= last))
      problems.push(`it has taken up to ${applied} of partition ${partition}, which ends at ${last}`)
  }
  return problems
}
