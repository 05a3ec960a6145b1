/** `busbar doctor`: looks at everything Busbar stands on and says what to do about it. checkup.ts judges. */
import { accessSync, constants, existsSync, statSync } from 'node:fs'
import { dirname, join } from 'node:path'
import type { Redis } from 'ioredis'
import { type Config, describeConfig } from '../../config.ts'
import { type Connection, connect } from '../../redis/connection.ts'
import { openEmbeddedRedis } from '../../redis/embedded.ts'
import { namespaceKey } from '../../redis/keys.ts'
import { serverFacts } from '../../redis/server.ts'
import { systemClock } from '../../runtime/clock.ts'
import { createTelemetry } from '../../runtime/telemetry.ts'
import * as judge from '../checkup.ts'
import { exitCodes } from '../exit.ts'
import type { Output } from '../output.ts'
import { padded, printable } from '../printable.ts'
import type { AddCommand } from '../program.ts'
import type { Session } from '../session.ts'

export const addDoctor: AddCommand = (program, run) => {
  program.command('doctor').description('check what Busbar stands on, and say what to do').action(run(doctor))
}

async function doctor({ out, config }: Session) {
  let failures = 0
  for await (const finding of examine(config)) {
    if (finding.verdict === 'fail') failures += 1
    if (out.json) await out.printJson(finding)
    else for (const line of findingLines(finding, out)) await out.print(line)
  }
  return failures > 0 ? exitCodes.failed : exitCodes.ok
}

async function* examine(config: Config): AsyncGenerator<judge.Finding> {
  yield judge.judgeNode(process.versions.node)
  const folder = judge.judgeFolder(folderFacts(config.dataDir))
  yield folder
  // The embedded Redis would make the folder; when it cannot, one finding is enough.
  if (config.redis === undefined && folder.verdict === 'fail') return

  const opened = await openServer(config).catch((error: Error) => error)
  if (opened instanceof Error) return yield judge.unreachable(opened.message)
  try {
    yield* examineServer(opened, config)
  } finally {
    await opened.close()
  }
}

function folderFacts(path: string): judge.FolderFacts {
  return { path, mode: modeOf(path), writable: canWrite(path), tokenMode: modeOf(join(path, 'root-token')) }
}

function modeOf(path: string): number | undefined {
  try {
    return statSync(path).mode
  } catch {
    return undefined
  }
}

function canWrite(path: string): boolean {
  if (!existsSync(path) && path !== dirname(path)) return canWrite(dirname(path))
  try {
    accessSync(path, constants.R_OK | constants.W_OK | constants.X_OK)
    return statSync(path).isDirectory()
  } catch {
    return false
  }
}

interface Server {
  where: string
  embedded: boolean
  connection: Connection
  close(): Promise<void>
}

async function openServer(config: Config): Promise<Server> {
  const telemetry = createTelemetry(Date.now)
  const embedded =
    config.redis === undefined ? await openEmbeddedRedis({ dataDir: config.dataDir, telemetry }) : undefined
  const url = embedded ? `unix://${encodeURI(embedded.socketPath)}` : config.redis!
  const connection = connect({ clock: systemClock, telemetry }, url, 'doctor')
  const close = async () => {
    connection.close()
    await embedded?.release()
  }
  const named = describeConfig(config).find(({ name }) => name === 'redis')!.value
  try {
    await connection.whenReady(config.publish.timeoutMs)
  } catch (error) {
    await close()
    throw error
  }
  return {
    where: embedded ? `embedded, ${embedded.socketPath}` : named,
    embedded: embedded !== undefined,
    connection,
    close,
  }
}

async function* examineServer(server: Server, config: Config): AsyncGenerator<judge.Finding> {
  const { redis } = server.connection
  const ask = (check: string, look: () => Promise<judge.Finding>) =>
    look().catch((error: Error) => judge.unknown(check, error.message))

  yield await ask('redis', async () => judge.judgeReach(server.where, await roundTripMs(redis)))
  const facts = await serverFacts(redis).catch((error: Error) => error)
  if (facts instanceof Error) return yield judge.unknown('version', facts.message)
  yield judge.judgeVersion(facts)
  yield judge.judgeAppendOnly(facts, await fsyncOf(redis))
  yield judge.judgeLimit(facts, server)
  yield judge.judgeMemory(facts)
  yield await ask('namespace', async () => {
    const stored = await redis.hget(namespaceKey(config.namespace), 'partitions')
    return judge.judgeNamespace(config.namespace, stored === null ? undefined : Number(stored), config.partitions)
  })
  yield await ask('clock', async () => judge.judgeClock(await skewMs(redis)))
  yield judge.judgeWebhooks(config.webhooks)
}

async function roundTripMs(redis: Redis): Promise<number> {
  const sentAt = systemClock.monotonicMs()
  await redis.ping()
  return systemClock.monotonicMs() - sentAt
}

/** Providers of Redis often forbid CONFIG. */
async function fsyncOf(redis: Redis): Promise<string | undefined> {
  const answer = await redis.config('GET', 'appendfsync').catch(() => [])
  return (answer as string[])[1]
}

/** Redis told its time somewhere between question and answer: the middle is at most half a round trip off. */
async function skewMs(redis: Redis): Promise<number> {
  const askedAt = Date.now()
  const [seconds, micros] = await redis.time()
  const middle = (askedAt + Date.now()) / 2
  return Number(seconds) * 1000 + Number(micros) / 1000 - middle
}

function findingLines({ check, verdict, found, remedy }: judge.Finding, { colors }: Output): string[] {
  const paint = { ok: colors.green, warn: colors.yellow, fail: colors.red }[verdict]
  const line = `${paint(padded(verdict, 4))}  ${padded(check, 16)}  ${printable(found)}`
  return remedy === undefined ? [line] : [line, `${' '.repeat(24)}${printable(remedy)}`]
}
