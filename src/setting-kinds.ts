/**
 * What a setting may be: each kind reads a value as it comes from JSON, the environment or a flag, and shows it again.
 *
 * A `problem` says what is accepted and follows the setting's name: "http.port must be a whole number from 0 to 65535".
 */
import { didYouMean } from './did-you-mean.ts'
import { formatBytes, formatDuration, type Parsed, parseBytes, parseDuration } from './duration.ts'
import { parseNetworks } from './networks.ts'

export interface Kind<T> {
  /** As it stands in the documentation: what may be written. */
  readonly accepts: string
  /** After a flag: `<ms>`; in brackets when the flag may stand alone. */
  readonly placeholder: string
  parse(raw: unknown): Parsed<T>
  show(value: T): string
  /** For secrets: any text with the secret part taken out, also text that does not parse. */
  redact?(text: string): string
}

const refuse = (problem: string): Parsed<never> => ({ ok: false, problem })
const accept = <T>(value: T): Parsed<T> => ({ ok: true, value })

export function text(what: string, shape: RegExp, placeholder: string): Kind<string> {
  return {
    accepts: what,
    placeholder,
    parse: (raw) => (typeof raw === 'string' && shape.test(raw) ? accept(raw) : refuse(`must be ${what}`)),
    show: (value) => value,
  }
}

export function wholeNumber(min: number, max: number): Kind<number> {
  const accepts = `a whole number from ${min} to ${max}`
  return {
    accepts,
    placeholder: '<number>',
    parse(raw) {
      const value = typeof raw === 'string' && /^\d{1,15}$/.test(raw) ? Number(raw) : raw
      const fits = typeof value === 'number' && Number.isInteger(value) && value >= min && value <= max
      return fits ? accept(value) : refuse(`must be ${accepts}`)
    },
    show: String,
  }
}

export function duration(minMs: number, maxMs: number): Kind<number> {
  const range = `from ${formatDuration(minMs)} to ${formatDuration(maxMs)}`
  return amount({ what: 'a duration', min: minMs, max: maxMs, range, parse: parseDuration, show: formatDuration })
}

export function bytes(min: number, max: number): Kind<number> {
  const range = `from ${formatBytes(min)} to ${formatBytes(max)}`
  return amount({ what: 'a size', min, max, range, parse: parseBytes, show: formatBytes })
}

interface Amount {
  what: string
  min: number
  max: number
  range: string
  parse: (raw: unknown) => Parsed<number>
  show: (value: number) => string
}

function amount({ what, min, max, range, parse, show }: Amount): Kind<number> {
  return {
    accepts: `${what} ${range}`,
    placeholder: what === 'a size' ? '<size>' : '<duration>',
    parse(raw) {
      const parsed = parse(raw)
      if (!parsed.ok || (parsed.value >= min && parsed.value <= max)) return parsed
      return refuse(`must be ${what} ${range}`)
    },
    show,
  }
}

const spellings = new Map<unknown, boolean>([
  ...[true, 'true', 'yes', 'on', '1'].map((each) => [each, true] as const),
  ...[false, 'false', 'no', 'off', '0'].map((each) => [each, false] as const),
])

export const yesOrNo: Kind<boolean> = {
  accepts: 'true or false',
  placeholder: '[boolean]',
  parse(raw) {
    const value = spellings.get(typeof raw === 'string' ? raw.toLowerCase() : raw)
    return value === undefined ? refuse(`must be true or false${hint(raw, ['true', 'false'])}`) : accept(value)
  },
  show: String,
}

export const networks: Kind<readonly string[]> = {
  accepts: 'networks such as 10.0.0.0/8, with commas between them; in the file also a list',
  placeholder: '<networks>',
  parse: parseNetworks,
  show: (value) => value.join(', '),
}

export function oneOf<const T extends string>(choices: readonly T[]): Kind<T> {
  const accepts = `${choices.slice(0, -1).join(', ')} or ${choices.at(-1)}`
  return {
    accepts,
    placeholder: `<${choices.join('|')}>`,
    parse(raw) {
      const value = choices.find((choice) => choice === raw)
      return value === undefined ? refuse(`must be ${accepts}${hint(raw, choices)}`) : accept(value)
    },
    show: (value) => value,
  }
}

function hint(raw: unknown, known: readonly string[]): string {
  const meant = typeof raw === 'string' ? didYouMean(raw, known) : undefined
  return meant === undefined ? '' : ` (did you mean ${meant}?)`
}

const redisForms = 'redis://[user:password@]host[:port][/db], the same with rediss:// for TLS, or unix:///path[?db=n]'

export const redisUrl: Kind<string> = {
  accepts: redisForms,
  placeholder: '<url>',
  parse(raw) {
    const url = typeof raw === 'string' ? readRedisUrl(raw) : undefined
    return url === undefined ? refuse(`must be ${redisForms}`) : accept(url)
  },
  show: hidePassword,
  redact: hidePassword,
}

function readRedisUrl(raw: string): string | undefined {
  const text = raw.replace(/^redis\+unix:/, 'unix:')
  try {
    const url = new URL(text)
    decodeURIComponent(url.username + url.password + url.pathname)
    if (url.hash !== '') return undefined
    if (url.protocol === 'unix:') return isSocket(url) ? text : undefined
    const isServer = /^rediss?:$/.test(url.protocol) && url.hostname !== '' && url.search === ''
    return isServer && /^(\/\d{0,4})?$/.test(url.pathname) ? text : undefined
  } catch {
    return undefined
  }
}

function isSocket(url: URL): boolean {
  return url.pathname.length > 1 && /^(\?db=\d{1,4})?$/.test(url.search)
}

/** Up to the last `@`, so that a password with an unescaped `@`, `/` or `:` never shows in part. */
function hidePassword(text: string): string {
  const isSocketPath = /^[a-z+]+:\/\/\//i.test(text)
  const found = isSocketPath ? null : /^([a-z+]+:\/\/)?(.*)@(.*)$/is.exec(text)
  if (!found) return hideQuery(text)
  const [, scheme = '', login = '', rest = ''] = found
  const colon = login.indexOf(':')
  return `${scheme}${colon < 0 ? '' : login.slice(0, colon + 1)}***@${hideQuery(rest)}`
}

/** Other libraries take `?password=`; we do not, but it still must not show when we say so. */
function hideQuery(text: string): string {
  return text.replace(/([?&](?!db=)[^=&]*=)[^&]*/g, '$1***')
}
