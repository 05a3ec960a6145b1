/**
 * The run's own Redis: AOF everysec, a temporary folder, a loopback port that stays the same.
 *
 *   running   answers
 *   paused    stopped by SIGSTOP: connections stay open, nothing is answered
 *   down      killed; the folder stays, start() brings it back
 *
 * What was answered survives a kill: the operating system has it, only the machine's end could lose the last second.
 */
import { spawn } from 'node:child_process'
import { randomInt } from 'node:crypto'
import { once } from 'node:events'
import { mkdtempSync, rmSync } from 'node:fs'
import { createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Redis } from 'ioredis'
import { until } from './clock.mjs'
import { guard } from './guard.mjs'

export const loopback = '127.0.0.1'

export async function startRedis() {
  const folder = mkdtempSync(join(tmpdir(), 'busbar-chaos-'))
  const port = await freePort()
  let server = await launch(folder, port)

  const end = async (signal) => {
    if (server.exitCode !== null || server.signalCode !== null) return
    const exited = once(server, 'exit')
    server.kill(signal)
    await exited
  }
  return {
    port,
    url: `redis://${loopback}:${port}`,
    pause: () => void server.kill('SIGSTOP'),
    resume: () => void server.kill('SIGCONT'),
    kill: () => end('SIGKILL'),
    /** In order: what is in the memory is written first. */
    shutDown: () => end('SIGTERM'),
    async start() {
      server = await launch(folder, port)
    },
    async stop() {
      await end('SIGKILL')
      rmSync(folder, { recursive: true, force: true, maxRetries: 5 })
    },
  }
}

/** The harness's own connection: asks past every proxy, and fails at once while Redis is away. */
export function observe(port) {
  const redis = new Redis({
    host: loopback,
    port,
    maxRetriesPerRequest: 0,
    enableOfflineQueue: false,
    commandTimeout: 2_000,
    retryStrategy: () => 100,
  })
  redis.on('error', () => {})
  return redis
}

async function launch(folder, port) {
  const options = {
    ...{ port: String(port), bind: loopback, dir: folder, logfile: join(folder, 'redis.log'), save: '' },
    ...{ appendonly: 'yes', appendfsync: 'everysec', 'maxmemory-policy': 'noeviction' },
  }
  const args = Object.entries(options).flatMap(([name, value]) => [`--${name}`, value])
  const server = spawn(
    'sh',
    ['-c', 'exec "$(command -v redis-server || command -v valkey-server)" "$@"', 'sh', ...args],
    {
      stdio: 'ignore',
    },
  )
  await once(server, 'spawn')
  server.once('exit', guard(server.pid, folder))
  const client = observe(port)
  const answers = async () => server.exitCode !== null || (await client.ping().catch(() => '')) === 'PONG'
  await until(answers, { timeoutMs: 15_000 })
  client.disconnect()
  if (server.exitCode !== null) throw new Error(`Redis did not start; its log is in ${folder}`)
  return server
}

/** Below the range from which systems take the ports of outgoing connections: while Redis is down nobody gets its port. */
export async function freePort() {
  for (;;) {
    const port = randomInt(10_000, 32_000)
    const server = createServer()
    try {
      await once(server.listen(port, loopback), 'listening')
    } catch {
      continue
    }
    await new Promise((closed) => server.close(closed))
    return port
  }
}
