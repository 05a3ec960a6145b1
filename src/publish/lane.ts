/**
 * The flushes of one partition: calls gather while one flush is in flight, then go together.
 *
 *   idle      nothing waits
 *   waiting   calls wait in flushes that are being filled; one is sent at the end of this tick, or when the connection is ready
 *   flying    one flush has no answer yet; never two, so order is the order of the calls
 *
 * A flush without an answer is sent again under its number n with the same contents until it is answered, or until all
 * of its calls have passed their deadlines; then the next one takes n + 1, and a late copy of n changes nothing.
 */
import { separator } from '../log/entry.ts'
import type { FlushInput } from '../log/flush.ts'
import type { PartitionKeys } from '../redis/keys.ts'
import type { Call } from './call.ts'
import type { WrittenEvent } from './written-event.ts'

// 256 events keep one script below 1 ms and one entry below what a reader takes in one piece.
const maxEvents = 256
const maxSize = 256 * 1024
const maxHintKinds = 16

/** Calls that go together. */
interface Draft {
  readonly calls: Call[]
  readonly kinds: Set<string>
  readonly objects: { text: string; count: number }
  records: string
  recordsBytes: number
  options: string
  size: number
}

export interface Flush {
  readonly calls: readonly Call[]
  readonly events: number
  /** As they will lie in the log. */
  readonly records: string
  readonly input: FlushInput
  tries: number
}

export interface Lane {
  readonly partition: number
  readonly keys: PartitionKeys
  waiting: Draft[]
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

const newDraft = (): Draft => ({
  calls: [],
  kinds: new Set(),
  objects: { text: '', count: 0 },
  records: '',
  recordsBytes: 0,
  options: '',
  size: 0,
})

export function addCall(lane: Lane, call: Call): void {
  let draft = lane.waiting.at(-1)
  // A call larger than a flush goes alone: it is atomic, so it cannot be divided.
  if (!draft || draft.objects.count + 1 + call.rest.length > maxEvents || draft.size + call.size > maxSize) {
    draft = newDraft()
    lane.waiting.push(draft)
  }
  if (call.conditions) {
    const first = draft.objects.count + 1
    draft.options += `${draft.options && ','}[${first},${1 + call.rest.length},${call.conditions.json}]`
  }
  draft.calls.push(call)
  draft.size += call.size
  addEvent(draft, call)
  for (const event of call.rest) addEvent(draft, event)
}

type Written = Pick<WrittenEvent, 'kind' | 'objectArg' | 'record' | 'bytes'>

function addEvent(draft: Draft, { kind, objectArg, record, bytes }: Written): void {
  draft.objects.text += objectArg
  draft.objects.count += 1
  draft.records += record
  draft.recordsBytes += bytes + separator.length
  draft.kinds.add(kind)
}

/** Leaves out calls that were settled while they waited. */
export function forgetSettled(lane: Lane): void {
  const calls = lane.waiting.flatMap((draft) => draft.calls)
  lane.waiting = []
  for (const call of calls) if (!call.settled) addCall(lane, call)
}

/** What a hint says of the events: '' when they are of too many kinds. */
export const hintKinds = (kinds: ReadonlySet<string>): string =>
  kinds.size > maxHintKinds ? '' : [...kinds].join('\n')

/** Takes the calls of the next flush out of the lane; undefined when none waits. */
export function nextFlush(lane: Lane, process: string, live: string, nowUs?: number): Flush | undefined {
  const draft = lane.waiting.shift()
  if (!draft) return undefined
  const { calls, kinds, objects, records, recordsBytes, options } = draft
  lane.n += 1
  return {
    calls,
    events: objects.count,
    records,
    tries: 0,
    input: {
      keys: lane.keys,
      process,
      n: lane.n,
      floor: lane.floor,
      nowUs,
      kinds: hintKinds(kinds),
      live,
      options: options && `[${options}]`,
      records: { text: `$${recordsBytes}\r\n${records}\r\n`, count: 1 },
      objects,
    },
  }
}
