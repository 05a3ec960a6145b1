/**
 * Telemetry as log lines: for people `21:06:44.120 warn  redis.lost  connection=reads`, or one JSON object per line.
 *
 * A line that says the same as one of the last seconds is left out: three connections that are tried again twice a
 * second say nothing new.
 */
import { jsonLines, type Level, type TelemetryEvent, type TelemetryListener } from '../runtime/telemetry.ts'
import type { Colors } from './output.ts'
import { printable, printableJson } from './printable.ts'

export interface LogOptions {
  json: boolean
  from: Level
  colors: Colors
  write(line: string): void
}

const levels: readonly Level[] = ['debug', 'info', 'warn', 'error']
const quietMs = 10_000
const maxRemembered = 100

export function createLog({ json, from, colors, write }: LogOptions): TelemetryListener {
  const pass = withoutRepeats()
  const writeJson = jsonLines((line) => write(printableJson(line.trimEnd())), from)
  return (event) => {
    if (levels.indexOf(event.level) < levels.indexOf(from) || !pass(event)) return
    if (json) writeJson(event)
    else write(logLine(event, colors))
  }
}

function withoutRepeats(): (event: TelemetryEvent) => boolean {
  const saidAt = new Map<string, number>()
  return ({ name, level, time, fields }) => {
    if (level !== 'warn' && level !== 'error') return true
    const text = name + JSON.stringify(fields)
    if (time - (saidAt.get(text) ?? Number.NEGATIVE_INFINITY) < quietMs) return false
    if (saidAt.size >= maxRemembered) saidAt.clear()
    saidAt.set(text, time)
    return true
  }
}

export function logLine({ name, level, time, fields }: TelemetryEvent, colors: Colors): string {
  const paint = { debug: colors.dim, info: colors.green, warn: colors.yellow, error: colors.red }[level]
  const shown = Object.entries(fields)
    .filter(([, value]) => value !== undefined)
    .map(([field, value]) => `${colors.dim(`${field}=`)}${fieldText(value)}`)
  const clock = new Date(time).toISOString().slice(11, 23)
  return [colors.dim(clock), paint(level.padEnd(5)), name, ...shown].join(' ')
}

function fieldText(value: unknown): string {
  const text = String(value)
  return printable(/[\s"=]/.test(text) ? JSON.stringify(text) : text)
}
