/**
 * Whether a consumer was given every event exactly once and each key in order. The same for every contender, and cheap:
 * two arrays are looked up per event.
 *
 * The events of a key are numbered without a gap, so "each key continues with its next number" finds a lost event, a
 * repeated one and a swapped pair; the total finds a key that ended early.
 */
import { defaultKeys, keyNumbers, numberOf, placeOf } from './events.mjs'

const maxProblems = 10

export class Tally {
  seen = 0
  #count
  #keyOf
  #next
  #problems = []

  constructor(count, keys = defaultKeys) {
    this.#count = count
    this.#keyOf = keyNumbers(count, keys)
    this.#next = new Uint32Array(keys)
  }

  /** Counts an event by its parsed data; answers whether it was the last one that is expected. */
  saw(data) {
    const i = numberOf(data)
    const key = this.#keyOf[i]
    const place = placeOf(data)
    if (key === undefined) this.#complain(`event ${i} was never published`)
    else if (place !== this.#next[key]) this.#complain(`key ${key}: place ${place} where ${this.#next[key]} is next`)
    this.#next[key] = place + 1
    this.seen += 1
    return this.seen === this.#count
  }

  /** Of a consumer that was given everything. */
  problems() {
    if (this.seen !== this.#count) this.#complain(`${this.seen} events handled, ${this.#count} published`)
    return this.#problems
  }

  /** Of one that shares the events with others, whole keys at a time. */
  orderProblems() {
    return this.#problems
  }

  #complain(problem) {
    if (this.#problems.length < maxProblems) this.#problems.push(problem)
  }
}

/** Whether several consumers together were given every event exactly once. `handled` are lists of event numbers. */
export function repeatsAndLosses(handled, count) {
  const times = new Uint32Array(count)
  for (const numbers of handled) for (const i of numbers) times[i] += 1
  const lost = times.filter((n) => n === 0).length
  const repeated = times.filter((n) => n > 1).length
  return [
    ...(lost > 0 ? [`${lost} of ${count} events were handled by nobody`] : []),
    ...(repeated > 0 ? [`${repeated} of ${count} events were handled more than once`] : []),
  ]
}

const stallMs = 10_000

/** Waits for `work`, but not for an event that never comes. */
export async function unlessStalled(tally, work) {
  let timer
  const stalled = new Promise((_, reject) => {
    let before = -1
    timer = setInterval(() => {
      if (tally.seen === before) reject(new Error(`nothing happens any more after ${before} events handled`))
      before = tally.seen
    }, stallMs)
  })
  try {
    return await Promise.race([work, stalled])
  } finally {
    clearInterval(timer)
  }
}
