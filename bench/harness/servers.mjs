/**
 * The bench's own servers, in one temporary folder, on loopback ports of their own: a Redis (AOF everysec, noeviction)
 * that Busbar and every Redis peer use over the same TCP transport, and a nats-server with file storage.
 *
 * Whoever starts them calls stopServers() in the end; it kills by pid and removes the folder. It is synchronous so
 * that it also works in an exit handler.
 */
import { execFileSync, spawn } from 'node:child_process'
import { mkdtempSync, openSync, rmSync } from 'node:fs'
import { connect, createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'

const host = '127.0.0.1'
const servers = new Set()
let folder

export async function startRedis() {
  const program = findProgram('redis-server', 'valkey-server')
  if (!program) throw new Error('redis-server is not installed')
  const port = await freePort()
  await startServer('redis', port, program, [
    ...['--port', port, '--bind', host, '--dir', dataFolder()],
    ...['--appendonly', 'yes', '--appendfsync', 'everysec', '--save', '', '--maxmemory-policy', 'noeviction'],
    // A rewrite in the middle of a measurement would hit one contender by chance; settle() rewrites between them.
    ...['--auto-aof-rewrite-percentage', '0'],
  ])
  return { host, port, url: `redis://${host}:${port}` }
}

export async function startNats() {
  const program = findProgram('nats-server')
  if (!program) return undefined
  const port = await freePort()
  const store = join(dataFolder(), 'nats')
  await startServer('nats', port, program, ['--addr', host, '--port', port, '--jetstream', '--store_dir', store])
  return { host, port, servers: `${host}:${port}` }
}

export function stopServers() {
  for (const server of servers) server.kill('SIGKILL')
  servers.clear()
  if (folder) rmSync(folder, { recursive: true, force: true, maxRetries: 5 })
  folder = undefined
}

/** The first of these programs that is installed. */
export function findProgram(...names) {
  for (const name of names) {
    try {
      return execFileSync('sh', ['-c', `command -v ${name}`], { encoding: 'utf8' }).trim()
    } catch {
      // Not this one.
    }
  }
  return undefined
}

async function startServer(name, port, program, args) {
  const log = openSync(join(dataFolder(), `${name}.log`), 'a')
  const server = spawn(program, args.map(String), { stdio: ['ignore', log, log] })
  servers.add(server)
  let exitCode
  server.once('exit', (code) => {
    exitCode = code
    servers.delete(server)
  })
  const deadline = Date.now() + 10_000
  while (!(await accepts(port))) {
    if (exitCode !== undefined) throw new Error(`${name} ended at its start with exit code ${exitCode}`)
    if (Date.now() > deadline) throw new Error(`${name} does not listen on port ${port} after 10 s`)
    await sleep(20)
  }
}

function dataFolder() {
  folder ??= mkdtempSync(join(tmpdir(), 'busbar-bench-'))
  return folder
}

function accepts(port) {
  return new Promise((resolve) => {
    const socket = connect({ host, port })
    socket.once('connect', () => resolve(true))
    socket.once('error', () => resolve(false))
    socket.once('connect', () => socket.destroy())
  })
}

function freePort() {
  return new Promise((resolve, reject) => {
    const probe = createServer()
    probe.once('error', reject)
    probe.listen(0, host, () => {
      const { port } = probe.address()
      probe.close(() => resolve(port))
    })
  })
}
