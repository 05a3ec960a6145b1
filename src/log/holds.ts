/**
 * Holds: whoever still needs the log says up to where it has come, and retention keeps everything above.
 *
 * A hold is placed before its owner reads, moved lazily afterwards, and taken away when its owner is gone. It never
 * moves backwards by accident: only an owner with a higher epoch may say that it begins further back.
 */
import type { Redis } from 'ioredis'
import type { PartitionKeys } from '../redis/keys.ts'
import { defineScript, runScript, runScripts } from '../redis/script.ts'
import type { Cursor } from './cursor.ts'
import type { Namespace } from './namespace.ts'

export const holdScript = defineScript({
  file: new URL('./hold.lua', import.meta.url),
  keys: ({ keys }: { keys: PartitionKeys; name: string; seq: number; epoch: number }) => [keys.holds],
  args: ({ name, seq, epoch }) => [name, seq, epoch],
  reply: ([kind]: ['held' | 'kept']) => kind,
})

export async function placeHold(redis: Redis, namespace: Namespace, name: string, cursor: Cursor): Promise<void> {
  const holds = namespace.partitions.map((keys, partition) => ({ keys, name, seq: cursor[partition]!, epoch: 0 }))
  await runScripts(redis, holdScript, holds)
}

/** The hold of one partition, by its owner. */
export async function moveHold(
  redis: Redis,
  namespace: Namespace,
  name: string,
  { partition, seq, epoch }: { partition: number; seq: number; epoch: number },
): Promise<void> {
  await runScript(redis, holdScript, { keys: namespace.partitions[partition]!, name, seq, epoch })
}

export async function dropHold(redis: Redis, namespace: Namespace, name: string): Promise<void> {
  await Promise.all(namespace.partitions.map((keys) => redis.hdel(keys.holds, name)))
}
