/**
 * Real Redis servers for tests.
 *
 * As vitest's global setup it starts one private server for the whole run and provides `redisUrl` and `redisSocket`.
 * `startRedis` gives a test a server of its own, for what cannot be shared:
 *
 *   running   answers
 *   paused    stopped by SIGSTOP: connections stay open, nothing is answered
 *   down      killed; the data folder stays, restart() brings it back on the same port
 *   stopped   for good; the folder is removed unless the caller gave it
 */
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { accessSync, constants } from 'node:fs'
import { mkdtemp, readFile, rm } from 'node:fs/promises'
import { connect } from 'node:net'
import { tmpdir } from 'node:os'
import { delimiter, join } from 'node:path'
import type { TestProject } from 'vitest/node'
import { eventually } from './eventually.ts'
import { guard } from './guard.ts'
import { freePort, loopback } from './ports.ts'

declare module 'vitest' {
  export interface ProvidedContext {
    redisUrl: string
    redisSocket: string
  }
}

export interface RedisServer {
  readonly url: string
  readonly socketPath: string
  readonly port: number
  readonly pid: number
  readonly dir: string
  /** Ends it for good. */
  stop(): Promise<void>
  /** SIGKILL. What was answered is in the AOF all the same: the operating system has it. */
  kill(): Promise<void>
  /** SIGSTOP. */
  pause(): void
  /** SIGCONT. */
  resume(): void
  /** Same port and folder. A running server is shut down in order first. */
  restart(): Promise<void>
}

export interface RedisOptions {
  port?: number
  /** Kept at stop(). */
  dir?: string
  /** Further options, winning over the defaults: `['--maxmemory', '20mb']`. */
  args?: readonly string[]
}

export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  const server = await startRedis()
  project.provide('redisUrl', server.url)
  project.provide('redisSocket', server.socketPath)
  return () => server.stop()
}

export async function startRedis({ port, dir, args = [] }: RedisOptions = {}): Promise<RedisServer> {
  const folder = dir ?? (await mkdtemp(join(tmpdir(), 'busbar-redis-')))
  const place = { dir: folder, removable: dir === undefined, socketPath: join(folder, 'redis.sock'), args }
  try {
    return handle(port === undefined ? await launchOnFreePort(place) : await launch({ ...place, port }))
  } catch (error) {
    if (place.removable) await rm(folder, { recursive: true, force: true })
    throw error
  }
}

interface Launch {
  dir: string
  removable: boolean
  socketPath: string
  port: number
  args: readonly string[]
}

interface Running {
  launch: Launch
  child: ChildProcess
}

function handle(running: Running): RedisServer {
  const { launch: settings } = running
  const { port, dir, socketPath } = settings
  let { child } = running
  return {
    url: `redis://${loopback}:${port}`,
    port,
    dir,
    socketPath,
    get pid() {
      return child.pid!
    },
    pause: () => void child.kill('SIGSTOP'),
    resume: () => void child.kill('SIGCONT'),
    kill: () => end(child, 'SIGKILL'),
    async restart() {
      await shutDown(child)
      child = (await launch(settings)).child
    },
    async stop() {
      await shutDown(child)
      if (settings.removable) await rm(dir, { recursive: true, force: true })
    },
  }
}

// Between finding a free port and binding it another process may take it; five in a row is no accident.
async function launchOnFreePort(place: Omit<Launch, 'port'>): Promise<Running> {
  for (let attempt = 1; ; attempt += 1) {
    try {
      return await launch({ ...place, port: await freePort() })
    } catch (error) {
      if (attempt === 5 || !String(error).includes('Address already in use')) throw error
    }
  }
}

async function launch(settings: Launch): Promise<Running> {
  const child = spawn(findServer(), commandLine(settings), { stdio: 'ignore' })
  await once(child, 'spawn')
  child.unref()
  child.once('exit', guard(child.pid!, settings.removable ? settings.dir : ''))
  await ready(child, settings)
  return { launch: settings, child }
}

function commandLine({ dir, socketPath, port, args }: Launch): string[] {
  const options = {
    port: String(port),
    bind: loopback,
    unixsocket: socketPath,
    dir,
    logfile: join(dir, 'redis.log'),
    save: '',
    appendonly: 'yes',
    appendfsync: 'everysec',
    'maxmemory-policy': 'noeviction',
  }
  return [...Object.entries(options).flatMap(([name, value]) => [`--${name}`, value]), ...args]
}

function findServer(): string {
  const folders = (process.env.PATH ?? '').split(delimiter)
  for (const name of ['redis-server', 'valkey-server']) {
    for (const folder of folders) {
      const path = join(folder, name)
      if (isExecutable(path)) return path
    }
  }
  throw new Error('The tests need a real Redis: install redis-server or valkey-server, 7.0 or newer, on the PATH.')
}

function isExecutable(path: string): boolean {
  try {
    accessSync(path, constants.X_OK)
    return true
  } catch {
    return false
  }
}

// The socket lies in the private folder, so an answer there is from this server and no other on the same port.
async function ready(child: ChildProcess, { dir, socketPath }: Launch): Promise<void> {
  await eventually(async () => hasExited(child) || (await answersPing(socketPath)), {
    everyMs: 5,
    what: 'A ready Redis',
  })
  if (hasExited(child)) throw new Error(`Redis did not start: ${await endOfLog(dir)}`)
}

async function answersPing(path: string): Promise<boolean> {
  const socket = connect({ path })
  try {
    await once(socket, 'connect')
    socket.write('PING\r\n')
    const [answer] = await once(socket, 'data')
    return /^(\+PONG|-NOAUTH)/.test(String(answer))
  } catch {
    return false
  } finally {
    socket.destroy()
  }
}

async function endOfLog(dir: string): Promise<string> {
  const log = await readFile(join(dir, 'redis.log'), 'utf8').catch(() => 'it wrote no log')
  return log.trim().split('\n').slice(-5).join('\n')
}

const hasExited = (child: ChildProcess) => child.exitCode !== null || child.signalCode !== null

async function end(child: ChildProcess, signal: NodeJS.Signals): Promise<void> {
  if (hasExited(child)) return
  const exited = once(child, 'exit')
  child.kill(signal)
  await exited
}

// In order, unless it does not listen any more (it is in an endless script, or does not get the processor).
async function shutDown(child: ChildProcess): Promise<void> {
  child.kill('SIGCONT')
  const impatience = setTimeout(() => child.kill('SIGKILL'), 3_000)
  await end(child, 'SIGTERM')
  clearTimeout(impatience)
}
