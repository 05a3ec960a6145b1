/**
 * A private Redis for whoever has none: on a socket in the data folder, with an append-only file, without a port.
 *
 * It runs for as long as anyone uses it. The first user starts it, every other process on the same folder shares it,
 * and it stops with the last one, in whichever way that one ends. What it acknowledged is on disk within a second and
 * there at the next start. If Redis dies it is started again; if its keeper dies, a user that is left starts another.
 *
 *   embedded-server.ts    which server to run, or how to install one
 *   embedded-folder.ts    where its files and sockets are
 *   embedded-hold.ts      being a user: find the keeper or start it, and hold on to it
 *   embedded-keeper.mjs   the process that counts users and runs Redis
 */
import { systemClock, systemRandomness } from '../runtime/clock.ts'
import { startLoop } from '../runtime/loop.ts'
import type { Telemetry } from '../runtime/telemetry.ts'
import { prepareFolder } from './embedded-folder.ts'
import { type Hold, holdServer } from './embedded-hold.ts'

export interface EmbeddedRedis {
  readonly socketPath: string
  /** The server already ran, or another process was starting it. */
  readonly shared: boolean
  /** Stops the server when this was the last user, and then resolves after it has stopped. */
  release(): Promise<void>
}

export interface EmbeddedOptions {
  dataDir: string
  telemetry: Telemetry
  /** Folders to look for a server in, as in PATH. */
  path?: string
  /** Counts for the user that starts the server; 0 means no limit. */
  maxMemoryBytes?: number
}

const lookMs = 60_000 // only in case a wake was missed
const abandonMs = 1_000 // an attempt to hold again ends as soon as it is aborted

/**
 * Rejects with REDIS_NOT_INSTALLED, REDIS_UNSUITABLE or REDIS_NOT_STARTED. The handle does not keep the process alive.
 */
export async function openEmbeddedRedis(options: EmbeddedOptions): Promise<EmbeddedRedis> {
  const { dataDir, telemetry, maxMemoryBytes = 0 } = options
  const environment = process.env
  const path = options.path ?? environment.PATH ?? ''
  const place = prepareFolder(dataDir)
  const opened = await takeHold(new AbortController().signal)
  let hold = opened
  let released: Promise<void> | undefined

  async function takeHold(signal: AbortSignal): Promise<Hold> {
    const taken = await holdServer({ place, path, environment, maxMemoryBytes }, signal, () => holder.wake())
    telemetry.emit(taken.shared ? 'redis.embedded-shared' : 'redis.embedded-started', { socket: place.redisSocket })
    return taken
  }

  async function takeHoldAgain(signal: AbortSignal): Promise<void> {
    try {
      hold = await takeHold(signal)
    } catch (error) {
      if (!signal.aborted) throw error
    }
  }

  const holder = startLoop(
    { clock: systemClock, randomness: systemRandomness, telemetry },
    'redis.embedded',
    async (signal) => {
      if (!hold.isHeld()) await takeHoldAgain(signal)
      return { againInMs: lookMs }
    },
  )

  async function release(): Promise<void> {
    await holder.stop({ deadlineMs: abandonMs })
    if (await hold.release()) telemetry.emit('redis.embedded-stopped', { socket: place.redisSocket })
  }

  return {
    socketPath: place.redisSocket,
    shared: opened.shared,
    release: () => {
      released ??= release()
      return released
    },
  }
}
