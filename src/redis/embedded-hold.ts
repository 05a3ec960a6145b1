/**
 * A user's side of the keeper (embedded-keeper.mjs): find it or start it, and hold on to it.
 *
 *   knocking   every keeper socket of the folder is tried
 *   starting   none answered: a keeper is started, at most one at a time by this process
 *   waiting    a keeper answered; it says its state twice a second until Redis is ready or has failed
 *   held       this process counts as a user for as long as the connection is open
 *
 * A keeper that hangs up has lost against another or has stopped: the user knocks again. One that says nothing is dead,
 * and Redis, which has inherited its socket, is an orphan: it is shut down, and the user knocks again.
 */
import { type ChildProcess, spawn } from 'node:child_process'
import { closeSync, openSync } from 'node:fs'
import { readdir } from 'node:fs/promises'
import { connect, type Socket } from 'node:net'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { BusbarError } from '../errors.ts'
import { systemClock, systemRandomness } from '../runtime/clock.ts'
import type { EmbeddedFolder } from './embedded-folder.ts'
import { type KeeperLine, openLine } from './embedded-line.ts'
import { findRedisServer } from './embedded-server.ts'

export interface HoldOptions {
  place: EmbeddedFolder
  /** Folders to look for a server in, as in PATH. */
  path: string
  /** What the keeper and Redis inherit. */
  environment: NodeJS.ProcessEnv
  maxMemoryBytes: number
  silenceMs?: number
}

export interface Hold {
  /** Redis ran, or was being started for another user, before this one came. */
  readonly shared: boolean
  isHeld(): boolean
  /** Answers whether Redis was stopped because nobody else holds it. */
  release(): Promise<boolean>
}

const keeperSilenceMs = 5_000 // ten of the keeper's beats

/** `lost` is called if the keeper dies while it is held. */
export async function holdServer(options: HoldOptions, signal: AbortSignal, lost: () => void): Promise<Hold> {
  const { place, silenceMs = keeperSilenceMs } = options
  let keeper: ChildProcess | undefined
  let orphans = 0
  let heardAt = systemClock.monotonicMs()
  for (;;) {
    signal.throwIfAborted()
    const socket = await knock(place.socketFolder)
    if (socket) {
      const answer = await waitUntilReady(socket, silenceMs, signal)
      if (answer.kind === 'ready') return holdOn(answer, silenceMs, lost)
      if (answer.kind === 'failed') throw notStarted(place, answer.problem)
      if (answer.kind === 'silent') {
        orphans += 1
        await shutDownOrphan(place, silenceMs)
      }
      heardAt = systemClock.monotonicMs()
    } else if (!keeper || keeper.exitCode !== null || keeper.signalCode !== null) {
      keeper = await startKeeper(options)
    }
    if (orphans > 1) throw notStarted(place, 'a server without a keeper holds the folder and cannot be shut down')
    if (systemClock.monotonicMs() - heardAt > 2 * silenceMs) throw notStarted(place, 'its keeper does not come up')
    await delay(10 + 40 * systemRandomness.float())
  }
}

function notStarted(place: EmbeddedFolder, problem: string): BusbarError {
  return BusbarError.of('REDIS_NOT_STARTED', { problem, log: place.logFile })
}

async function knock(folder: string): Promise<Socket | undefined> {
  for (const name of await readdir(folder)) {
    if (!name.startsWith('keeper-')) continue
    const socket = connect(join(folder, name))
    const answered = await new Promise<boolean>((resolve) => {
      socket.once('connect', () => resolve(true))
      socket.once('error', () => resolve(false))
    })
    if (answered) return socket
  }
}

async function startKeeper({ place, path, environment, maxMemoryBytes }: HoldOptions): Promise<ChildProcess> {
  const binary = await findRedisServer(path)
  const keeperSocket = join(place.socketFolder, `keeper-${systemRandomness.id().slice(0, 8)}.sock`)
  const log = openSync(place.logFile, 'a', 0o600)
  const keeper = spawn(
    process.execPath,
    [
      fileURLToPath(new URL('./embedded-keeper.mjs', import.meta.url)),
      JSON.stringify({ ...place, binary, keeperSocket, maxMemoryBytes }),
    ],
    // Detached: a Ctrl-C in the terminal of one user must not reach the server of the others. Options meant for the
    // user's process, such as a debugger to wait for, must not reach the keeper either.
    { detached: true, stdio: ['ignore', log, log], env: { ...environment, NODE_OPTIONS: '' } },
  )
  keeper.on('error', () => {})
  keeper.unref()
  closeSync(log)
  return keeper
}

async function shutDownOrphan(place: EmbeddedFolder, withinMs: number): Promise<void> {
  for (const path of [place.redisSocket, place.startingSocket]) {
    const socket = connect(path)
    socket.on('error', () => {})
    socket.setTimeout(withinMs, () => socket.destroy())
    socket.end('SHUTDOWN\r\n')
    await new Promise((resolve) => socket.once('close', resolve))
  }
}

type Answer =
  | { kind: 'ready'; line: KeeperLine; shared: boolean }
  | { kind: 'failed'; problem: string }
  | { kind: 'silent' | 'ended' }

async function waitUntilReady(socket: Socket, silenceMs: number, signal: AbortSignal): Promise<Answer> {
  const line = openLine(socket)
  const hangUp = () => socket.destroy()
  signal.addEventListener('abort', hangUp)
  try {
    line.say('hold')
    const word = await line.hearOneOf(['ready', 'failed'], silenceMs)
    if (word.state === 'ready') return { kind: 'ready', line, shared: word.shared }
    hangUp()
    return word.state === 'failed' ? { kind: 'failed', problem: word.problem } : { kind: word.state }
  } finally {
    signal.removeEventListener('abort', hangUp)
  }
}

function holdOn({ line, shared }: { line: KeeperLine; shared: boolean }, silenceMs: number, lost: () => void): Hold {
  let releasing: Promise<boolean> | undefined
  let held = !line.socket.destroyed
  line.socket.unref()
  line.socket.once('close', () => {
    held = false
    if (!releasing) lost()
  })

  async function release(): Promise<boolean> {
    if (!held) return false
    line.socket.ref()
    line.say('release')
    const word = await line.hearOneOf(['stopped'], silenceMs)
    line.socket.destroy()
    return word.state === 'stopped'
  }
  return {
    shared,
    isHeld: () => held,
    release: () => {
      releasing ??= release()
      return releasing
    },
  }
}
