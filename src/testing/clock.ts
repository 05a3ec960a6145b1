/**
 * A clock that stands still until a test moves it.
 *
 *   still      `now` answers the same; timers wait
 *   advancing  moves from one due timer to the next, in due order, and lets what each one sets off settle before the next
 *   released   the test is over: timers run in real time, so that closing can give up on what does not end
 *
 * What waits for an answer from Redis never waits here: it uses `network`, which is real time.
 */
import { type Clock, systemClock } from '../runtime/clock.ts'

export interface TestClock extends Clock {
  serverUs(): number
  /** Resolves when everything due by then has run. `settle` waits until what a timer set off has come to rest. */
  advance(ms: number, settle: () => Promise<void>): Promise<void>
  release(): void
}

interface Waiting {
  readonly at: number
  readonly fn: () => void
}

export function createTestClock(): TestClock {
  const startedAt = Date.now()
  const waiting = new Set<Waiting>()
  let nowMs = startedAt
  let released = false
  let advancing = Promise.resolve()

  async function advanceTo(target: number, settle: () => Promise<void>): Promise<void> {
    // Whatever was begun before has armed its timers by now.
    await settle()
    for (let due = nextDue(waiting, target); due; due = nextDue(waiting, target)) {
      waiting.delete(due)
      nowMs = due.at
      due.fn()
      await settle()
    }
    nowMs = target
  }

  return {
    now: () => nowMs,
    monotonicMs: () => nowMs - startedAt,
    serverUs: () => nowMs * 1000,
    network: systemClock,
    after(ms, fn) {
      if (released) return systemClock.after(ms, fn)
      // Never due at once, as with Node's timers: one that arms itself again and again still lets time go on.
      const timer = { at: nowMs + Math.max(1, Math.ceil(ms)), fn }
      waiting.add(timer)
      return { cancel: () => void waiting.delete(timer) }
    },
    advance(ms, settle) {
      const advanced = advancing.then(() => advanceTo(nowMs + ms, settle))
      advancing = advanced.catch(() => undefined)
      return advanced
    },
    release() {
      released = true
      waiting.clear()
    },
  }
}

/** Of those due at the same time, the one that was armed first. */
function nextDue(waiting: ReadonlySet<Waiting>, target: number): Waiting | undefined {
  let first: Waiting | undefined
  for (const timer of waiting)
    if (timer.at <= target && timer.at < (first?.at ?? Number.POSITIVE_INFINITY)) first = timer
  return first
}
