/** By how much Redis grows. Once, not in rounds: memory does not depend on how busy the machine is. */
import { measure } from './contest.mjs'
import { settle, usedMemory } from './settle.mjs'

/**
 * Runs a contender from an empty Redis and compares `used_memory` before and after, everything included. Undefined when
 * it failed, or was not asked for.
 */
export async function measureGrowth(run, contender) {
  const { control, progress, only } = run
  if (only && !only.includes('memory')) return undefined
  progress(contender.name)
  let before
  let after
  const measured = await measure(run, contender, {
    async rested() {
      before = await usedMemory(control)
    },
    async finished() {
      await settle(control)
      after = await usedMemory(control)
    },
  })
  if (measured === undefined) return undefined
  const bytesPerEvent = (after - before) / measured.figures.events
  progress(contender.name, `${bytesPerEvent.toFixed(0)} bytes`)
  return { bytesPerEvent, log: measured.log }
}
