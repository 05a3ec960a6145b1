/** Webhooks as people see them, from any process: how they are, what waits, what failed, and what to do about it. */
import { randomBytes } from 'node:crypto'
import { didYouMean } from '../../did-you-mean.ts'
import { type Duration, parseDuration } from '../../duration.ts'
import { BusbarError, shown } from '../../errors.ts'
import type { LogSource } from '../../log/view.ts'
import type { Pattern } from '../../pattern.ts'
import type { Subscription } from '../../route/sink.ts'
import type { Subscriptions } from '../../route/subscriptions.ts'
import type { Randomness } from '../../runtime/clock.ts'
import { checkKnown } from '../../unknown-name.ts'
import { checkSecret, newSecret } from '../../webhook-signature.ts'
import { createDeadView, type WebhookDeadView } from './dead-view.ts'
import { type Attempt, answerOf, endpointOf, headersFor, secretsAt } from './deliver.ts'
import { type Format, renderEvent, wrapping } from './format.ts'
import { type ShownSettings, settingsOf, shownSettings, type WebhookOptions } from './options.ts'
import { type Replayed, type ReplayOptions, replay } from './replay.ts'
import { inspectScript, pauseScript, rotateScript, type SeenBatch, type SeenHook } from './scripts.ts'
import type { Shard, Shards } from './shard.ts'
import { overlapMs } from './sink.ts'
import type { Webhooks } from './webhooks.ts'

/**
 *   active    its last attempt was good, or there was none
 *   failing   its last attempt was not
 *   paused    by a person
 *   disabled  by its receiver, or because it failed for too long
 */
export type WebhookState = 'active' | 'failing' | 'paused' | 'disabled'

export interface WebhookFacts extends ShownSettings {
  name: string
  match: Pattern
  revision: number
  state: WebhookState
  /** Why it is disabled. */
  why?: string
  /** Since when it is as it is; ms. */
  since?: number
  /** Attempts that failed one after the other. */
  failures: number
  /** Events that wait, in open or sealed batches, or are being posted. */
  backlog: number
  /** Ever. */
  in: number
  delivered: number
  dead: number
  dropped: number
  batches: number
  attempts: number
  throttled: number
  /** Answers that came when the lease had lapsed. */
  stale: number
  /** Batches among the dead letters. */
  letters: number
  /** When an attempt was last good; ms. */
  deliveredAt: number | null
}

export interface OpenBatch {
  sequence: number
  events: number
  bytes: number
  openedAt: number
  dueAt: number
}

export interface SealedBatch {
  id: string
  sequence: number
  events: number
  bytes: number
  sealedAt: number
  /** Those that have ended. */
  attempts: number
  state: 'leased' | 'waiting' | 'retrying'
  /** Who posts it, and until when its lease lasts. */
  worker?: string
  leasedUntil?: number
  /** When it is tried again. */
  dueAt?: number
  /** Of its events. */
  ids: readonly string[]
}

export interface WebhookBatches {
  open: OpenBatch[]
  /** Oldest first. */
  sealed: SealedBatch[]
}

export interface Tested {
  ok: boolean
  status?: number
  problem?: string
  excerpt?: string
  tookMs: number
}

export interface WebhooksView {
  list(): Promise<WebhookFacts[]>
  /** WEBHOOK_NOT_FOUND when there is none of that name. */
  get(name: string): Promise<WebhookFacts>
  /** Creates it, or changes its definition. */
  put(name: string, options: WebhookOptions): Promise<WebhookFacts & { change: 'created' | 'changed' | 'same' }>
  remove(name: string): Promise<void>
  /** Delivers nothing until it is resumed; events are kept. */
  pause(name: string): Promise<void>
  /** Goes on, and tries at once what waits to be tried again. */
  resume(name: string): Promise<void>
  /** Secrets that its requests are signed with, the newest first. */
  secrets(name: string): Promise<string[]>
  /** A new secret; the one before is used beside it for `overlap`. Default 24h. Answers the new one. */
  rotate(name: string, options?: { secret?: string; overlap?: Duration }): Promise<string>
  /** Posts an event of the type busbar.webhook.test at once, whatever waits. */
  test(name: string): Promise<Tested>
  /** The last attempts, newest first. Default 20, at most 100. */
  attempts(name: string, options?: { limit?: number }): Promise<Attempt[]>
  /** What it has waiting, at one instant. Of sealed ones `limit`; default 100, at most 10,000. */
  batches(name: string, options?: { limit?: number }): Promise<WebhookBatches>
  /** Sends what was published in a time once more, behind what waits. */
  replay(name: string, options: ReplayOptions): Promise<Replayed>
  readonly dead: WebhookDeadView
}

export interface ViewOptions {
  source: LogSource
  subscriptions: Subscriptions
  webhooks: Webhooks
  randomness: Randomness
  shards(): Promise<Shards>
}

/** One webhook, as a question is about it. */
export interface KnownWebhook {
  subscription: Subscription
  shard: Shard
}

export type AskWebhook = <T>(name: string, ask: (webhook: KnownWebhook) => Promise<T>) => Promise<T>

const mostBatches = 10_000
const testType = 'busbar.webhook.test'

export function createWebhooksView(options: ViewOptions): WebhooksView {
  const { source, subscriptions, webhooks, randomness } = options

  async function find(name: string): Promise<Subscription> {
    const found = await subscriptions.stored(name)
    if (found?.kind === 'webhook') return found
    const others = (await subscriptions.list()).filter(({ kind }) => kind === 'webhook')
    const meant = didYouMean(
      String(name),
      others.map((other) => other.name),
    )
    throw BusbarError.of('WEBHOOK_NOT_FOUND', { name: shown(name), meant })
  }

  const ask: AskWebhook = async (name, question) => {
    const subscription = await find(name)
    const shard = (await options.shards()).of(name)
    return source.read(() => question({ subscription, shard }))
  }

  const see = (name: string, most: number): Promise<{ subscription: Subscription; seen: SeenHook }> =>
    ask(name, async ({ subscription, shard }) => ({
      subscription,
      seen: madeOr(name, await shard.run(inspectScript, { name, most })),
    }))

  const pause = (name: string, act: 'pause' | 'resume') =>
    ask(name, async ({ shard }) => {
      madeOr(name, (await shard.run(pauseScript, { act, name })) === 'done' || undefined)
    })

  async function get(name: string): Promise<WebhookFacts> {
    const { subscription, seen } = await see(name, 0)
    return factsOf(subscription, shownSettings(settingsOf(subscription.options)), seen)
  }

  async function test(name: string): Promise<Tested> {
    const { subscription, seen } = await see(name, 0)
    const settings = settingsOf(subscription.options)
    const { format } = settings
    const id = randomness.id()
    const about = { id, format, body: testBody(format, name, id, seen.nowMs) }
    const endpoint = endpointOf(settings, secretsAt(seen.fields.secrets!, seen.nowMs))
    const headers = headersFor(about, endpoint, seen.nowMs)
    const posted = await webhooks.poster.post({
      url: settings.url,
      body: about.body,
      headers,
      totalMs: settings.timeoutMs,
    })
    const ok = posted.kind === 'answered' && posted.status >= 200 && posted.status < 300
    return { ok, ...answerOf(posted), tookMs: Math.round(posted.tookMs) }
  }

  return {
    list: async () => {
      const all = (await subscriptions.list()).filter(({ kind }) => kind === 'webhook')
      const shards = await options.shards()
      const seen = await Promise.all(
        all.map(({ name }) => source.read(() => shards.of(name).run(inspectScript, { name, most: 0 }))),
      )
      return all.flatMap((facts, i) =>
        seen[i] ? [factsOf(facts, facts.options as unknown as ShownSettings, seen[i])] : [],
      )
    },
    get,
    put: async (name, definition) => {
      const { change } = await webhooks.put(name, definition)
      return { change, ...(await get(name)) }
    },
    remove: async (name) => {
      await find(name)
      await subscriptions.remove(name)
    },
    pause: (name) => pause(name, 'pause'),
    resume: (name) => pause(name, 'resume'),
    secrets: async (name) => {
      const { seen } = await see(name, 0)
      return secretsAt(seen.fields.secrets!, seen.nowMs)
    },
    rotate: async (name, given = {}) => {
      checkKnown(given, new Set(['secret', 'overlap']))
      const secret = given.secret === undefined ? newSecret(randomBytes) : checkSecret(given.secret)
      const forMs = given.overlap === undefined ? overlapMs : checkOverlap(given.overlap)
      await ask(name, async ({ shard }) => {
        const rotated = await shard.run(rotateScript, { name, secret, overlapMs: forMs })
        madeOr(name, rotated === 'done' || undefined)
      })
      return secret
    },
    test,
    attempts: async (name, given = {}) => {
      checkKnown(given, new Set(['limit']))
      const limit = checkLimit(given.limit ?? 20, 100)
      return ask(name, ({ shard }) => shard.attempts(name, limit))
    },
    batches: async (name, given = {}) => {
      checkKnown(given, new Set(['limit']))
      const { seen } = await see(name, checkLimit(given.limit ?? 100, mostBatches))
      return batchesOf(seen)
    },
    replay: async (name, given) => {
      checkKnown(given, new Set(['since', 'until', 'onProgress']))
      const subscription = await find(name)
      await webhooks.checkTarget(settingsOf(subscription.options).url)
      return replay(source, (await options.shards()).of(name), subscription, randomness.id(), given)
    },
    dead: createDeadView(ask),
  }
}

/** It is in the table before it is made, for a moment. */
function madeOr<T>(name: string, made: T | undefined): T {
  if (made === undefined) throw BusbarError.of('WEBHOOK_NOT_FOUND', { name: shown(name), meant: undefined })
  return made
}

function checkLimit(limit: unknown, most: number): number {
  if (Number.isInteger(limit) && (limit as number) >= 1 && (limit as number) <= most) return limit as number
  throw BusbarError.of('PARAMETER_INVALID', {
    ...{ name: 'limit', value: shown(limit), problem: `must be a whole number from 1 to ${most}` },
  })
}

const yearMs = 31_622_400_000

function checkOverlap(overlap: Duration): number {
  const parsed = parseDuration(overlap)
  if (parsed.ok && parsed.value <= yearMs) return parsed.value
  const problem = parsed.ok ? 'must be at most 366 days' : parsed.problem
  throw BusbarError.of('PARAMETER_INVALID', { name: 'overlap', value: shown(overlap), problem })
}

function factsOf(
  { name, match, revision }: Pick<Subscription, 'name' | 'match' | 'revision'>,
  settings: ShownSettings,
  { fields, dead }: SeenHook,
): WebhookFacts {
  const number = (field: string) => Number(fields[field] ?? 0)
  return {
    ...{ name, match: match!, revision, ...settings },
    ...stateOf(fields),
    ...{ failures: number('failures'), backlog: number('backlog'), in: number('in'), delivered: number('delivered') },
    ...{ dead: number('dead'), dropped: number('dropped'), batches: number('batches'), attempts: number('attempts') },
    ...{ throttled: number('throttled'), stale: number('stale'), letters: dead },
    deliveredAt: fields.deliveredAt === undefined ? null : Number(fields.deliveredAt),
  }
}

function stateOf(fields: SeenHook['fields']): Pick<WebhookFacts, 'state' | 'why' | 'since'> {
  const { disabled, disabledAt, paused, failingSince } = fields
  if (disabled !== undefined) return { state: 'disabled', why: disabled, since: Number(disabledAt) }
  if (paused !== undefined) return { state: 'paused', since: Number(paused) }
  return failingSince === undefined ? { state: 'active' } : { state: 'failing', since: Number(failingSince) }
}

function batchesOf({ fields, open, sealed }: SeenHook): WebhookBatches {
  return {
    open: open.map(({ sequence, dueMs = 0, events }) => {
      const [openedAt = 0, , bytes = 0] = (fields[`open:${sequence}`] ?? '').split(' ').map(Number)
      return { sequence: Number(sequence), events, bytes, openedAt, dueAt: dueMs }
    }),
    sealed: sealed.map(sealedBatch).sort((a, b) => a.sealedAt - b.sealedAt),
  }
}

const states = { held: 'leased', waiting: 'waiting', behind: 'waiting', later: 'retrying' } as const

export function sealedBatch({ place, headers, bytes, lease, dueMs }: SeenBatch): SealedBatch {
  const [item, batch] = headers.split('\n') as [string, string]
  const words = item.split(' ')
  const { events, ids } = JSON.parse(batch) as { events: number; ids: string }
  return {
    ...{ id: words[0]!, sequence: Number(words[7]), events, bytes, sealedAt: Number(words[5]) },
    ...{ attempts: Number(words[3]), state: states[place], ids: ids.split(',') },
    ...(lease ? { worker: lease.worker, leasedUntil: lease.untilMs } : {}),
    ...(dueMs === undefined ? {} : { dueAt: dueMs }),
  }
}

/** An event that is in no log: without a seq, and its id is no place. */
function testBody(format: Format, name: string, batch: string, nowMs: number): string {
  const { start, end } = wrapping(format, name)
  const header = JSON.stringify({ type: testType, tenant: 'default', key: `webhook:${name}`, time: nowMs })
  const event = { partition: 0, seq: 0, prev: '', envelope: `${header}\n{"webhook":"${name}"}` }
  return `${start}${renderEvent(format, event).replace('0-0', `${batch}.0`)}${end}`
}
