/**
 * The pattern grammar (see pattern.ts): from text that anyone may send to terms that are safe to match.
 *
 * Every refusal is PATTERN_INVALID and names the limit or what is accepted instead.
 */
import { RE2JS, RE2JSSyntaxException, RE2Set } from 're2js'
import { BusbarError, shown } from './errors.ts'
import { limits as eventLimits } from './event.ts'
import { checkTenant } from './event-checks.ts'
import { allSegments, oneSegment, ownTopic } from './pattern-trie.ts'

export type Pattern = string | readonly string[]

export interface Glob {
  readonly kind: 'glob'
  /** Undefined means every tenant. */
  readonly tenant: string | undefined
  readonly segments: readonly string[]
}

export interface Regex {
  readonly kind: 'regex'
  readonly source: string
  readonly reachesOwnTopic: boolean
  test(subject: string): boolean
}

export interface ParsedPattern {
  /** Each member once, in the order given. */
  readonly terms: readonly (Glob | Regex)[]
}

export const patternLimits = {
  bytes: 512,
  regexBytes: 256,
  // Instructions. A miss of the cache costs at most program × subject: 500 × 329 steps, about a millisecond.
  regexProgram: 500,
  // RE2's memory of what it has seen, per regex. When full it starts anew: slower, never wrong.
  regexMemoryBytes: 256 * 1024,
  perList: 64,
} as const

/** Throws PATTERN_INVALID with the first problem found. */
export function parsePattern(pattern: Pattern): ParsedPattern {
  const members: unknown = typeof pattern === 'string' ? [pattern] : pattern
  if (!Array.isArray(members)) throw invalid(pattern, 'must be a string or a list of strings')
  if (members.length === 0) throw invalid(pattern, 'is an empty list and would match nothing; use ">" for everything')
  if (members.length > patternLimits.perList)
    throw invalid(members.slice(0, 3), `and so on has ${members.length} members; the limit is ${patternLimits.perList}`)
  return { terms: [...new Set(members)].map(parseTerm) }
}

function invalid(pattern: unknown, problem: string): BusbarError {
  return BusbarError.of('PATTERN_INVALID', { pattern: shown(pattern), problem })
}

function parseTerm(text: unknown): Glob | Regex {
  if (typeof text !== 'string') throw invalid(text, 'must be a string')
  if (text === '') throw invalid(text, 'is empty; use ">" for everything')
  const bytes = Buffer.byteLength(text)
  if (bytes > patternLimits.bytes)
    throw invalid(text.slice(0, patternLimits.bytes), `has ${bytes} bytes; the limit is ${patternLimits.bytes}`)
  // Tenants and types are UTF-8 on the way, which cannot carry half a surrogate pair: it would never match.
  if (/\p{Surrogate}/u.test(text)) throw invalid(text, 'must not hold half of a surrogate pair')
  return text.startsWith('/') ? parseRegex(text) : parseGlob(text)
}

function parseGlob(text: string): Glob {
  // Types hold no colon, so the last one ends the tenant whatever tenants may be made of.
  const colon = text.lastIndexOf(':')
  const type = text.slice(colon + 1)
  const tenant = colon < 0 ? undefined : parseTenant(text, text.slice(0, colon))
  if (type.length > eventLimits.typeBytes)
    throw invalid(text, `asks for a type of ${type.length} bytes; the limit is ${eventLimits.typeBytes}`)
  const segments = type.split('.')
  if (segments.length > eventLimits.typeSegments)
    throw invalid(text, `has ${segments.length} segments; the limit is ${eventLimits.typeSegments}`)
  for (const [i, segment] of segments.entries()) {
    if (segment === oneSegment || /^[A-Za-z0-9_-]+$/.test(segment)) continue
    if (segment !== allSegments) throw invalid(text, segmentProblem(segment))
    if (i !== segments.length - 1) throw invalid(text, 'has ">" before its end; use "*" for one segment there')
  }
  return { kind: 'glob', tenant, segments }
}

function segmentProblem(segment: string): string {
  if (segment === '') return 'has an empty segment; join segments by single dots, like "order.paid"'
  if (/[*>]/.test(segment)) return `has the segment ${shown(segment)}; "*" and ">" stand for whole segments only`
  return `has the segment ${shown(segment)}; a segment is of A-Z a-z 0-9 _ -, or "*", or ">" at the end, and a regex stands between slashes`
}

function parseTenant(text: string, tenant: string): string {
  if (tenant === oneSegment || tenant === allSegments)
    throw invalid(text, 'asks for any tenant; leave out the tenant and its colon for that')
  try {
    return checkTenant(tenant)
  } catch (error) {
    if (!(error instanceof BusbarError)) throw error
    throw invalid(text, `names the tenant ${shown(tenant)}, which ${error.details.problem}`)
  }
}

function parseRegex(text: string): Regex {
  if (text.length < 2 || !text.endsWith('/'))
    throw invalid(text, 'begins as a regex but does not end with "/"; flags go inside, like "/(?i)paid/"')
  const source = text.slice(1, -1)
  if (source === '') throw invalid(text, 'is an empty regex; use ">" for everything')
  const bytes = Buffer.byteLength(source)
  if (bytes > patternLimits.regexBytes)
    throw invalid(text, `is a regex of ${bytes} bytes; the limit is ${patternLimits.regexBytes}`)
  const size = programSize(text, source)
  if (size > patternLimits.regexProgram)
    throw invalid(
      text,
      `compiles to ${size} instructions; the limit is ${patternLimits.regexProgram}. Use smaller repeat counts`,
    )
  return { kind: 'regex', source, reachesOwnTopic: source.includes(ownTopic), test: boundedTest(source) }
}

function programSize(text: string, source: string): number {
  try {
    return RE2JS.compile(source).programSize()
  } catch (error) {
    const problem =
      error instanceof RE2JSSyntaxException
        ? `${error.getDescription()} at ${shown(error.getPattern())}`
        : 'too complex'
    throw invalid(text, `is not a regex that RE2 accepts (no look-around, no back references): ${problem}`)
  }
}

/** A set of one: of RE2's doors only the set takes a memory limit. Built on first use, as many patterns are only checked. */
function boundedTest(source: string): (subject: string) => boolean {
  let set: RE2Set | undefined
  return (subject) => {
    if (!set) {
      set = new RE2Set(RE2Set.UNANCHORED, 0, patternLimits.regexMemoryBytes)
      set.add(source)
    }
    return set.match(subject).length > 0
  }
}
