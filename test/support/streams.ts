/** A bus with a door and the command line of its namespace: three ways to look at the same processor. */
import type { BusOptions } from '../../src/bus-options.ts'
import { redisUrl } from './bus.ts'
import { callCli, type Ended, jsonLines } from './cli.ts'
import { type TestDoor, testDoor } from './http.ts'
import { quickGroup } from './workers.ts'

export interface ThreeWays extends TestDoor {
  /** `busbar streams …`; with `answer` on a terminal where that is typed. */
  streams(args: readonly string[], options?: { answer?: string }): Promise<Ended>
  /** The same with --json: what it printed. */
  streamsJson(...args: string[]): Promise<Record<string, unknown>[]>
}

export async function threeWays(options: BusOptions = {}): Promise<ThreeWays> {
  const door = await testDoor({ bus: { group: quickGroup, partitions: 2, worker: 'w1', ...options } })
  // The namespace is made as this bus wants it, not as the first command would.
  await door.bus.topics()
  const place = ['--redis', redisUrl(), '--namespace', door.bus.namespace]
  const streams: ThreeWays['streams'] = (args, { answer } = {}) =>
    callCli(['streams', ...args, ...place], answer === undefined ? {} : { input: answer, columns: 120 })
  return {
    ...door,
    streams,
    streamsJson: async (...args) => jsonLines((await streams([...args, '--json'])).stdout),
  }
}
