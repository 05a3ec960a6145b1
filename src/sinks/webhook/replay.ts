/**
 * Sends a stretch of the log to one webhook again, as batches behind what it has waiting.
 *
 * A replay has a fence of its own beside `applied`: a call whose answer was lost is repeated, and its events are taken once. Beyond what a
 * webhook keeps the oldest give way: a replay takes half of that at most, and waits while more is there.
 */
import { setTimeout as delay } from 'node:timers/promises'
import type { Redis } from 'ioredis'
import { BusbarError, shown } from '../../errors.ts'
import { seqBefore } from '../../log/cursor.ts'
import type { Namespace } from '../../log/namespace.ts'
import { LogPages, readLasts } from '../../log/read.ts'
import type { LogSource } from '../../log/view.ts'
import { compilePattern } from '../../pattern.ts'
import { deliveriesOf } from '../../route/chunk.ts'
import type { Subscription } from '../../route/sink.ts'
import { settingsOf } from './options.ts'
import { acceptScript } from './scripts.ts'
import type { Shard } from './shard.ts'
import { gather, piecesOf, renderer } from './sink.ts'

export interface ReplayOptions {
  /** A time, ms or Date: events from then on. */
  since: number | Date
  /** Events before this time. Default: all that are stored when it begins. */
  until?: number | Date
  /** Hears how many events it has sent so far. */
  onProgress?: (events: number) => void
}

export interface Replayed {
  events: number
}

export async function replay(
  source: LogSource,
  shard: Shard,
  subscription: Subscription,
  job: string,
  { since, until, onProgress }: ReplayOptions,
): Promise<Replayed> {
  const lasts = await source.read(readLasts)
  const start = seqBefore(since)
  const end = until === undefined ? Number.MAX_SAFE_INTEGER : seqBefore(until)
  let events = 0
  for (const [partition, last] of lasts.entries()) {
    const stretch = { source, shard, subscription, job, partition, start, end: Math.min(last, end), sent: () => events }
    for await (const sent of replayPartition(stretch)) {
      events += sent
      onProgress?.(events)
    }
  }
  await source.read((redis) => redis.unlink(shard.keys.replayPrefix + job))
  return { events }
}

interface Replaying {
  source: LogSource
  shard: Shard
  subscription: Subscription
  job: string
  partition: number
  start: number
  end: number
  /** Events so far. */
  sent(): number
}

async function* replayPartition(stretch: Replaying): AsyncGenerator<number> {
  const { source, shard, subscription, job, partition, start, end, sent } = stretch
  const pages = new LogPages()
  const matcher = compilePattern(subscription.match!)
  const wants = (tenant: string, type: string) => (matcher.matches(tenant, type) ? [subscription] : [])
  let after = start
  while (after < end) {
    const read = (redis: Redis, namespace: Namespace) => pages.readRaw(redis, namespace, partition, after)
    const page = await source.read(read)
    const upTo = Math.min(Math.max(after, page.last), end)
    for (const delivery of deliveriesOf({ entries: page.entries, after, upTo }, wants)) {
      for (const piece of piecesOf(
        gather(delivery, partition, renderer(partition)),
        Math.max(1, Math.floor(mostWaiting(subscription))),
      )) {
        await waitForRoom(stretch)
        const input = { replay: shard.keys.replayPrefix + job, partition, deliveries: [piece] }
        const [reply] = await source.read(() => shard.run(acceptScript, input))
        if (reply!.kind !== 'accepted')
          throw BusbarError.of('WEBHOOK_CHANGED', { name: shown(subscription.name), events: sent() })
        yield piece.events.length
      }
    }
    if (page.complete) return
    after = Math.max(upTo, page.trimmed)
  }
}

const lookMs = 50

const mostWaiting = ({ options }: Subscription): number => settingsOf(options).keepEvents / 2

/** One that delivers nothing would never have room again. */
async function waitForRoom({ source, shard, subscription, sent }: Replaying): Promise<void> {
  const { name } = subscription
  for (;;) {
    const { events, isStopped } = await source.read(() => shard.backlog(name))
    if (events <= mostWaiting(subscription)) return
    if (isStopped) throw BusbarError.of('WEBHOOK_FULL', { name: shown(name), waiting: events, events: sent() })
    await delay(lookMs)
  }
}
