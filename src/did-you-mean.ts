/** The one of the known names that a mistyped name was probably meant to be, if any comes close. */
export function didYouMean(given: string, known: Iterable<string>): string | undefined {
  const name = plain(given)
  // Far longer than any name is no typo, and the distance below takes time in proportion to it.
  if (name.length < 2 || name.length > 100) return undefined
  let best: { candidate: string; distance: number } | undefined
  for (const candidate of known) {
    const distance = nameDistance(name, plain(candidate))
    if (!best || distance < best.distance) best = { candidate, distance }
  }
  return best && best.distance <= Math.max(1, Math.floor(name.length / 3)) ? best.candidate : undefined
}

/** `httpPort`, `http-port` and `HTTP_PORT` differ in dress only. */
function plain(name: string): string {
  return name.toLowerCase().replace(/[^a-z0-9]/g, '')
}

/** A name that is only the end of another (`port` of `http.port`) counts as one slip. */
function nameDistance(a: string, b: string): number {
  const distance = editDistance(a, b)
  return a.length > 2 && b.endsWith(a) ? Math.min(1, distance) : distance
}

/** Insertions, deletions, replacements and swaps of neighbours that turn one text into the other. */
function editDistance(a: string, b: string): number {
  let beforePrevious: number[] = []
  let previous = Array.from({ length: b.length + 1 }, (_, j) => j)
  for (let i = 1; i <= a.length; i++) {
    const row = [i]
    for (let j = 1; j <= b.length; j++) {
      const replaced = previous[j - 1]! + (a[i - 1] === b[j - 1] ? 0 : 1)
      row[j] = Math.min(previous[j]! + 1, row[j - 1]! + 1, replaced)
      const isSwap = i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1]
      if (isSwap) row[j] = Math.min(row[j]!, beforePrevious[j - 2]! + 1)
    }
    beforePrevious = previous
    previous = row
  }
  return previous[b.length]!
}
