/** What may happen to a store, by chance: its definition, and the steps of a walk. */
import fc from 'fast-check'
import type { Outcome } from '../../src/lanes/acts.ts'
import type { QueueLimits } from '../../src/lanes/limits.ts'

export const laneNames = ['a', 'b', 'c', 'd']
export const weightsOf = (weights: readonly number[]) =>
  Object.fromEntries(laneNames.map((name, i) => [name, weights[i]!]))

/** Two have most to do. */
const lane = fc.constantFrom('a', 'a', 'b', 'b', 'c', 'd')
const weight = fc.constantFrom(0, 1, 1, 1, 2, 2, 3)
/** A lane, and a key in it. */
const place = fc.record({ lane, key: fc.constantFrom('', 'k', 'k', 'l') })
const outcome: fc.Arbitrary<Outcome> = fc.oneof(
  { weight: 4, arbitrary: fc.constant<Outcome>({ kind: 'ack' }) },
  fc.constant<Outcome>({ kind: 'back' }),
  fc.constantFrom(0, 50, 500).map((afterMs): Outcome => ({ kind: 'retry', afterMs, reason: 'busy' })),
  fc.constant<Outcome>({ kind: 'dead', reason: 'poison' }),
  fc.constantFrom(50, 500).map((forMs): Outcome => ({ kind: 'throttle', forMs })),
)

/** An item takes a whole number of ms, so that both sides can count exactly. */
const rate = fc.constantFrom({ max: 1, perMs: 60 }, { max: 2, perMs: 800 }, { max: 3, perMs: 300 })
const limitOf = {
  inFlight: fc.constantFrom(1, 3, 5).map((inFlight): QueueLimits => ({ inFlight })),
  inFlightPerTenant: fc.constantFrom(1, 2).map((inFlightPerTenant): QueueLimits => ({ inFlightPerTenant })),
  maxShare: fc.constantFrom(0.2, 0.35, 0.5, 0.8).map((maxShare): QueueLimits => ({ maxShare })),
  rate: rate.map((its): QueueLimits => ({ rate: its })),
  ratePerTenant: rate.map((ratePerTenant): QueueLimits => ({ ratePerTenant })),
  backlog: fc.record({
    backlog: fc.constantFrom(1, 2, 4),
    overflow: fc.constantFrom('hold' as const, 'drop-oldest' as const, 'dead' as const),
  }),
}
/** Up to three of them at once: with all of them hardly anything would be given. */
const limits: fc.Arbitrary<QueueLimits> = fc
  .subarray(Object.values(limitOf) as fc.Arbitrary<QueueLimits>[], { minLength: 1, maxLength: 3 })
  .chain((some) => fc.tuple(...some))
  .map((some) => Object.assign({}, ...some) as QueueLimits)

const someLimits = fc.oneof({ weight: 1, arbitrary: fc.constant<QueueLimits>({}) }, { weight: 3, arbitrary: limits })

export const definition = fc.record({
  way: fc.constantFrom(
    { ordered: false, parks: false },
    { ordered: true, parks: false },
    { ordered: true, parks: true },
  ),
  limits: someLimits,
})
/** `track`: its items are operations. */
export type Definition = (typeof definition extends fc.Arbitrary<infer T> ? T : never) & { track?: boolean }

const sent = fc.record({
  place,
  delay: fc.constantFrom(0, 0, 100, 1_000),
  ttl: fc.constantFrom(0, 0, 300),
  priority: fc.constantFrom(0, 0, 5, -5, 1),
})
/** More than there is, often: who is next when some have their share, or can give no more, is half of what can go wrong. */
const many = fc.constantFrom(0, 1, 1, 2, 3, 5, 8, 12)
const worker = fc.constantFrom('w', 'v')
const lease = fc.nat(20)

/** How often which step comes, among 60. What there is hardly ever something to do for comes seldom. */
const untracked = [
  of(8, { do: is('accept'), partition: fc.nat(1), lanes: fc.array(place, { minLength: 1, maxLength: 9 }) }),
  of(2, { do: is('acceptAgain'), extra: fc.array(place, { maxLength: 2 }) }),
  of(5, { do: is('send'), items: fc.array(sent, { minLength: 1, maxLength: 3 }) }),
  of(12, { do: is('claim'), n: many, worker, peeks: fc.boolean() }),
  of(1, { do: is('claimAgain'), lease }),
  of(3, { do: is('pop'), n: many }),
  of(7, { do: is('settle'), lease, items: fc.array(fc.nat(9), { minLength: 1, maxLength: 4 }), outcome }),
  of(3, { do: is('settleAll'), lease, tooMany: fc.constantFrom(0, 0, 1) }),
  of(1, { do: is('renew'), lease }),
  of(2, { do: is('extend'), lease, item: fc.nat(9), ms: fc.constantFrom(0, 200, 2_000) }),
  of(6, { do: is('wait'), ms: fc.constantFrom(1, 60, 400, 1_500) }),
  of(3, { do: is('redefine'), weights: fc.tuple(weight, weight, weight, weight), limits: fc.option(someLimits) }),
  of(1, { do: is('pause'), act: fc.constantFrom('pause' as const, 'resume' as const, 'resume' as const) }),
  of(3, { do: is('pauseLane'), act: fc.constantFrom('pause' as const, 'resume' as const), lane }),
  of(1, { do: is('redrive'), letter: fc.nat(2) }),
  of(1, { do: is('discard'), letter: fc.nat(2) }),
  of(1, { do: is('resumeParked'), object: fc.nat(1) }),
  of(1, { do: is('discardParked'), object: fc.nat(1) }),
  of(1, { do: is('enter'), worker }),
  of(1, { do: is('peek'), n: fc.integer({ min: 1, max: 6 }) }),
] as const
const cancel = of(3, { do: is('cancel'), item: fc.nat(30) })
export const step = fc.oneof(...untracked)
/** Of a walk with operations. */
export const trackedStep = fc.oneof(...untracked, cancel)
export type Step = typeof trackedStep extends fc.Arbitrary<infer T> ? T : never

function is<const Name extends string>(name: Name): fc.Arbitrary<Name> {
  return fc.constant(name)
}

function of<Its extends object>(weight: number, its: { [Field in keyof Its]: fc.Arbitrary<Its[Field]> }) {
  return { weight, arbitrary: fc.record(its) as unknown as fc.Arbitrary<Its> }
}
