/**
 * Random schedules of two routers: whatever is lost, late, paused or killed, each store has exactly what its subscription asked for.
 *
 * A failure names its seed; `new Schedule(seed, { steps, trace: console.log })` shows what happened in it.
 */
import { expect, test } from 'vitest'
import type { Bug } from './model.ts'
import { Schedule } from './schedule.ts'

const schedules = 20_000
const steps = 80

/** The first schedule in which something went wrong. */
async function firstProblem(bug?: Bug, reports = new Set<string>(), counted = { straight: 0 }) {
  for (let seed = 0; seed < schedules; seed += 1) {
    const schedule = new Schedule(seed, { steps, bug })
    const problem = await schedule.run()
    for (const report of schedule.reports) reports.add(report)
    counted.straight += schedule.takenStraight
    if (problem) return `seed ${seed}: ${problem}`
  }
  return undefined
}

test('every event is in every store that asked for it, once and in order', { timeout: 120_000 }, async () => {
  const reports = new Set<string>()
  const counted = { straight: 0 }
  expect(await firstProblem(undefined, reports, counted)).toBeUndefined()
  expect(counted.straight).toBeGreaterThan(1_000)
  // They come upon all there is.
  expect([...reports].sort()).toEqual(['sink.behind', 'sink.behind: no answer', 'sink.caught-up', 'sink.remade'])
})

// Each rule that looks fussy answers a loss: without it the same schedules find one.
test.each([
  ['a store that does not compare revisions', 'no-revision-check'],
  ['new subscriptions that just ride with main', 'created-just-ride'],
  ['a join under any revision', 'join-any-revision'],
  ['a creator that dies between table and store, and routers that do not mind', 'gone-is-accepted'],
  ['a store that takes any life of its subscription for its own', 'no-born'],
  ['an event that is taken straight from the log before those in front of it', 'takes-the-last'],
] as const)('found: %s', { timeout: 120_000 }, async (_, bug) => {
  expect(await firstProblem(bug)).toMatch(/missing|too much|after|another life/)
})
