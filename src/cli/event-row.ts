/** Events for people: one line per event as they come, a table of those there are, and one event with all its fields. */
import type { Event } from '../event.ts'
import type { Output } from './output.ts'
import { columnsOf, printable, printableJson, shorten } from './printable.ts'
import { columnGap, growingColumns, tableLines } from './table.ts'

// What an ISO time and an id take; names beyond theirs are shortened on a terminal, else they push their line right.
const limits = { time: 24, id: 20, tenant: 20, type: 30, key: 30 }

/** Writes events as lines: time, id, tenant, type, key, data; the data only as far as the terminal is wide. */
export function createEventRows({ colors, columns }: Output): (event: Event) => string {
  const widest = Object.values(limits)
  const pad = growingColumns(widest)
  const fit = (cell: string, at: number) => (columns === undefined ? cell : shorten(cell, widest[at]!))
  const paints = [colors.dim, colors.dim, colors.magenta, colors.cyan, colors.yellow]
  return (event) => {
    const fields = [timeText(event.time), event.id, event.tenant, event.type, event.key ?? '-']
    const cells = pad(fields.map(printable).map(fit))
    const used = cells.reduce((sum, cell) => sum + columnsOf(cell) + columnGap.length, 0)
    const data = shortData(event.json, columns === undefined ? undefined : columns - used)
    return [...cells.map((cell, at) => paints[at]!(cell)), data].join(columnGap)
  }
}

/** Events that are all there, under a head; the data only as far as the terminal is wide. */
export function eventTable(events: readonly Event[], { colors, columns }: Output): string[] {
  const titles = ['time', 'id', 'tenant', 'type', 'key']
  const cells = events.map((event) =>
    [timeText(event.time), event.id, event.tenant, event.type, event.key ?? '-'].map(printable),
  )
  const used = titles.reduce(
    (sum, title, at) => sum + Math.max(columnsOf(title), ...cells.map((row) => columnsOf(row[at]!))) + columnGap.length,
    0,
  )
  const room = columns === undefined ? undefined : columns - used
  const rows = events.map((event, at) => [...cells[at]!, shortData(event.json, room)])
  const head = [...titles, 'data'].map((title) => ({ title }))
  return tableLines(head, rows, colors.bold)
}

const leastDataColumns = 10

function shortData(json: string, columns: number | undefined): string {
  if (columns === undefined) return printableJson(json)
  const room = Math.max(leastDataColumns, columns)
  // A text of n characters is at least as long when printable: the rest of a large one need not be looked at.
  const start = json.length > 4 * room ? json.slice(0, 4 * room) : json
  return shorten(printableJson(start), room)
}

/** One field per line, the data last. */
export function eventLines(event: Event, { colors }: Output): string[] {
  const fields = {
    id: event.id,
    type: event.type,
    tenant: event.tenant,
    key: event.key,
    time: timeText(event.time),
    seq: String(event.seq),
    prev: event.prev === null ? null : String(event.prev),
    trace: event.trace,
    data: event.json,
  }
  return Object.entries(fields)
    .filter(([, value]) => value !== undefined)
    .map(([name, value]) => `${colors.dim(name.padEnd(6))}${columnGap}${fieldText(name, value)}`)
}

function fieldText(name: string, value: string | null | undefined): string {
  if (value === null || value === undefined) return '-'
  return name === 'data' ? printableJson(value) : printable(value)
}

export const timeText = (ms: number): string => new Date(ms).toISOString()
