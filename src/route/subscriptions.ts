/** The subscriptions of a namespace, whoever declared them: as people see them, and how they are put and removed. */
import type { Redis } from 'ioredis'
import { didYouMean } from '../did-you-mean.ts'
import { BusbarError, shown } from '../errors.ts'
import { checkParameter, checkTenant, checkType } from '../event-checks.ts'
import { seqBefore } from '../log/cursor.ts'
import type { Namespace } from '../log/namespace.ts'
import { readLasts } from '../log/read.ts'
import type { LogSource } from '../log/view.ts'
import { compilePattern, type Pattern, parsePattern } from '../pattern.ts'
import { routeKeys } from '../redis/keys.ts'
import { runScript } from '../redis/script.ts'
import type { Clock } from '../runtime/clock.ts'
import type { Telemetry } from '../runtime/telemetry.ts'
import {
  type ChangeContext,
  type From,
  finishRemoval,
  guardMs,
  type Maker,
  type Put,
  putSubscription,
  removeSubscription,
} from './change.ts'
import { type Definition, readSubscription } from './definition.ts'
import { putScript, type Removal, removedScript, removeScript, type Start } from './scripts.ts'
import type { Subscription } from './sink.ts'
import type { Sinks } from './stores.ts'

export interface SubscriptionFacts {
  name: string
  kind: Subscription['kind']
  /** Null: nothing comes by itself. */
  match: Pattern | null
  /** Without what is secret. */
  options: Readonly<Record<string, unknown>>
  /** Raised by every change of the definition. */
  revision: number
}

/** Whether a subscription gets events of a kind, and why. */
export interface MatchFacts {
  name: string
  kind: Subscription['kind']
  /** What it was asked against; null: nothing comes by itself. */
  match: Pattern | null
  matches: boolean
  why: 'matches' | 'pattern'
  /** When it was created: what was published before, it has only if it was told to begin earlier. ms. */
  since: number
  /** Its store hands nothing out since then; what comes is kept. ms. */
  pausedSince?: number
}

export interface SubscriptionsView {
  list(): Promise<SubscriptionFacts[]>
  /** SUBSCRIPTION_NOT_FOUND when there is none of that name. */
  get(name: string): Promise<SubscriptionFacts>
  /** Who would get an event of this tenant and type; with a name, whether that one would. */
  match(tenant: string, type: string, name?: string): Promise<MatchFacts[]>
  /** Takes a subscription away, and its store with everything in it. */
  remove(name: string): Promise<void>
}

export interface SubscriptionsOptions {
  source: LogSource
  sinks: Sinks
  clock: Clock
  telemetry: Telemetry
}

export class Subscriptions implements SubscriptionsView {
  readonly #options: SubscriptionsOptions

  constructor(options: SubscriptionsOptions) {
    this.#options = options
  }

  /** Creates it, or changes its definition. From the answer on only this definition counts for what is published. */
  async put(definition: Definition, { from = 'now', force = false }: { from?: From; force?: boolean }): Promise<Put> {
    if (definition.match !== null) parsePattern(definition.match)
    const put = await putSubscription(this.#context(), definition, { from, force })
    const { name, revision } = put.subscription
    if (put.change !== 'same') this.#options.telemetry.emit('subscription.changed', { name, revision, ...changed(put) })
    return put
  }

  async list(): Promise<SubscriptionFacts[]> {
    return (await this.#all()).map((each) => this.#factsOf(each))
  }

  async get(name: string): Promise<SubscriptionFacts> {
    return this.#factsOf(await this.#one(name))
  }

  /** As get, for who expects that there may be none: no suggestion is looked for among all the names. */
  async find(name: string): Promise<SubscriptionFacts | undefined> {
    const found = await this.stored(name)
    return found && this.#factsOf(found)
  }

  async match(tenant: string, type: string, name?: string): Promise<MatchFacts[]> {
    checkParameter(checkTenant, tenant)
    checkParameter(checkType, type)
    const asked = name === undefined ? await this.#all() : [await this.#one(name)]
    return Promise.all(asked.map((subscription) => this.#matchOf(subscription, tenant, type)))
  }

  async remove(name: string): Promise<void> {
    if (!(await removeSubscription(this.#context(), name))) throw await this.#notFound(name)
    this.#options.telemetry.emit('subscription.changed', { name, change: 'removed' })
  }

  /** Finishes what another process has begun. */
  async finishRemoval(name: string, removal: Removal): Promise<void> {
    await finishRemoval(this.#context(), name, removal)
  }

  async #matchOf(subscription: Subscription, tenant: string, type: string): Promise<MatchFacts> {
    const { name, kind, match, born } = subscription
    const matches = match !== null && compilePattern(match).matches(tenant, type)
    const pausedSince = await this.#options.sinks[kind]?.pausedSince?.(name)
    const paused = pausedSince === undefined ? {} : { pausedSince }
    // Revisions are the server's clock in µs.
    const since = Math.floor(born / 1000)
    return { name, kind, match, matches, why: matches ? 'matches' : 'pattern', since, ...paused }
  }

  async #all(): Promise<Subscription[]> {
    const stored = await this.#read((redis, { name }) => redis.hgetall(routeKeys(name).subscriptions))
    return Object.entries(stored)
      .map(([name, text]) => readSubscription(name, text))
      .sort((a, b) => (a.name < b.name ? -1 : 1))
  }

  /** As it is stored, with what is secret. */
  async stored(name: string): Promise<Subscription | undefined> {
    const stored = await this.#read((redis, ns) => redis.hget(routeKeys(ns.name).subscriptions, String(name)))
    return stored === null ? undefined : readSubscription(name, stored)
  }

  #factsOf({ name, kind, match, options, revision }: Subscription): SubscriptionFacts {
    return { name, kind, match, options: this.#options.sinks[kind]?.shown?.(options) ?? options, revision }
  }

  async #one(name: string): Promise<Subscription> {
    const stored = await this.stored(name)
    if (!stored) throw await this.#notFound(name)
    return stored
  }

  #notFound(name: string): Promise<BusbarError> {
    return this.#read(async (redis, namespace) => {
      const meant = didYouMean(String(name), await redis.hkeys(routeKeys(namespace.name).subscriptions))
      return BusbarError.of('SUBSCRIPTION_NOT_FOUND', { name: shown(name), namespace: namespace.name, meant })
    })
  }

  #read<T>(ask: (redis: Redis, namespace: Namespace) => Promise<T>): Promise<T> {
    return this.#options.source.read(ask)
  }

  #context(): ChangeContext {
    const { sinks, clock } = this.#options
    const nowUs = () => clock.serverUs?.()
    const patient = ([kind, sink]: [string, Maker | undefined]): [string, Maker | undefined] => [
      kind,
      sink && {
        make: (subscription, applied) => this.#read(() => sink.make(subscription, applied)),
        remove: (name, revision) => this.#read(() => sink.remove(name, revision)),
      },
    ]
    return {
      sinks: Object.fromEntries(Object.entries(sinks).map(patient)),
      startsOf: (from) => this.#read((redis, namespace) => startsOf(redis, namespace, from)),
      put: (input) =>
        this.#read((redis, namespace) =>
          runScript(redis, putScript, { ...input, keys: routeKeys(namespace.name), nowUs: nowUs(), guardMs }),
        ),
      remove: (name) =>
        this.#read((redis, { name: ns, partitions }) =>
          runScript(redis, removeScript, {
            ...{ keys: routeKeys(ns), nowUs: nowUs() },
            ...{ name, partitions: partitions.length },
          }),
        ),
      removed: (name, mark) =>
        this.#read((redis, namespace) =>
          runScript(redis, removedScript, { keys: routeKeys(namespace.name), name, mark }),
        ),
      bornOf: async (name) => {
        const stored = await this.#read((redis, ns) => redis.hget(routeKeys(ns.name).subscriptions, name))
        return stored === null ? undefined : readSubscription(name, stored).born
      },
    }
  }
}

const changed = ({ change }: Put) => ({ change })

async function startsOf(redis: Redis, namespace: Namespace, from: From): Promise<Start[]> {
  const above = from === 'now' ? Number.POSITIVE_INFINITY : from === 'beginning' ? 0 : seqBefore(from)
  const lasts = await readLasts(redis, namespace)
  return lasts.map((last) => ({ at: Math.min(last, above), last }))
}
