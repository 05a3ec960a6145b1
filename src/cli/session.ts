/** What a command works with: the settings as they came out, where to say things, and a bus that is closed at the end. */
import { busbar } from '../bus.ts'
import type { BusOptions } from '../bus-options.ts'
import { type Config, describeSettings, loadConfig, type SettingName } from '../config.ts'
import type { Level, TelemetryListener } from '../runtime/telemetry.ts'
import { createLog } from './log-lines.ts'
import type { Io, Output } from './output.ts'

export type CliBus = ReturnType<typeof busbar>

export interface Session {
  readonly io: Io
  readonly config: Config
  readonly out: Output
  /** Why Redis was last not reachable: what a timeout alone does not tell. */
  readonly redisProblem: string | undefined
  /** A bus by the settings, whose telemetry goes to the listener, else to stderr from `logLevel` on. Run, it posts webhooks only if told to. */
  openBus(onTelemetry?: TelemetryListener, options?: { dispatch: boolean }): CliBus
  /** Runs `work` with a bus and closes it. */
  withBus<T>(work: (bus: CliBus) => Promise<T>): Promise<T>
  /** What log lines are written: as set, or when nobody has set it, what the command would rather have. */
  logLevel(otherwise: Level): Level
}

/** `options` are those of commander, by its names. */
export function createSession(io: Io, out: Output, options: Readonly<Record<string, unknown>>): Session {
  const config = loadConfig({ flags: settingFlags(options), env: io.env, cwd: io.cwd })
  let redisProblem: string | undefined

  function logLevel(otherwise: Level): Level {
    return config.effective['log.level'].source === 'default' ? otherwise : config.log.level
  }

  function openBus(onTelemetry: TelemetryListener = quietLog(), { dispatch } = { dispatch: false }): CliBus {
    return busbar({
      ...busOptions(config),
      webhooks: { ...config.webhooks, dispatch },
      onTelemetry(event) {
        if (event.name === 'redis.lost') redisProblem = String(event.fields.problem)
        onTelemetry(event)
      },
    })
  }

  // A command that ends by itself says what went wrong in its answer.
  function quietLog(): TelemetryListener {
    return createLog({ json: out.json, from: logLevel('error'), colors: out.errorColors, write: out.note })
  }

  return {
    io,
    config,
    out,
    get redisProblem() {
      return redisProblem
    },
    openBus,
    logLevel,
    async withBus(work) {
      const bus = openBus()
      try {
        return await work(bus)
      } finally {
        await bus.close()
      }
    },
  }
}

/** REDIS_UNAVAILABLE when Redis does not answer in time: live readers and run() would wait for it for ever. */
export async function reachRedis(bus: CliBus): Promise<void> {
  await bus.log.get('0-1')
}

function settingFlags(options: Readonly<Record<string, unknown>>): Partial<Record<SettingName, string | boolean>> {
  const given = describeSettings().map(({ name, option }) => [name, options[option]] as const)
  return Object.fromEntries(given.filter(([, value]) => value !== undefined))
}

function busOptions(config: Config): BusOptions<Record<never, never>> {
  const { redis, partitions, retention } = config
  return {
    ...(redis === undefined ? {} : { redis }),
    ...(partitions === undefined ? {} : { partitions }),
    ...(retention === undefined
      ? {}
      : {
          retention: {
            age: retention.ageMs,
            events: retention.events,
            ...(retention.bytes === null ? {} : { bytes: retention.bytes }),
          },
        }),
    dataDir: config.dataDir,
    namespace: config.namespace,
    liveChannel: config.liveChannel,
    publish: {
      timeout: config.publish.timeoutMs,
      maxWaiting: config.publish.maxWaiting,
      maxWaitingBytes: config.publish.maxWaitingBytes,
    },
  }
}
