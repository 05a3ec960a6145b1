/** Once finds what a queue can get wrong. Run with `npm test` in bench/. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { eventSource } from './events.mjs'
import { Once } from './once.mjs'

const count = 1_000
const published = () => Array.from({ length: count }, (_, i) => i).map(eventSource())

function problemsWith(plant) {
  const events = published()
  plant(events)
  const once = new Once()
  for (const { data } of events) once.saw(data)
  return once.problems(count).join('\n')
}

test('everything once has no problems, in any order', () => {
  assert.equal(
    problemsWith((events) => events.reverse()),
    '',
  )
})

const violations = {
  'a lost event': [(events) => events.splice(300, 1), /^1 of 1000 events were never handled$/],
  'a repeated event': [(events) => events.splice(300, 0, events[7]), /^events were handled again 1 times$/],
  'one lost and another repeated': [(events) => events.splice(300, 1, events[7]), /never handled\nevents .* again 1/],
  'an event of nobody': [(events) => events.push(eventSource()(count)), /^event 1000 was handled but never published$/],
}
for (const [name, [plant, expected]] of Object.entries(violations))
  test(`${name} is found`, () => assert.match(problemsWith(plant), expected))

test('of keys in order a swapped pair is found', () => {
  const keys = 10
  const events = Array.from({ length: count }, (_, i) => i).map(eventSource(keys))
  const inOrder = new Once({ inOrder: true, keys })
  for (const { data } of events) inOrder.saw(data)
  assert.deepEqual(inOrder.problems(count), [])

  const [first, second] = events.filter(({ key }) => key === events[0].key)
  const swapped = new Once({ inOrder: true, keys })
  for (const { data } of [second, first, ...events.filter((one) => one !== first && one !== second)]) swapped.saw(data)
  assert.deepEqual(swapped.problems(count), ['3 events were not the next of their key'])
})

test('waits until so many are handled', async () => {
  const once = new Once()
  const [first, second] = published()
  const both = once.until(2)
  once.saw(first.data)
  await once.until(1)
  once.saw(second.data)
  await both
})
