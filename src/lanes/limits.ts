/** What a queue may hold, give in a time, and let wait: as its definition says it, and as words for its store (limits.part.lua). */

/** So many in so many ms. */
export interface Rate {
  max: number
  perMs: number
}

export type Overflow = 'hold' | 'drop-oldest' | 'dead'

export interface QueueLimits {
  /** Items held at once, of one tenant and in all. */
  inFlightPerTenant?: number
  inFlight?: number
  /** Of what is held, by one tenant while others wait. */
  maxShare?: number
  rate?: Rate
  ratePerTenant?: Rate
  /** Items of one tenant that may wait; what becomes of events that come nevertheless. */
  backlog?: number
  overflow?: Overflow
}

const rateWords = (rate: Rate | undefined): number[] => (rate ? [rate.perMs / rate.max, rate.perMs] : [0, 0])

/** In how many ms a tenant that has used up its rate may have one more, by these words; 0 without a rate of its own. */
export const laneEveryMs = (words: string): number => Number(words.split(' ')[5] ?? 0)

/** '' without any. */
export function limitWords(limits: QueueLimits): string {
  const { inFlightPerTenant = 0, inFlight = 0, maxShare = 0, rate, ratePerTenant, backlog = 0, overflow } = limits
  const numbers = [...[inFlightPerTenant, inFlight, maxShare], ...rateWords(rate), ...rateWords(ratePerTenant), backlog]
  return numbers.every((number) => number === 0) ? '' : [...numbers, overflow ?? 'hold'].join(' ')
}
