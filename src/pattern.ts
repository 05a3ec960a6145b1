/**
 * Which events a wish is for. The grammar:
 *
 *   order.paid      exactly this type               order.*.paid   `*` stands for exactly one segment, anywhere
 *   order.>         one or more segments, at the end only           `>` alone is every event
 *   acme:order.*    the same for one tenant; without it, every tenant
 *   /re/            RE2, unanchored, against `tenant:type`; flags inside, `/(?i)re/`
 *
 * A pattern is one of these or a list of them, and a list wants what any of its members wants. Events of the topic
 * `busbar` are ours and reach only patterns that name it: a first segment `busbar`, or a regex with that word in it.
 *
 * A pattern is checked once, when it is given; matching never throws, whatever the names are. Matching takes time linear
 * in the names: RE2 does not backtrack, and its program and its memory are bounded.
 */
import { limits as eventLimits } from './event.ts'
import { type Glob, type Pattern, parsePattern, type Regex } from './pattern-grammar.ts'
import { allSegments, createSegmentTrie, oneSegment, ownTopic } from './pattern-trie.ts'

export { type ParsedPattern, type Pattern, parsePattern, patternLimits } from './pattern-grammar.ts'
export type { MatchedTypes } from './pattern-types.ts'

export interface Matcher {
  matches(tenant: string, type: string): boolean
}

export function compilePattern(pattern: Pattern): Matcher {
  const { terms } = parsePattern(pattern)
  return {
    matches(tenant, type) {
      const segments = type.split('.')
      return terms.some((term) =>
        term.kind === 'glob' ? globMatches(term, tenant, segments) : regexMatches(term, tenant, type, segments),
      )
    },
  }
}

/** The topics whose events alone can match; undefined when that cannot be said. */
export function topicsOf(pattern: Pattern): string[] | undefined {
  const topics = new Set<string>()
  for (const term of parsePattern(pattern).terms) {
    const topic = term.kind === 'glob' ? term.segments[0]! : oneSegment
    if (topic === oneSegment || topic === allSegments) return undefined
    topics.add(topic)
  }
  return [...topics]
}

function globMatches(glob: Glob, tenant: string, segments: readonly string[]): boolean {
  if (glob.tenant !== undefined && glob.tenant !== tenant) return false
  if (segments[0] === ownTopic && glob.segments[0] !== ownTopic) return false
  const open = glob.segments.at(-1) === allSegments
  if (open ? segments.length < glob.segments.length : segments.length !== glob.segments.length) return false
  return glob.segments.every((wanted, i) => wanted === allSegments || wanted === oneSegment || wanted === segments[i])
}

function regexMatches(regex: Regex, tenant: string, type: string, segments: readonly string[]): boolean {
  if (segments[0] === ownTopic && !regex.reachesOwnTopic) return false
  return regex.test(`${tenant}:${type}`)
}

export interface PatternTable<T> {
  /** Answers the function that takes this wish back; calling it again does nothing. */
  add(pattern: Pattern, value: T): () => void
  /** Each value at most once, in the order added. The list is shared: do not change it. */
  match(tenant: string, type: string): readonly T[]
  /** Wishes that stand. */
  readonly size: number
  /** Answers remembered; at most `cacheEntries`. */
  readonly cached: number
}

interface Wish<T> {
  readonly order: number
  readonly value: T
}

interface SharedRegex<T> {
  readonly regex: Regex
  readonly wishes: Set<Wish<T>>
}

// 10,000 answers of a few hundred bytes each: some MB, and more (tenant, type) pairs than most installations are busy with.
const defaultCacheEntries = 10_000

/** Many wishes at once: who wants (tenant, type)? Equal regexes are tested once, and answers are remembered. */
export function createPatternTable<T>({ cacheEntries = defaultCacheEntries } = {}): PatternTable<T> {
  const trie = createSegmentTrie<Wish<T>>()
  const regexes = new Map<string, SharedRegex<T>>()
  let size = 0
  let added = 0
  let answers = new Map<string, Map<string, readonly T[]>>()
  let cached = 0

  function forgetAnswers(): void {
    if (cached === 0) return
    answers = new Map()
    cached = 0
  }

  function remember(tenant: string, type: string, answer: readonly T[]): void {
    // Names beyond the limits are nobody's event; remembering them would unbound the memory.
    if (tenant.length > eventLimits.tenantBytes || type.length > eventLimits.typeBytes) return
    if (cached >= cacheEntries) forgetAnswers()
    const byType = answers.get(tenant)
    if (byType) byType.set(type, answer)
    else answers.set(tenant, new Map([[type, answer]]))
    cached += 1
  }

  function addTerm(term: Glob | Regex, wish: Wish<T>): void {
    if (term.kind === 'glob') {
      trie.add(term.tenant, term.segments, wish)
      return
    }
    const shared = regexes.get(term.source)
    if (shared) shared.wishes.add(wish)
    else regexes.set(term.source, { regex: term, wishes: new Set([wish]) })
  }

  function removeTerm(term: Glob | Regex, wish: Wish<T>): void {
    if (term.kind === 'glob') {
      trie.remove(term.tenant, term.segments, wish)
      return
    }
    const shared = regexes.get(term.source)
    if (shared?.wishes.delete(wish) && shared.wishes.size === 0) regexes.delete(term.source)
  }

  function look(tenant: string, type: string): readonly T[] {
    const segments = type.split('.')
    const found = new Set<Wish<T>>()
    trie.collect(tenant, segments, found)
    for (const { regex, wishes } of regexes.values())
      if (regexMatches(regex, tenant, type, segments)) for (const wish of wishes) found.add(wish)
    const inOrder = [...found].sort((a, b) => a.order - b.order)
    return [...new Set(inOrder.map((wish) => wish.value))]
  }

  return {
    add(pattern, value) {
      const { terms } = parsePattern(pattern)
      const wish: Wish<T> = { order: added++, value }
      for (const term of terms) addTerm(term, wish)
      size += 1
      forgetAnswers()
      let standing = true
      return () => {
        if (!standing) return
        standing = false
        for (const term of terms) removeTerm(term, wish)
        size -= 1
        forgetAnswers()
      }
    },
    match(tenant, type) {
      const known = answers.get(tenant)?.get(type)
      if (known) return known
      const answer = look(tenant, type)
      remember(tenant, type, answer)
      return answer
    },
    get size() {
      return size
    },
    get cached() {
      return cached
    },
  }
}
