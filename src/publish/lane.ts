/**
 * The flushes of one partition: calls gather while one flush is in flight, then go together.
 *
 *   idle      nothing waits
 *   waiting   calls wait; the flush is made and sent at the end of this tick, or when the connection is ready
 *   flying    one flush has no answer yet; never two, so order is the order of the calls
 *
 * A flush without an answer is sent again under its number n with the same contents until it is answered, or until all
 * of its calls have passed their deadlines; then the next one takes n + 1, and a late copy of n changes nothing.
 */
import type { PartitionKeys } from '../redis/keys.ts'
import type { Call } from './call.ts'
import type { FlushInput } from './scripts.ts'

// 256 events keep one script below 1 ms and one entry below what a reader takes in one piece.
const maxEvents = 256
const maxSize = 256 * 1024
const maxHintKinds = 16

export interface Flush {
  calls: readonly Call[]
  input: FlushInput
  tries: number
}

export interface Lane {
  readonly partition: number
  readonly keys: PartitionKeys
  waiting: Call[]
  flush: Flush | undefined
  scheduled: boolean
  n: number
  /** Highest seq of the partition that this process has seen. */
  floor: number
  sinceGrowth: number
}

export const createLane = (partition: number, keys: PartitionKeys): Lane => ({
  partition,
  keys,
  waiting: [],
  flush: undefined,
  scheduled: false,
  n: 0,
  floor: 0,
  sinceGrowth: 0,
})

/** Takes the calls of the next flush out of the lane; undefined when none waits. */
export function nextFlush(lane: Lane, process: string, live: string): Flush | undefined {
  const calls = takeCalls(lane)
  if (calls.length === 0) return undefined
  lane.n += 1
  const events: string[] = []
  const kinds = new Set<string>()
  const special: string[] = []
  for (const call of calls) {
    call.state = 'sent'
    if (call.option !== '') special.push(`[${events.length / 2 + 1},${1 + call.rest.length},${call.option}]`)
    events.push(call.first.object, call.first.envelope)
    kinds.add(call.first.kind)
    for (const event of call.rest) {
      events.push(event.object, event.envelope)
      kinds.add(event.kind)
    }
  }
  return {
    calls,
    tries: 0,
    input: {
      keys: lane.keys,
      process,
      n: lane.n,
      floor: lane.floor,
      kinds: kinds.size > maxHintKinds ? '' : [...kinds].join('\n'),
      live,
      options: special.length === 0 ? '' : `[${special.join(',')}]`,
      events,
    },
  }
}

function takeCalls(lane: Lane): Call[] {
  const taken: Call[] = []
  let events = 0
  let size = 0
  let end = 0
  for (; end < lane.waiting.length; end += 1) {
    const call = lane.waiting[end]!
    if (call.state !== 'waiting') continue
    events += 1 + call.rest.length
    size += call.size
    // A call larger than a flush goes alone: it is atomic, so it cannot be divided.
    if (taken.length > 0 && (events > maxEvents || size > maxSize)) break
    taken.push(call)
  }
  lane.waiting = lane.waiting.slice(end)
  return taken
}
