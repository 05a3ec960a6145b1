/**
 * The grammar of pattern.ts once more, for the compiler: a handler's events are typed by its pattern literal.
 *
 * Where the compiler cannot know (a regex, a pattern or a type that is not a literal) the answer is the wider one.
 */

/** Which of the known event types a pattern, a union of patterns or a list of patterns matches. */
export type MatchedTypes<Known extends string, P> = P extends readonly (infer Each)[]
  ? MatchedTypes<Known, Each>
  : P extends string
    ? IsLiteral<P> extends true
      ? MatchedByOne<Known, P>
      : Known
    : never

// A record over a literal has a required property; over `string` or a template it has an index signature.
type IsLiteral<S extends string> = Record<never, 1> extends Record<S, 1> ? false : true

type MatchedByOne<Known extends string, P extends string> = P extends `/${string}`
  ? WithoutOwnTopic<Known, P extends `${string}busbar${string}` ? 'busbar' : ''>
  : MatchedByType<WithoutOwnTopic<Known, FirstSegment<AfterTenant<P>>>, AfterTenant<P>>

type AfterTenant<P extends string> = P extends `${string}:${infer Rest}` ? AfterTenant<Rest> : P

type FirstSegment<P extends string> = P extends `${infer First}.${string}` ? First : P

type WithoutOwnTopic<Known extends string, First extends string> = First extends 'busbar'
  ? Known
  : Known extends 'busbar' | `busbar.${string}`
    ? never
    : Known

type MatchedByType<Known extends string, P extends string> = Known extends string
  ? IsLiteral<Known> extends true
    ? SegmentsMatch<Known, P> extends true
      ? Known
      : never
    : Known
  : never

type SegmentsMatch<Type extends string, P extends string> = P extends '>'
  ? true
  : P extends `${infer WantedFirst}.${infer WantedRest}`
    ? Type extends `${infer First}.${infer Rest}`
      ? WantedFirst extends '*' | First
        ? SegmentsMatch<Rest, WantedRest>
        : false
      : false
    : Type extends `${string}.${string}`
      ? false
      : P extends '*' | Type
        ? true
        : false
