/** How many items a worker claims before there is a slot for them. */
import { expect, test } from 'vitest'
import { Pace } from '../../src/sinks/queue/pace.ts'

/** `perMs` handlers end in each of so many ms; answers when it is. */
function ends(pace: Pace, fromMs: number, ms: number, perMs: number): number {
  for (let now = fromMs; now < fromMs + ms; now += 1) {
    pace.ended(perMs)
    pace.ahead(now + 1)
    pace.keeps(now + 1)
  }
  return fromMs + ms
}

test('a quarter at first, and with handlers of some ms', () => {
  const pace = new Pace(100, 0)
  expect(pace.ahead(0)).toBe(25)
  const now = ends(pace, 0, 500, 1)
  expect(pace.ahead(now)).toBe(25)
})

test('what ends within 8 ms, when that is more', () => {
  const pace = new Pace(100, 0)
  const now = ends(pace, 0, 500, 40)
  expect(pace.ahead(now)).toBe(320)
})

test('nothing as soon as a whole second has shown that less than a quarter ends in one', () => {
  const pace = new Pace(100, 0)
  const now = ends(pace, 0, 500, 40)
  // The second in which they got slow, and the first that was slow from its beginning.
  expect(pace.ahead(now + 500)).toBe(25)
  expect(pace.ahead(now + 1_500)).toBe(0)
})

test('what was claimed ahead stays as long as it begins within 100 ms, and a quarter for a second', () => {
  const pace = new Pace(100, 0)
  let now = ends(pace, 0, 500, 40)
  expect(pace.keeps(now)).toBe(4_000)
  now = ends(pace, now, 500, 1)
  expect(pace.keeps(now)).toBe(100)
  expect(pace.keeps(now + 200)).toBe(25)
  expect(pace.keeps(now + 2_200)).toBe(0)
})

test('a rest is not slowness', () => {
  const pace = new Pace(100, 0)
  pace.rested(60_000)
  expect(pace.ahead(60_001)).toBe(25)
})

test('behind a single slot nothing stays that does not begin soon', () => {
  const pace = new Pace(1, 0)
  const now = ends(pace, 0, 480, 40)
  expect(pace.ahead(now)).toBe(320)
  pace.keeps(now + 100)
  expect(pace.ahead(now + 200)).toBe(0)
  expect(pace.keeps(now + 200)).toBe(0)
})
