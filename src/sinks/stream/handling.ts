/** What both ways to handle events have in common: what a handler is told, and how a failure is reported. */
import { errorText } from '../../errors.ts'
import type { Event } from '../../event.ts'
import type { Clock, Randomness } from '../../runtime/clock.ts'
import type { Telemetry } from '../../runtime/telemetry.ts'
import type { HeldPartition } from './held-partition.ts'
import type { ProcessorContext, ProcessorSettings } from './options.ts'

export class HandlingContext {
  readonly name: string
  readonly settings: ProcessorSettings
  readonly clock: Clock
  readonly randomness: Randomness
  readonly #telemetry: Telemetry

  constructor(
    name: string,
    settings: ProcessorSettings,
    { clock, randomness, telemetry }: { clock: Clock; randomness: Randomness; telemetry: Telemetry },
  ) {
    this.name = name
    this.settings = settings
    this.clock = clock
    this.randomness = randomness
    this.#telemetry = telemetry
  }

  /** `attempt` is asked when the handler asks: it depends on what is in its hand. */
  tell(held: HeldPartition, attempt: () => number): ProcessorContext {
    const { name } = this
    return {
      processor: name,
      partition: held.partition,
      epoch: held.epoch,
      signal: held.signal,
      get attempt() {
        return attempt()
      },
    }
  }

  report(held: HeldPartition, event: Event | undefined, attempt: number, error: unknown): void {
    this.#telemetry.emit('stream.failed', {
      processor: this.name,
      partition: held.partition,
      event: event?.id,
      attempt,
      problem: errorText(error),
    })
  }
}
