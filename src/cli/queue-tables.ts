/** Queues for people: tables of them and of their tenants, and what is left when one was drained. */

import { formatDuration } from '../duration.ts'
import type { Left, MatchFacts, ParkedQueueObject, QueueFacts, QueueLimits, Rate, TenantFacts } from '../index.ts'
import { timeText } from './event-row.ts'
import type { Output } from './output.ts'
import { printable } from './printable.ts'
import { countOf, countText } from './stream-tables.ts'
import { type Column, type Fact, factLines, tableLines } from './table.ts'

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

interface Count {
  title: string
  of: 'waiting' | 'later' | 'held' | 'dead' | 'behind' | 'parked'
}

const count = (of: Count['of'], title: string = of): Count => ({ title, of })

/** Only where there is order is something behind another, or set aside. */
const ofOrdered = (isAny: boolean): Count[] => (isAny ? [count('behind'), count('parked')] : [])

export function queueLines(queues: readonly QueueFacts[], { colors }: Output): string[] {
  const isAnyOrdered = queues.some(({ ordered }) => ordered)
  const isAnyTracked = queues.some(({ track }) => track !== false)
  const numbers = [count('waiting'), count('later'), count('held'), ...ofOrdered(isAnyOrdered), count('dead')]
  const columns: Column[] = [
    ...[{ title: 'name' }, { title: 'match' }],
    ...numbers.map(({ title }) => right(title)),
    ...(isAnyTracked ? [right('oldest'), { title: 'tracked' }] : [right('oldest')]),
    { title: 'paused', paint: colors.red },
  ]
  const rows = queues.map((facts) => [
    ...[facts.name, matchText(facts.match), ...numbers.map(({ of }) => countText(facts[of]))],
    ...(isAnyTracked ? [ageText(facts.oldestMs), trackText(facts.track)] : [ageText(facts.oldestMs)]),
    facts.paused ? 'paused' : '-',
  ])
  return tableLines(columns, rows, colors.bold)
}

export const trackText = (track: QueueFacts['track']): string =>
  track === false ? '-' : track === true ? 'all' : track

/** Everything that is known of one, a fact per line. */
export function queueFactLines(facts: QueueFacts, output: Output): string[] {
  const { colors } = output
  const shown: Fact[] = [
    ['name', facts.name],
    ['match', matchText(facts.match)],
    ['waiting', countText(facts.waiting)],
    ['later', countText(facts.later)],
    ['held', heldText(facts)],
    ...ofOrdered(facts.ordered).map(({ title, of }): Fact => [title, countText(facts[of])]),
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

const heldText = ({ held, limits: { inFlight } }: QueueFacts): string =>
  inFlight === undefined ? countText(held) : `${countText(held)} of ${countText(inFlight)}`

/** Order and limits only where there are any. */
function settingsOf({ leaseMs, weights, ordered, onPoison, limits, track, redact, ...retry }: QueueFacts): Fact[] {
  const weighed = Object.entries(weights).map(([tenant, weight]) => `${tenant}=${weight}`)
  const limited = limitWords(limits)
  const order: Fact[] = [
    ['ordered', 'yes'],
    ['on poison', onPoison],
  ]
  return [
    ['lease', formatDuration(leaseMs)],
    ['retry', retryText(retry)],
    ['weights', weighed.join(', ') || '-'],
    ...(ordered ? order : []),
    ...(limited.length > 0 ? [['limits', limited.join(', ')] satisfies Fact] : []),
    ...(track === false ? [] : trackFacts(track, redact)),
  ]
}

const trackFacts = (track: true | 'failures', redact: readonly string[]): Fact[] => [
  ['tracked', trackText(track)],
  ['redacts', redact.map(printable).join(', ') || '-'],
]

/** As `busbar queue put` takes them. */
export function limitWords(limits: QueueLimits): string[] {
  const { inFlight, inFlightPerTenant, maxShare, rate, ratePerTenant, backlog, overflow = 'hold' } = limits
  const words: [name: string, value: string | undefined][] = [
    ['in-flight', numberText(inFlight)],
    ['in-flight-per-tenant', numberText(inFlightPerTenant)],
    ['max-share', maxShare?.toString()],
    ['rate', rateText(rate)],
    ['rate-per-tenant', rateText(ratePerTenant)],
    ['backlog', numberText(backlog)],
    ['overflow', backlog === undefined ? undefined : overflow],
  ]
  return words.flatMap(([name, value]) => (value === undefined ? [] : [`${name} ${value}`]))
}

const numberText = (number: number | undefined) => (number === undefined ? undefined : String(number))

/** `100/s`, `5/10m`. */
function rateText(rate: Rate | undefined): string | undefined {
  return rate && `${rate.max}/${formatDuration(rate.perMs).replace(/^1(?=\D)/, '')}`
}

function retryText({ attempts, backoffMs: [first, longest] }: Pick<QueueFacts, 'attempts' | 'backoffMs'>): string {
  if (attempts === 1) return '1 attempt, no retries'
  const tries = attempts === 0 ? 'for ever' : countOf(attempts, 'attempt')
  return `${tries}, waiting ${formatDuration(first)} to ${formatDuration(longest)}`
}

export function tenantLines(
  { ordered, limits }: QueueFacts,
  tenants: readonly TenantFacts[],
  { colors }: Output,
): string[] {
  const numbers = [count('held', 'in flight'), count('later'), ...ofOrdered(ordered), count('dead')]
  const rows = tenants.map((facts) => [
    ...[facts.tenant, countText(facts.weight), countText(facts.waiting), ageText(facts.oldestMs)],
    ...[...numbers.map(({ of }) => countText(facts[of])), stateText(facts, limits)],
  ])
  const titles = ['weight', 'waiting', 'oldest', ...numbers.map(({ title }) => title)]
  return tableLines(
    [{ title: 'tenant' }, ...titles.map(right), { title: 'state', paint: colors.red }],
    rows,
    colors.bold,
  )
}

/** Why nothing of it is given, or taken in. */
function stateText(
  facts: TenantFacts,
  { inFlightPerTenant = Number.POSITIVE_INFINITY, backlog = Number.POSITIVE_INFINITY }: QueueLimits,
): string {
  const { weight, waiting, later, behind, held, paused, throttledUntil } = facts
  const states = [
    ...(paused ? ['paused'] : []),
    ...(weight === 0 ? ['weight 0'] : []),
    ...(throttledUntil === null ? [] : [`until ${timeText(throttledUntil)}`]),
    ...(held >= inFlightPerTenant ? ['in flight full'] : []),
    ...(waiting + later + behind >= backlog ? ['backlog full'] : []),
  ]
  return states.join(', ') || '-'
}

export function parkedObjectLines(parked: readonly ParkedQueueObject[], { colors }: Output): string[] {
  const columns = [
    ...[{ title: 'object' }, { title: 'type' }, right('attempts'), right('behind')],
    ...[{ title: 'since' }, { title: 'error' }],
  ]
  const rows = parked.map(({ object, event, attempts, behind, at, error }) => [
    ...[printable(object), event.type, countText(attempts), countText(behind)],
    ...[timeText(at), printable(error)],
  ])
  return tableLines(columns, rows, colors.bold)
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
  return left.flatMap(({ queue, waiting, later, dueAt, behind, parked, paused }) => [
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
    ...(parked > 0 ? [`${countOf(parked, 'object')} of ${queue} ${parked === 1 ? 'is' : 'are'} parked.`] : []),
    ...(behind > 0 ? [`${countOf(behind, 'item')} of ${queue} left behind another of the same object.`] : []),
  ])
}
