/**
 * Triggers: a URL with a secret in it that starts an operation, for whoever has nothing but that URL.
 *
 *   enabled    who calls it starts an operation of its queue, with the data that the trigger was made with
 *   disabled   who calls it is told so
 *
 * The secret is shown when it is made and never again: only its hash is stored. Another secret ends the one before.
 */
import { createHash } from 'node:crypto'
import type { Redis } from 'ioredis'
import { didYouMean } from '../did-you-mean.ts'
import { BusbarError, shown } from '../errors.ts'
import { defaultTenant, limits } from '../event.ts'
import { checkTenant, checkText, writeJson } from '../event-checks.ts'
import { nowMs } from '../lanes/store.ts'
import type { LogSource } from '../log/view.ts'
import { triggerKeys } from '../redis/keys.ts'
import { defineScript, runScript } from '../redis/script.ts'
import type { SubscriptionFacts, Subscriptions } from '../route/subscriptions.ts'
import type { Clock, Randomness } from '../runtime/clock.ts'
import { checkKnown } from '../unknown-name.ts'
import { defaultSecrets, isDeep, mostLevels, redactorOf } from './redact.ts'

export interface TriggerOptions {
  /** One with `track: true`: what is started can be followed to its end. */
  queue: string
  tenant?: string
  key?: string
  /** What the handler gets. Default null. */
  data?: unknown
}

export interface TriggerFacts {
  name: string
  queue: string
  tenant: string
  key: string | null
  /** Without what operations of its queue never show. */
  data: unknown
  enabled: boolean
  /** Why it can start nothing, enabled or not: its queue is gone, or does not keep all of its operations any more. Else null. */
  problem: string | null
  /** ms. */
  createdAt: number
  /** When its secret was given, ms. */
  rotatedAt: number
}

/** As it is stored. */
type Trigger = Omit<TriggerFacts, 'problem'>

/** Shown once. */
export interface TriggerSecret extends TriggerFacts {
  secret: string
  /** Where the HTTP door takes it. */
  path: string
}

export interface TriggersView {
  list(): Promise<TriggerFacts[]>
  /** TRIGGER_NOT_FOUND when there is none of that name. */
  get(name: string): Promise<TriggerFacts>
  /** TRIGGER_EXISTS when there is one of that name. */
  create(name: string, options: TriggerOptions): Promise<TriggerSecret>
  /** Gives it another secret; the one before is nobody's from now on. */
  rotate(name: string): Promise<TriggerSecret>
  enable(name: string): Promise<TriggerFacts>
  disable(name: string): Promise<TriggerFacts>
  remove(name: string): Promise<void>
  /** Starts an operation. TRIGGER_NOT_FOUND for an unknown secret, TRIGGER_DISABLED for one that may not, TRIGGER_BROKEN for one that has a problem. */
  fire(secret: string, options?: { requestId?: string }): Promise<{ id: string }>
}

/** What a trigger sends. */
export interface TriggerSend {
  queue: string
  data: unknown
  tenant: string
  key?: string
  requestId?: string
  trigger: string
}

export interface TriggersGround {
  source: LogSource
  subscriptions: Subscriptions
  clock: Clock
  randomness: Randomness
  send(call: TriggerSend): Promise<{ id: string }>
}

const known = new Set<keyof TriggerOptions>(['queue', 'tenant', 'key', 'data'])
const nameShape = /^[a-z0-9][a-z0-9_-]{0,63}$/
const secretShape = /^[\w-]{20}$/
const mostTriggers = 10_000

type Change = 'rotate' | 'enable' | 'disable' | 'remove'

interface ActInput {
  ns: string
  name: string
  nowMs: number | undefined
}

type RawReply = ['done', string] | ['there'] | ['unknown'] | ['full']

const keys = ({ ns }: ActInput): string[] => [triggerKeys(ns).triggers, triggerKeys(ns).triggerSecrets]

interface Reply {
  kind: RawReply[0]
  text: string | undefined
}

const reply = ([kind, text]: RawReply): Reply => ({ kind, text })

export const triggerScript = defineScript({
  file: new URL('./trigger.lua', import.meta.url),
  keys: (input: ActInput & { hash: string; definition: string }) => keys(input),
  args: ({ name, nowMs: now, hash, definition }) => [name, now ?? '', hash, definition, mostTriggers],
  reply,
})

export const triggerChangeScript = defineScript({
  file: new URL('./trigger-change.lua', import.meta.url),
  keys: (input: ActInput & { act: Change; hash?: string }) => keys(input),
  args: ({ act, name, nowMs: now, hash = '' }) => [act, name, now ?? '', hash],
  reply,
})

export function createTriggersView(ground: TriggersGround): TriggersView {
  const { source, clock } = ground
  const act = async (name: string, run: (redis: Redis, input: ActInput) => Promise<Reply>): Promise<TriggerFacts> => {
    const text = await source.read(async (redis, { name: ns }) => {
      const { kind, text } = await run(redis, { ns, name: String(name), nowMs: nowMs(clock) })
      if (kind === 'done') return text!
      if (kind === 'unknown') throw await notFound(redis, ns, name)
      if (kind === 'there') throw BusbarError.of('TRIGGER_EXISTS', { name })
      throw BusbarError.of('TRIGGERS_FULL', { most: mostTriggers })
    })
    return shownOf(ground, readTrigger(name, text))
  }
  const change = (name: string, what: Change, hash = ''): Promise<TriggerFacts> =>
    act(name, (redis, input) => runScript(redis, triggerChangeScript, { ...input, act: what, hash }))
  const withSecret = async (made: (hash: string) => Promise<TriggerFacts>): Promise<TriggerSecret> => {
    const secret = ground.randomness.id()
    return { ...(await made(hashOf(secret))), secret, path: `/_${secret}` }
  }
  return {
    list: async () => {
      const stored = await source.read((redis, { name: ns }) => redis.hgetall(triggerKeys(ns).triggers))
      const all = Object.entries(stored).map(([name, text]) => readTrigger(name, text))
      return Promise.all(all.sort((a, b) => (a.name < b.name ? -1 : 1)).map((facts) => shownOf(ground, facts)))
    },
    get: async (name) => shownOf(ground, await source.read((redis, { name: ns }) => readOne(redis, ns, name))),
    create: async (name, options) => {
      const definition = await checkTrigger(ground, name, options)
      return withSecret((hash) =>
        act(name, (redis, input) => runScript(redis, triggerScript, { ...input, hash, definition })),
      )
    },
    rotate: (name) => withSecret((hash) => change(name, 'rotate', hash)),
    enable: (name) => change(name, 'enable'),
    disable: (name) => change(name, 'disable'),
    remove: (name) => remove(ground, name),
    fire: (secret, options = {}) => fire(ground, secret, options),
  }
}

/** One that is not there when it is asked for again has been taken away by the call whose answer was lost. */
async function remove({ source, clock }: TriggersGround, name: string): Promise<void> {
  let calls = 0
  await source.read(async (redis, { name: ns }) => {
    calls += 1
    const input = { ns, name: String(name), nowMs: nowMs(clock), act: 'remove' as const }
    const { kind } = await runScript(redis, triggerChangeScript, input)
    if (kind === 'unknown' && calls === 1) throw await notFound(redis, ns, name)
  })
}

/** Its data as an operation of its queue would show it. */
async function shownOf({ subscriptions }: TriggersGround, trigger: Trigger): Promise<TriggerFacts> {
  const found = await subscriptions.find(trigger.queue)
  const redact = (found?.options.redact as readonly string[] | undefined) ?? defaultSecrets
  const data = JSON.parse(redactorOf(redact).input(JSON.stringify(trigger.data)))
  return { ...trigger, data, problem: problemOf(trigger.queue, found) }
}

/** What a trigger starts can be followed to its end. */
function problemOf(queue: string, found: SubscriptionFacts | undefined): string | null {
  if (found?.kind !== 'queue') return `there is no queue ${shown(queue)}`
  return found.options.track === true ? null : `queue ${shown(queue)} does not keep all of its operations`
}

const hashOf = (secret: string): string => createHash('sha256').update(secret).digest('base64url')

/** What is stored of it. */
async function checkTrigger({ subscriptions }: TriggersGround, name: string, options: TriggerOptions): Promise<string> {
  checkKnown(options, known)
  const { queue, tenant = defaultTenant, key, data } = options
  if (typeof name !== 'string' || !nameShape.test(name))
    throw invalid('name', name, 'must be 1 to 64 of a-z 0-9 _ -, beginning with a letter or digit')
  const problem = problemOf(String(queue), await subscriptions.find(String(queue)))
  if (problem !== null)
    throw invalid('queue', queue, `must be one that is tracked, all of it and not failures alone, but ${problem}`)
  const its = {
    queue,
    tenant: checkTenant(tenant),
    ...(key === undefined ? {} : { key: checkText('key', key, limits.keyBytes) }),
  }
  const written = writeJson(data)
  if (isDeep(written)) throw invalid('data', undefined, `must be nested at most ${mostLevels} levels deep`)
  return JSON.stringify({ ...its, data: JSON.parse(written) })
}

function readTrigger(name: string, text: string): Trigger {
  const [, enabled, created, rotated, json] = /^\S+ (\d) (\d+) (\d+) ([\s\S]*)$/.exec(text)!
  const { queue, tenant, key = null, data } = JSON.parse(json!) as TriggerOptions & { tenant: string }
  const times = { createdAt: Number(created), rotatedAt: Number(rotated) }
  return { name, queue, tenant, key, data, enabled: enabled === '1', ...times }
}

async function readOne(redis: Redis, ns: string, name: string): Promise<Trigger> {
  const text = await redis.hget(triggerKeys(ns).triggers, String(name))
  if (text === null) throw await notFound(redis, ns, name)
  return readTrigger(name, text)
}

async function notFound(redis: Redis, ns: string, name: string): Promise<BusbarError> {
  const meant = didYouMean(String(name), await redis.hkeys(triggerKeys(ns).triggers))
  return BusbarError.of('TRIGGER_NOT_FOUND', { name: shown(name), meant })
}

/** By its hash: how long a look takes says nothing of the secret. */
async function fire(
  { source, subscriptions, send }: TriggersGround,
  secret: string,
  options: { requestId?: string },
): Promise<{ id: string }> {
  checkKnown(options, new Set(['requestId']))
  const trigger = await source.read(async (redis, { name: ns }) => {
    const name = secretShape.test(String(secret))
      ? await redis.hget(triggerKeys(ns).triggerSecrets, hashOf(secret))
      : null
    if (name === null) throw BusbarError.of('TRIGGER_NOT_FOUND', {})
    return readOne(redis, ns, name)
  })
  const { name, queue, tenant, key, data, enabled } = trigger
  if (!enabled) throw BusbarError.of('TRIGGER_DISABLED', { name })
  if (problemOf(queue, await subscriptions.find(queue)) !== null) throw BusbarError.of('TRIGGER_BROKEN')
  const { id } = await send({ queue, data, tenant, ...(key === null ? {} : { key }), ...options, trigger: name })
  return { id }
}

const invalid = (name: string, value: unknown, problem: string): BusbarError =>
  BusbarError.of('PARAMETER_INVALID', { name, value: shown(value), problem })
