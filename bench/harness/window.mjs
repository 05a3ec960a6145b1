/**
 * The sliding window that drives every contender: `width` calls are in flight, each completion starts the next.
 *
 * Written once and shared, so that nobody wins by a better loop. It ends by count or by time; what was started is always
 * waited for. `call(i)` gets consecutive numbers from `first` on.
 */

/**
 * @param {{ width: number, first?: number, count?: number, forMs?: number, latencies?: Float64Array, call: (i: number) => Promise<unknown> }} options
 * @returns {Promise<{ calls: number, seconds: number }>}
 */
export function slidingWindow({ width, first = 0, count = Number.POSITIVE_INFINITY, forMs, latencies, call }) {
  return new Promise((resolve, reject) => {
    const startedAt = performance.now()
    const endsAt = forMs === undefined ? Number.POSITIVE_INFINITY : startedAt + forMs
    let started = 0
    let finished = 0
    let open = true

    const timeIsUp = () => {
      // One look at the clock per 64 calls: at 200,000 calls a second that is every 0.3 ms.
      if ((started & 63) === 0 || width === 1) open = performance.now() < endsAt
      return !open
    }
    const settle = () => {
      finished += 1
      startNext()
      if (finished === started) resolve({ calls: finished, seconds: (performance.now() - startedAt) / 1000 })
    }
    const startNext = () => {
      if (!open || started === count || timeIsUp()) return
      const n = started
      started += 1
      try {
        if (latencies === undefined || n >= latencies.length) call(first + n).then(settle, reject)
        else timed(latencies, n, call, first).then(settle, reject)
      } catch (error) {
        reject(error)
      }
    }
    for (let i = 0; i < width; i += 1) startNext()
    if (started === 0) resolve({ calls: 0, seconds: 0 })
  })
}

async function timed(latencies, n, call, first) {
  const before = performance.now()
  await call(first + n)
  latencies[n] = performance.now() - before
}
