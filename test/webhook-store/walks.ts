/** Many walks through a shard, each with definitions and steps by chance, in a namespace that is empty again after each. */
import fc from 'fast-check'
import type { Redis } from 'ioredis'
import { type WebhookKeys, webhookKeys } from '../../src/redis/keys.ts'
import type { Plant } from '../lanes/walk.ts'
import { freshNamespace, keysOf, plainRedis } from '../support/bus.ts'
import type { RedisServer } from '../support/redis.ts'
import { type Definitions, definitions, step } from './steps.ts'
import { Walk } from './walk.ts'

export interface WalkGround {
  redis: Redis
  namespace: string
  keys: WebhookKeys
}

export function walkGround({ socketPath }: RedisServer): WalkGround {
  const namespace = freshNamespace()
  return { redis: plainRedis(socketPath), namespace, keys: webhookKeys(namespace, 7) }
}

const walks = fc.record({ definitions, steps: fc.array(step, { minLength: 5, maxLength: 26, size: 'max' }) })
type Steps = typeof walks extends fc.Arbitrary<infer T> ? T : never

async function walk({ redis, keys }: WalkGround, { definitions: its, steps }: Steps, plant: Plant): Promise<void> {
  const walking = new Walk(redis, keys, its, plant)
  await walking.begin()
  for (const one of steps) {
    await walking.take(one)
    await walking.check()
  }
  await walking.end()
}

/** What a walk that failed has left would be in the way of the next. */
async function clear({ redis, namespace }: WalkGround): Promise<void> {
  const left = await keysOf(redis, namespace)
  if (left.length > 0) await redis.unlink(...left)
}

const asItIs: Plant = (script) => script

export interface Walks {
  runs: number
  seed?: number
  /** What of their definitions is not left to chance. */
  its?: Partial<Definitions>
  plant?: Plant
  shrinks?: boolean
}

export async function walkMany(
  ground: WalkGround,
  { runs, seed = 7, its = {}, plant = asItIs, shrinks = true }: Walks,
): Promise<void> {
  const oneWalk = fc.asyncProperty(walks, ({ definitions: by, steps }) =>
    walk(ground, { definitions: { ...by, ...its }, steps }, plant).catch(async (error) => {
      await clear(ground)
      throw error
    }),
  )
  await Walk.load(ground.redis, plant)
  await fc.assert(oneWalk, { numRuns: runs, seed, endOnFailure: !shrinks })
}
