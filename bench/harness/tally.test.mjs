/** The tally finds what a consumer can get wrong. Run with `npm test` in bench/. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { eventSource } from './events.mjs'
import { repeatsAndLosses, Tally } from './tally.mjs'

const count = 1_000
const keys = 50
const published = () =>
  Array.from({ length: count }, (_, i) => i)
    .map(eventSource(keys))
    .map(({ data }) => data)

function problemsWith(plant) {
  const events = published()
  plant(events)
  const tally = new Tally(count, keys)
  for (const data of events) tally.saw(data)
  return tally.problems().join('\n')
}

test('everything once and in order has no problems', () => {
  assert.equal(
    problemsWith(() => {}),
    '',
  )
})

const violations = {
  'a lost event': [(events) => events.splice(300, 1), /999 events handled/],
  'a lost last event': [(events) => events.pop(), /999 events handled/],
  'a repeated event': [(events) => events.splice(300, 0, events[300]), /where \d+ is next/],
  'one lost and another repeated': [(events) => events.splice(300, 1, events[10]), /where \d+ is next/],
  'a key out of order': [(events) => events.reverse(), /where 0 is next/],
}
for (const [name, [plant, expected]] of Object.entries(violations))
  test(`${name} is found`, () => assert.match(problemsWith(plant), expected))

test('the last expected event is announced once', () => {
  const tally = new Tally(count, keys)
  const announced = published().map((data) => tally.saw(data))
  assert.equal(announced.indexOf(true), count - 1)
})

test('what several consumers lose or share is found', () => {
  assert.deepEqual(repeatsAndLosses([[0, 2], [1]], 3), [])
  assert.match(repeatsAndLosses([[0], [1]], 3)[0], /^1 of 3 events were handled by nobody/)
  assert.match(
    repeatsAndLosses(
      [
        [0, 2],
        [1, 2],
      ],
      3,
    )[0],
    /^1 of 3 events were handled more than once/,
  )
})
