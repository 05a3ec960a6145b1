/**
 * `busbar up`: everything that one process can run.
 *
 *   starting   Redis is reached, the door opens, the bus runs; what the log has to say waits, unless it is a warning
 *   running    what runs, and where, has been said; log lines follow
 *   stopping   asked to end: the door answers what it has begun, then the bus closes
 */
import { join } from 'node:path'
import { describeConfig } from '../../config.ts'
import type { Door } from '../../http/server.ts'
import { exitCodes } from '../exit.ts'
import { createHeldLog, type HeldLog } from '../held-log.ts'
import type { AddCommand } from '../program.ts'
import { type CliBus, reachRedis, type Session } from '../session.ts'
import { onEndRequest, whenAborted } from '../signals.ts'
import { type Running, runningJson, runningLines } from '../up-screen.ts'

export const addUp: AddCommand = (program, run) => {
  program
    .command('up')
    .description('run Busbar: an embedded Redis unless --redis names one, and the HTTP door')
    .action(run(up))
}

const closeTimeoutMs = 10_000

async function up(session: Session) {
  const { out } = session
  using end = onEndRequest()
  const log = createHeldLog(session)
  const bus = session.openBus(log.listener, { dispatch: true })
  try {
    const starting = start(session, bus, log)
    const started = await Promise.race([starting, end.whenAsked])
    if (!started) {
      // A door that opens after all would keep the process alive.
      starting.then(({ door }) => door.close({ timeoutMs: 0 })).catch(() => {})
      return exitCodes.ok
    }
    if (out.json) await out.printJson(runningJson(started.running))
    else for (const line of runningLines(started.running, session)) await out.print(line)
    log.release()

    await Promise.race([end.whenAsked, whenAborted(out.closed)])
    if (!out.json) out.note(out.errorColors.dim('Stopping; once more to stop at once.'))
    await started.door.close({ timeoutMs: closeTimeoutMs })
  } finally {
    await bus.close({ timeout: closeTimeoutMs })
  }
  return exitCodes.ok
}

async function start(session: Session, bus: CliBus, log: HeldLog) {
  const { config } = session
  await reachRedis(bus)
  // Loaded only here: the door's libraries take longer than most other commands as a whole.
  const [{ openDoor }, { loadRootToken }] = await Promise.all([
    import('../../http/server.ts'),
    import('../../http/token.ts'),
  ])
  // First of all: one that is refused for its port must not have routed, led or posted anything.
  const door = await openDoor({ bus, ...config.http, rootToken: await loadRootToken(config.dataDir) })
  try {
    // The door must have finished before the bus closes.
    await bus.run({ signals: false, role: 'server' })
  } catch (error) {
    await door.close({ timeoutMs: 0 })
    throw error
  }
  return { door, running: describeRunning(session, log, door) }
}

function describeRunning({ config }: Session, log: HeldLog, door: Door): Running {
  const embedded = log.find('redis.embedded-started') ?? log.find('redis.embedded-shared')
  const named = describeConfig(config).find(({ name }) => name === 'redis')!.value
  return {
    url: door.url,
    redis: embedded ? `embedded, ${embedded.fields.socket}` : named,
    namespace: config.namespace,
    partitions: Number(log.find('bus.started')?.fields.partitions),
    dataDir: config.dataDir,
    tokenFile: join(config.dataDir, 'root-token'),
    development: config.webhooks.development,
  }
}
