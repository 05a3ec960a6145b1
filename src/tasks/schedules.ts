/**
 * The schedules: those that this process declares, and those that are stored, whoever declared them.
 *
 *   declared   nothing is written
 *   stored     by run(); the leader fires it, also when no process declares it any more
 *   removed    by hand; a process that declares it stores it again at its next start
 */
import { BusbarError, shown } from '../errors.ts'
import type { LogSource } from '../log/view.ts'
import type { WrittenEvent } from '../publish/written-event.ts'
import { workersKeys } from '../redis/keys.ts'
import { runScript } from '../redis/script.ts'
import type { Clock } from '../runtime/clock.ts'
import { parseCron } from './cron.ts'
import { type Definition, definitionOf, readSchedule } from './schedule.ts'
import { scheduleScript } from './scripts.ts'
import { isName, nameProblem } from './task.ts'

export interface Schedule {
  name: string
  cron: string
  timezone: string
  type: string
  tenant: string
  key: string | null
  data: unknown
  /** Its ticks up to here are fired. ms since the epoch. */
  fired: number
  /** The first tick after that; null when there is none. */
  next: number | null
}

export interface SchedulesView {
  /** All that are stored, by name. */
  list(): Promise<Schedule[]>
  /** Answers whether it was there. */
  remove(name: string): Promise<boolean>
}

// All of them are read at each tick.
const mostSchedules = 1_000

const invalid = (name: unknown, problem: string) => BusbarError.of('SCHEDULE_INVALID', { name: shown(name), problem })

export class Schedules implements SchedulesView {
  readonly #source: LogSource
  readonly #clock: Clock
  readonly #declared = new Map<string, Definition>()
  #stored = false

  constructor(source: LogSource, clock: Clock) {
    this.#source = source
    this.#clock = clock
  }

  declare(name: string, cron: string, timezone: string, event: WrittenEvent): void {
    if (!isName(name)) throw invalid(name, nameProblem)
    if (this.#stored) throw invalid(name, 'schedules are declared before run()')
    if (this.#declared.has(name)) throw invalid(name, 'there is one of this name already')
    const ticks = parseCron(cron, timezone)
    if (!ticks.ok) throw invalid(name, ticks.problem)
    this.#declared.set(name, definitionOf(cron, timezone, event))
  }

  async store(): Promise<void> {
    this.#stored = true
    const nowMs = this.#clock.serverUs && Math.floor(this.#clock.serverUs() / 1000)
    for (const [name, definition] of this.#declared) {
      const text = JSON.stringify(definition)
      const kind = await this.#source.read((redis, namespace) =>
        runScript(redis, scheduleScript, {
          keys: workersKeys(namespace.name),
          nowMs,
          name,
          definition: text,
          most: mostSchedules,
        }),
      )
      if (kind === 'full') throw invalid(name, `${mostSchedules} are stored, which is the limit; remove one`)
    }
  }

  async list(): Promise<Schedule[]> {
    const stored = await this.#source.read((redis, { name }) => redis.hgetall(workersKeys(name).schedules))
    return Object.keys(stored)
      .sort()
      .map((name) => {
        const { firedMs, text } = readSchedule(name, stored[name]!)
        const { data, ...definition } = JSON.parse(text) as Definition
        const ticks = parseCron(definition.cron, definition.timezone)
        const next = ticks.ok ? (ticks.value.after(firedMs) ?? null) : null
        return { name, ...definition, data: JSON.parse(data) as unknown, fired: firedMs, next }
      })
  }

  async remove(name: string): Promise<boolean> {
    const removed = await this.#source.read((redis, namespace) =>
      redis.hdel(workersKeys(namespace.name).schedules, String(name)),
    )
    return removed > 0
  }
}
