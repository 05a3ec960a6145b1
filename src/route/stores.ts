/**
 * Calls to the stores of subscriptions, and how long they are waited for.
 *
 * A store that does not answer is waited for as long as no other one answers either: then it is Redis that is slow, and nobody
 * is behind. Once another store has answered since, in any partition, the silent one is left to itself.
 */
import type { Clock, Timer } from '../runtime/clock.ts'
import type { Accepted, Delivery, RoutedSink, Subscription } from './sink.ts'

export type Sinks = Readonly<Partial<Record<string, RoutedSink>>>

/** What came of a call; undefined as long as there is no answer. */
export type Outcome = Accepted | { problem: string } | undefined

export interface Call {
  readonly subscription: Subscription
  readonly sentAt: number
  outcome: Outcome
  /** Resolves when there is an outcome. */
  readonly over: Promise<void>
}

interface Answer {
  name: string
  at: number
}

const patienceMs = 1_000
const lookAgainMs = 100

export class Stores {
  readonly #sinks: Sinks
  readonly #clock: Clock
  /** The last answer, and the last one of another store than that. */
  #latest: Answer | undefined
  #latestOther: Answer | undefined

  constructor(sinks: Sinks, clock: Clock) {
    this.#sinks = sinks
    this.#clock = clock
  }

  send(partition: number, deliveries: readonly Delivery[]): Call[] {
    if (deliveries.length === 0) return []
    const calls: Call[] = []
    for (const kind of new Set(deliveries.map(({ subscription }) => subscription.kind))) {
      const ofKind = deliveries.filter(({ subscription }) => subscription.kind === kind)
      const answers = this.#accept(kind, partition, ofKind)
      for (const [i, { subscription }] of ofKind.entries()) calls.push(this.#follow(subscription, answers[i]!))
    }
    return calls
  }

  async make(subscription: Subscription, applied: readonly number[]): Promise<void> {
    await this.#sinkOf(subscription.kind).make(subscription, applied)
  }

  /** Takes away the store of a subscription that there is not any more; one of a later subscription stays. */
  async remove({ kind, name, born }: Subscription): Promise<void> {
    await this.#sinkOf(kind).remove(name, born)
  }

  /** Resolves when all have an outcome, or when those without one are left to themselves. */
  wait(calls: readonly Call[]): Promise<void> {
    return new Promise((resolve) => {
      let timer: Timer | undefined
      const look = () => {
        const silent = calls.filter(({ outcome }) => outcome === undefined)
        if (silent.every((call) => this.#othersAnswered(call))) resolve()
        else timer = this.#clock.after(lookAgainMs, look)
      }
      timer = this.#clock.after(patienceMs, look)
      let open = calls.length
      for (const { over } of calls)
        void over.then(() => {
          open -= 1
          if (open > 0) return
          timer?.cancel()
          resolve()
        })
    })
  }

  #accept(kind: string, partition: number, deliveries: readonly Delivery[]): readonly Promise<Accepted>[] {
    try {
      return this.#sinkOf(kind).accept(partition, deliveries)
    } catch (error) {
      return deliveries.map(() => Promise.reject(error))
    }
  }

  #sinkOf(kind: string): RoutedSink {
    const sink = this.#sinks[kind]
    if (!sink) throw new Error(`this process knows no subscriptions of the kind ${kind}`)
    return sink
  }

  #follow(subscription: Subscription, answer: Promise<Accepted>): Call {
    const call: { -readonly [K in keyof Call]: Call[K] } = {
      subscription,
      sentAt: this.#clock.monotonicMs(),
      outcome: undefined,
      over: answer.then(
        (accepted) => {
          call.outcome = accepted
          this.#heard({ name: subscription.name, at: this.#clock.monotonicMs() })
        },
        (error) => {
          call.outcome = { problem: String(error) }
        },
      ),
    }
    return call
  }

  #othersAnswered({ subscription, sentAt }: Call): boolean {
    const other = this.#latest?.name === subscription.name ? this.#latestOther : this.#latest
    return other !== undefined && other.at >= sentAt
  }

  #heard(answer: Answer): void {
    if (this.#latest?.name !== answer.name) this.#latestOther = this.#latest
    this.#latest = answer
  }
}
