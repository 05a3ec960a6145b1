/**
 * A namespace: its partitions and retention, stored in Redis so that every process and language agrees.
 *
 * The partition count is fixed when the namespace is created. Retention is what was last declared; a process that
 * declares none keeps to what is stored, so a short-lived tool never trims by its own defaults.
 */
import type { Redis } from 'ioredis'
import { BusbarError } from '../errors.ts'
import { namespaceKey, type PartitionKeys, partitionKeys } from '../redis/keys.ts'
import { defineScript, runScript } from '../redis/script.ts'
import { partitionTags } from './partition.ts'

export const defaultPartitions = 16

export interface Retention {
  ageMs: number
  /** Events per partition. */
  events: number
  /** Bytes of envelopes per partition; null = a quarter of maxmemory over all partitions. */
  bytes: number | null
}

export const defaultRetention: Retention = { ageMs: 7 * 86_400_000, events: 1_000_000, bytes: null }

export interface Namespace {
  name: string
  partitions: readonly PartitionKeys[]
}

export interface NamespaceWish {
  name: string
  partitions: number | undefined
  retention: Retention | undefined
}

export const openScript = defineScript({
  file: new URL('./namespace.lua', import.meta.url),
  keys: ({ name }: NamespaceWish) => [namespaceKey(name)],
  args: ({ partitions, retention }) => [
    partitions ?? '',
    partitions ?? defaultPartitions,
    partitionTags(partitions ?? defaultPartitions).join(','),
    retention ? JSON.stringify(retention) : '',
  ],
  reply: (raw: ['opened', tags: string] | ['mismatch', stored: string]) => raw,
})

export async function openNamespace(redis: Redis, wish: NamespaceWish): Promise<Namespace> {
  const reply = await runScript(redis, openScript, wish)
  if (reply[0] === 'mismatch')
    throw BusbarError.of('PARTITIONS_MISMATCH', {
      namespace: wish.name,
      stored: Number(reply[1]),
      asked: wish.partitions!,
    })
  return { name: wish.name, partitions: reply[1].split(',').map((tag) => partitionKeys(wish.name, tag)) }
}

export async function storedRetention(redis: Redis, name: string): Promise<Retention> {
  const stored = await redis.hget(namespaceKey(name), 'retention')
  return stored ? (JSON.parse(stored) as Retention) : defaultRetention
}
