/** The stores behind the queues, as routing sees them: made, given events, taken away. */

import { keyOf } from '../../envelope.ts'
import { idWriter } from '../../event.ts'
import type { AcceptedItem, ClaimReply } from '../../lanes/acts.ts'
import { keyWord, routedItem } from '../../lanes/item.ts'
import { makeScript, removeScript, type ShownInput } from '../../lanes/scripts.ts'
import type { LaneStores } from '../../lanes/store.ts'
import type { FlushInput, FlushReply } from '../../log/flush.ts'
import { redactorOf } from '../../operations/redact.ts'
import { type Connection, mayPass } from '../../redis/connection.ts'
import { runScript } from '../../redis/script.ts'
import type { Accepted, Along, Delivery, NextRouted, RoutedSink, Subscription } from '../../route/sink.ts'
import { type NextEvent, nextScript } from './next.ts'
import { type QueueSettings, settingsOf, trackOf } from './options.ts'
import type { Source } from './source.ts'

export interface QueueSinkGround {
  connection: Connection
  /** On which this process publishes. */
  writes: Connection
  stores: LaneStores
}

/** The workers of this process. */
export interface Workers {
  /** Items are on their way to this queue. */
  expect(queue: string): void
  /** Whether one of them that waits claims along: see Source.takeBy. */
  takeBy(queue: string, take: Parameters<Source['takeBy']>[0]): boolean
}

export class QueueSink implements RoutedSink {
  readonly #open: () => Promise<QueueSinkGround>
  readonly #workers: Workers
  #ground: QueueSinkGround | undefined
  /** Log and queue lie in two slots. */
  #isCluster = false

  constructor(open: () => Promise<QueueSinkGround>, workers: Workers) {
    this.#open = open
    this.#workers = workers
  }

  async make(subscription: Subscription, applied: readonly number[]): Promise<void> {
    const { store, redis } = await this.#storeOf(subscription.name)
    const { revision, born } = subscription
    const settings = settingsOf(subscription.options)
    const { attempts, weights, ordered, onPoison, limits } = settings
    const options = { attempts, weights, ordered, parks: onPoison === 'park', limits, track: trackOf(settings) }
    const make = () => runScript(redis, makeScript, { ...store.ground, revision, born, ...options, applied })
    for (let reply = await make(); reply === 'left'; reply = await make())
      await this.remove(subscription.name, born - 1)
  }

  accept(partition: number, deliveries: readonly Delivery[]): readonly Promise<Accepted>[] {
    const ground = this.#ground
    if (!ground) return deliveries.map((delivery) => this.#acceptWhenOpen(partition, delivery))
    return deliveries.map((delivery) => {
      const accepted = this.#accept(ground, partition, delivery)
      this.#workers.expect(delivery.subscription.name)
      return accepted
    })
  }

  /** Only with a claim of a worker that waits here: that is whom it makes faster. */
  takeNext(partition: number, { subscription, tenant, after }: NextRouted): Along | undefined {
    const ground = this.#ground
    const { name, revision, born, options } = subscription
    if (!ground || this.#isCluster || !isPlain(options)) return undefined
    if (!ground.writes.isReady || !ground.connection.isReady) return undefined
    let along: Along | undefined
    this.#workers.takeBy(name, (claim) => {
      const next = { claim, accept: { revision, born, partition }, lane: tenant, after }
      return new Promise((claimed, failed) => {
        along = this.#along(ground, name, next, claimed, failed)
      })
    })
    return along
  }

  #along(
    { stores, writes }: QueueSinkGround,
    name: string,
    next: Omit<NextEvent, 'store' | 'flush'>,
    claimed: (reply: ClaimReply | undefined) => void,
    failed: (error: unknown) => void,
  ): Along {
    let tell: (seq: number | undefined) => void
    const taken = new Promise<number | undefined>((resolve) => {
      tell = resolve
    })
    const store = async (flush: FlushInput): Promise<FlushReply | undefined> => {
      try {
        const reply = await runScript(writes.redis, nextScript, { ...next, store: stores.of(name).ground, flush })
        claimed(reply.claimed)
        tell(reply.claimed && reply.stored?.kind === 'stored' ? reply.stored.last : undefined)
        return reply.stored
      } catch (error) {
        tell(undefined)
        // Without an answer nobody knows: publish and claim are repeated, each by itself.
        if (mayPass(error)) {
          failed(error)
          throw error
        }
        // Refused, or something is wrong with the queue: the publish has nothing to do with it, and tells by its number what was stored.
        claimed(undefined)
        this.#isCluster ||= String(error).includes('CROSSSLOT')
        return undefined
      }
    }
    return { store, taken }
  }

  async remove(name: string, revision: number): Promise<void> {
    const { store, redis } = await this.#storeOf(name)
    const step = () => runScript(redis, removeScript, { ...store.ground, revision })
    while ((await step()) === 'more');
  }

  async pausedSince(name: string): Promise<number | undefined> {
    const { store, redis } = await this.#storeOf(name)
    const at = await redis.hget(store.keys.store, 'pausedAt')
    return at === null ? undefined : Number(at)
  }

  async #acceptWhenOpen(partition: number, delivery: Delivery): Promise<Accepted> {
    this.#ground ??= await this.#open()
    return this.#accept(this.#ground, partition, delivery)
  }

  async #accept(ground: QueueSinkGround, partition: number, { subscription, events }: Delivery): Promise<Accepted> {
    const { name, revision, born } = subscription
    const isOrdered = subscription.options.ordered === true
    const [first, last] = [events[0]!.seq, events.at(-1)!.seq]
    const items = itemsOf(partition, events, isOrdered)
    const inputs = subscription.options.track
      ? inputsOf(partition, events, settingsOf(subscription.options))
      : undefined
    const reply = await ground.stores.of(name).accept({ revision, born, partition, first, last, items, inputs })
    return reply.kind === 'full' && reply.items > 0 ? 'partly' : reply.kind
  }

  async #storeOf(name: string) {
    this.#ground ??= await this.#open()
    return { store: this.#ground.stores.of(name), redis: this.#ground.connection.redis }
  }
}

/** Neither ordered nor tracked, and without limits. */
const isPlain = ({ ordered, track, limits }: Subscription['options']): boolean =>
  !ordered && !track && Object.keys((limits as object) ?? {}).length === 0

/** Of a tracked queue: what is shown of an event that is too large for a record, or has fields that are not shown. */
function inputsOf(partition: number, events: Delivery['events'], { redact }: QueueSettings): ShownInput[] {
  const writeId = idWriter(partition)
  const redactor = redactorOf(redact)
  return events.flatMap(({ seq, envelope }) => {
    const data = envelope.slice(envelope.indexOf('\n') + 1)
    const shown = redactor.input(data)
    return shown === data ? [] : [{ id: writeId(seq), shown }]
  })
}

function itemsOf(partition: number, events: Delivery['events'], isOrdered: boolean): AcceptedItem[] {
  const writeId = idWriter(partition)
  return events.map(({ seq, tenant, prev, envelope }) => ({
    lane: tenant,
    item: routedItem(writeId(seq), seq, tenant, prev, envelope, isOrdered ? keyWord(keyOf(envelope) ?? '') : ''),
  }))
}
