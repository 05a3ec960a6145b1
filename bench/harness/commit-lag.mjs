/**
 * Whether a processor commits as often as it says: now and then it compares what the handler was given of each
 * partition with the cursors in Redis. The cursors are those of a moment later, so a lag that is found was there.
 */
import { readCursors } from './group.mjs'

const eventsPerSample = 10_000

export class CommitLag {
  #redis
  #most
  #seqs = new Map()
  #seen = 0
  #samples = []

  /** @param {number} most  events of a partition that may be handled but not committed */
  constructor(redis, most) {
    this.#redis = redis
    this.#most = most
  }

  /** To be called with each event before it is handled. */
  saw(partition, seq) {
    const seqs = this.#seqs.get(partition)
    if (seqs) seqs.push(seq)
    else this.#seqs.set(partition, [seq])
    this.#seen += 1
    if (this.#seen % eventsPerSample === 0) this.#samples.push(this.#sample())
  }

  async problems() {
    const most = Math.max(0, ...(await Promise.all(this.#samples)))
    return most > this.#most ? [`${most} events of a partition handled but not committed`] : []
  }

  /** The one that is just being handled does not count. */
  async #sample() {
    const handled = new Map([...this.#seqs].map(([partition, seqs]) => [partition, seqs.length - 1]))
    const cursors = await readCursors(this.#redis, [...handled.keys()])
    return Math.max(...[...handled].map(([partition, count], n) => count - this.#upTo(partition, cursors[n])))
  }

  /** How many of the partition's events lie at or below the cursor. */
  #upTo(partition, cursor) {
    const seqs = this.#seqs.get(partition)
    return seqs.findLastIndex((seq) => seq <= cursor) + 1
  }
}
