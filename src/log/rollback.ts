/**
 * A Redis that crashed or failed over may have lost the end of the log. Readers that were further lift `last` to where
 * they were, so that new events get higher seqs than any that was ever read, and report it.
 */
import type { Redis } from 'ioredis'
import type { PartitionKeys } from '../redis/keys.ts'
import { defineScript, runScripts } from '../redis/script.ts'
import type { Telemetry } from '../runtime/telemetry.ts'
import type { Cursor } from './cursor.ts'
import type { Namespace } from './namespace.ts'

export const liftScript = defineScript({
  file: new URL('./lift.lua', import.meta.url),
  keys: ({ keys }: { keys: PartitionKeys; seen: number }) => [keys.meta],
  args: ({ seen }) => [seen],
  reply: (raw: ['lifted', string] | ['fine']) => (raw[0] === 'lifted' ? Number(raw[1]) : undefined),
})

/** `seen` must have been read from this log itself: a position that a client sent could be made up. */
export async function reportRollback(
  redis: Redis,
  namespace: Namespace,
  seen: Cursor,
  telemetry: Telemetry,
): Promise<void> {
  const inputs = namespace.partitions.map((keys, partition) => ({ keys, seen: seen[partition]! }))
  for (const [partition, last] of (await runScripts(redis, liftScript, inputs)).entries())
    if (last !== undefined) telemetry.emit('log.rolled-back', { partition, last, seen: seen[partition]! })
}
