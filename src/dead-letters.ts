/**
 * Dead letters, the same for queues and processors: which ones are meant, how they are grouped, how they are written.
 *
 * A letter is chosen by its id or by what it has. Nothing said chooses nothing: all of them are `'all'`.
 */
import { BusbarError, shown } from './errors.ts'
import type { Event } from './event.ts'
import { checkKnown } from './unknown-name.ts'

/** Letters that have all of these. */
export interface DeadFilter {
  ids?: readonly string[]
  tenant?: string
  type?: string
  /** Part of why it was given up. */
  reason?: string
  /** Dead since before this time, ms since the epoch. */
  before?: number
}

/** Which letters: by their ids, by what they have, or every one. */
export type DeadChoice = readonly string[] | DeadFilter | 'all'

/** A place in the list: default the first 100. */
export interface DeadPage {
  limit?: number
  offset?: number
}

export interface DeadReason {
  reason: string
  letters: number
  oldestAt: number
  newestAt: number
}

export interface AnyLetter {
  id: string
  event: Event
  /** Why it was given up. */
  error: string
  attempts: number
  /** When: ms. */
  at: number
}

export interface DeadView<Letter extends AnyLetter> {
  /** Oldest first. */
  list(name: string, options?: DeadFilter & DeadPage): Promise<Letter[]>
  /** How many for which reason, those with the most letters first. */
  reasons(name: string, filter?: DeadFilter): Promise<DeadReason[]>
  /** Puts them back in line. Answers how many. */
  redrive(name: string, which: DeadChoice): Promise<number>
  /** Gives them up for good. Answers how many. */
  discard(name: string, which: DeadChoice): Promise<number>
}

const knownOfFilter = new Set<keyof DeadFilter>(['ids', 'tenant', 'type', 'reason', 'before'])
const knownOfList = new Set<string>([...knownOfFilter, 'limit', 'offset'])
const defaultLimit = 100

/** The wanted part of the letters, without reading further than it takes. */
export async function pageOf<L extends AnyLetter>(
  letters: AsyncIterable<L>,
  options: DeadFilter & DeadPage,
): Promise<L[]> {
  checkKnown(options, knownOfList)
  const { limit = defaultLimit, offset = 0, ...filter } = options
  const fits = filterOf(filter)
  const wanted = Math.max(1, limit)
  const found: L[] = []
  let passed = 0
  for await (const letter of letters) {
    if (!fits(letter)) continue
    passed += 1
    if (passed > offset) found.push(letter)
    if (found.length === wanted) break
  }
  return found
}

export async function reasonsOf(letters: AsyncIterable<AnyLetter>, filter: DeadFilter): Promise<DeadReason[]> {
  const fits = filterOf(filter)
  const reasons = new Map<string, DeadReason>()
  for await (const letter of letters) {
    if (!fits(letter)) continue
    const { error, at } = letter
    const known = reasons.get(error) ?? { reason: error, letters: 0, oldestAt: at, newestAt: at }
    known.letters += 1
    known.oldestAt = Math.min(known.oldestAt, at)
    known.newestAt = Math.max(known.newestAt, at)
    reasons.set(error, known)
  }
  return [...reasons.values()].sort((a, b) => b.letters - a.letters || b.newestAt - a.newestAt)
}

/** The ids of those that are meant. All are chosen before the first one moves: what dies again meanwhile is not taken twice. */
export async function chosenIds(letters: () => AsyncIterable<AnyLetter>, which: DeadChoice): Promise<string[]> {
  const filter: DeadFilter = which === 'all' ? {} : isIds(which) ? { ids: which } : which
  const fits = filterOf(filter)
  const said = Object.values(filter).filter((value) => value !== undefined).length
  if (which !== 'all' && said === 0)
    throw BusbarError.of('PARAMETER_INVALID', {
      ...{ name: 'which', value: shown(which) },
      problem: "must name ids or a filter, or be 'all'",
    })
  // Known by their ids alone, they need not be read.
  if (filter.ids && said === 1) return [...new Set(filter.ids)]
  const ids: string[] = []
  for await (const letter of letters()) if (fits(letter)) ids.push(letter.id)
  return ids
}

const isIds = (which: DeadChoice): which is readonly string[] => Array.isArray(which)

/** PARAMETER_INVALID for what cannot be a filter; answers whether a letter fits it. */
function filterOf(filter: DeadFilter): (letter: AnyLetter) => boolean {
  checkFilter(filter)
  const { tenant, type, reason, before } = filter
  const ids = filter.ids && new Set(filter.ids)
  return ({ id, event, error, at }) =>
    (!ids || ids.has(id)) &&
    (tenant === undefined || event.tenant === tenant) &&
    (type === undefined || event.type === type) &&
    (reason === undefined || error.includes(reason)) &&
    (before === undefined || at < before)
}

function checkFilter(filter: unknown): void {
  if (typeof filter !== 'object' || filter === null) throw invalid('which', filter, "must be ids, a filter, or 'all'")
  checkKnown(filter, knownOfFilter)
  const { ids, before, ...texts } = filter as DeadFilter
  if (ids !== undefined && !(Array.isArray(ids) && ids.every((id) => typeof id === 'string')))
    throw invalid('ids', ids, 'must be a list of ids')
  if (before !== undefined && !Number.isFinite(before)) throw invalid('before', before, 'must be a time in ms')
  for (const [name, text] of Object.entries(texts))
    if (text !== undefined && typeof text !== 'string') throw invalid(name, text, 'must be a text')
}

const invalid = (name: string, value: unknown, problem: string): BusbarError =>
  BusbarError.of('PARAMETER_INVALID', { name, value: shown(value), problem })

/** A letter or a parked object for people and programs: JSON in which the event's data is byte for byte what was published. */
export function letterJson({ event, ...rest }: Pick<AnyLetter, 'event'>): string {
  return `${JSON.stringify(rest).slice(0, -1)},"event":${event.toText()}}`
}
