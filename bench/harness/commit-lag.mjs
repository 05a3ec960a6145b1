/**
 * Whether a processor commits as often as it says: now and then it compares what the handler was given of each
 * partition with the cursors in Redis. The cursors are those of a moment later, so a lag that is found was there.
 */
import { readCursors } from './group.mjs'

const eventsPerSample = 10_000

export class CommitLag {
  #redis
  #most
  #seqs = []
  #seen = 0
  #samples = []

  /** @param {number} most  events of a partition that may be handled but not committed */
  constructor(redis, most) {
    this.#redis = redis
    this.#most = most
  }

  /** To be called with each event before it is handled. */
  saw(partition, seq) {
    this.#seqs[partition] ??= []
    this.#seqs[partition].push(seq)
    this.#seen += 1
    if (this.#seen % eventsPerSample === 0) this.#samples.push(this.#sample())
  }

  async problems() {
    const most = Math.max(0, ...(await Promise.all(this.#samples)))
    return most > this.#most ? [`${most} events of a partition handled but not committed`] : []
  }

  /** The one that is just being handled does not count. */
  async #sample() {
    const partitions = Object.keys(this.#seqs)
    const handled = partitions.map((partition) => this.#seqs[partition].length - 1)
    const cursors = await readCursors(this.#redis, partitions)
    const committed = partitions.map((partition, n) => countUpTo(this.#seqs[partition], cursors[n]))
    return Math.max(...handled.map((count, n) => count - committed[n]))
  }
}

/** From the end: a cursor is never far behind. */
const countUpTo = (seqs, cursor) => seqs.findLastIndex((seq) => seq <= cursor) + 1
