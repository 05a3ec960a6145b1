/** Processors for people: tables of them, of their partitions, and of what they could not handle. */
import type { AnyLetter } from '../dead-letters.ts'
import type { DeadReason, ParkedObject, ResetFacts, StreamFacts } from '../index.ts'
import { timeText } from './event-row.ts'
import type { Output } from './output.ts'
import { printable } from './printable.ts'
import { type Column, tableLines } from './table.ts'

export const countText = (count: number): string => count.toLocaleString('en-US')

/** "1 event", "2 events". */
export const countOf = (count: number, one: string, more = `${one}s`): string =>
  `${countText(count)} ${count === 1 ? one : more}`

const rateText = (rate: number): string => `${rate.toFixed(1)}/s`
const right = (title: string): Column => ({ title, side: 'right' })

export function streamLines(streams: readonly StreamFacts[], { colors }: Output): string[] {
  const numbers = ['workers', 'lag', 'rate', 'parked', 'dead', 'blocked'].map(right)
  const rows = streams.map(({ name, match, members, lag, rate, parked, dead, partitions }) => [
    name,
    printable([match].flat().join(', ')),
    countText(members.length),
    countText(lag),
    rateText(rate),
    countText(parked),
    countText(dead),
    countText(partitions.filter(({ blocked }) => blocked).length),
  ])
  return tableLines([{ title: 'name' }, { title: 'match' }, ...numbers], rows, colors.bold)
}

export function partitionLines({ partitions }: StreamFacts, { colors }: Output): string[] {
  const columns = [
    right('partition'),
    { title: 'owner' },
    ...['epoch', 'cursor', 'lag', 'rate'].map(right),
    { title: 'blocked', paint: colors.red },
  ]
  const rows = partitions.map(({ partition, owner, epoch, cursor, lag, rate, blocked }) => [
    String(partition),
    owner ?? '-',
    String(epoch),
    String(cursor),
    countText(lag),
    rateText(rate),
    blocked ? printable(`${blocked.id}  ${blocked.error}`) : '-',
  ])
  return tableLines(columns, rows, colors.bold)
}

/** Only the partitions that move, then what it comes to. */
export function resetLines({ partitions, again, skipped }: ResetFacts, { colors }: Output): string[] {
  const rows = partitions
    .filter(({ from, to }) => from !== to)
    .map(({ partition, from, to, again: some, skipped: others }) => [
      ...[partition, from, to].map(String),
      countText(some),
      countText(others),
    ])
  const columns = ['partition', 'from', 'to', 'again', 'skipped'].map(right)
  return [
    ...(rows.length > 0 ? tableLines(columns, rows, colors.bold) : []),
    `${countOf(again, 'event')} to be handled again, ${countOf(skipped, 'event')} to be skipped.`,
  ]
}

export function parkedLines(parked: readonly ParkedObject[], { colors }: Output): string[] {
  const columns = [{ title: 'object' }, { title: 'state' }, right('events'), { title: 'since' }, { title: 'error' }]
  const rows = parked.map(({ object, state, events, reason }) => [
    printable(object),
    state,
    countText(events),
    reason.at === undefined ? '-' : timeText(reason.at),
    reason.error === undefined ? '-' : printable(`${reason.id}  ${reason.error}`),
  ])
  return tableLines(columns, rows, colors.bold)
}

export function deadLines(letters: readonly AnyLetter[], { colors }: Output): string[] {
  const columns = [
    ...['id', 'tenant', 'type', 'key'].map((title) => ({ title })),
    right('attempts'),
    { title: 'since' },
    { title: 'error' },
  ]
  const rows = letters.map(({ id, event, attempts, at, error }) => [
    id,
    event.tenant,
    event.type,
    printable(event.key ?? '-'),
    String(attempts),
    timeText(at),
    printable(error),
  ])
  return tableLines(columns, rows, colors.bold)
}

export function reasonLines(reasons: readonly DeadReason[], { colors }: Output): string[] {
  const columns = [right('letters'), { title: 'oldest' }, { title: 'newest' }, { title: 'error' }]
  const rows = reasons.map(({ reason, letters, oldestAt, newestAt }) => [
    countText(letters),
    timeText(oldestAt),
    timeText(newestAt),
    printable(reason),
  ])
  return tableLines(columns, rows, colors.bold)
}
