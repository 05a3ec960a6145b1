/** Operations for people: one of them fact by fact, several as a table, counts per minute, where an event went, triggers. */
import type { Operation, OperationStats, OperationSummary, Trace, TriggerFacts } from '../index.ts'
import { timeText } from './event-row.ts'
import type { Output } from './output.ts'
import { printable, shorten } from './printable.ts'
import { countText } from './stream-tables.ts'
import { type Column, columnGap, tableLines } from './table.ts'

const right = (title: string): Column => ({ title, side: 'right' })
const orDash = (text: string | null | undefined): string => (text == null ? '-' : printable(text))
const timeOr = (ms: number | null): string => (ms === null ? '-' : timeText(ms))
const jsonText = (value: unknown): string => printable(JSON.stringify(value ?? null))
const tookText = (ms: number | null): string => (ms === null ? '-' : spanText(ms))
const minuteText = (at: number): string => `${timeText(at).slice(0, 16)}Z`

/** As exactly as people want to know it: `850ms`, `4.2s`, `4m52s`, `3h7m`, `2d3h`. */
export function spanText(ms: number): string {
  if (ms < 1_000) return `${Math.round(ms)}ms`
  const tenths = Math.round(ms / 100)
  if (tenths < 600) return `${tenths / 10}s`
  const seconds = Math.round(ms / 1_000)
  if (seconds < 3_600) return twoUnits(seconds, 60, 'm', 's')
  const minutes = Math.round(ms / 60_000)
  return minutes < 1_440 ? twoUnits(minutes, 60, 'h', 'm') : twoUnits(Math.round(ms / 3_600_000), 24, 'd', 'h')
}

function twoUnits(amount: number, perLarge: number, large: string, small: string): string {
  const rest = amount % perLarge
  return `${Math.floor(amount / perLarge)}${large}${rest === 0 ? '' : `${rest}${small}`}`
}

const statusText = ({ status, cancelling }: OperationSummary): string => (cancelling ? 'running, cancelling' : status)

export function operationLines(operation: Operation, { colors }: Output): string[] {
  const { tenant, key, kind, requestId, attempts, worker, error, log, progress } = operation
  const facts: [name: string, value: string | undefined][] = [
    ['id', operation.id],
    ['status', statusText(operation)],
    ['type', operation.type],
    ['tenant', tenant],
    ['key', orDash(key)],
    ['kind', kind],
    ['request', orDash(requestId)],
    ['event', operation.event ?? undefined],
    ['trigger', operation.trigger ?? undefined],
    ['queued', timeText(operation.queuedAt)],
    ['due', operation.dueAt === null ? undefined : timeText(operation.dueAt)],
    ['started', timeOr(operation.startedAt)],
    ['finished', timeOr(operation.finishedAt)],
    ['attempts', countText(attempts)],
    ['worker', orDash(worker)],
    ['progress', progress === null ? undefined : jsonText(progress)],
    ['input', jsonText(operation.input)],
    ['output', operation.status === 'succeeded' ? jsonText(operation.output) : undefined],
    ['error', error === null ? undefined : colors.red(printable(error))],
  ]
  const lines = facts.flatMap(([name, value]) =>
    value === undefined ? [] : [`${colors.dim(name.padEnd(9))}${columnGap}${value}`],
  )
  return [...lines, ...log.map((line) => `${colors.dim('log'.padEnd(9))}${columnGap}${printable(line)}`)]
}

const errorColumns = 60

export function operationRows(operations: readonly OperationSummary[], { colors }: Output): string[] {
  const columns: Column[] = [
    ...[{ title: 'queued' }, { title: 'id' }, { title: 'status' }, { title: 'kind' }, right('attempts'), right('took')],
    { title: 'error', paint: colors.red },
  ]
  const rows = operations.map((one) => {
    const { queuedAt, startedAt, finishedAt, attempts } = one
    const took = startedAt !== null && finishedAt !== null ? finishedAt - startedAt : null
    const error = 'error' in one ? (one as Operation).error : null
    return [
      ...[timeText(queuedAt), one.id, statusText(one), one.kind, countText(attempts), tookText(took)],
      error === null ? '-' : shorten(printable(error), errorColumns),
    ]
  })
  return tableLines(columns, rows, colors.bold)
}

export function statsLines({ minutes, total, ...all }: OperationStats, { colors }: Output): string[] {
  const columns = [
    { title: 'minute' },
    ...[right('succeeded'), right('failed'), right('cancelled'), right('p50'), right('p95')],
  ]
  const row = (name: string, one: Omit<OperationStats, 'minutes' | 'total' | 'queue' | 'from' | 'until'>) => [
    ...[name, countText(one.succeeded), countText(one.failed), countText(one.cancelled)],
    ...[tookText(one.p50Ms), tookText(one.p95Ms)],
  ]
  const rows = [
    ...minutes.map((minute) => row(minuteText(minute.at), minute)),
    row('all of them', all),
    row('ever', { ...total, p50Ms: null, p95Ms: null }),
  ]
  return tableLines(columns, rows, colors.bold)
}

export function traceLines({ places }: Trace, { colors }: Output): string[] {
  const columns: Column[] = [
    ...[{ title: 'kind' }, { title: 'name' }, { title: 'state' }, right('attempts'), { title: 'operation or batch' }],
    { title: 'error', paint: colors.red },
  ]
  const rows = places.map(({ kind, name, state, attempts, operation, batch, error }) => [
    ...[kind, name, state, attempts === undefined ? '-' : countText(attempts)],
    operation === undefined ? orDash(batch ?? null) : `${operation.id} ${operation.status}`,
    error === undefined ? '-' : shorten(printable(error), errorColumns),
  ])
  return tableLines(columns, rows, colors.bold)
}

export function triggerLines(triggers: readonly TriggerFacts[], { colors }: Output): string[] {
  const columns = ['name', 'queue', 'tenant', 'key', 'state', 'secret since'].map((title) => ({ title }))
  const rows = triggers.map(({ name, queue, tenant, key, enabled, problem, rotatedAt }) => [
    ...[name, queue, tenant, orDash(key), enabled ? (problem ?? 'enabled') : 'disabled', timeText(rotatedAt)],
  ])
  return tableLines(columns, rows, colors.bold)
}
