/** Windows that are not exact are found. Run with `npm test` in bench/. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { countExactWindows } from './windows.mjs'

const weights = { a: 3, b: 2, c: 1 }
const turns = (text) => [...text]

test('rounds in any fixed order are exact in every window', () => {
  assert.deepEqual(countExactWindows(turns('aaabbcaaabbcaaabbc'), weights), { windows: 13, exact: 13 })
  assert.deepEqual(countExactWindows(turns('abacabbacaba'.slice(0, 6)), weights), { windows: 1, exact: 1 })
})

test('two rounds that are exact each but not together are found', () => {
  assert.deepEqual(countExactWindows(turns('aaabbccbbaaa'), weights), { windows: 7, exact: 2 })
})

test('a swapped turn spoils every window that it divides', () => {
  const { windows, exact } = countExactWindows(turns('aaabbcaaabcbaaabbc'), weights)
  assert.equal(windows, 13)
  assert.equal(exact, 11)
})

test('a stranger and a tenant that is left out are found', () => {
  assert.deepEqual(countExactWindows(turns('aaabbx'), weights), { windows: 1, exact: 0 })
  assert.deepEqual(countExactWindows(turns('aaabbb'), weights), { windows: 1, exact: 0 })
  assert.deepEqual(countExactWindows(turns('aaabb'), weights), { windows: 0, exact: 0 })
})
