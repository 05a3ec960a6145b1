/** Queues for people: tables of them and of their tenants, and what is left when one was drained. */

import { formatDuration } from '../duration.ts'
import type { Left, MatchFacts, QueueFacts, TenantFacts } from '../index.ts'
import { timeText } from './event-row.ts'
import type { Output } from './output.ts'
import { printable } from './printable.ts'
import { countOf, countText } from './stream-tables.ts'
import { type Column, columnGap, tableLines } from './table.ts'

const right = (title: string): Column => ({ title, side: 'right' })
const matchText = (match: QueueFacts['match']): string => (match === null ? '-' : printable([match].flat().join(', ')))

const units = [
  ['d', 86_400_000],
  ['h', 3_600_000],
  ['m', 60_000],
  ['s', 1_000],
] as const

/** As much of it as people want to know: `0.4s`, `12s`, `5m`, `3h`, `2d`. */
export function ageText(ms: number | null): string {
  if (ms === null) return '-'
  const [unit, size] = units.find((each) => ms >= each[1]) ?? (['s', 1_000] as const)
  return ms < 1_000 ? `${(ms / 1_000).toFixed(1)}s` : `${Math.floor(ms / size)}${unit}`
}

export function queueLines(queues: readonly QueueFacts[], { colors }: Output): string[] {
  const columns: Column[] = [
    ...[{ title: 'name' }, { title: 'match' }],
    ...['waiting', 'later', 'held', 'dead', 'oldest'].map(right),
    { title: 'paused', paint: colors.red },
  ]
  const rows = queues.map(({ name, match, waiting, later, held, dead, oldestMs, paused }) => [
    ...[name, matchText(match), ...[waiting, later, held, dead].map(countText), ageText(oldestMs)],
    paused ? 'paused' : '-',
  ])
  return tableLines(columns, rows, colors.bold)
}

type Fact = [name: string, value: string]

/** Everything that is known of one, a fact per line. */
export function queueFactLines(facts: QueueFacts, output: Output): string[] {
  const { colors } = output
  const shown: Fact[] = [
    ['name', facts.name],
    ['match', matchText(facts.match)],
    ['waiting', countText(facts.waiting)],
    ['later', countText(facts.later)],
    ['held', countText(facts.held)],
    ['dead', countText(facts.dead)],
    ['oldest', ageText(facts.oldestMs)],
    ['in', countText(facts.in)],
    ['out', countText(facts.out)],
    ['expired', countText(facts.expired)],
    ['dropped', countText(facts.dropped)],
    ['discarded', countText(facts.discarded)],
    ['paused', facts.paused ? colors.red('yes') : 'no'],
    ...settingsOf(facts),
  ]
  return factLines(shown, output)
}

/** What a queue was told to be. */
export const definitionLines = (facts: QueueFacts, output: Output): string[] =>
  factLines([['match', matchText(facts.match)], ...settingsOf(facts)], output)

function settingsOf({ leaseMs, weights, ...retry }: QueueFacts): Fact[] {
  const weighed = Object.entries(weights).map(([tenant, weight]) => `${tenant}=${weight}`)
  return [
    ['lease', formatDuration(leaseMs)],
    ['retry', retryText(retry)],
    ['weights', weighed.join(', ') || '-'],
  ]
}

function retryText({ attempts, backoffMs: [first, longest] }: Pick<QueueFacts, 'attempts' | 'backoffMs'>): string {
  if (attempts === 1) return '1 attempt, no retries'
  const tries = attempts === 0 ? 'for ever' : countOf(attempts, 'attempt')
  return `${tries}, waiting ${formatDuration(first)} to ${formatDuration(longest)}`
}

const factLines = (facts: readonly Fact[], { colors }: Output): string[] =>
  facts.map(([name, value]) => `${colors.dim(name.padEnd(9))}${columnGap}${value}`)

export function tenantLines(tenants: readonly TenantFacts[], { colors }: Output): string[] {
  const numbers = ['weight', 'waiting', 'oldest', 'in flight', 'later', 'dead'].map(right)
  const rows = tenants.map((facts) => [
    ...[facts.tenant, countText(facts.weight), countText(facts.waiting), ageText(facts.oldestMs)],
    ...[facts.held, facts.later, facts.dead].map(countText),
    pausedText(facts),
  ])
  const columns = [{ title: 'tenant' }, ...numbers, { title: 'paused', paint: colors.red }]
  return tableLines(columns, rows, colors.bold)
}

function pausedText({ weight, throttledUntil }: TenantFacts): string {
  if (weight === 0) return 'weight 0'
  return throttledUntil === null ? '-' : `until ${timeText(throttledUntil)}`
}

export function matchLines(matches: readonly MatchFacts[], { colors }: Output): string[] {
  const columns = ['name', 'kind', 'match', 'gets it', 'since', 'why'].map((title) => ({ title }))
  const rows = matches.map((facts) => [
    ...[facts.name, facts.kind, matchText(facts.match), facts.matches ? 'yes' : 'no'],
    ...[timeText(facts.since), whyText(facts)],
  ])
  return tableLines(columns, rows, colors.bold)
}

function whyText({ match, matches, pausedSince }: MatchFacts): string {
  if (match === null) return 'it has no pattern: it gets only what is sent'
  if (!matches) return 'its pattern does not match'
  const paused = pausedSince === undefined ? '' : `; paused since ${timeText(pausedSince)}, so nothing is given out`
  return `its pattern matches${paused}`
}

/** A line for each queue in which something is left. */
export function leftLines(left: readonly Left[]): string[] {
  return left.flatMap(({ queue, waiting, later, dueAt, paused }) => [
    ...(later > 0
      ? [
          `${countOf(later, 'item')} of ${queue} left for a later time${dueAt === null ? '' : `, the first at ${timeText(dueAt)}`}.`,
        ]
      : []),
    ...(waiting > 0
      ? [
          `${countOf(waiting, 'item')} of ${queue} cannot be given: ${paused ? 'it is paused' : 'their tenants are paused or have to wait'}.`,
        ]
      : []),
  ])
}
