/**
 * The headers that a subscription adds to its requests, checked when it is made or changed.
 *
 * Names come out in lower case. What the request is made of (its length, its connection, its signature) cannot be replaced, and no value can
 * end its line and begin another header. Values may be secrets: an error names the header and never shows what it holds.
 */
import { BusbarError, shown } from '../../errors.ts'

const most = { headers: 20, nameLength: 100, valueLength: 4_096, bytes: 8_192 } as const

const token = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/
/** Visible ASCII, with spaces and tabs between. */
const text = /^[\x21-\x7e]+(?:[\x20\t]+[\x21-\x7e]+)*$/

const ours = new Set([
  ...['host', 'connection', 'keep-alive', 'transfer-encoding', 'te', 'trailer', 'upgrade', 'expect', 'http2-settings'],
  ...['user-agent', 'accept-encoding'],
])
const oursBeginWith = ['content-', 'webhook-', 'proxy-', ':']

export interface HeaderRules {
  /** The subscription has credentials of its own, which `authorization` would replace. */
  hasCredentials?: boolean
}

/** WEBHOOK_HEADERS_INVALID lists all that is wrong. */
export function checkHeaders(headers: unknown, rules: HeaderRules = {}): Record<string, string> {
  if (typeof headers !== 'object' || headers === null || Array.isArray(headers))
    throw invalid([`headers must be an object of names and texts; got ${kindOf(headers)}`])
  const entries = Object.entries(headers)
  // Of a list without end the rest would only be more of the same.
  const first = entries.slice(0, most.headers)
  const problems = [
    ...tooMuch(entries),
    ...first.flatMap(([name, value]) => headerProblems(name, value, rules)),
    ...doubled(first.map(([name]) => name.toLowerCase())),
  ]
  if (problems.length > 0) throw invalid(problems)
  return Object.fromEntries(entries.map(([name, value]) => [name.toLowerCase(), value]))
}

const invalid = (problems: string[]): BusbarError => BusbarError.of('WEBHOOK_HEADERS_INVALID', { problems })

function headerProblems(given: string, value: unknown, { hasCredentials = false }: HeaderRules): string[] {
  const name = given.toLowerCase()
  const about = shown(name)
  if (name.length > most.nameLength) return [`${about} is longer than ${most.nameLength} characters`]
  if (isOurs(name)) return [`${about} is set by Busbar`]
  if (!token.test(given)) return [`${about} is not a header's name: letters, digits and - are`]
  if (name === 'authorization' && hasCredentials) return [`${about} would replace the credentials of the subscription`]
  if (typeof value !== 'string') return [`${about} must be a text; got ${kindOf(value)}`]
  if (value.length > most.valueLength) return [`${about} is longer than ${most.valueLength} characters`]
  if (!text.test(value)) return [`${about} must be visible ASCII, without line ends and without spaces around it`]
  return []
}

const kindOf = (value: unknown): string =>
  value === null ? 'null' : Array.isArray(value) ? 'a list' : `a ${typeof value}`

const isOurs = (name: string): boolean => ours.has(name) || oursBeginWith.some((start) => name.startsWith(start))

function tooMuch(entries: readonly (readonly [string, unknown])[]): string[] {
  if (entries.length > most.headers) return [`there are ${entries.length} headers; the limit is ${most.headers}`]
  const bytes = entries.reduce(
    (sum, [name, value]) => sum + name.length + (typeof value === 'string' ? value.length : 0),
    0,
  )
  return bytes > most.bytes ? [`all headers together have ${bytes} bytes; the limit is ${most.bytes}`] : []
}

/** Names that differ in case alone are one header. */
function doubled(names: readonly string[]): string[] {
  const twice = new Set(names.filter((name, at) => names.indexOf(name) !== at))
  return [...twice].map((name) => `${shown(name)} is given more than once`)
}
