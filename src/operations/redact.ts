/**
 * What operations never show: fields by their names, in inputs, outputs and errors, taken out before anything is written.
 *
 * A name is the same however it is dressed: `accessToken`, `access_token`, `Access-Token`. In texts, such as messages of errors, what stands
 * behind the name and a sign (`token=…`, `"token": …`) goes: a text in quotes, all that is in brackets, PEM blocks, a word; of headers that have
 * several words the rest of the line. What is not closed goes up to the end. Nothing else is touched: what has no such name stays the bytes it is.
 */
import { createHash } from 'node:crypto'
import { operationLimits } from '../lanes/operation.ts'

export const defaultSecrets: readonly string[] = [
  ...['password', 'passwd', 'secret', 'clientSecret', 'token', 'accessToken', 'refreshToken', 'idToken'],
  ...['apiKey', 'privateKey', 'authorization', 'cookie', 'credentials'],
]

export interface Redactor {
  /** A short name of the list: the same for the same names, '0' for none. */
  readonly list: string
  /** Of an item's data, JSON: the same text when there is nothing to hide and it is not too large. */
  input(json: string): string
  /** Of what a handler returned: JSON, '' for nothing. */
  output(value: unknown): string
  /** Of a message. */
  text(message: string): string
}

const redacted = '[redacted]'
// To look through what is nested takes a call within a call, and there is an end to that.
export const mostLevels = 500
const omitted = (what: string): string => JSON.stringify({ omitted: what })

export const plain = (name: string): string => name.toLowerCase().replace(/[^a-z0-9]/g, '')

/** Any dress of a name, as a regular expression; `between` its signs there may be others. */
const dressed = (names: Iterable<string>, between: string): string =>
  [...names].map((name) => [...name].join(between)).join('|')

const known = new Map<string, Redactor>()
// Queues have few lists, and mostly the same.
const mostKnown = 1_000
// Asked for with every item, and mostly by the same list.
const knownByList = new WeakMap<readonly string[], Redactor>()

export function redactorOf(names: readonly string[]): Redactor {
  const made = knownByList.get(names)
  if (made) return made
  const key = names.join('\n')
  const redactor = known.get(key) ?? createRedactor(names)
  if (known.size >= mostKnown) known.clear()
  known.set(key, redactor)
  knownByList.set(names, redactor)
  return redactor
}

/** Their values may have spaces in them, and several parts. */
const lineNames = new Set(['authorization', 'cookie'])
const word = /(?:(?:bearer|basic|token|digest|negotiate)\s+)?[^\s,;&"'}\]]+/iy
const restOfLine = /[^\r\n]*/y
// One behind the other, for what comes first may be no secret; in texts of errors with line ends that are escaped.
const pemBlocks = /(?:(?:\s|\\+[nr])*-----BEGIN [^-]*-----(?:[\s\S]*?-----END [^-]*-----|[\s\S]*))+/y

function createRedactor(names: readonly string[]): Redactor {
  const secrets = new Set(names.map(plain).filter((name) => name !== ''))
  // In JSON also inside of texts, where quotes are escaped.
  const suspicion = new RegExp(`(?:${dressed(secrets, '[^a-z0-9]*')})[^a-z0-9]*?[:=]|\\\\u`, 'i')
  const aside = `[^a-z0-9"'=:]{0,3}`
  const spoken = new RegExp(`(?<![a-z0-9])(${dressed(secrets, aside)})${aside}\\\\*["']?\\s*[:=]+>?\\s*`, 'gi')
  const isEmpty = secrets.size === 0

  const text = (message: string): string => {
    if (isEmpty) return message
    let shown = ''
    let from = 0
    spoken.lastIndex = 0
    for (let found = spoken.exec(message); found; found = spoken.exec(message)) {
      const at = spoken.lastIndex
      const end = valueEnd(message, at, lineNames.has(plain(found[1]!)) ? restOfLine : word)
      if (end === at) continue
      shown += message.slice(from, at) + redacted
      from = end
      spoken.lastIndex = end
    }
    return from === 0 ? message : shown + message.slice(from)
  }
  const json = (written: string): string => {
    let hides = false
    const without = JSON.parse(written, (name: string, each: unknown): unknown => {
      const shown = secrets.has(plain(name)) ? redacted : typeof each === 'string' ? text(each) : each
      hides ||= shown !== each
      return shown
    })
    return hides ? JSON.stringify(without) : written
  }
  const fitting = (written: string, what: string, most: number): string => {
    const bytes = written.length * 3 > most ? Buffer.byteLength(written) : 0
    if (bytes > most) return omitted(`${what} of ${bytes} bytes; at most ${most} are kept`)
    if (isDeep(written)) return omitted(`${what} that is nested more than ${mostLevels} levels deep`)
    if (isEmpty || !suspicion.test(written)) return written
    try {
      return json(written)
    } catch {
      // An input of another publisher: whoever handles it says what is wrong with it.
      return omitted(`${what} that is not JSON`)
    }
  }
  return {
    list: isEmpty ? '0' : listName(secrets),
    input: (written) => fitting(written, 'input', operationLimits.inputBytes),
    output: (returned) => {
      const written = writtenOf(returned)
      return fitting(written, 'output', operationLimits.outputBytes)
    },
    text,
  }
}

const listName = (secrets: ReadonlySet<string>): string =>
  createHash('sha256')
    .update([...secrets].sort().join(' '))
    .digest('base64url')
    .slice(0, 8)

/** Whether JSON is nested more than `mostLevels` deep. */
export function isDeep(json: string): boolean {
  if (json.length <= 2 * mostLevels) return false
  let level = 0
  for (let i = 0; i < json.length; i += 1) {
    const sign = json[i]
    if (sign === '"') i = quoteEnd(json, i)! - 1
    else if (sign === '[' || sign === '{') level += 1
    else if (sign === ']' || sign === '}') level -= 1
    if (level > mostLevels) return true
  }
  return false
}

/** What was done is done, also when its answer cannot be written. */
function writtenOf(value: unknown): string {
  if (value === undefined) return ''
  try {
    return (JSON.stringify(value) ?? '').toWellFormed()
  } catch {
    return omitted('output that cannot be written as JSON')
  }
}

/** Where the value ends that begins here. What is in quotes or brackets is one value; any other is as long as `plainly` says. */
function valueEnd(text: string, at: number, plainly: RegExp): number {
  const quoted = quoteEnd(text, at)
  if (quoted !== undefined) return quoted
  if (text[at] === '{' || text[at] === '[') return bracketEnd(text, at)
  for (const shape of [pemBlocks, plainly]) {
    shape.lastIndex = at
    if (shape.test(text)) return shape.lastIndex
  }
  return at
}

/** Undefined when no quote opens here. In JSON inside of JSON quotes have slashes before them, and what is within has more. */
function quoteEnd(text: string, at: number): number | undefined {
  const open = slashesAt(text, at)
  const quote = text[at + open]
  if (quote !== '"' && quote !== "'") return undefined
  for (let i = at + open + 1; i < text.length; i += 1) {
    const slashes = slashesAt(text, i)
    i += slashes
    if (text[i] === quote && slashes >= open && (slashes - open) % (2 * (open + 1)) === 0) return i + 1
  }
  return text.length
}

function slashesAt(text: string, at: number): number {
  let i = at
  while (text[i] === '\\') i += 1
  return i - at
}

function bracketEnd(text: string, at: number): number {
  let depth = 0
  for (let i = at; i < text.length; ) {
    const after = quoteEnd(text, i)
    if (after === undefined) {
      if (text[i] === '{' || text[i] === '[') depth += 1
      if (text[i] === '}' || text[i] === ']') depth -= 1
      if (depth === 0) return i + 1
    }
    i = after ?? i + Math.max(1, slashesAt(text, i))
  }
  return text.length
}
