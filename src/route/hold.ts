/** What keeps the log of one partition for its router: placed before it reads, moved lazily, dropped when nobody subscribes. */
import type { RouteLog } from './ports.ts'

export class RouteHold {
  readonly #log: RouteLog
  readonly #partition: number
  readonly #epoch: number
  #at = Number.POSITIVE_INFINITY
  #lowerings = 0

  constructor(log: RouteLog, { partition, epoch }: { partition: number; epoch: number }) {
    this.#log = log
    this.#partition = partition
    this.#epoch = epoch
  }

  get isPlaced(): boolean {
    return this.#at !== Number.POSITIVE_INFINITY
  }

  /** Below its place a hold moves only under a higher epoch. The next owner's is the clock's, in µs: it stays above these. */
  async place(seq: number): Promise<void> {
    if (seq === this.#at) return
    if (seq < this.#at) this.#lowerings += 1
    await this.#log.hold({ partition: this.#partition, epoch: this.#epoch + this.#lowerings, seq })
    this.#at = seq
  }

  /** At this seq or below. */
  async reachDownTo(seq: number): Promise<void> {
    if (seq < this.#at) await this.place(seq)
  }

  async drop(): Promise<void> {
    this.#at = Number.POSITIVE_INFINITY
    await this.#log.dropHold(this.#partition)
  }
}
