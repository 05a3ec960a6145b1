/** Stores what was declared: the definition, for people, and a new processor's first cursors, held before it reads. */
import { isDeepStrictEqual } from 'node:util'
import type { Redis } from 'ioredis'
import { seqBefore } from '../../log/cursor.ts'
import { placeHold } from '../../log/holds.ts'
import type { Namespace } from '../../log/namespace.ts'
import { readLasts } from '../../log/read.ts'
import { processorKeys, processorsKey } from '../../redis/keys.ts'
import { runScript } from '../../redis/script.ts'
import type { ProcessorSettings } from './options.ts'
import { declareScript } from './scripts.ts'

/** What keeps the log for a processor. */
export const holdName = (processor: string): string => `stream.${processor}`

export async function declareProcessor(
  redis: Redis,
  namespace: Namespace,
  name: string,
  { match, onPoison, concurrency, from }: ProcessorSettings,
): Promise<void> {
  const keys = processorKeys(namespace.name, name)
  const isKnown = (await redis.exists(keys.cursors)) === 1
  const cursors = isKnown ? undefined : await positionOf(redis, namespace, from)
  const starts = cursors ?? (await startsOf(redis, namespace, name, match))
  await storeDefinition(redis, namespace, name, { match, onPoison, concurrency, starts })
  if (!cursors) return
  // If someone else was first and further back, the owner's own hold, under its epoch, puts that right.
  await placeHold(redis, namespace, holdName(name), cursors)
  await runScript(redis, declareScript, { keys, cursors: new Map(cursors.entries()) })
}

/** As it is stored, for people. */
export interface Definition extends Pick<ProcessorSettings, 'match' | 'onPoison' | 'concurrency'> {
  /** One seq per partition, where it began or was last moved to: of what is not above it nobody knows whether it was handled. */
  starts: readonly number[]
}

/** Of one that is known. With another pattern it begins where it is: what it has passed it may not have wanted. */
async function startsOf(
  redis: Redis,
  namespace: Namespace,
  name: string,
  match: ProcessorSettings['match'],
): Promise<readonly number[]> {
  const text = await redis.hget(processorsKey(namespace.name), name)
  const stored = text === null ? undefined : (JSON.parse(text) as Partial<Definition>)
  if (stored?.starts && isDeepStrictEqual(stored.match, match)) return stored.starts
  const cursors = await redis.hgetall(processorKeys(namespace.name, name).cursors)
  return namespace.partitions.map((_, partition) => Number(cursors[partition] ?? 0))
}

export async function storeDefinition(
  redis: Redis,
  namespace: Namespace,
  name: string,
  definition: Definition,
): Promise<void> {
  await redis.hset(processorsKey(namespace.name), name, JSON.stringify(definition))
}

/** One seq per partition: everything above is still to come. */
export async function positionOf(
  redis: Redis,
  namespace: Namespace,
  from: ProcessorSettings['from'],
): Promise<number[]> {
  const lasts = await readLasts(redis, namespace)
  if (from === 'now') return lasts
  if (from === 'beginning') return lasts.map(() => 0)
  const seq = seqBefore(from)
  return lasts.map((last) => Math.min(last, seq))
}
