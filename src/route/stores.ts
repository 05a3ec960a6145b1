/**
 * Calls to the stores of subscriptions, and how long they are waited for.
 *
 * A store that does not answer is waited for as long as no other one answers either: then it is Redis that is slow, and nobody
 * is behind. Once another store has answered since, in any partition, the silent one is left to itself.
 */
import type { Clock, Timer } from '../runtime/clock.ts'
import type { Accepted, Along, Delivery, NextRouted, RoutedSink, Subscription } from './sink.ts'

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

/** Those that are waited for together. */
interface Waiting {
  calls: readonly Call[]
  end(): void
}

const patienceMs = 1_000
const lookAgainMs = 100

export class Stores {
  readonly #sinks: Sinks
  readonly #clock: Clock
  /** The last answer, and the last one of another store than that. */
  #latest: Answer | undefined
  #latestOther: Answer | undefined
  readonly #waiting = new Set<Waiting>()
  #timer: Timer | undefined

  constructor(sinks: Sinks, clock: Clock) {
    this.#sinks = sinks
    this.#clock = clock
  }

  send(partition: number, deliveries: readonly Delivery[]): Call[] {
    const calls: Call[] = []
    for (let rest = deliveries; rest.length > 0; ) {
      const { kind } = rest[0]!.subscription
      const ofKind = rest.filter(({ subscription }) => subscription.kind === kind)
      const answers = this.#accept(kind, partition, ofKind)
      for (let i = 0; i < ofKind.length; i += 1) calls.push(this.#follow(ofKind[i]!.subscription, answers[i]!))
      rest = ofKind.length === rest.length ? [] : rest.filter(({ subscription }) => subscription.kind !== kind)
    }
    return calls
  }

  takeNext(partition: number, next: NextRouted): Along | undefined {
    return this.#sinks[next.subscription.kind]?.takeNext?.(partition, next)
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
      const waiting = { calls, end: resolve }
      this.#waiting.add(waiting)
      this.#lookIn(patienceMs)
      let open = calls.length
      for (const { over } of calls)
        void over.then(() => {
          open -= 1
          if (open > 0) return
          this.#waiting.delete(waiting)
          resolve()
        })
    })
  }

  /** One timer for all: most calls are over long before it is of use to anyone. */
  #lookIn(ms: number): void {
    this.#timer ??= this.#clock.after(ms, () => {
      this.#timer = undefined
      for (const waiting of this.#waiting) if (waiting.calls.every((call) => this.#isLeft(call))) this.#leave(waiting)
      if (this.#waiting.size > 0) this.#lookIn(lookAgainMs)
    })
  }

  #leave(waiting: Waiting): void {
    this.#waiting.delete(waiting)
    waiting.end()
  }

  /** There is an outcome, or it is not waited for any more. */
  #isLeft(call: Call): boolean {
    if (call.outcome !== undefined) return true
    return this.#clock.monotonicMs() - call.sentAt >= patienceMs && this.#othersAnswered(call)
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
