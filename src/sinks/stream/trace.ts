/** Where an event is for the processors: before or behind their cursors, in the way of all that follows, set aside, or given up. */
import type { Redis } from 'ioredis'
import type { Event } from '../../event.ts'
import type { LogSource } from '../../log/view.ts'
import { compilePattern } from '../../pattern.ts'
import { type ProcessorKeys, processorKeys, processorsKey } from '../../redis/keys.ts'
import type { TracedEvent, TracedPlace, TracedSink, TracedState } from '../../traced.ts'
import type { Definition } from './declare.ts'
import { shelfKey } from './scripts.ts'
import { objectOf, type Reason, readLetter, readShelf, readShelfText } from './set-aside.ts'

export function processorTrace(source: LogSource): TracedSink {
  return {
    trace: (asked) =>
      source.read(async (redis, { name: ns }) => {
        const definitions = Object.entries(await redis.hgetall(processorsKey(ns)))
        const places = await Promise.all(
          definitions.map(async ([name, text]): Promise<TracedPlace | undefined> => {
            const found = await placeIn(redis, processorKeys(ns, name), JSON.parse(text), asked)
            return found && { kind: 'processor', name, ...found }
          }),
        )
        return places.filter((place) => place !== undefined)
      }),
  }
}

type Found = Omit<TracedPlace, 'kind' | 'name'>

async function placeIn(
  redis: Redis,
  keys: ProcessorKeys,
  { match, starts }: Definition,
  { id, partition, seq, event }: TracedEvent,
): Promise<Found | undefined> {
  // The cursor first: what is behind it then is settled, one way or the other.
  const cursor = Number((await redis.hget(keys.cursors, String(partition))) ?? 0)
  const failed = (await blockingIn(redis, keys, partition, id)) ?? (await amongDead(redis, keys, id))
  if (failed) return failed
  // On which shelf it would be is not known without it.
  if (!event) return (await redis.exists(keys.shelves)) === 1 ? { state: 'unknown' } : undefined
  if (!compilePattern(match).matches(event.tenant, event.type)) return undefined
  const shelved = await onShelf(redis, keys, event)
  if (shelved) return shelved
  if (seq > cursor) return { state: 'waiting' }
  return { state: seq > (starts[partition] ?? 0) ? 'done' : 'unknown' }
}

/** Looked at before the dead letters: one that is resumed may become one of them meanwhile. */
async function blockingIn(
  redis: Redis,
  keys: ProcessorKeys,
  partition: number,
  id: string,
): Promise<Found | undefined> {
  const text = await redis.hget(keys.blocked, String(partition))
  const reason = text === null ? undefined : (JSON.parse(text) as Reason)
  return reason?.id === id ? failedAs('blocked', reason) : undefined
}

async function amongDead(redis: Redis, keys: ProcessorKeys, id: string): Promise<Found | undefined> {
  const letter = await redis.hget(keys.dead, id)
  return letter === null ? undefined : failedAs('dead', readLetter(letter))
}

/** Only one event of a parked object has failed; the others wait behind it. What is released is in line again. */
async function onShelf(redis: Redis, keys: ProcessorKeys, event: Event): Promise<Found | undefined> {
  const object = objectOf(event)
  const text = await redis.hget(keys.shelves, object)
  if (text === null) return undefined
  const { partition, state, reason } = readShelf(object, text)
  const shelf = await redis.lrange(shelfKey(keys, object), 0, -1)
  if (!shelf.some((one) => readShelfText(partition, one).seq === event.seq)) return undefined
  if (state === 'released') return { state: 'waiting' }
  return reason.id === event.id ? failedAs('parked', reason as Reason) : { state: 'parked' }
}

const failedAs = (state: TracedState, { attempts, error }: Reason): Found => ({ state, attempts, error })
