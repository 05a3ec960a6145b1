/**
 * How long an event takes from the call that publishes it to the handler, when nothing else is going on: one at a
 * time, with a pause in between, so that everyone sleeps before the next. Publisher and handler are in one process and
 * share its clock.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { eventSource, numberOf } from './events.mjs'
import { percentile } from './numbers.mjs'

// A process that handles events for days has compiled what it runs: with 100, everyone is measured while the engine still does.
const warmEvents = 2_000
const pauseMs = 3
const timeoutMs = 10_000

export class IdleMeter {
  #events
  #awaited
  #arrived

  constructor(events) {
    this.#events = events
  }

  /** To be called first thing by the handler. */
  handled(data) {
    const at = performance.now()
    if (numberOf(data) === this.#awaited) this.#arrived(at)
  }

  /** @param {(event: { key: string, data: object }) => Promise<unknown>} publish */
  async run(publish) {
    const nextEvent = eventSource()
    const latencies = []
    for (let i = 0; i < warmEvents + this.#events; i += 1) {
      const event = nextEvent(i)
      const arrival = this.#arrivalOf(i)
      const startedAt = performance.now()
      const [arrivedAt] = await Promise.all([arrival, publish(event)])
      if (i >= warmEvents) latencies.push(arrivedAt - startedAt)
      await sleep(pauseMs)
    }
    return { p50Ms: percentile(latencies, 0.5) }
  }

  #arrivalOf(i) {
    this.#awaited = i
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => reject(new Error(`event ${i} did not reach the handler`)), timeoutMs)
      this.#arrived = (at) => {
        clearTimeout(timer)
        resolve(at)
      }
    })
  }
}
