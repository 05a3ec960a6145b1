/**
 * Tells of events that gave way because their webhook keeps no more: at once, then at most every ten seconds, with what has come to it since.
 * How many they are in all is counted where they were.
 */
import type { Clock } from '../../runtime/clock.ts'
import type { Telemetry } from '../../runtime/telemetry.ts'

export interface DropsContext {
  clock: Clock
  telemetry: Telemetry
}

const everyMs = 10_000

export class Drops {
  readonly #context: DropsContext
  readonly #known = new Map<string, { untold: number; nextAt: number }>()

  constructor(context: DropsContext) {
    this.#context = context
  }

  add(webhook: string, events: number): void {
    const { clock, telemetry } = this.#context
    if (events === 0) return
    const now = clock.monotonicMs()
    const { untold, nextAt } = this.#known.get(webhook) ?? { untold: 0, nextAt: now }
    const all = untold + events
    const isTold = now >= nextAt
    if (isTold) telemetry.emit('webhook.dropped', { webhook, events: all })
    this.#known.set(webhook, isTold ? { untold: 0, nextAt: now + everyMs } : { untold: all, nextAt })
  }
}
