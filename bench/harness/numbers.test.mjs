/** What takes turns is compared within its round. Run with `npm test` in bench/. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { medianPair } from './numbers.mjs'

const rounds = (...pairs) => pairs.map(([own, other]) => ({ own, other }))

test('the pair is of the round whose ratio is in the middle, whatever its figures are', () => {
  assert.deepEqual(medianPair(rounds([10, 20], [90, 100], [35, 50]), 'own', 'other'), [35, 50])
  assert.deepEqual(medianPair(rounds([60, 100], [6, 20], [1, 10]), 'own', 'other'), [6, 20])
})

test('of an even number it is the lower one in the middle, of one that one, of none nothing', () => {
  assert.deepEqual(medianPair(rounds([4, 10], [2, 10], [1, 10], [3, 10]), 'own', 'other'), [2, 10])
  assert.deepEqual(medianPair(rounds([1, 2]), 'own', 'other'), [1, 2])
  assert.deepEqual(medianPair([], 'own', 'other'), [undefined, undefined])
})
