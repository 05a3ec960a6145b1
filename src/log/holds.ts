/**
 * Holds: whoever still needs the log says up to where it has come, and retention keeps everything above.
 *
 * A hold is placed before its owner reads, moved lazily afterwards, and taken away when its owner is gone. It never
 * moves backwards by accident: a move to a lower seq is ignored.
 */
import type { Redis } from 'ioredis'
import type { PartitionKeys } from '../redis/keys.ts'
import { defineScript, runScripts } from '../redis/script.ts'
import type { Cursor } from './cursor.ts'
import type { Namespace } from './namespace.ts'

export const holdScript = defineScript({
  file: new URL('./hold.lua', import.meta.url),
  keys: ({ keys }: { keys: PartitionKeys; name: string; seq: number }) => [keys.holds],
  args: ({ name, seq }) => [name, seq],
  reply: ([kind]: ['held' | 'kept']) => kind,
})

export async function placeHold(redis: Redis, namespace: Namespace, name: string, cursor: Cursor): Promise<void> {
  const holds = namespace.partitions.map((keys, partition) => ({ keys, name, seq: cursor[partition]! }))
  await runScripts(redis, holdScript, holds)
}

export async function dropHold(redis: Redis, namespace: Namespace, name: string): Promise<void> {
  await Promise.all(namespace.partitions.map((keys) => redis.hdel(keys.holds, name)))
}
