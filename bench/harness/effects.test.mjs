/** What effects of several processes can get wrong is found. Run with `npm test` in bench/. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { judgeEffects } from './effects.mjs'
import { keyNumberOf } from './events.mjs'

const all = { count: 1_000, keys: 10 }
const inOrder = Array.from({ length: all.count }, (_, i) => i)
const [first, second, third] = inOrder.filter((i) => keyNumberOf(i, all.keys) === 3)
const rest = inOrder.filter((i) => ![first, second, third].includes(i) && keyNumberOf(i, all.keys) !== 3)
const ofKey = inOrder.filter((i) => keyNumberOf(i, all.keys) === 3).slice(3)

const cases = {
  'everything in order': [inOrder, { outOfOrder: 0, again: 0, missing: 0 }],
  'the last of a key once more': [
    [...rest, first, first, second, third, ...ofKey],
    { outOfOrder: 0, again: 1, missing: 0 },
  ],
  'a swapped pair': [[...rest, second, first, third, ...ofKey], { outOfOrder: 1, again: 0, missing: 0 }],
  'an earlier one once more': [
    [...rest, first, second, first, third, ...ofKey],
    { outOfOrder: 1, again: 0, missing: 0 },
  ],
  'one that is missing': [[...rest, first, third, ...ofKey], { outOfOrder: 0, again: 0, missing: 1 }],
}
for (const [name, [effects, expected]] of Object.entries(cases))
  test(name, () => assert.deepEqual(judgeEffects(effects, all), expected))
