/**
 * The Redis of test buses: the one that is named, else an embedded one in a temporary folder.
 *
 * All test buses of a process share the embedded one; it and its folder go with the last of them.
 */
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Redis } from 'ioredis'
import { mayPass, redisOptions } from '../redis/connection.ts'
import { type EmbeddedRedis, openEmbeddedRedis } from '../redis/embedded.ts'
import { namespacePattern } from '../redis/keys.ts'
import { systemClock } from '../runtime/clock.ts'
import { createTelemetry } from '../runtime/telemetry.ts'

export interface TestRedis {
  readonly url: string
  release(): Promise<void>
}

interface Shared {
  readonly started: Promise<{ folder: string; server: EmbeddedRedis }>
  users: number
}

let shared: Shared | undefined

/** `named`, else BUSBAR_REDIS_URL, else the embedded one. */
export async function useRedis(named: string | undefined): Promise<TestRedis> {
  const url = named || process.env.BUSBAR_REDIS_URL
  if (url) return { url, release: async () => undefined }
  shared ??= { started: startEmbedded(), users: 0 }
  const used = shared
  used.users += 1
  try {
    const { server } = await used.started
    return { url: `unix://${encodeURI(server.socketPath)}`, release: () => leave(used) }
  } catch (error) {
    if (shared === used) shared = undefined
    throw error
  }
}

async function startEmbedded(): Promise<{ folder: string; server: EmbeddedRedis }> {
  const folder = await mkdtemp(join(tmpdir(), 'busbar-testing-'))
  try {
    return { folder, server: await openEmbeddedRedis({ dataDir: folder, telemetry: createTelemetry(systemClock.now) }) }
  } catch (error) {
    await rm(folder, { recursive: true, force: true })
    throw error
  }
}

async function leave(used: Shared): Promise<void> {
  used.users -= 1
  if (used.users > 0) return
  // Who comes from now on starts another one, in a folder of its own.
  if (shared === used) shared = undefined
  const { folder, server } = await used.started
  await server.release()
  await rm(folder, { recursive: true, force: true })
}

/** Deletes every key of the namespace. A Redis that is gone has none left. */
export async function deleteNamespace(url: string, namespace: string): Promise<void> {
  const redis = new Redis({ ...redisOptions(url), maxRetriesPerRequest: 0, retryStrategy: () => null })
  redis.on('error', () => undefined)
  try {
    for await (const keys of redis.scanStream({ match: namespacePattern(namespace), count: 1_000 }))
      if (keys.length > 0) await redis.unlink(...keys)
  } catch (error) {
    if (!mayPass(error)) throw error
  } finally {
    redis.disconnect()
  }
}
