/**
 * Two queues that take turns in one process, for what differs by less than the machine does from one process to the next.
 *
 * Twice, and each comes first in one of the two processes: whose code is loaded and compiled first is slower all the while, by 2 to 12 %, as two
 * copies of one build show.
 */
import { drive } from './child.mjs'
import { flushAndSettle } from './settle.mjs'

/**
 * @param {string} name
 * @param {[object, object]} those  definition and build of each: `perSecond` is of the first, `otherPerSecond` of the second
 * @returns {import('./contest.mjs').Contender}
 */
export function byTurns(name, those, { warmMs, measureMs }) {
  const turns = ({ redis }, queues) =>
    drive({ mode: 'work', workload: 'busbar-queue-by-turns.mjs', options: { redis, those: queues, warmMs, measureMs } })
  return {
    name,
    async conduct(run) {
      const ahead = await turns(run, those)
      await flushAndSettle(run.control)
      const behind = await turns(run, those.toReversed())
      return {
        perSecond: (ahead.perSecond + behind.otherPerSecond) / 2,
        otherPerSecond: (ahead.otherPerSecond + behind.perSecond) / 2,
        problems: [...ahead.problems, ...behind.problems],
      }
    },
  }
}
