/** A schedule: an event that is published at each tick of a cron. What it is, how it is stored, and which ticks are due. */
import { BusbarError, shown } from '../errors.ts'
import { RawJson } from '../event.ts'
import { type WrittenEvent, writeEvent } from '../publish/written-event.ts'
import { isUnknownOf, named, unknownOption } from '../unknown-name.ts'
import type { Ticks } from './cron.ts'

export interface ScheduledEvent {
  type: string
  data?: unknown
  tenant?: string
  key?: string
}

/** As it is stored: the same text for the same schedule, its data as the text that will be published. */
export interface Definition {
  cron: string
  timezone: string
  type: string
  tenant: string
  key: string | null
  data: string
}

export interface StoredSchedule {
  name: string
  /** ms up to which its ticks are fired. */
  firedMs: number
  /** The stored text, which a record names. */
  text: string
}

const knownOfEvent = new Set<keyof ScheduledEvent>(['type', 'data', 'tenant', 'key'])
const knownOptions = new Set(['timezone'])

/** SCHEDULE_INVALID for what is no event, and for what would be without effect. */
export function checkScheduled(name: string, event: unknown, options: object): void {
  const invalid = (problem: string) => BusbarError.of('SCHEDULE_INVALID', { name: shown(name), problem })
  if (typeof event !== 'object' || event === null)
    throw invalid(`it needs an event to publish, as in { type: 'report.due' }; got ${shown(event)}`)
  for (const [given, known] of [
    [event, knownOfEvent],
    [options, knownOptions],
  ] as const) {
    const unknown = unknownOption(given, known)
    if (unknown !== undefined) throw invalid(`${named(unknown)} ${isUnknownOf(unknown, known)}`)
  }
}

export function definitionOf(cron: string, timezone: string, { kind, object, data }: WrittenEvent): Definition {
  const colon = kind.indexOf(':')
  const tenant = kind.slice(0, colon)
  const key = object === '' ? null : object.slice(tenant.length + 1)
  return { cron, timezone, type: kind.slice(colon + 1), tenant, key, data }
}

/** The event of one tick. */
export function eventOf({ type, tenant, key, data }: Definition, tickMs: number): WrittenEvent {
  return writeEvent(type, new RawJson(data), { tenant, key: key ?? undefined, time: tickMs })
}

export const tickKey = (name: string, tickMs: number): string => `${name}@${tickMs}`

export function readSchedule(name: string, stored: string): StoredSchedule {
  const space = stored.indexOf(' ')
  return { name, firedMs: Number(stored.slice(0, space)), text: stored.slice(space + 1) }
}

export interface DueTicks {
  ticks: number[]
  /** Up to here everything is fired once these are, or left out. */
  untilMs: number
  /** Ticks that are too old to be fired; counted up to a bound. */
  missed: number
  nextMs: number | undefined
}

const dayMs = 86_400_000
// A tick is published under an idempotency key, which is remembered for 24 hours from the publish: younger ticks are
// stored once, however often they are fired. A minute less, because a publish takes its time.
const windowMs = dayMs - 60_000
const maxTicks = 100
const maxMissed = 1_000

/** The oldest ticks that are due, at most a hundred. */
export function dueTicks(cron: Ticks, firedMs: number, nowMs: number): DueTicks {
  const old = upTo(cron, firedMs, nowMs - windowMs, maxMissed)
  const startMs = Math.max(firedMs, nowMs - windowMs)
  const ticks = upTo(cron, startMs, nowMs, maxTicks)
  const untilMs = ticks.at(-1) ?? startMs
  return { ticks, untilMs, missed: old.length, nextMs: cron.after(untilMs) }
}

function upTo(cron: Ticks, afterMs: number, endMs: number, most: number): number[] {
  const ticks: number[] = []
  for (let at = cron.after(afterMs); at !== undefined && at <= endMs && ticks.length < most; at = cron.after(at))
    ticks.push(at)
  return ticks
}
