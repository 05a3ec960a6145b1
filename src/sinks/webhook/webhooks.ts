/**
 * All webhooks that were declared on one bus, and the dispatcher of this process.
 *
 * Declaring writes nothing; run() stores the definitions. Whoever runs with webhooks dispatches those of the whole namespace: its guard says
 * where to.
 */

import { BusbarError, shown } from '../../errors.ts'
import type { Connection } from '../../redis/connection.ts'
import type { Hints } from '../../redis/hints.ts'
import { nameTaken, type Put } from '../../route/change.ts'
import type { Subscriptions } from '../../route/subscriptions.ts'
import type { Clock, Randomness } from '../../runtime/clock.ts'
import { inGroups } from '../../runtime/in-groups.ts'
import type { Telemetry } from '../../runtime/telemetry.ts'
import { Dispatcher } from './dispatcher.ts'
import { Guard, type GuardOptions } from './guard.ts'
import { type CheckedWebhook, checkWebhook, checkWebhookName, settingsOf, type WebhookOptions } from './options.ts'
import { Poster } from './post.ts'
import type { Shards } from './shard.ts'

/** What a process may do about webhooks. */
export interface WebhookPolicy extends GuardOptions {
  /** Whether it dispatches; undefined: if it has declared one. */
  dispatch: boolean | undefined
  /** Requests at once. */
  concurrency: number
  leaseMs: number
}

export interface WebhookGround {
  connection: Connection
  hints: Hints
  shards: Shards
  clock: Clock
  network: Clock
  randomness: Randomness
  telemetry: Telemetry
  worker: string
  start: string
}

export interface WebhooksOptions {
  policy: WebhookPolicy
  open(): Promise<WebhookGround>
  subscriptions: Subscriptions
  /** Publishes that a webhook was disabled. */
  announce(name: string, why: string, atMs: number): Promise<void>
}

export class Webhooks {
  readonly guard: Guard
  readonly #options: WebhooksOptions
  readonly #declared = new Map<string, CheckedWebhook>()
  #poster: Poster | undefined
  #dispatcher: Dispatcher | undefined
  /** Of the namespace, as last heard of. */
  #known: readonly string[] = []

  constructor(options: WebhooksOptions) {
    this.#options = options
    this.guard = new Guard(options.policy)
  }

  get names(): readonly string[] {
    return [...this.#declared.keys()]
  }

  /** Nothing is being posted, and nothing waited when this process last looked. */
  get isDry(): boolean {
    return this.#dispatcher?.isDry ?? true
  }

  /** For single requests, too. */
  get poster(): Poster {
    this.#poster ??= new Poster({ guard: this.guard })
    return this.#poster
  }

  declare(name: string, options: WebhookOptions): void {
    if (this.#declared.has(checkWebhookName(name)))
      throw BusbarError.of('SETTING_INVALID', { problems: [`webhook ${shown(name)} is declared twice`] })
    const checked = checkWebhook(options)
    this.guard.checkUrl(checked.settings.url)
    this.#declared.set(name, checked)
  }

  /** Creates a webhook, or changes its definition. */
  async put(name: string, options: WebhookOptions): Promise<Put> {
    checkWebhookName(name)
    return this.#put(name, checkWebhook(options))
  }

  async start(only: readonly string[] | undefined): Promise<void> {
    const names = this.names.filter((name) => !only || only.includes(name))
    await inGroups(names, (name) => this.#put(name, this.#declared.get(name)!))
    const { dispatch } = this.#options.policy
    if (dispatch ?? names.length > 0) await this.#dispatch()
  }

  /** The webhooks of the namespace have changed. */
  follow(names: readonly string[]): void {
    this.#known = names
    this.#dispatcher?.follow(names)
  }

  async close(deadlineMs: number): Promise<void> {
    await this.#dispatcher?.close(deadlineMs)
    await this.#poster?.close()
  }

  async #dispatch(): Promise<void> {
    const { open, policy, announce } = this.#options
    if (this.#dispatcher) return
    const ground = await open()
    const { leaseMs, concurrency } = policy
    const { allow, allowHttp } = this.guard
    if (allow.length > 0 || allowHttp) ground.telemetry.emit('webhook.opened', { allow: allow.join(' '), allowHttp })
    this.#dispatcher = new Dispatcher({ ...ground, poster: this.poster, leaseMs, announce }, concurrency)
    this.#dispatcher.follow(this.#known)
  }

  async #put(name: string, { match, settings, from, force }: CheckedWebhook): Promise<Put> {
    await this.checkTarget(settings.url)
    await this.#refuseOtherParallel(name, settings.parallel)
    const definition = { name, kind: 'webhook' as const, match, options: { ...settings } }
    return this.#options.subscriptions.put(definition, { from, force })
  }

  /** A name that has no address now may have one when there is something to send: it is judged then, too. */
  async checkTarget(url: string): Promise<void> {
    await this.guard.checkTarget(url).catch((error) => {
      if (!(error instanceof BusbarError && error.code === 'WEBHOOK_HOST_UNRESOLVED')) throw error
    })
  }

  /** What waits in other sequences would have to be divided anew. */
  async #refuseOtherParallel(name: string, parallel: number): Promise<void> {
    const stored = await this.#options.subscriptions.stored(name)
    if (!stored) return
    if (stored.kind !== 'webhook') throw nameTaken(name, stored.kind)
    const its = settingsOf(stored.options).parallel
    if (its === parallel) return
    const problem = `webhook ${shown(name)} has parallel: ${its}, and keeps it, or its events would overtake each other: say the same, take another name, or remove it first`
    throw BusbarError.of('SETTING_INVALID', { problems: [problem] })
  }
}
