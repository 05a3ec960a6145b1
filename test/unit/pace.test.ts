/** How many items a worker claims before there is a slot for them. */
import { expect, test } from 'vitest'
import { Pace } from '../../src/sinks/queue/pace.ts'

/** `perMs` handlers end in each of so many ms; answers when it is. */
function ends(pace: Pace, fromMs: number, ms: number, perMs: number): number {
  for (let now = fromMs; now < fromMs + ms; now += 1) {
    pace.ended(perMs)
    pace.ahead(now + 1)
  }
  return fromMs + ms
}

test('a quarter at first, and with handlers of some ms', () => {
  const pace = new Pace(100, 0)
  expect(pace.ahead(0)).toBe(25)
  const now = ends(pace, 0, 500, 1)
  expect(pace.ahead(now)).toBe(25)
})

test('what ends within 5 ms, when that is more', () => {
  const pace = new Pace(100, 0)
  const now = ends(pace, 0, 500, 40)
  expect(pace.ahead(now)).toBe(200)
})

test('nothing as soon as a whole second has shown that less than a quarter ends in one', () => {
  const pace = new Pace(100, 0)
  const now = ends(pace, 0, 500, 40)
  // The second in which they got slow, and the first that was slow from its beginning.
  expect(pace.isSlow(now + 500)).toBe(false)
  expect(pace.isSlow(now + 1_500)).toBe(true)
  expect(pace.ahead(now + 1_500)).toBe(0)
})

test('a rest is not slowness', () => {
  const pace = new Pace(100, 0)
  pace.rested(60_000)
  expect(pace.ahead(60_001)).toBe(25)
})

test('a single slot is never slow: nothing is claimed ahead for it but what ends at once', () => {
  const pace = new Pace(1, 0)
  expect(pace.ahead(5_000)).toBe(0)
  expect(pace.isSlow(10_000)).toBe(false)
})
