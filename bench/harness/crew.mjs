/**
 * Several worker processes of one processor: how fast they are together, and how many partitions move when one joins.
 */
import { drive, hold } from './child.mjs'
import { committedUpTo, dividedAmong, lastSeqs, moved } from './group.mjs'
import { flushAndSettle, settle } from './settle.mjs'
import { repeatsAndLosses } from './tally.mjs'

/**
 * Events a second that so many workers handle at `cpuMs` of CPU each.
 *
 * They join while the log is empty, and the events are stored while the workers wait: when they are told to go, the
 * partitions are divided and nothing but handling is left to do. The clock runs from then to the last event handled.
 */
export function measureCrew({ redis, control }, { workers, count, cpuMs }) {
  return withCrew(redis, { count, cpuMs }, async (crew) => {
    for (let n = 1; n <= workers; n += 1) await crew.add()
    await dividedAmong(control, workers)
    await drive({ workload: 'busbar-publish.mjs', width: 1_000, warmMs: 0, count, options: { redis } })
    await settle(control)

    const startedAt = performance.timeOrigin + performance.now()
    crew.tell('go')
    await committedUpTo(control, await lastSeqs(control), { pauseMs: 50 })
    const reports = await crew.stop()

    const seconds = (Math.max(...reports.map(({ lastAt }) => lastAt)) - startedAt) / 1000
    const handled = reports.map((report) => report.handled)
    const problems = [...reports.flatMap((report) => report.problems), ...repeatsAndLosses(handled, count)]
    return { perSecond: count / seconds, problems }
  })
}

/** Partitions that change their owner when the second worker joins, and when the third does. */
export async function measureMoves({ redis, control }) {
  await flushAndSettle(control)
  return withCrew(redis, { count: 0, cpuMs: 0 }, async (crew) => {
    const divisions = []
    for (let workers = 1; workers <= 3; workers += 1) {
      await crew.add()
      divisions.push(await dividedAmong(control, workers))
    }
    await crew.stop()
    const [one, two, three] = divisions
    return [moved(one, two), moved(two, three)]
  })
}

/** Whatever happens, no worker outlives `work`. */
async function withCrew(redis, options, work) {
  const workers = []
  const crew = {
    async add() {
      const worker = `w${workers.length + 1}`
      workers.push(await hold({ workload: 'busbar-worker.mjs', options: { redis, worker, ...options } }))
    },
    tell: (word) => {
      for (const worker of workers) worker.tell(word)
    },
    stop: () => Promise.all(workers.map((worker) => worker.stop())),
  }
  try {
    return await work(crew)
  } finally {
    for (const worker of workers) worker.kill()
  }
}
