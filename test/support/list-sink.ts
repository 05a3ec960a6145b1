/**
 * A sink for tests: each store is a Redis list of "<partition>-<seq>", with what sink.ts asks for in a hash beside it.
 *
 * Calls wait for each other within this process, so that a look and the write behind it belong together.
 */
import type { Redis } from 'ioredis'
import type { Accepted, Delivery, RoutedSink, Subscription } from '../../src/route/sink.ts'

export interface ListSink extends RoutedSink {
  /** What a store holds, of one partition or of all. */
  held(name: string, partition?: number): Promise<string[]>
  /** Takes the store away behind everyone's back. */
  lose(name: string): Promise<void>
  /** Stores that answer with an error, or not at all until they are taken out again. */
  readonly refusing: Set<string>
  readonly silent: Map<string, Promise<void>>
}

export function listSink(redis: Redis, namespace: string): ListSink {
  const factsKey = (name: string) => `${namespace}:{list.${name}}:facts`
  const listKey = (name: string) => `${namespace}:{list.${name}}:list`
  const refusing = new Set<string>()
  const silent = new Map<string, Promise<void>>()
  let before: Promise<unknown> = Promise.resolve()
  const inTurn = <T>(work: () => Promise<T>): Promise<T> => {
    const done = before.then(work)
    before = done.catch(() => undefined)
    return done
  }

  async function take(partition: number, { subscription, events }: Delivery): Promise<Accepted> {
    const { name, revision, born } = subscription
    if (refusing.has(name)) throw new Error('refused')
    const facts = await redis.hgetall(factsKey(name))
    if (facts.born === undefined || Number(facts.born) < born) return 'gone'
    if (Number(facts.revision) > revision || Number(facts.born) > born) return 'outdated'
    const fresh = events.filter(({ seq }) => seq > Number(facts[`applied:${partition}`] ?? 0))
    const write = redis.multi().hset(factsKey(name), 'revision', revision)
    for (const { seq } of fresh) write.rpush(listKey(name), `${partition}-${seq}`)
    if (fresh.length > 0) write.hset(factsKey(name), `applied:${partition}`, fresh.at(-1)!.seq)
    await write.exec()
    return 'accepted'
  }

  async function make({ name, revision, born }: Subscription, applied: readonly number[]): Promise<void> {
    const facts = await redis.hgetall(factsKey(name))
    if (facts.born !== undefined && Number(facts.born) >= born) {
      if (Number(facts.revision) < revision) await redis.hset(factsKey(name), 'revision', revision)
      return
    }
    await redis.unlink(factsKey(name), listKey(name))
    const places = applied.flatMap((seq, partition) => [`applied:${partition}`, seq])
    await redis.hset(factsKey(name), 'born', born, 'revision', revision, ...places)
  }

  return {
    refusing,
    silent,
    make: (subscription, applied) => inTurn(() => make(subscription, applied)),
    accept: (partition, deliveries) =>
      deliveries.map(async (delivery) => {
        await silent.get(delivery.subscription.name)
        return inTurn(() => take(partition, delivery))
      }),
    remove: (name, revision) =>
      inTurn(async () => {
        if (Number((await redis.hget(factsKey(name), 'born')) ?? 0) > revision) return
        await redis.unlink(factsKey(name), listKey(name))
      }),
    lose: async (name) => void (await redis.unlink(factsKey(name), listKey(name))),
    held: async (name, partition) => {
      const all = await redis.lrange(listKey(name), 0, -1)
      return partition === undefined ? all : all.filter((id) => id.startsWith(`${partition}-`))
    },
  }
}
