/** What a bus can be told, checked all at once when it is made. */
import { resolve } from 'node:path'
import type { BackboneOptions } from './backbone.ts'
import { asked, type Bytes, type Duration, type Parsed, parseBytes, parseDuration } from './duration.ts'
import { BusbarError, shown } from './errors.ts'
import type { GroupTiming } from './group/scripts.ts'
import { defaultRetention, type Retention } from './log/namespace.ts'
import { loopback, parseNetworks } from './networks.ts'
import { redisOptions } from './redis/connection.ts'
import type { EventDefinition, Registry } from './registry.ts'
import { type Clock, type Randomness, systemClock, systemRandomness } from './runtime/clock.ts'
import { createTelemetry, type TelemetryListener } from './runtime/telemetry.ts'
import type { Dial } from './sinks/webhook/dial.ts'
import type { Resolve } from './sinks/webhook/guard.ts'
import type { WebhookPolicy } from './sinks/webhook/webhooks.ts'
import { groupProblems, unknownOptions } from './unknown-name.ts'

export interface BusOptions<R extends Registry = Registry> {
  /** redis://, rediss:// or unix:///path. Without it: an embedded Redis in `dataDir`. */
  redis?: string
  /** Where an embedded Redis keeps its data. Default `.busbar`. */
  dataDir?: string
  /** Default `busbar`. */
  namespace?: string
  /** Fixed when the namespace is created; default 16. Given, it must equal what is stored. */
  partitions?: number
  /** Given, it replaces what the namespace has stored. Default 7 days, 1,000,000 events per partition. */
  retention?: { age?: Duration; events?: number; bytes?: Bytes }
  /** Types, their schemas, and how key and tenant follow from the data. */
  events?: R
  /** Also publish each event to the channel `<namespace>:live:<tenant>:<type>`. */
  liveChannel?: boolean
  publish?: {
    /** How long a publish may take before it fails. Default 10s. */
    timeout?: Duration
    /** Calls that may wait at once. Default 100,000. */
    maxWaiting?: number
    /** Bytes that may wait at once. Default 64MiB. */
    maxWaitingBytes?: Bytes
  }
  /** Name of this process among the running ones; a second one of the same name takes its place. Default: random. */
  worker?: string
  /** How running processes notice each other. Must be the same in all of them. */
  group?: {
    /** Default 1s. */
    heartbeat?: Duration
    /** Silence after which a process counts as dead. Default 5s. */
    expiry?: Duration
    /** What a process has to hand over what another one is to have. Default 8s. */
    grace?: Duration
    /** From a start to the new division of work. Default 500ms. */
    joinDelay?: Duration
  }
  /** Of webhooks: whether this process posts, and where it may post to. */
  webhooks?: {
    /** Whether it posts those of the namespace. Default: if it declares one. */
    dispatch?: boolean
    /** Requests at once. Default 64. */
    concurrency?: number
    /** How long a batch is one process's; renewed while it is being posted. Default 10s, at least 100ms. */
    lease?: Duration
    /** Networks that it may post to although they are not public, as CIDRs: ['10.0.0.0/8']. Default: none. */
    allow?: readonly string[]
    /** Also to http://. Default false. */
    allowHttp?: boolean
    /** In place of `dns.lookup` with `all`. */
    resolve?: Resolve
    /** What makes a connection to an address that is not refused. */
    dial?: Dial
    /** Also to this machine, and http://: for development. Default false. */
    development?: boolean
  }
  /** How much Redis may use where it has no maxmemory: beyond 85 % of it the oldest of what waits is dropped. Default: whatever there is. */
  memory?: { limit?: Bytes }
  /** Gets every telemetry event. */
  onTelemetry?: TelemetryListener
  clock?: Clock
  randomness?: Randomness
}

export interface Settings extends BackboneOptions {
  registry: ReadonlyMap<string, EventDefinition>
  liveChannel: boolean
  maxWaiting: number
  maxWaitingBytes: number
  worker: string
  /** Whether the name was given: then the process comes back under it. */
  isNamed: boolean
  groupTiming: GroupTiming
  webhooks: WebhookPolicy
  /** Undefined: as much as Redis says. */
  memoryBytes: number | undefined
}

// In a group's records `-` stands for nobody.
const workerShape = /^(?!-$)[A-Za-z0-9._-]{1,64}$/
const namespaceShape = /^[a-z0-9][a-z0-9_-]{0,63}$/

const known = {
  bus: new Set<keyof BusOptions>([
    'redis',
    'dataDir',
    'namespace',
    'partitions',
    'retention',
    'events',
    'liveChannel',
    'publish',
    'worker',
    'group',
    'webhooks',
    'memory',
    'onTelemetry',
    'clock',
    'randomness',
  ]),
  retention: new Set<keyof NonNullable<BusOptions['retention']>>(['age', 'events', 'bytes']),
  publish: new Set<keyof NonNullable<BusOptions['publish']>>(['timeout', 'maxWaiting', 'maxWaitingBytes']),
  group: new Set<keyof NonNullable<BusOptions['group']>>(['heartbeat', 'expiry', 'grace', 'joinDelay']),
  webhooks: new Set<keyof NonNullable<BusOptions['webhooks']>>([
    ...(['dispatch', 'concurrency', 'lease', 'allow', 'allowHttp', 'development', 'resolve', 'dial'] as const),
  ]),
  memory: new Set<keyof NonNullable<BusOptions['memory']>>(['limit']),
  definition: new Set<keyof EventDefinition>(['schema', 'key', 'tenant']),
}

function unknownProblems(options: BusOptions): string[] {
  return [
    ...unknownOptions(options, known.bus),
    ...groupProblems('retention', options.retention, known.retention),
    ...groupProblems('publish', options.publish, known.publish),
    ...groupProblems('group', options.group, known.group),
    ...groupProblems('webhooks', options.webhooks, known.webhooks),
    ...groupProblems('memory', options.memory, known.memory),
    ...Object.entries(options.events ?? {}).flatMap(([type, definition]) =>
      groupProblems(`events[${shown(type)}]`, definition, known.definition),
    ),
  ]
}

/** Throws SETTING_INVALID with every problem at once. */
export function checkOptions(options: BusOptions): Settings {
  const problems = unknownProblems(options)
  const take = <T>(name: string, parsed: Parsed<T>, otherwise: T): T => {
    if (parsed.ok) return parsed.value
    problems.push(`${name} ${parsed.problem}`)
    return otherwise
  }
  const { redis, namespace = 'busbar', partitions, retention, liveChannel = false } = options
  const publish = options.publish ?? {}
  const clock = options.clock ?? systemClock
  const randomness = options.randomness ?? systemRandomness
  const { worker = randomness.id() } = options
  if (!workerShape.test(worker)) problems.push(`worker must be 1 to 64 of A-Z a-z 0-9 . _ -; got ${shown(worker)}`)
  if (!namespaceShape.test(namespace))
    problems.push(`namespace must be 1 to 64 of a-z 0-9 _ -, beginning with a letter or digit; got ${shown(namespace)}`)
  const settings: Settings = {
    redis,
    dataDir: resolve(options.dataDir ?? '.busbar'),
    namespace: {
      name: namespace,
      partitions: partitions === undefined ? undefined : take('partitions', count(partitions, 1, 256), 16),
      retention: retention && checkRetention(retention, take),
    },
    registry: new Map(Object.entries(options.events ?? {})),
    liveChannel,
    timeoutMs: take('publish.timeout', duration(publish.timeout ?? '10s'), 0),
    maxWaiting: take('publish.maxWaiting', count(publish.maxWaiting ?? 100_000, 1, 10_000_000), 0),
    maxWaitingBytes: take('publish.maxWaitingBytes', bytesOf(publish.maxWaitingBytes ?? '64MiB'), 0),
    clock,
    network: clock.network ?? clock,
    randomness,
    worker,
    isNamed: options.worker !== undefined,
    groupTiming: checkGroup(options.group ?? {}, take, problems),
    webhooks: checkWebhooks(options.webhooks ?? {}, take, problems),
    memoryBytes:
      options.memory?.limit === undefined ? undefined : take('memory.limit', bytesOf(options.memory.limit), 0),
    telemetry: createTelemetry(clock.now, options.onTelemetry ? [options.onTelemetry] : []),
  }
  if (redis !== undefined) checkUrl(redis, problems)
  if (problems.length > 0) throw BusbarError.of('SETTING_INVALID', { problems })
  return settings
}

const duration = (value: unknown): Parsed<number> => asked(parseDuration(value), value)
const bytesOf = (value: unknown): Parsed<number> => asked(parseBytes(value), value)

type Take = <T>(name: string, parsed: Parsed<T>, otherwise: T) => T

function checkRetention({ age, events, bytes }: NonNullable<BusOptions['retention']>, take: Take): Retention {
  return {
    ageMs: age === undefined ? defaultRetention.ageMs : take('retention.age', duration(age), 0),
    events:
      events === undefined ? defaultRetention.events : take('retention.events', count(events, 0, 1_000_000_000), 0),
    bytes: bytes === undefined ? null : take('retention.bytes', bytesOf(bytes), 0),
  }
}

function checkGroup(group: NonNullable<BusOptions['group']>, take: Take, problems: string[]): GroupTiming {
  const { heartbeat = '1s', expiry = '5s', grace = '8s', joinDelay = '500ms' } = group
  const timing = {
    heartbeatMs: take('group.heartbeat', duration(heartbeat), 1_000),
    expiryMs: take('group.expiry', duration(expiry), 5_000),
    graceMs: take('group.grace', duration(grace), 8_000),
    joinDelayMs: take('group.joinDelay', duration(joinDelay), 500),
  }
  if (timing.heartbeatMs < 10) problems.push(`group.heartbeat must be at least 10ms; got ${shown(heartbeat)}`)
  // One heartbeat may get lost without anybody being taken for dead.
  if (timing.expiryMs < 3 * timing.heartbeatMs)
    problems.push(`group.expiry must be at least three heartbeats; got ${shown(expiry)}`)
  return timing
}

function checkWebhooks(given: NonNullable<BusOptions['webhooks']>, take: Take, problems: string[]): WebhookPolicy {
  const { dispatch, concurrency = 64, lease = '10s', allow = [], resolve, dial } = given
  const { allowHttp = false, development = false } = given
  for (const [name, value] of Object.entries({ dispatch, allowHttp, development }))
    if (value !== undefined && typeof value !== 'boolean')
      problems.push(`webhooks.${name} must be true or false; got ${shown(value)}`)
  const leaseMs = take('webhooks.lease', duration(lease), 10_000)
  // Renewed every third of it, by a call to Redis.
  if (leaseMs < 100) problems.push(`webhooks.lease must be at least 100ms; got ${shown(lease)}`)
  const allowed = take('webhooks.allow', asked(parseNetworks(allow), allow), [])
  return {
    dispatch,
    allow: development ? [...allowed, ...loopback] : allowed,
    allowHttp: allowHttp || development,
    ...(resolve ? { resolve } : {}),
    ...(dial ? { dial } : {}),
    concurrency: take('webhooks.concurrency', count(concurrency, 1, 10_000), 1),
    leaseMs,
  }
}

function count(value: unknown, least: number, most: number): Parsed<number> {
  if (Number.isInteger(value) && (value as number) >= least && (value as number) <= most)
    return { ok: true, value: value as number }
  return { ok: false, problem: `must be a whole number from ${least} to ${most}; got ${shown(value)}` }
}

function checkUrl(url: string, problems: string[]): void {
  try {
    const { protocol } = new URL(url)
    if (['redis:', 'rediss:', 'unix:'].includes(protocol)) return void redisOptions(url)
  } catch {
    // Falls through to the one message that fits both.
  }
  problems.push('redis must be a URL like redis://127.0.0.1:6379, rediss://host or unix:///path/to/socket')
}
