/**
 * What became of the items that `busbar work` has tried.
 *
 *   done     the command ended well
 *   failed   its last try failed, and it waits for the next one
 *   dead     given up after its last attempt
 *   parked   the same, and its object is set aside with it
 */
import type { TelemetryListener } from '../runtime/telemetry.ts'

export interface Tallied {
  done: number
  failed: number
  dead: number
  parked: number
}

export class Tally {
  #done = 0
  #dead = 0
  #parked = 0
  readonly #failed = new Set<string>()

  get counts(): Tallied {
    return { done: this.#done, failed: this.#failed.size, dead: this.#dead, parked: this.#parked }
  }

  done(id: string): void {
    this.#failed.delete(id)
    this.#done += 1
  }

  /** Failures are heard of: also what took too long is one. */
  readonly listener: TelemetryListener = ({ name, fields }) => {
    const id = String(fields.id)
    if (name === 'queue.failed') this.#failed.add(id)
    if (name !== 'queue.buried' && name !== 'queue.parked') return
    this.#failed.delete(id)
    if (name === 'queue.buried') this.#dead += 1
    else this.#parked += 1
  }
}
