/**
 * How long the events of a quiet tenant wait while another one's pile is being worked off: from the call that publishes
 * one to the start of its handler. The pile is events 0 … waiting - 1, the quiet tenant's are those after it.
 *
 * The handlers take 5 ms each, ten at a time. When the last quiet event is through they take no time any more, so that
 * the rest of the pile can be counted soon: nothing is measured then.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { eventSource, numberOf } from './events.mjs'
import { nothingLeft } from './flow.mjs'
import { percentile } from './numbers.mjs'
import { Once } from './once.mjs'

export const handlerMs = 5
export const concurrency = 10

const warmMs = 1_000
const pauseMs = 20 // 50 events a second where 2,000 can be handled: the quiet tenant never has two waiting
const idealPerSecond = (concurrency * 1000) / handlerMs
// Timers are late by up to 1 ms, and each handling has its round trip: BullMQ gets to 0.65 of the ideal on a busy machine.
const leastShare = 0.4

export class QuietMeter {
  #waiting
  #quiet
  #once = new Once()
  #publishedAt = []
  #waitsMs = []
  #hurry = false

  constructor({ waiting, quiet }) {
    this.#waiting = waiting
    this.#quiet = quiet
  }

  /** The handler. */
  async handle(data) {
    const startedAt = performance.now()
    this.#once.saw(data)
    const place = numberOf(data) - this.#waiting
    if (place >= 0) this.#waitsMs.push(startedAt - this.#publishedAt[place])
    if (this.#waitsMs.length === this.#quiet) this.#hurry = true
    if (!this.#hurry) await sleep(handlerMs)
  }

  /**
   * @param {{ start: () => unknown, publish: (event: { key: string, data: object }) => Promise<unknown>, left: () => Promise<number> }} queue
   */
  async run({ start, publish, left }) {
    const startedAt = performance.now()
    await start()
    await sleep(warmMs)
    await this.#publishAll(publish)
    const handled = this.#once.seen
    const perSecond = handled / ((performance.now() - startedAt) / 1000)

    const count = this.#waiting + this.#quiet
    await this.#once.until(count)
    await nothingLeft(left)
    const problems = [...this.#once.problems(count), ...loadProblems({ handled, waiting: this.#waiting, perSecond })]
    return { p99Ms: percentile(this.#waitsMs, 0.99), p50Ms: percentile(this.#waitsMs, 0.5), perSecond, problems }
  }

  async #publishAll(publish) {
    const nextEvent = eventSource()
    const published = []
    for (let place = 0; place < this.#quiet; place += 1) {
      const event = nextEvent(this.#waiting + place)
      this.#publishedAt[place] = performance.now()
      published.push(publish(event))
      await sleep(pauseMs)
    }
    await Promise.all(published)
  }
}

/** A queue that leaves its handlers idle has not carried the load, and one that ran out of it proves nothing. */
function loadProblems({ handled, waiting, perSecond }) {
  return [
    ...(handled >= waiting ? ['the busy tenant ran out of waiting events'] : []),
    ...(perSecond < idealPerSecond * leastShare
      ? [`${perSecond.toFixed(0)} of ${idealPerSecond} handlings a second`]
      : []),
  ]
}
