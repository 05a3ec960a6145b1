/**
 * What became of the items that `busbar work` has tried.
 *
 *   done     the command ended well
 *   failed   its last try failed, and it waits for the next one
 *   dead     given up after its last attempt
 */
import type { TelemetryListener } from '../runtime/telemetry.ts'

export interface Tallied {
  done: number
  failed: number
  dead: number
}

export class Tally {
  #done = 0
  #dead = 0
  readonly #failed = new Set<string>()

  get counts(): Tallied {
    return { done: this.#done, failed: this.#failed.size, dead: this.#dead }
  }

  done(id: string): void {
    this.#failed.delete(id)
    this.#done += 1
  }

  /** Failures are heard of: also what took too long is one. */
  readonly listener: TelemetryListener = ({ name, fields }) => {
    const id = String(fields.id)
    if (name === 'queue.failed') this.#failed.add(id)
    if (name !== 'queue.buried') return
    this.#failed.delete(id)
    this.#dead += 1
  }
}
