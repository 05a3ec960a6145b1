/** Where an event is for the processors: before or behind their cursors, set aside, or given up. */
import type { Redis } from 'ioredis'
import type { LogSource } from '../../log/view.ts'
import { compilePattern } from '../../pattern.ts'
import { type ProcessorKeys, processorKeys, processorsKey } from '../../redis/keys.ts'
import type { TracedEvent, TracedPlace, TracedSink } from '../../traced.ts'
import type { Definition } from './declare.ts'
import { shelfKey } from './scripts.ts'
import { objectOf, readLetter, readShelfText } from './set-aside.ts'

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

async function placeIn(
  redis: Redis,
  keys: ProcessorKeys,
  { match, starts }: Definition,
  { id, partition, seq, event }: TracedEvent,
): Promise<Omit<TracedPlace, 'kind' | 'name'> | undefined> {
  // The cursor first: what is behind it then is settled, one way or the other.
  const cursor = Number((await redis.hget(keys.cursors, String(partition))) ?? 0)
  const letter = await redis.hget(keys.dead, id)
  if (letter !== null) {
    const { attempts, error } = readLetter(letter)
    return { state: 'dead', attempts, error }
  }
  // On which shelf it would be is not known without it.
  if (!event) return (await redis.exists(keys.shelves)) === 1 ? { state: 'unknown' } : undefined
  if (!compilePattern(match).matches(event.tenant, event.type)) return undefined
  const shelf = await redis.lrange(shelfKey(keys, objectOf(event)), 0, -1)
  if (shelf.some((text) => readShelfText(partition, text).seq === seq)) return { state: 'parked' }
  if (seq > cursor) return { state: 'waiting' }
  return { state: seq > (starts[partition] ?? 0) ? 'done' : 'unknown' }
}
