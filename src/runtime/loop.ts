/**
 * Background work has one shape: a name and one turn.
 *
 *   waiting   until the time the last turn asked for, or a wake()
 *   turning   one turn runs; never two at once; a wake() during it means one more turn right after
 *   stopped   for good
 *
 * A turn answers in how many ms it wants to run again. A turn that throws is reported as `loop.failed` and backs off;
 * it never ends the loop, and never the process.
 */
import type { Clock, Randomness, Timer } from './clock.ts'
import type { Telemetry } from './telemetry.ts'

export interface Loop {
  readonly name: string
  wake(): void
  /** Lets the running turn end, at most until the deadline. Answers whether it ended. */
  stop(options: { deadlineMs: number }): Promise<boolean>
}

export interface LoopContext {
  clock: Clock
  randomness: Randomness
  telemetry: Telemetry
}

const firstBackoffMs = 100
const maxBackoffMs = 10_000

export function startLoop(
  context: LoopContext,
  name: string,
  turn: (signal: AbortSignal) => Promise<{ againInMs: number }>,
): Loop {
  const { clock, randomness, telemetry } = context
  const stopping = new AbortController()
  let timer: Timer | undefined
  let turning: Promise<void> | undefined
  let wokenMeanwhile = false
  let failures = 0

  const jittered = (ms: number) => ms * (0.9 + 0.2 * randomness.float())

  async function runTurn(): Promise<number> {
    try {
      const { againInMs } = await turn(stopping.signal)
      failures = 0
      return againInMs
    } catch (error) {
      failures += 1
      telemetry.emit('loop.failed', { loop: name, failures, problem: String(error) })
      return Math.min(maxBackoffMs, firstBackoffMs * 2 ** Math.min(failures - 1, 10))
    }
  }

  function begin(): void {
    timer?.cancel()
    timer = undefined
    wokenMeanwhile = false
    turning = runTurn().then((againInMs) => {
      turning = undefined
      if (stopping.signal.aborted) return
      if (wokenMeanwhile && failures === 0) begin()
      else timer = clock.after(jittered(againInMs), begin)
    })
  }

  begin()
  return {
    name,
    wake() {
      if (stopping.signal.aborted) return
      if (turning) wokenMeanwhile = true
      else begin()
    },
    async stop({ deadlineMs }) {
      stopping.abort()
      timer?.cancel()
      const running = turning
      if (!running) return true
      let deadline: Timer | undefined
      const late = new Promise<boolean>((resolve) => {
        deadline = clock.after(deadlineMs, () => resolve(false))
      })
      const ended = await Promise.race([running.then(() => true), late])
      deadline?.cancel()
      return ended
    },
  }
}
