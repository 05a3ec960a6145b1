/** The server's clock, which all processes have in common. */
import type { Redis } from 'ioredis'
import type { Clock } from '../runtime/clock.ts'

/** ms since the epoch. */
export async function serverMs(redis: Redis, clock: Clock): Promise<number> {
  if (clock.serverUs) return Math.floor(clock.serverUs() / 1000)
  const [seconds, micros] = await redis.time()
  return Number(seconds) * 1000 + Math.floor(Number(micros) / 1000)
}
