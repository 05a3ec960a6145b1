/** Many walks through a store, each with a definition and steps by chance, in a namespace that is empty again after each. */
import fc from 'fast-check'
import type { Redis } from 'ioredis'
import { type LaneKeys, queueKeys } from '../../src/redis/keys.ts'
import { freshNamespace, keysOf, plainRedis } from '../support/bus.ts'
import { type RedisServer, startRedis } from '../support/redis.ts'
import { type Definition, definition, type Step, step, trackedStep } from './steps.ts'
import { type Plant, Walk } from './walk.ts'

export interface WalkGround {
  redis: Redis
  namespace: string
  keys: LaneKeys
}

/** On a server of their own: others make the shared one forget its scripts now and then. */
export async function startWalkServer(): Promise<RedisServer> {
  return startRedis({ args: ['--appendonly', 'no'] })
}

export function walkGround({ socketPath }: RedisServer): WalkGround {
  const namespace = freshNamespace()
  return { redis: plainRedis(socketPath), namespace, keys: queueKeys(namespace, 'mail') }
}

const length = { minLength: 5, maxLength: 26, size: 'max' } as const
const walks = fc.record({ definition, steps: fc.array(step, length) })
const trackedWalks = fc.record({ definition, steps: fc.array(trackedStep, length) })

interface Steps {
  definition: Definition
  steps: readonly Step[]
}

async function walk({ redis, keys }: WalkGround, { definition: its, steps }: Steps, plant: Plant): Promise<void> {
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
  its?: Partial<Definition>
  plant?: Plant
  shrinks?: boolean
}

export async function walkMany(
  ground: WalkGround,
  { runs, seed = 7, its = {}, plant = asItIs, shrinks = true }: Walks,
): Promise<void> {
  const all: fc.Arbitrary<Steps> = its.track ? trackedWalks : walks
  const oneWalk = fc.asyncProperty(all, ({ definition: by, steps }) =>
    walk(ground, { definition: { ...by, ...its }, steps }, plant).catch(async (error) => {
      await clear(ground)
      throw error
    }),
  )
  await Walk.load(ground.redis, plant)
  await fc.assert(oneWalk, { numRuns: runs, seed, endOnFailure: !shrinks })
}
