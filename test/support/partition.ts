/** One partition of its own on a real Redis, for calling the scripts of publish/ and log/ as the code does. */
import type { Redis } from 'ioredis'
import { expect, onTestFinished } from 'vitest'
import { type Entry, entryRecords } from '../../src/log/entry.ts'
import type { FlushInput, FlushReply } from '../../src/log/flush.ts'
import { trimScript } from '../../src/log/retention.ts'
import { storeFlush } from '../../src/publish/scripts.ts'
import { type PartitionKeys, partitionKeys } from '../../src/redis/keys.ts'
import { runScript, writeArg } from '../../src/redis/script.ts'
import { freshNamespace, keysOf, plainRedis } from './bus.ts'

export interface FlushCall {
  once?: unknown
  scope?: unknown
  body?: unknown
  expectPrev?: unknown
  state?: unknown
  delayed?: unknown
}

export type FlushWish = Partial<Omit<FlushInput, 'keys' | 'options' | 'records' | 'objects'>> & {
  /** `[first event, events, options]` of each call that has options, or the raw text. */
  calls?: readonly (readonly [first: number, count: number, options: FlushCall])[] | string
}

export interface TrimWish {
  ageSeq?: number
  maxEvents?: number
  maxBytes?: number
}

export interface Partition {
  readonly redis: Redis
  readonly namespace: string
  readonly keys: PartitionKeys
  /** Object (or object and envelope) of each event. Without process: not remembered. */
  flush(events: readonly (string | readonly [object: string, envelope: string])[], wish?: FlushWish): Promise<Flushed>
  /** By default nothing is over any limit. */
  trim(wish: TrimWish): ReturnType<typeof trimOf>
  /** How many events the log holds. */
  count(): Promise<number>
  /** Entry id → its fields. */
  entries(): Promise<[id: string, fields: string[]][]>
  /** What meta counts, without its topics and calls. */
  meta(): Promise<Record<string, string>>
  /** Topic → number of events. */
  topics(): Promise<Record<string, string>>
  /** Topic → seq of the last flush that had it. */
  topicLasts(): Promise<Record<string, string>>
  /** Process → what is remembered of its last flush. */
  calls(): Promise<Record<string, string>>
  /** Every key of the namespace. */
  stored(): Promise<string[]>
}

/** An event's envelope; the tenant is the object's, the key too. */
export function envelopeOf(object: string, type = 'order.paid', data: unknown = null, more: object = {}): string {
  const slash = object.indexOf('/')
  const named =
    slash < 0 ? { tenant: object || 'default' } : { tenant: object.slice(0, slash), key: object.slice(slash + 1) }
  return `${JSON.stringify({ type, ...named, ...more })}\n${JSON.stringify(data)}`
}

export const objects = (count: number): string[] => Array.from({ length: count }, (_, i) => `acme/o:${i}`)

export type Stored = Omit<Extract<FlushReply, { kind: 'stored' }>, 'prevs'> & { prevs: readonly string[] }

/** publish.lua's answer, its prevs apart. */
export type Flushed = Stored | Exclude<FlushReply, { kind: 'stored' }>

export const stored = (last: number, prevs: readonly string[], exceptions: readonly unknown[] = []) => ({
  kind: 'stored',
  last,
  prevs,
  exceptions,
})

/** Only exceptions: the answer's last is the time by which it was given. */
export const nothingStored = (...exceptions: unknown[]) => ({
  kind: 'stored',
  last: expect.any(Number),
  prevs: [''],
  exceptions,
})

const trimOf = (redis: Redis, keys: PartitionKeys, wish: TrimWish) => {
  const none = Number.MAX_SAFE_INTEGER
  return runScript(redis, trimScript, { keys, ageSeq: 0, maxEvents: none, maxBytes: none, ...wish })
}

export function testPartition(redis = plainRedis()): Partition {
  const namespace = freshNamespace()
  const keys = partitionKeys(namespace, '0.0')
  onTestFinished(async () => {
    const left = await keysOf(redis, namespace).catch(() => [])
    if (left.length > 0) await redis.unlink(...left)
  })
  // Fields are `<kind>:<name>`, or just a name.
  const metaFields = async (kind: string) => {
    const fields = Object.entries(await redis.hgetall(keys.meta)).map(([field, value]) => {
      const colon = field.indexOf(':')
      return { kind: colon < 0 ? '' : field.slice(0, colon), name: field.slice(colon + 1), value }
    })
    return Object.fromEntries(fields.filter((field) => field.kind === kind).map(({ name, value }) => [name, value]))
  }
  return {
    redis,
    namespace,
    keys,
    async flush(events, { calls = '', ...wish } = {}) {
      const pairs = events.map((event) => (typeof event === 'string' ? [event, envelopeOf(event)] : event))
      const options = typeof calls === 'string' ? calls : JSON.stringify(calls)
      const records = pairs.map(([, envelope]) => (envelope === undefined ? '' : `\x1e${envelope}`)).join('')
      const objects = { text: pairs.map(([object]) => writeArg(object!)).join(''), count: pairs.length }
      const input = { keys, process: '', n: 0, floor: 0, kinds: '', live: '', ...wish, options, records, objects }
      const reply = await storeFlush(redis, input)
      return reply.kind === 'stored' ? { ...reply, prevs: reply.prevs.split(' ') } : reply
    },
    trim: (wish) => trimOf(redis, keys, wish),
    entries: () => redis.xrange(keys.log, '-', '+'),
    async count() {
      const entries = (await redis.xrange(keys.log, '-', '+')) as Entry[]
      return entries.reduce((sum, entry) => sum + entryRecords(0, entry, 0).length, 0)
    },
    meta: () => metaFields(''),
    topics: () => metaFields('topic'),
    topicLasts: () => metaFields('last'),
    calls: () => metaFields('call'),
    stored: () => keysOf(redis, namespace),
  }
}
