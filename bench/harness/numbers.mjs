/** @param {ArrayLike<number>} values */
export function percentile(values, share) {
  const sorted = Float64Array.from(values).sort()
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))]
}

/** The middle value; of an even number of rounds the mean of the two in the middle. */
export function median(values) {
  const sorted = Float64Array.from(values).sort()
  const middle = Math.floor(sorted.length / 2)
  return sorted.length % 2 === 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2
}
