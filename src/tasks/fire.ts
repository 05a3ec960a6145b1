/**
 * The leader's duty for schedules: publishes each tick that is due, then records it.
 *
 * A tick is published under the idempotency key `<schedule>@<tick>`. Who dies between publish and record leaves it to the
 * next leader, whose publish of the same tick is a duplicate; so do two leaders at once.
 */
import type { CallOptions } from '../publish/call.ts'
import type { WrittenEvent } from '../publish/written-event.ts'
import type { Connection } from '../redis/connection.ts'
import type { WorkersKeys } from '../redis/keys.ts'
import { runScript } from '../redis/script.ts'
import { serverMs } from '../redis/server-time.ts'
import type { LoopContext } from '../runtime/loop.ts'
import { parseCron, type Ticks } from './cron.ts'
import type { Duty } from './duty.ts'
import { type Definition, dueTicks, eventOf, readSchedule, type StoredSchedule, tickKey } from './schedule.ts'
import { firedScript } from './scripts.ts'

export interface FireContext extends LoopContext {
  keys: WorkersKeys
  connection: Connection
  publish(event: WrittenEvent, options: CallOptions): Promise<unknown>
}

const retryMs = 1_000

// Of more definitions than there may be at once some are no longer in use.
const maxCrons = 2_000

type Crons = Map<string, Ticks>

export function fireDuty(context: FireContext): Duty {
  const crons: Crons = new Map()
  return {
    begin: () => crons.clear(),
    hear: (message) => message === 'schedules',
    async turn() {
      const { redis } = context.connection
      const stored = Object.entries(await redis.hgetall(context.keys.schedules))
      if (stored.length === 0) return Number.POSITIVE_INFINITY
      const nowMs = await serverMs(redis, context.clock)
      const waits = stored.map(([name, text]) => fireOrReport(context, crons, readSchedule(name, text), nowMs))
      return Math.max(0, Math.min(...(await Promise.all(waits))))
    },
  }
}

/** One that cannot be fired does not keep the others from being fired. */
async function fireOrReport(
  context: FireContext,
  crons: Crons,
  schedule: StoredSchedule,
  nowMs: number,
): Promise<number> {
  try {
    return await fire(context, ticksOf(crons, schedule), schedule, nowMs)
  } catch (error) {
    context.telemetry.emit('schedule.failed', { schedule: schedule.name, problem: String(error) })
    return retryMs
  }
}

/** Reading a cron takes longer than finding its next tick. */
function ticksOf(crons: Crons, { text }: StoredSchedule): Ticks {
  const known = crons.get(text)
  if (known) return known
  const { cron, timezone } = JSON.parse(text) as Definition
  const parsed = parseCron(cron, timezone)
  if (!parsed.ok) throw new Error(parsed.problem)
  if (crons.size >= maxCrons) crons.clear()
  crons.set(text, parsed.value)
  return parsed.value
}

/** Answers in how many ms its next tick is. */
async function fire(
  context: FireContext,
  cron: Ticks,
  { name, firedMs, text }: StoredSchedule,
  nowMs: number,
): Promise<number> {
  const { telemetry, keys, connection } = context
  const definition = JSON.parse(text) as Definition
  const { ticks, untilMs, missed, nextMs } = dueTicks(cron, firedMs, nowMs)
  if (missed > 0) telemetry.emit('schedule.missed', { schedule: name, missed, after: firedMs, until: untilMs })
  await Promise.all(
    ticks.map((tick) => context.publish(eventOf(definition, tick), { idempotencyKey: tickKey(name, tick) })),
  )
  for (const tick of ticks) telemetry.emit('schedule.fired', { schedule: name, tick, lateMs: nowMs - tick })
  if (ticks.length > 0 || missed > 0)
    await runScript(connection.redis, firedScript, { keys, name, definition: text, firedMs: untilMs })
  return (nextMs ?? Number.POSITIVE_INFINITY) - nowMs
}
