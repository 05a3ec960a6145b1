/**
 * The one clock of a run: CLOCK_MONOTONIC in µs. All processes of a machine read the same one, so what a worker stamps
 * and what the harness stamps can be compared, however late a line is read.
 */

export const nowUs = () => Number(process.hrtime.bigint() / 1000n)

/** Asks until it is true; answers whether it became so in time. */
export async function until(condition, { timeoutMs, everyMs = 10 }) {
  const deadline = nowUs() + timeoutMs * 1000
  for (;;) {
    if (await condition()) return true
    if (nowUs() > deadline) return false
    await new Promise((resolve) => setTimeout(resolve, everyMs))
  }
}
