/**
 * Durations and sizes as people write them: `'30s'`, `'5m'`, `'256kB'`, `'1MiB'`; a bare number is ms or bytes.
 *
 * Values come from code, from JSON and from the environment, so any value may arrive. What cannot be read is an answer,
 * not an error: the caller knows the name of the field and says it, followed by `problem`.
 */
import { BusbarError, shown } from './errors.ts'

export type Duration = number | `${number}${'ms' | 's' | 'm' | 'h' | 'd'}`
export type Bytes = number | `${number}${'B' | 'kB' | 'MB' | 'GB' | 'KiB' | 'MiB' | 'GiB'}`

export type Parsed<T> = { readonly ok: true; readonly value: T } | { readonly ok: false; readonly problem: string }

interface Unit {
  readonly name: string
  readonly size: number
}

const second = 1_000
const durationUnits: readonly Unit[] = [
  { name: 'ms', size: 1 },
  { name: 's', size: second },
  { name: 'm', size: 60 * second },
  { name: 'h', size: 3_600 * second },
  { name: 'd', size: 86_400 * second },
]

const byteUnits: readonly Unit[] = [
  { name: 'B', size: 1 },
  { name: 'kB', size: 1e3 },
  { name: 'KiB', size: 2 ** 10 },
  { name: 'MB', size: 1e6 },
  { name: 'MiB', size: 2 ** 20 },
  { name: 'GB', size: 1e9 },
  { name: 'GiB', size: 2 ** 30 },
]

const durationProblem = 'must be a duration like "250ms", "30s", "5m", "2h" or "7d", or a number of ms'
const bytesProblem = 'must be a size like "256kB", "1MiB" or "2GiB", or a number of bytes'

/** Milliseconds, whole. */
export function parseDuration(value: unknown): Parsed<number> {
  return parseAmount(value, durationUnits, durationProblem)
}

/** Bytes, whole. `kB`, `MB`, `GB` are powers of 1,000; `KiB`, `MiB`, `GiB` powers of 1,024. */
export function parseBytes(value: unknown): Parsed<number> {
  return parseAmount(value, byteUnits, bytesProblem)
}

/** The same answer, its problem ending with what was given. */
export function asked<T>(parsed: Parsed<T>, value: unknown): Parsed<T> {
  return parsed.ok ? parsed : { ok: false, problem: `${parsed.problem}; got ${shown(value)}` }
}

/** In the largest unit that needs no fraction: `formatDuration(90_000)` is `'90s'`. */
export function formatDuration(ms: number): string {
  return formatAmount(ms, durationUnits)
}

export function formatBytes(bytes: number): string {
  return formatAmount(bytes, byteUnits)
}

function parseAmount(value: unknown, units: readonly Unit[], problem: string): Parsed<number> {
  const amount = typeof value === 'string' ? amountOf(value, units) : value
  if (typeof amount !== 'number' || !Number.isFinite(amount) || amount < 0) return { ok: false, problem }
  const whole = Math.round(amount)
  if (!Number.isSafeInteger(whole)) return { ok: false, problem: `${problem}, and below 2^53` }
  return { ok: true, value: whole }
}

/** Units are told apart without regard to case, as no two differ in case alone. */
function amountOf(text: string, units: readonly Unit[]): number | undefined {
  const found = /^(\d{1,16}(?:\.\d{1,16})?) ?([a-z]*)$/i.exec(text.trim())
  if (!found) return undefined
  const name = found[2]!.toLowerCase()
  const unit = name === '' ? units[0] : units.find((each) => each.name.toLowerCase() === name)
  return unit && Number(found[1]) * unit.size
}

function formatAmount(amount: number, units: readonly Unit[]): string {
  const bySize = [...units].sort((a, b) => b.size - a.size)
  const unit = bySize.find(({ size }) => amount >= size && amount % size === 0) ?? units[0]!
  return `${amount / unit.size}${unit.name}`
}

/** A duration that a call was given, in ms; EVENT_INVALID, with the field's name, when it is none. */
export function durationOf(field: string, value: Duration): number {
  const parsed = parseDuration(value)
  if (!parsed.ok) throw BusbarError.of('EVENT_INVALID', { field, value: shown(value), problem: parsed.problem })
  return parsed.value
}

/** The same where nothing is published: PARAMETER_INVALID. */
export function durationParameter(name: string, value: Duration): number {
  const parsed = parseDuration(value)
  if (!parsed.ok) throw BusbarError.of('PARAMETER_INVALID', { name, value: shown(value), problem: parsed.problem })
  return parsed.value
}
