/** What limits allow, as plainly as it can be said: numbers in, numbers out. The store that has them is in reference.ts. */
import type { QueueLimits, Rate } from '../../src/lanes/limits.ts'

/** A rate as a jar: each item that is given pours its time into it, and time runs out of it. One more is given if it fits. */
export class Jar {
  #level = 0
  #at = 0

  level(now: number): number {
    return Math.max(0, this.#level - (now - this.#at))
  }

  /** How many more fit now. */
  room(now: number, rate: Rate | undefined): number {
    return rate ? Math.floor((rate.perMs - this.level(now)) / timeOf(rate)) : Number.POSITIVE_INFINITY
  }

  /** When the next one fits into a jar that is full. */
  opens(now: number, rate: Rate): number {
    return now + this.level(now) + timeOf(rate) - rate.perMs
  }

  pour(now: number, rate: Rate | undefined): void {
    if (rate) this.#set(now, this.level(now) + timeOf(rate))
  }

  /** What is in a jar that is too small for it is spilt. */
  spill(now: number, rate: Rate | undefined): void {
    if (rate) this.#set(now, Math.min(this.level(now), rate.perMs))
  }

  empty(): void {
    this.#level = 0
  }

  #set(now: number, level: number): void {
    this.#level = level
    this.#at = now
  }
}

const timeOf = ({ max, perMs }: Rate): number => perMs / max

/** How many a lane may hold while others, below that, wait too. */
export const shareOf = ({ maxShare }: QueueLimits, inFlight: number): number =>
  maxShare ? Math.max(1, Math.floor(maxShare * inFlight)) : Number.POSITIVE_INFINITY

export const orNone = (limit: number | undefined): number => limit ?? Number.POSITIVE_INFINITY
