/**
 * Where settings come from: the config file, the environment and the flags, each as raw values by setting name.
 *
 * A layer reports every name it does not know, with the known one that was probably meant. Values are not looked at
 * here, nor shown: an unknown name may carry a secret.
 */
import { readFileSync } from 'node:fs'
import { didYouMean } from './did-you-mean.ts'
import { shown } from './errors.ts'

export type LayerSource = 'file' | 'environment' | 'flag'

export interface Layer {
  readonly source: LayerSource
  readonly values: ReadonlyMap<string, unknown>
  /** Names of this layer that are no settings, and whatever else is wrong with it. */
  readonly problems: readonly string[]
  /** How a setting is called in this layer: `BUSBAR_HTTP_PORT`, `--http-port`, or the file's own name for it. */
  callName(setting: string): string
}

export const environmentPrefix = 'BUSBAR_'

const words = (setting: string) =>
  setting
    .replace(/([a-z])([A-Z])/g, '$1.$2')
    .toLowerCase()
    .split('.')

// Platforms hand out a Redis as *_REDIS_URL; the other names follow from the settings.
const ownVariables = new Map([['redis', 'REDIS_URL']])

export const variableOf = (setting: string) =>
  environmentPrefix + (ownVariables.get(setting) ?? words(setting).join('_').toUpperCase())
export const flagOf = (setting: string) => `--${words(setting).join('-')}`

export function flagLayer(flags: Readonly<Record<string, unknown>>, settings: readonly string[]): Layer {
  const given = Object.entries(flags).filter(([, value]) => value !== undefined)
  const problems = given
    .filter(([name]) => !settings.includes(name))
    .map(([name]) => unknownName('flag', flagOf(name), settings.map(flagOf)))
  return {
    source: 'flag',
    values: new Map(given.filter(([name]) => settings.includes(name))),
    problems,
    callName: flagOf,
  }
}

export function environmentLayer(
  env: Readonly<Record<string, string | undefined>>,
  settings: readonly string[],
): Layer {
  const byVariable = new Map(settings.map((setting) => [variableOf(setting), setting]))
  const values = new Map<string, unknown>()
  const problems: string[] = []
  for (const [variable, value] of Object.entries(env)) {
    // Compose files and shells pass on empty variables for what nobody has set.
    if (!variable.startsWith(environmentPrefix) || !value || isServiceLink(variable, value)) continue
    const setting = byVariable.get(variable)
    if (setting === undefined) problems.push(unknownName('environment variable', variable, byVariable.keys()))
    else values.set(setting, value)
  }
  return { source: 'environment', values, problems, callName: variableOf }
}

/**
 * Kubernetes gives every pod variables about the services around it. For one called `busbar` or `busbar-http` they look
 * like ours (`BUSBAR_SERVICE_HOST`, even `BUSBAR_HTTP_PORT=tcp://10.0.0.7:7475`), and must not stop the start.
 */
function isServiceLink(variable: string, value: string): boolean {
  if (/^(tcp|udp|sctp):\/\//.test(value)) return true
  return /_(SERVICE_(HOST|PORT(_\w+)?)|PORT_\d+_(TCP|UDP|SCTP)(_\w+)?)$/.test(variable)
}

/** `required` says that someone named the path, so that a missing file is a problem. */
export function fileLayer(path: string, settings: readonly string[], { required }: { required: boolean }): Layer {
  const values = new Map<string, unknown>()
  const problems: string[] = []
  const content = readConfigFile(path, required, problems)
  if (isObject(content)) collectSettings(content, '', settings, values, problems)
  else if (content !== undefined) problems.push(`Config file ${shown(path)} must hold one JSON object.`)
  return { source: 'file', values, problems, callName: (setting) => `${setting} in the config file` }
}

function readConfigFile(path: string, required: boolean, problems: string[]): unknown {
  let text: string
  try {
    text = readFileSync(path, 'utf8')
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code
    if (required || code !== 'ENOENT') problems.push(`Config file ${shown(path)} cannot be read (${code}).`)
    return undefined
  }
  try {
    return JSON.parse(text.replace(/^\uFEFF/, ''))
  } catch (error) {
    // The parser's own message quotes the text, which may hold a password: only the place is passed on.
    const position = /position (\d+)/.exec((error as Error).message)?.[1]
    const line = position === undefined ? '' : `, line ${text.slice(0, Number(position)).split('\n').length}`
    problems.push(`Config file ${shown(path)} is not JSON${line}.`)
    return undefined
  }
}

/** Settings may be nested (`{ "http": { "port": 1 } }`) or dotted (`{ "http.port": 1 }`). */
function collectSettings(
  object: Record<string, unknown>,
  prefix: string,
  settings: readonly string[],
  values: Map<string, unknown>,
  problems: string[],
): void {
  for (const [key, value] of Object.entries(object)) {
    const name = prefix + key
    if (values.has(name)) problems.push(`Setting ${shown(name)} stands twice in the config file.`)
    else if (settings.includes(name)) values.set(name, value)
    else if (isObject(value) && (isGroup(name, settings) || Object.keys(value).length > 0))
      collectSettings(value, `${name}.`, settings, values, problems)
    else problems.push(unknownName('setting in the config file:', name, settings))
  }
}

/** `http` of `http.port`. */
function isGroup(name: string, settings: readonly string[]): boolean {
  return settings.some((setting) => setting.startsWith(`${name}.`))
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

function unknownName(what: string, name: string, known: Iterable<string>): string {
  const all = [...known]
  const meant = didYouMean(name, all)
  return `Unknown ${what} ${shown(name)}; ${meant ? `did you mean ${meant}?` : `known are ${all.join(', ')}.`}`
}
