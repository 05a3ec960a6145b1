/** What may happen to the webhooks of a shard, by chance. */
import fc from 'fast-check'
import type { Outcome } from '../../src/lanes/acts.ts'
import type { Ended } from '../../src/sinks/webhook/scripts.ts'
import type { HookLimits } from './reference.ts'

export const hookNames = ['a', 'b', 'c']
export const partitions = 2

/** Two have most to do. */
const name = fc.constantFrom<string>('a', 'a', 'b', 'b', 'c')
const lease = fc.nat(20)
const many = fc.constantFrom(0, 1, 1, 2, 3, 8)
const batches = fc.array(fc.nat(9), { minLength: 1, maxLength: 3 })

/** Few and small: so that batches are full, too big, due and too many within some steps. */
export const limits: fc.Arbitrary<HookLimits> = fc.record({
  maxEvents: fc.constantFrom(1, 2, 3, 5),
  maxWaitMs: fc.constantFrom(0, 60, 60, 400),
  maxBytes: fc.constantFrom(150, 150, 10_000),
  keepEvents: fc.constantFrom(3, 8, 1_000, 1_000),
})

/** Of a webhook: the limits of its batches, its format, how many sequences it is to have if it is new. */
const definition = fc.record({ limits, format: fc.nat(1), sequences: fc.constantFrom(1, 3) })
export const definitions = fc.record({
  a: definition.map((its) => ({ ...its, sequences: 1 })),
  b: definition.map((its) => ({ ...its, sequences: 3 })),
  c: definition,
})
export type Definitions = typeof definitions extends fc.Arbitrary<infer T> ? T : never

const event = fc.record({ sequence: fc.nat(2), size: fc.constantFrom(0, 0, 0, 30, 200) })
const delivery = fc.record({
  name,
  events: fc.array(event, { minLength: 1, maxLength: 7 }),
  /** By whom it was routed: someone who knows the webhook as it is, mostly. */
  fence: fc.constantFrom('now', 'now', 'now', 'now', 'now', 'now', 'older', 'newer', 'earlier', 'unborn'),
})

const outcome: fc.Arbitrary<{ became: Ended['became']; outcome: Outcome }> = fc.oneof(
  { weight: 5, arbitrary: fc.constant({ became: 'delivered' as const, outcome: { kind: 'ack' as const } }) },
  {
    weight: 3,
    arbitrary: fc.constantFrom(0, 50, 500).map((afterMs) => ({
      became: 'failed' as const,
      outcome: { kind: 'retry' as const, afterMs, reason: 'busy' },
    })),
  },
  {
    weight: 2,
    arbitrary: fc.constant({ became: 'dead' as const, outcome: { kind: 'dead' as const, reason: 'poison' } }),
  },
  fc.constantFrom(50, 500).map((forMs) => ({
    became: 'throttled' as const,
    outcome: { kind: 'throttle' as const, forMs },
  })),
  fc.constant({ became: 'back' as const, outcome: { kind: 'back' as const } }),
)

/** How often which step comes, among 62. */
export const step = fc.oneof(
  of(14, { do: is('accept'), partition: fc.nat(1), deliveries: fc.array(delivery, { minLength: 1, maxLength: 3 }) }),
  of(2, { do: is('acceptAgain'), extra: fc.array(event, { maxLength: 2 }) }),
  of(1, { do: is('replay'), name, job: fc.nat(1), seqs: fc.array(fc.integer({ min: 1, max: 9 }), { minLength: 1 }) }),
  of(11, { do: is('claim'), n: many }),
  of(1, { do: is('claimAgain'), lease }),
  of(13, {
    ...{ do: is('end'), lease, batches, ending: outcome },
    ...{ isLogged: fc.boolean(), disables: fc.constantFrom(false, false, false, false, true) },
    ...{ claims: fc.constantFrom(-1, -1, 0, 3) },
  }),
  of(1, { do: is('renew'), lease }),
  of(7, { do: is('wait'), ms: fc.constantFrom(1, 60, 400, 1_500) }),
  of(3, { do: is('pause'), name, act: fc.constantFrom('pause' as const, 'resume' as const) }),
  of(1, { do: is('resume'), name }),
  of(2, { do: is('letters'), act: fc.constantFrom('redrive' as const, 'discard' as const), letters: batches }),
  of(1, { do: is('drop'), name, bytes: fc.constantFrom(1, 300, 10_000), most: fc.constantFrom(1, 2, 100) }),
  of(1, { do: is('rotate'), name, secret: fc.constantFrom('x', 'y', 'z') }),
  of(3, { do: is('define'), name, definition }),
  of(1, { do: is('remove'), name, most: fc.constantFrom(1, 3, 500) }),
  of(1, { do: is('inspect'), name, most: fc.constantFrom(2, 100) }),
)
export type Step = typeof step extends fc.Arbitrary<infer T> ? T : never

function is<const Name extends string>(its: Name): fc.Arbitrary<Name> {
  return fc.constant(its)
}

function of<Its extends object>(weight: number, its: { [Field in keyof Its]: fc.Arbitrary<Its[Field]> }) {
  return { weight, arbitrary: fc.record(its) as unknown as fc.Arbitrary<Its> }
}
