/** Timers of the real clock. */
import { expect, test } from 'vitest'
import { systemClock } from '../../src/runtime/clock.ts'

test('a time that is longer than Node can count does not come at once', async () => {
  let hasCome = false
  const timer = systemClock.after(25 * 86_400_000, () => {
    hasCome = true
  })
  await new Promise((resolve) => setTimeout(resolve, 20))
  timer.cancel()
  expect(hasCome).toBe(false)
})
