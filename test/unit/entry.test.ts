import { execFileSync } from 'node:child_process'
import { join } from 'node:path'
import fc from 'fast-check'
import { expect, test } from 'vitest'
import { countOf, type Entry, entryRecords, envelopesOf } from '../../src/log/entry.ts'

const entryOf = (envelopes: readonly string[], last = 1_000_000): Entry => [
  `${last}-0`,
  [envelopes.map((_, i) => (i % 2 ? String(i) : '')).join(' '), envelopes.map((one) => `\x1e${one}`).join('')],
]

// Around the size of the pieces that an entry is cut into, and of more bytes than characters.
const envelope = fc
  .tuple(fc.constantFrom('x', 'é', '🚌', '\n'), fc.constantFrom(1, 7, 500, 2_047, 2_048, 2_049, 5_000))
  .map(([text, times]) => `{"type":"a","tenant":"b"}\n"${text.repeat(times)}"`)

test('an entry is read as it was written, whatever the sizes of its events', () => {
  fc.assert(
    fc.property(fc.array(envelope, { minLength: 1, maxLength: 40 }), fc.nat(45), (envelopes, passed) => {
      const entry = entryOf(envelopes)
      expect(envelopesOf(entry)).toEqual(envelopes)
      expect(countOf(entry)).toBe(envelopes.length)
      const first = 1_000_000 - envelopes.length + 1
      expect(entryRecords(3, entry, first - 1 + passed)).toEqual(
        envelopes
          .map((one, i) => ({ partition: 3, seq: first + i, prev: i % 2 ? String(i) : '', envelope: one }))
          .slice(passed),
      )
    }),
    { numRuns: 200 },
  )
})

test('whoever keeps one event of each entry does not keep the entries', () => {
  const code = `
    import { envelopesOf } from ${JSON.stringify(join(import.meta.dirname, '../../dist/log/entry.js'))}
    const used = () => (gc(), process.memoryUsage().heapUsed)
    const before = used()
    const kept = []
    for (let i = 0; i < 500; i += 1) {
      const records = Array.from({ length: 256 }, (_, n) => '\\x1e{"type":"a"}\\n"' + i + n + 'x'.repeat(400) + '"').join('')
      kept.push(envelopesOf(['1-0', ['', Buffer.from(records).toString()]])[100].slice(5, 40))
    }
    console.log((used() - before) / kept.length)`
  const bytes = Number(
    execFileSync(process.execPath, ['--expose-gc', '--input-type=module', '-e', code], { encoding: 'utf8' }),
  )
  expect(bytes).toBeGreaterThan(0)
  expect(bytes).toBeLessThan(8_192)
})
