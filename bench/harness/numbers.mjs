/** @param {ArrayLike<number>} values */
export function percentile(values, share) {
  const sorted = Float64Array.from(values).sort()
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))]
}

/**
 * Two figures of one round, that in which their ratio is the median: what takes turns in a round is compared in it, and not with another round, in
 * which the machine may have been faster. Of an even number of rounds the lower one in the middle.
 */
export function medianPair(rounds, figure, other) {
  const ratio = (round) => round[figure] / round[other]
  const sorted = rounds.toSorted((a, b) => ratio(a) - ratio(b))
  const middle = sorted[Math.floor((sorted.length - 1) / 2)]
  return [middle?.[figure], middle?.[other]]
}

/** The middle value; of an even number of rounds the mean of the two in the middle. */
export function median(values) {
  const sorted = Float64Array.from(values).sort()
  const middle = Math.floor(sorted.length / 2)
  return sorted.length % 2 === 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2
}
