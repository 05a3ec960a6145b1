/** What is kept of a receiver's answer. All of it is text of a stranger. */

const mostCharacters = 1_000
/** A character of UTF-16 takes at most three bytes of UTF-8; and a header's value that begins in the excerpt is to be known whole. */
export const excerptBytes = 3 * mostCharacters + 4_096

const dayMs = 86_400_000

// Controls, line separators, and invisible formatting such as changes of direction.
const unprintable = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu

/** The beginning of a body, as it may be shown and stored, without what a receiver repeats of the secrets in the request's headers. */
export function excerptOf(chunks: readonly Uint8Array[], headers: Readonly<Record<string, string>> = {}): string {
  if (chunks.length === 0) return ''
  const text = Buffer.concat(chunks).toString('utf8', 0, excerptBytes)
  const shown = secretsIn(headers).reduce((rest, secret) => rest.replaceAll(secret, '[redacted]'), text)
  return shown.replace(unprintable, ' ').slice(0, mostCharacters).toWellFormed()
}

const notSecret = new Set(['content-type', 'user-agent', 'webhook-id', 'webhook-timestamp'])
/** What is shorter stands in any text, and is no secret. */
const shortestSecret = 4

/** Each value and each of its words, credentials as they were before base64 too, and all of it as JSON writes it; the longest first. */
function secretsIn(headers: Readonly<Record<string, string>>): string[] {
  const values = Object.entries(headers).flatMap(([name, value]) => (notSecret.has(name) ? [] : [value]))
  const words = values.flatMap((value) => [value, ...value.split(/[ ,]/)])
  const basic = values.flatMap((value) => /^Basic (\S+)$/i.exec(value)?.[1] ?? [])
  const credentials = basic.map((text) => Buffer.from(text, 'base64').toString())
  const all = [...words, ...credentials, ...credentials.flatMap((text) => text.split(':'))]
  const written = all.flatMap((text) => [text, JSON.stringify(text).slice(1, -1)])
  return [...new Set(written)].filter(({ length }) => length >= shortestSecret).sort((a, b) => b.length - a.length)
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
