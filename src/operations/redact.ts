/**
 * What operations never show: fields by their names, in inputs, outputs and errors, taken out before anything is written.
 *
 * A name is the same however it is dressed: `accessToken`, `access_token`, `Access-Token`. In texts, such as messages of errors, what stands
 * behind the name and a sign (`token=…`, `"token": …`) goes. Nothing else is touched: what has no such name stays the bytes it is.
 */
import { operationLimits } from '../lanes/operation.ts'

export const defaultSecrets: readonly string[] = [
  ...['password', 'passwd', 'secret', 'clientSecret', 'token', 'accessToken', 'refreshToken', 'idToken'],
  ...['apiKey', 'privateKey', 'authorization', 'cookie', 'credentials'],
]

export interface Redactor {
  /** Of an item's data, JSON: the same text when there is nothing to hide and it is not too large. */
  input(json: string): string
  /** Of what a handler returned: JSON, '' for nothing. */
  output(value: unknown): string
  /** Of a message. */
  text(message: string): string
}

const redacted = '[redacted]'
const omitted = (what: string): string => JSON.stringify({ omitted: what })

const plain = (name: string): string => name.toLowerCase().replace(/[^a-z0-9]/g, '')

/** Any dress of a name, as a regular expression. */
const anyDress = (name: string): string => [...plain(name)].join('[^a-z0-9"\'=:]?')

const known = new Map<string, Redactor>()
// Queues have few lists, and mostly the same.
const mostKnown = 1_000

export function redactorOf(names: readonly string[]): Redactor {
  const key = names.join('\n')
  const made = known.get(key)
  if (made) return made
  if (known.size >= mostKnown) known.clear()
  const redactor = createRedactor(names)
  known.set(key, redactor)
  return redactor
}

function createRedactor(names: readonly string[]): Redactor {
  const secrets = new Set(names.map(plain).filter((name) => name !== ''))
  const any = [...secrets].map(anyDress).join('|')
  // In JSON also inside of texts, where quotes are escaped.
  const suspicion = new RegExp(`(?:${any})\\W{0,3}\\s*[:=]|\\\\u`, 'i')
  const value = `\\\\?"(?:[^"\\\\]|\\\\[^"])*\\\\?"|'[^']*'|(?:bearer|basic)\\s+[^\\s,;&"']+|[^\\s,;&"'}\\]]+`
  const spoken = new RegExp(`(?<![a-z0-9])((?:${any})\\\\?["']?\\s*[:=]\\s*)(?:${value})`, 'gi')
  const isEmpty = secrets.size === 0

  const text = (message: string): string => (isEmpty ? message : message.replace(spoken, `$1${redacted}`))
  const inside = (name: string, each: unknown): unknown => {
    if (secrets.has(plain(name))) return redacted
    return typeof each === 'string' ? text(each) : each
  }
  const json = (written: string): string =>
    isEmpty || !suspicion.test(written) ? written : JSON.stringify(JSON.parse(written, inside))
  const fitting = (written: string, what: string, most: number): string => {
    const bytes = written.length * 3 > most ? Buffer.byteLength(written) : 0
    return bytes > most ? omitted(`${what} of ${bytes} bytes; at most ${most} are kept`) : json(written)
  }
  return {
    input: (written) => fitting(written, 'input', operationLimits.inputBytes),
    output: (returned) => {
      const written = writtenOf(returned)
      return fitting(written, 'output', operationLimits.outputBytes)
    },
    text,
  }
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
