/**
 * Tells a store what became of items: what comes together goes in one call, as many calls at a time as there are claims.
 *
 *   idle       nothing to say
 *   gathering  it goes when this tick has had its say
 *   sent       all of these have no answer yet; what comes now goes with the next
 *
 * A call without an answer is sent again: whoever is not held any more is stale and changes nothing.
 */
import { errorText } from '../../errors.ts'
import type { Settlement } from '../../lanes/acts.ts'
import type { LaneStore } from '../../lanes/store.ts'
import { type Connection, mayPass } from '../../redis/connection.ts'
import { Bag, type Placed } from '../../runtime/bag.ts'
import type { Clock } from '../../runtime/clock.ts'
import type { Telemetry } from '../../runtime/telemetry.ts'
import { within } from '../../runtime/within.ts'

/**
 * `unsure`: the call was repeated, so the item may have been settled by the one without an answer; `unsaid`: it ended before there
 * was an answer.
 */
export type Settled = 'settled' | 'stale' | 'unsure' | 'unsaid'

export interface SettlerContext {
  connection: Connection
  network: Clock
  telemetry: Telemetry
}

/** Thousands are under way at once: one object each, and whoever is told may be the same for all. */
export interface Said extends Settlement {
  told(how: Settled, said: this): void
}

interface Call extends Placed {
  end: Promise<void>
}

const mostPerCall = 1_000
const mostCalls = 3
const retryMs = 100
const mostRetryMs = 5_000

export class Settler {
  readonly #context: SettlerContext
  readonly #queue: string
  readonly #store: LaneStore
  #waiting: Said[] = []
  readonly #calls = new Bag<Call>()
  #isGathering = false
  #ended = false

  constructor(context: SettlerContext, queue: string, store: LaneStore) {
    this.#context = context
    this.#queue = queue
    this.#store = store
  }

  settle(said: Said): void {
    if (this.#ended) return said.told('unsaid', said)
    this.#waiting.push(said)
    this.#sendSoon()
  }

  /** Resolves when everything said so far has an answer, or at the deadline. */
  async flush(deadlineMs: number): Promise<void> {
    await within(this.#context.network, deadlineMs, this.#untilSaid())
  }

  /** What has no answer yet never gets one. */
  end(): void {
    this.#ended = true
    for (const said of this.#waiting.splice(0)) said.told('unsaid', said)
  }

  #sendSoon(): void {
    if (this.#isGathering || this.#calls.size === mostCalls || this.#waiting.length === 0) return
    this.#isGathering = true
    process.nextTick(() => {
      this.#isGathering = false
      const call: Call = { place: -1, end: Promise.resolve() }
      this.#calls.add(call)
      call.end = this.#send(this.#waiting.splice(0, mostPerCall)).then(() => {
        this.#calls.remove(call)
        this.#sendSoon()
      })
    })
  }

  async #untilSaid(): Promise<void> {
    while (this.#isGathering || this.#calls.size > 0) {
      await new Promise<void>((resolve) => process.nextTick(resolve))
      await Promise.all(Array.from(this.#calls, ({ end }) => end))
    }
  }

  async #send(batch: readonly Said[]): Promise<void> {
    let failures = 0
    while (!this.#ended) {
      try {
        const reply = await this.#store.settle(batch)
        return this.#tell(batch, reply.kind === 'gone' ? undefined : reply.stale, failures > 0)
      } catch (error) {
        if (!mayPass(error) && failures === 0)
          this.#context.telemetry.emit('queue.stuck', { queue: this.#queue, problem: errorText(error) })
        // When Redis is back the leases have not much time left; what is wrong for good is not asked ten times a second.
        const waitMs = mayPass(error) ? retryMs : Math.min(mostRetryMs, retryMs * 2 ** failures)
        failures += 1
        await new Promise<void>((resolve) => this.#context.network.after(waitMs, resolve))
      }
    }
    for (const said of batch) said.told('unsaid', said)
  }

  /** Without `stale` the store is gone, and with it every item. */
  #tell(batch: readonly Said[], stale: readonly number[] | undefined, repeated: boolean): void {
    const late = repeated ? 'unsure' : 'stale'
    if (stale?.length === 0) {
      for (let i = 0; i < batch.length; i += 1) batch[i]!.told('settled', batch[i]!)
      return
    }
    const places = stale && new Set(stale)
    for (const [i, said] of batch.entries()) said.told(!places || places.has(i) ? late : 'settled', said)
  }
}
