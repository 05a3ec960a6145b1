/**
 * One measurement in its own process, so that heaps and compiled code of one contender do not disturb the next.
 *
 *   drive   open the workload, warm up, measure, report, close
 *   work    open the workload, let it measure itself to its end, close
 *   hold    open the workload, say it is ready, stay until told to stop, close
 *
 * A workload is a file with `open(options)`; it returns `close()` and
 *   to be driven  `call(i)`, optionally `eventsPerCall` and `stored()` (how many events the store really has),
 *   to work       `work()`, which answers with what it measured and with `problems`, a list of sentences,
 *   to be held    optionally `told(word)` for what the parent says meanwhile;
 * and optionally `report()`: what else the parent should know.
 * The process ends by itself: a handle left open after close() shows up as a warning in the parent.
 */
import { percentile } from './numbers.mjs'
import { slidingWindow } from './window.mjs'

const maxLatencies = 500_000
const modes = { drive, hold, work: (workload) => workload.work() }

process.once('message', async (job) => {
  const answer = await work(job).catch((error) => ({ kind: 'failed', error: error?.stack ?? String(error) }))
  // Only after it is sent: disconnecting drops what is still on its way, and acknowledgements take megabytes.
  process.send(answer, () => process.disconnect())
})

async function work(job) {
  const { open } = await import(job.workload)
  const workload = await open(job.options)
  const result = await modes[job.mode](workload, job)
  await workload.close()
  return { kind: 'done', result }
}

async function drive(workload, { width, warmMs, forMs, count, measureLatency }) {
  const { call, eventsPerCall = 1 } = workload
  const warm = await slidingWindow({ width, forMs: warmMs, count, call })
  const latencies = measureLatency ? new Float64Array(maxLatencies) : undefined
  const remaining = count === undefined ? undefined : count - warm.calls
  const timed = await slidingWindow({ width, first: warm.calls, forMs, count: remaining, latencies, call })

  const calls = warm.calls + timed.calls
  return {
    perSecond: (timed.calls * eventsPerCall) / timed.seconds,
    p50Ms: latencies && percentile(latencies.subarray(0, Math.min(timed.calls, maxLatencies)), 0.5),
    events: calls * eventsPerCall,
    stored: await workload.stored?.(),
    report: workload.report?.(calls),
  }
}

async function hold(workload) {
  const stopped = new Promise((resolve) => {
    process.on('message', (word) => (word === 'stop' ? resolve() : workload.told(word)))
  })
  process.send({ kind: 'ready' })
  await stopped
  return await workload.report?.()
}
