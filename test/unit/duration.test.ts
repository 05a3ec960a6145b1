import fc from 'fast-check'
import { expect, test } from 'vitest'
import {
  type Bytes,
  type Duration,
  formatBytes,
  formatDuration,
  type Parsed,
  parseBytes,
  parseDuration,
} from '../../src/duration.ts'

const read = (parsed: Parsed<number>) => (parsed.ok ? parsed.value : parsed.problem)

test.each<[Duration, number]>([
  [0, 0],
  [250, 250],
  ['250ms', 250],
  ['30s', 30_000],
  ['5m', 300_000],
  ['2h', 7_200_000],
  ['7d', 604_800_000],
  ['1.5h', 5_400_000],
  ['1.1s', 1_100],
  ['0s', 0],
])('the duration %j is %d ms', (given, ms) => expect(parseDuration(given)).toEqual({ ok: true, value: ms }))

test.each<[Bytes, number]>([
  [0, 0],
  [1024, 1024],
  ['10B', 10],
  ['256kB', 256_000],
  ['256KiB', 262_144],
  ['1MB', 1_000_000],
  ['1MiB', 1_048_576],
  ['2GB', 2_000_000_000],
  ['2GiB', 2_147_483_648],
  ['0.5MiB', 524_288],
])('the size %j is %d bytes', (given, bytes) => expect(parseBytes(given)).toEqual({ ok: true, value: bytes }))

test('text from the environment may have a space, another case or no unit', () => {
  expect(read(parseDuration('30 S'))).toBe(30_000)
  expect(read(parseDuration(' 500 '))).toBe(500)
  expect(read(parseBytes('64mib'))).toBe(64 * 2 ** 20)
  expect(read(parseBytes('1048576'))).toBe(1_048_576)
})

const unreadable = [
  '',
  ' ',
  's',
  '10 sec',
  '10sec',
  '-5s',
  '+5s',
  '1e3s',
  '0x10',
  '1,5s',
  '1..5s',
  '5s5s',
  '5s\n6s',
  '∞',
]
const notAmounts = [...unreadable, null, undefined, true, {}, [], ['5s'], Number.NaN, Number.POSITIVE_INFINITY, -1, 5n]

test.each(notAmounts)('%s is neither a duration nor a size, and the problem says what is accepted', (given) => {
  expect(read(parseDuration(given))).toMatch(/^must be a duration like "250ms", .* or a number of ms$/)
  expect(read(parseBytes(given))).toMatch(/^must be a size like "256kB", .* or a number of bytes$/)
})

test('a unit of the other kind is not accepted', () => {
  expect(parseDuration('5MB').ok).toBe(false)
  expect(parseBytes('5m').ok).toBe(false)
})

test('amounts beyond exact integers are refused', () => {
  expect(read(parseDuration('9999999999999999d'))).toMatch(/below 2\^53/)
  expect(read(parseBytes(2 ** 53))).toMatch(/below 2\^53/)
  expect(parseDuration(`${'9'.repeat(10_000)}s`).ok).toBe(false)
})

test('what is shown reads back as the same amount', () => {
  expect([formatDuration(604_800_000), formatDuration(90_000), formatDuration(0)]).toEqual(['7d', '90s', '0ms'])
  expect([formatBytes(16 * 2 ** 20), formatBytes(1_000_000), formatBytes(7)]).toEqual(['16MiB', '1MB', '7B'])
  fc.assert(
    fc.property(fc.maxSafeNat(), (amount) => {
      expect(read(parseDuration(formatDuration(amount)))).toBe(amount)
      expect(read(parseBytes(formatBytes(amount)))).toBe(amount)
    }),
  )
})
