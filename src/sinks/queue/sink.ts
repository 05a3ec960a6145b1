/** The stores behind the queues, as routing sees them: made, given events, taken away. */
import { idWriter } from '../../event.ts'
import { routedItem } from '../../lanes/item.ts'
import { acceptScript, makeScript, removeScript } from '../../lanes/scripts.ts'
import { LaneStore } from '../../lanes/store.ts'
import type { Connection } from '../../redis/connection.ts'
import { queueKeys } from '../../redis/keys.ts'
import { inTheSameWrite, runScript } from '../../redis/script.ts'
import type { Accepted, Delivery, RoutedSink, Subscription } from '../../route/sink.ts'
import type { Clock } from '../../runtime/clock.ts'
import type { QueueSettings } from './options.ts'

export interface QueueSinkGround {
  namespace: string
  connection: Connection
  clock: Clock
}

export class QueueSink implements RoutedSink {
  readonly #open: () => Promise<QueueSinkGround>
  readonly #sent: (queue: string) => void
  #ground: QueueSinkGround | undefined

  /** `sent` hears of each queue to which items are on their way. */
  constructor(open: () => Promise<QueueSinkGround>, sent: (queue: string) => void) {
    this.#open = open
    this.#sent = sent
  }

  async make(subscription: Subscription, applied: readonly number[]): Promise<void> {
    const { store, redis } = await this.#storeOf(subscription.name)
    const { revision, born } = subscription
    const { attempts, weights } = subscription.options as unknown as QueueSettings
    const make = () => runScript(redis, makeScript, { ...store.ground, revision, born, attempts, weights, applied })
    for (let reply = await make(); reply === 'left'; reply = await make())
      await this.remove(subscription.name, born - 1)
  }

  accept(partition: number, deliveries: readonly Delivery[]): readonly Promise<Accepted>[] {
    const ground = this.#ground
    if (!ground) return deliveries.map((delivery) => this.#acceptWhenOpen(partition, delivery))
    return inTheSameWrite(ground.connection.redis, () =>
      deliveries.map((delivery) => {
        const accepted = this.#accept(ground, partition, delivery)
        this.#sent(delivery.subscription.name)
        return accepted
      }),
    )
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
    const store = this.#storeOn(ground, name)
    const [first, last] = [events[0]!.seq, events.at(-1)!.seq]
    const groups = groupsOf(partition, events)
    const input = { ...store.ground, revision, born, partition, first, last, groups }
    return (await runScript(ground.connection.redis, acceptScript, input)).kind
  }

  async #storeOf(name: string) {
    this.#ground ??= await this.#open()
    return { store: this.#storeOn(this.#ground, name), redis: this.#ground.connection.redis }
  }

  #storeOn(ground: QueueSinkGround, name: string): LaneStore {
    return new LaneStore(ground, queueKeys(ground.namespace, name))
  }
}

/** By lane, in the order of their first events. */
function groupsOf(partition: number, events: Delivery['events']): { lane: string; items: string[] }[] {
  const groups = new Map<string, string[]>()
  const writeId = idWriter(partition)
  for (const { seq, tenant, prev, envelope } of events) {
    const item = routedItem(writeId(seq), seq, tenant, prev, envelope)
    const items = groups.get(tenant)
    if (items) items.push(item)
    else groups.set(tenant, [item])
  }
  return [...groups].map(([lane, items]) => ({ lane, items }))
}
