/** Ids are written quickly; the plain way of writing them is the measure. */
import fc from 'fast-check'
import { expect, test } from 'vitest'
import { idWriter } from '../../src/event.ts'

test('neighbours, jumps and small numbers: as the partition and the seq, plainly written', () => {
  const step = fc.oneof(fc.constant(1), fc.integer({ min: -1_000_000, max: 1_000_000 }))
  const start = fc.oneof(fc.integer({ min: 1, max: 2_000_000 }), fc.integer({ min: 1, max: 2 ** 53 - 1 }))
  fc.assert(
    fc.property(fc.nat(255), start, fc.array(step, { maxLength: 20 }), (partition, first, steps) => {
      const idOf = idWriter(partition)
      let seq = first
      for (const by of [0, ...steps]) {
        seq = Math.min(Math.max(seq + by, 1), Number.MAX_SAFE_INTEGER)
        expect(idOf(seq)).toBe(`${partition}-${seq}`)
      }
    }),
  )
})
