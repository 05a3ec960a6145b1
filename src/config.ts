/**
 * The settings of a Busbar process: one table, read once, frozen, and passed in.
 *
 * Defaults < config file < environment < flags. Whatever is unknown or invalid in any of them stops the start with one
 * SETTING_INVALID that lists all problems. Nothing else in Busbar looks at the environment. docs/config.md holds the
 * same table for readers, and a test keeps the two together.
 */
import { resolve } from 'node:path'
import {
  environmentLayer,
  fileLayer,
  flagLayer,
  flagOf,
  type Layer,
  type LayerSource,
  variableOf,
} from './config-layers.ts'
import { BusbarError, shown } from './errors.ts'
import { bytes, duration, type Kind, networks, oneOf, redisUrl, text, wholeNumber, yesOrNo } from './setting-kinds.ts'

interface Setting<T> {
  readonly kind: Kind<NonNullable<T>>
  readonly sentence: string
  /** As a person would write it; undefined when there is none. */
  readonly default: T | string | undefined
  /** What holds when nobody sets it, where the default alone does not say so. */
  readonly otherwise?: string
  readonly secret?: boolean
  /** Flag and environment only. */
  readonly notInFile?: boolean
}

type Row<T> = Omit<Setting<T>, 'kind' | 'default'>

const setting = <T>(kind: Kind<T & {}>, fallback: T | string, row: Row<T>): Setting<T> => ({
  kind,
  default: fallback,
  ...row,
})
const optional = <T>(kind: Kind<T & {}>, otherwise: string, row: Row<T>): Setting<T | undefined> => ({
  kind,
  default: undefined,
  otherwise,
  ...row,
})

const path = text('a path', /^[^\0]{1,4096}$/, '<path>')
const hour = 3_600_000
const GiB = 2 ** 30

export const settings = {
  config: optional(path, 'busbar.config.json, if there is one', {
    sentence: 'The config file: JSON, relative to the working folder.',
    notInFile: true,
  }),
  redis: optional(redisUrl, 'an embedded Redis that lives in dataDir', {
    sentence: 'The Redis or Valkey that holds everything.',
    secret: true,
  }),
  dataDir: setting(path, '.busbar', {
    sentence: 'The folder of the embedded Redis and of the root token, relative to the working folder.',
  }),
  namespace: setting(
    text('1 to 64 of a-z 0-9 _ -, beginning with a letter or digit', /^[a-z0-9][a-z0-9_-]{0,63}$/, '<name>'),
    'busbar',
    { sentence: 'The first part of every key in Redis; two namespaces share nothing.' },
  ),
  partitions: setting(wholeNumber(1, 256), 16, {
    sentence: 'Ordered parts of the log, fixed when the namespace is created.',
    otherwise: 'what is stored, else 16',
  }),
  'http.host': setting(text('a host name or address', /^[A-Za-z0-9.:_%-]{1,253}$/, '<host>'), '127.0.0.1', {
    sentence: 'The address that the HTTP door listens on.',
  }),
  'http.port': setting(wholeNumber(0, 65_535), 7475, { sentence: 'Its port; 0 takes a free one.' }),
  // 1,000 events of 16 KiB each; larger ones travel in calls of fewer events.
  'http.bodyMaxBytes': setting(bytes(1024, GiB), '16MiB', { sentence: 'The largest request body that is read.' }),
  // At most an hour: a timer beyond 2^31 ms would fire at once.
  'publish.timeout': setting(duration(1, hour), '10s', {
    sentence: 'How long a publish may take before it ends as not stored or unknown.',
  }),
  // At least one full call of 1 MiB, which otherwise could never be published.
  'publish.maxWaitingBytes': setting(bytes(2 ** 20, 64 * GiB), '64MiB', {
    sentence: 'Bytes of calls that may wait for Redis in this process before BUSY.',
  }),
  'publish.maxWaiting': setting(wholeNumber(1, 10_000_000), 100_000, {
    sentence: 'Calls that may wait for Redis in this process before BUSY.',
  }),
  'retention.age': setting(duration(1, 87_600 * hour), '7d', {
    sentence: 'How long an event stays in the log.',
    otherwise: 'what is stored, else 7d',
  }),
  'retention.events': setting(wholeNumber(1, 1_000_000_000), 1_000_000, {
    sentence: 'How many events a partition keeps.',
    otherwise: 'what is stored, else 1000000',
  }),
  'retention.bytes': optional(bytes(1, 1024 * GiB), 'what is stored, else a quarter of maxmemory over all partitions', {
    sentence: 'How many bytes of events a partition keeps.',
  }),
  liveChannel: setting(yesOrNo, false, {
    sentence: 'Also publish each event to a Redis channel, namespace:live:tenant:type.',
  }),
  'webhooks.allow': optional(networks, 'only public addresses', {
    sentence: 'Networks that webhooks may go to although they are not public.',
  }),
  'webhooks.allowHttp': setting(yesOrNo, false, { sentence: 'Webhooks may go to http:// as well.' }),
  'webhooks.development': setting(yesOrNo, false, {
    sentence: 'Webhooks may go to this machine, and to http://. Not for production.',
  }),
  'webhooks.concurrency': setting(wholeNumber(1, 10_000), 64, {
    sentence: 'Requests of webhooks that this process has under way at once.',
  }),
  'log.level': setting(oneOf(['debug', 'info', 'warn', 'error']), 'info', {
    sentence: 'The least level of log lines that are written.',
  }),
}

export type SettingName = keyof typeof settings
type ValueOf<S> = S extends Setting<infer T> ? T : never
type Values = { [N in SettingName]: ValueOf<(typeof settings)[N]> }
type Source = 'default' | LayerSource
type Effective = { readonly [N in SettingName]: { readonly value: Values[N]; readonly source: Source } }

export interface Config {
  /** Undefined: an embedded Redis in `dataDir`. */
  readonly redis: string | undefined
  /** Absolute. */
  readonly dataDir: string
  readonly namespace: string
  /** Undefined: what is stored, else the default. */
  readonly partitions: number | undefined
  readonly http: { readonly host: string; readonly port: number; readonly bodyMaxBytes: number }
  readonly publish: { readonly timeoutMs: number; readonly maxWaitingBytes: number; readonly maxWaiting: number }
  /** Undefined: what is stored, else the defaults. Setting one of the three declares all of them. */
  readonly retention: { readonly ageMs: number; readonly events: number; readonly bytes: number | null } | undefined
  readonly liveChannel: boolean
  readonly webhooks: {
    readonly allow: readonly string[]
    readonly allowHttp: boolean
    readonly development: boolean
    readonly concurrency: number
  }
  readonly log: { readonly level: Values['log.level'] }
  /** Every setting as it came out, for `describeConfig`. */
  readonly effective: Effective
}

export interface ConfigSources {
  /** By setting name, as the command line gave them. */
  flags?: Readonly<Partial<Record<SettingName, string | boolean | undefined>>>
  env?: Readonly<Record<string, string | undefined>>
  cwd: string
}

const names = Object.keys(settings) as SettingName[]
const row = (name: string): Setting<unknown> => settings[name as SettingName] as Setting<unknown>

/** Throws SETTING_INVALID with every problem of every source. */
export function loadConfig({ flags = {}, env = {}, cwd }: ConfigSources): Config {
  const fromFlags = flagLayer(flags, names)
  const fromEnvironment = environmentLayer(env, names)
  const named = fromFlags.values.get('config') ?? fromEnvironment.values.get('config')
  const file = resolve(cwd, typeof named === 'string' ? named : 'busbar.config.json')
  const inFile = names.filter((name) => !row(name).notInFile)
  const layers = [fileLayer(file, inFile, { required: named !== undefined }), fromEnvironment, fromFlags]

  const problems = layers.flatMap((layer) => layer.problems)
  const effective = new Map<string, { value: unknown; source: Source }>(
    names.map((name) => [name, { value: defaultOf(name), source: 'default' }]),
  )
  for (const layer of layers) applyLayer(layer, effective, problems)
  if (problems.length > 0) throw BusbarError.of('SETTING_INVALID', { problems })
  return toConfig(Object.fromEntries(effective) as Effective, cwd)
}

function defaultOf(name: SettingName): unknown {
  const { kind, default: written } = row(name)
  if (written === undefined) return undefined
  const parsed = kind.parse(written)
  return parsed.ok ? parsed.value : undefined
}

function applyLayer(
  layer: Layer,
  effective: Map<string, { value: unknown; source: Source }>,
  problems: string[],
): void {
  for (const [name, raw] of layer.values) {
    const parsed = row(name).kind.parse(raw)
    if (parsed.ok) effective.set(name, { value: parsed.value, source: layer.source })
    else problems.push(`${layer.callName(name)} ${parsed.problem}; got ${shownRaw(row(name), raw)}.`)
  }
}

function shownRaw({ kind, secret }: Setting<unknown>, raw: unknown): string {
  if (!secret) return shown(raw)
  return kind.redact && typeof raw === 'string' ? shown(kind.redact(raw)) : 'a value that is not shown'
}

function toConfig(effective: Effective, cwd: string): Config {
  const of = <N extends SettingName>(name: N): Values[N] => effective[name].value as Values[N]
  const isSet = (name: SettingName) => effective[name].source !== 'default'
  const declaresRetention = isSet('retention.age') || isSet('retention.events') || isSet('retention.bytes')
  const retention = {
    ageMs: of('retention.age'),
    events: of('retention.events'),
    bytes: of('retention.bytes') ?? null,
  }
  return deepFreeze({
    redis: of('redis'),
    dataDir: resolve(cwd, of('dataDir')),
    namespace: of('namespace'),
    partitions: isSet('partitions') ? of('partitions') : undefined,
    http: { host: of('http.host'), port: of('http.port'), bodyMaxBytes: of('http.bodyMaxBytes') },
    publish: {
      timeoutMs: of('publish.timeout'),
      maxWaitingBytes: of('publish.maxWaitingBytes'),
      maxWaiting: of('publish.maxWaiting'),
    },
    retention: declaresRetention ? retention : undefined,
    liveChannel: of('liveChannel'),
    webhooks: {
      allow: of('webhooks.allow') ?? [],
      allowHttp: of('webhooks.allowHttp'),
      development: of('webhooks.development'),
      concurrency: of('webhooks.concurrency'),
    },
    log: { level: of('log.level') },
    effective,
  })
}

function deepFreeze<T extends object>(object: T): T {
  for (const value of Object.values(object)) if (typeof value === 'object' && value !== null) deepFreeze(value)
  return Object.freeze(object)
}

export interface ConfigRow {
  readonly name: SettingName
  /** As a person would write it, secrets hidden; in parentheses what holds when it is not set. */
  readonly value: string
  readonly source: Source
}

/** The effective settings for `busbar config`. */
export function describeConfig(config: Config): ConfigRow[] {
  return names.map((name) => {
    const { value, source } = config.effective[name]
    const { otherwise } = row(name)
    const isOpen = source === 'default' && otherwise !== undefined
    return { name, value: isOpen ? `(${otherwise})` : shownValue(row(name), value), source }
  })
}

function shownValue({ kind, secret }: Setting<unknown>, value: unknown): string {
  const written = kind.show(value as NonNullable<unknown>)
  return secret ? (kind.redact?.(written) ?? '(hidden)') : written
}

export interface SettingDescription {
  readonly name: SettingName
  /** `--http-port` */
  readonly flag: string
  /** `<number>`; in brackets when the flag may stand alone. */
  readonly placeholder: string
  /** What commander calls it: `httpPort`. */
  readonly option: string
  /** `BUSBAR_HTTP_PORT` */
  readonly variable: string
  readonly accepts: string
  /** As it is written, or what holds without it. */
  readonly default: string
  readonly sentence: string
  readonly secret: boolean
}

/** The table for the command line and the documentation. */
export function describeSettings(): SettingDescription[] {
  return names.map((name) => {
    const { kind, otherwise, default: written, sentence, secret = false } = row(name)
    const flag = flagOf(name)
    return {
      name,
      flag,
      placeholder: kind.placeholder,
      option: flag.slice(2).replace(/-(.)/g, (_, letter: string) => letter.toUpperCase()),
      variable: variableOf(name),
      accepts: kind.accepts,
      default: otherwise ?? String(written),
      sentence,
      secret,
    }
  })
}
