/** What a Redis must be to carry the log: new enough, and never throwing keys away by itself. */
import type { Redis } from 'ioredis'
import { BusbarError } from '../errors.ts'

export interface ServerFacts {
  software: 'redis' | 'valkey'
  version: string
  appendOnly: boolean
  maxMemoryBytes: number
  maxMemoryPolicy: string
  usedMemoryBytes: number
}

export async function serverFacts(redis: Redis): Promise<ServerFacts> {
  const info = await redis.info()
  const field = (name: string) => new RegExp(`^${name}:(.*?)\\r?$`, 'm').exec(info)?.[1] ?? ''
  const valkey = field('valkey_version')
  return {
    software: valkey ? 'valkey' : 'redis',
    version: valkey || field('redis_version'),
    appendOnly: field('aof_enabled') === '1',
    maxMemoryBytes: Number(field('maxmemory') || 0),
    maxMemoryPolicy: field('maxmemory_policy'),
    usedMemoryBytes: Number(field('used_memory') || 0),
  }
}

/** Throws REDIS_UNSUITABLE when the log would not be safe here. */
export function checkServer(facts: ServerFacts): void {
  if (Number.parseInt(facts.version, 10) < 7)
    throw BusbarError.of('REDIS_UNSUITABLE', {
      problem: `it has version ${facts.version}`,
      remedy: 'Use Redis 7.0 or newer, or Valkey.',
    })
  if (facts.maxMemoryBytes > 0 && facts.maxMemoryPolicy !== 'noeviction')
    throw BusbarError.of('REDIS_UNSUITABLE', {
      problem: `maxmemory-policy ${facts.maxMemoryPolicy} would silently drop parts of the log`,
      remedy: 'Set "maxmemory-policy noeviction".',
    })
}
