/** A small sound log of two partitions, and the means to spoil it behind Busbar's back. */
import type { Redis } from 'ioredis'
import type { Bus } from '../../src/bus.ts'
import { type Finding, fsck } from '../../src/fsck.ts'
import { separator } from '../../src/log/entry.ts'
import { type Namespace, openNamespace } from '../../src/log/namespace.ts'
import { partitionOf, partitionTags } from '../../src/log/partition.ts'
import type { LogSource } from '../../src/log/view.ts'
import { type PartitionKeys, partitionKeys } from '../../src/redis/keys.ts'
import { plainRedis, testBus } from './bus.ts'

export const partitions = 2

/** The first so many objects of the tenant acme that lie in the partition. */
export function objectsIn(partition: number, count = 40): string[] {
  const objects: string[] = []
  for (let i = 0; objects.length < count; i += 1)
    if (partitionOf(`acme/o:${i}`, partitions) === partition) objects.push(`acme/o:${i}`)
  return objects
}

export interface SpoiledLog {
  readonly bus: Bus
  readonly redis: Redis
  /** Keys of partition 0, which holds the objects of objectsIn(0); the first has two events more. */
  readonly keys: PartitionKeys
  readonly other: PartitionKeys
  findings(): Promise<Finding[]>
  meta(field: string): Promise<number>
  /** Appends an entry as publishing would, except for what is spoiled in it. Answers the seq of its last event. */
  append(events: readonly Appended[], how?: { id?: string; keys?: PartitionKeys }): Promise<number>
  /** Deletes an entry without a trace in meta. */
  remove(id: string): Promise<void>
}

export interface Appended {
  prev?: string
  /** Its head is moved; '' for none. */
  object?: string
  envelope: string | Buffer
}

/** `objects` in each partition: 500 are read in one step. */
export async function soundLog(objects = 40): Promise<SpoiledLog> {
  const bus = testBus({ partitions }) as unknown as Bus
  const redis = plainRedis()
  const [keys, other] = partitionTags(partitions).map((tag) => partitionKeys(bus.namespace, tag)) as [
    PartitionKeys,
    PartitionKeys,
  ]
  for (const partition of [0, 1]) await publishEach(bus, objectsIn(partition, objects))
  const object = keyOf(objectsIn(0)[0]!)
  await bus.publish('order.paid', { n: 2 }, { tenant: 'acme', key: object })
  await bus.publish('order.sent', 'ü😀', { tenant: 'acme', key: object, idempotencyKey: 'once', trace: 't' })
  await bus.commit(
    keyOf(objectsIn(1)[0]!),
    [
      ['order.paid', 1],
      ['order.sent', [2]],
    ],
    { tenant: 'acme', state: { paid: true } },
  )
  await bus.publishAll([
    { type: 'mail', data: null },
    { type: 'mail.sent', time: 7 },
  ])

  const meta = async (field: string, of = keys) => Number((await redis.hget(of.meta, field)) ?? 0)
  const log: SpoiledLog = {
    bus,
    redis,
    keys,
    other,
    findings: () => collect(bus.fsck()),
    meta: (field) => meta(field),
    async append(events, { keys: to = keys, id } = {}) {
      const last = Number(id?.split('-')[0] ?? (await meta('last', to)) + events.length)
      await redis.xadd(to.log, id ?? `${last}-0`, ...fieldsOf(events))
      await redis.hincrby(to.meta, 'events', events.length)
      await redis.hincrby(
        to.meta,
        'bytes',
        events.reduce((sum, { envelope }) => sum + Buffer.byteLength(envelope), 0),
      )
      await redis.hset(to.meta, 'last', last)
      for (const [i, { object = '' }] of events.entries())
        if (object !== '') await redis.hset(to.heads, object, last - events.length + 1 + i)
      return last
    },
    async remove(id) {
      const [entry] = await redis.xrange(keys.log, id, id)
      const envelopes = entry![1][1]!.split('\x1e').slice(1)
      await redis.xdel(keys.log, id)
      await redis.hincrby(keys.meta, 'events', -envelopes.length)
      await redis.hincrby(keys.meta, 'bytes', -envelopes.reduce((sum, text) => sum + Buffer.byteLength(text), 0))
    },
  }
  return log
}

export const keyOf = (object: string): string => object.slice(object.indexOf('/') + 1)

export async function publishEach(bus: Bus, objects: readonly string[]): Promise<void> {
  await Promise.all(
    objects.map((object) => bus.publish('order.paid', { n: 1 }, { tenant: 'acme', key: keyOf(object) })),
  )
}

export async function collect<T>(items: AsyncIterable<T>): Promise<T[]> {
  const all: T[] = []
  for await (const item of items) all.push(item)
  return all
}

/** Runs fsck with something happening before each of its reads; answers what it found and how often it read. */
export async function fsckWhile(
  redis: Redis,
  namespace: string,
  around: (read: number, ask: () => Promise<unknown>) => Promise<unknown>,
  found: (finding: Finding) => void = () => undefined,
): Promise<{ findings: Finding[]; reads: number }> {
  const opened: Namespace = await openNamespace(redis, { name: namespace, partitions: undefined, retention: undefined })
  let reads = 0
  const source: LogSource = {
    read: (ask) => {
      reads += 1
      return around(reads, () => ask(redis, opened)) as ReturnType<typeof ask>
    },
  }
  const findings: Finding[] = []
  for await (const finding of fsck(source)) {
    found(finding)
    findings.push(finding)
  }
  return { findings, reads }
}

/** As publish.lua writes them. */
function fieldsOf(events: readonly Appended[]): (string | Buffer)[] {
  const records = events.flatMap(({ envelope }) => [separator, envelope])
  return [
    events.map(({ prev = '' }) => prev).join(' '),
    Buffer.concat(records.map((text) => Buffer.from(text as string))),
  ]
}
