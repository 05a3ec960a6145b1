/** Publishing is closed for some time, and opened again: whoever guards memory does it. */
import type { Redis } from 'ioredis'
import type { PartitionKeys } from '../redis/keys.ts'
import { defineScript, runScript } from '../redis/script.ts'
import type { Namespace } from './namespace.ts'

export const closeScript = defineScript({
  file: new URL('./close.lua', import.meta.url),
  keys: ({ keys }: { keys: PartitionKeys; untilMs: number }) => [keys.meta],
  args: ({ untilMs }) => [untilMs],
  reply: ([kind]: ['closed']) => kind,
})

export async function closeLog(redis: Redis, { partitions }: Namespace, untilMs: number): Promise<void> {
  await Promise.all(partitions.map((keys) => runScript(redis, closeScript, { keys, untilMs })))
}

export async function openLog(redis: Redis, { partitions }: Namespace): Promise<void> {
  await Promise.all(partitions.map(({ meta }) => redis.hdel(meta, 'closedUntil')))
}
