/**
 * A loop that works only while this process leads: it looks when it is due, when it is hinted at, and now and then anyway,
 * because hints get lost.
 */
import type { Leadership } from '../group/leadership.ts'
import type { Hints } from '../redis/hints.ts'
import type { Clock, Timer } from '../runtime/clock.ts'
import { type Loop, type LoopContext, startLoop } from '../runtime/loop.ts'

export interface DutyContext extends LoopContext {
  /** Time as the network has it, also where a test stops the clock: sweeps make up for lost hints. */
  network: Clock
  leadership: Leadership
  hints: Hints
  /** The channel of hints for the leader. */
  channel: string
}

export interface Duty {
  /** What it looks at changes with real time, also where a test moves the clock. */
  readonly waitsForReal?: boolean
  /** A new leadership begins: what was known before may be wrong. */
  begin(): void
  /** Takes a hint in; answers whether it is worth a look. */
  hear(message: string): boolean
  /** Does what is due; answers in how many ms there is more, as far as it knows. */
  turn(): Promise<number>
}

// How long a lost hint goes unnoticed.
export const sweepMs = 10_000
// The longest that a timer can wait; what is due later is looked at in between.
const maxAlarmMs = 2 ** 31 - 1

export function startDuty(context: DutyContext, name: string, duty: Duty): Loop {
  const { clock, network, leadership, hints, channel } = context
  let alarm: Timer | undefined
  let unlisten: (() => void) | undefined
  const loop = startLoop({ ...context, clock: network }, name, async () => {
    alarm?.cancel()
    if (!leadership.isLeader) {
      unlisten?.()
      unlisten = undefined
      return { againInMs: sweepMs }
    }
    if (!unlisten) {
      unlisten = await hints.listen(channel, (message) => {
        if (duty.hear(message)) loop.wake()
      })
      duty.begin()
    }
    const inMs = await duty.turn()
    if (Number.isFinite(inMs))
      alarm = (duty.waitsForReal ? network : clock).after(Math.min(inMs, maxAlarmMs), () => loop.wake())
    return { againInMs: sweepMs }
  })
  const forget = leadership.onChange(() => loop.wake())
  return {
    name,
    wake: loop.wake,
    async stop(options) {
      forget()
      const ended = await loop.stop(options)
      alarm?.cancel()
      unlisten?.()
      return ended
    },
  }
}
