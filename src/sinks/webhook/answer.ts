/** What is kept of a receiver's answer. All of it is text of a stranger. */

const mostCharacters = 1_000
/** A character of UTF-16 takes at most three bytes of UTF-8. */
export const excerptBytes = 3 * mostCharacters

const dayMs = 86_400_000

// Controls, line separators, and invisible formatting such as changes of direction.
const unprintable = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu

/** The beginning of a body, as it may be shown and stored. */
export function excerptOf(chunks: readonly Uint8Array[]): string {
  if (chunks.length === 0) return ''
  const text = Buffer.concat(chunks).toString('utf8', 0, excerptBytes)
  return text.replace(unprintable, ' ').slice(0, mostCharacters).toWellFormed()
}

const httpDate = /^[A-Z][a-z]{2}, \d{2} [A-Z][a-z]{2} \d{4} \d{2}:\d{2}:\d{2} GMT$/

/** A Retry-After header in ms from now, a day at most. What is neither seconds nor an HTTP date says nothing. */
export function retryAfterMs(header: string | string[] | undefined, nowMs: number): number | undefined {
  if (typeof header !== 'string') return undefined
  const ms = waitMs(header.trim(), nowMs)
  return Number.isNaN(ms) ? undefined : Math.min(dayMs, Math.max(0, ms))
}

function waitMs(value: string, nowMs: number): number {
  if (/^\d{1,15}$/.test(value)) return Number(value) * 1_000
  return httpDate.test(value) ? Date.parse(value) - nowMs : Number.NaN
}
