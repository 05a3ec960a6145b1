/** Stores what was declared: the definition, for people, and a new processor's first cursors, held before it reads. */
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
  await redis.hset(processorsKey(namespace.name), name, JSON.stringify({ match, onPoison, concurrency }))
  const keys = processorKeys(namespace.name, name)
  if ((await redis.exists(keys.cursors)) === 1) return
  const cursors = await positionOf(redis, namespace, from)
  // If someone else was first and further back, the owner's own hold, under its epoch, puts that right.
  await placeHold(redis, namespace, holdName(name), cursors)
  await runScript(redis, declareScript, { keys, cursors: new Map(cursors.entries()) })
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
