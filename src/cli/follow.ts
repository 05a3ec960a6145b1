/**
 * What `busbar tail` shows.
 *
 *   stored   from the beginning or a time: what is in the log, over all partitions in the order of seq, as it happened
 *   live     what comes; and all of it when someone goes on from a cursor, in order per partition, gaps said
 *
 * The live reader takes its place before the stored part is read, so nothing falls between the two; what both have is
 * shown once.
 */
import type { Live } from '../bus-types.ts'
import type { Event } from '../event.ts'
import { partitionsIn, readCursor, writeCursor } from '../log/cursor.ts'
import type { CliBus } from './session.ts'

export interface FollowOptions {
  /** A number is a time in ms. */
  since: string | number
  signal: AbortSignal
  onGap(gap: { partition: number; from: number; to: number }): void
}

export interface Followed {
  event: Event
  /** Where to go on after this event; asked before the next one is taken. */
  cursor(): string
}

/** Refuses a bad pattern at once; the rest when it is first asked for an event. */
export function follow(bus: CliBus, pattern: string[], options: FollowOptions): AsyncGenerator<Followed> {
  const { since, ...more } = options
  if (since !== 'beginning' && typeof since !== 'number') return followLive(bus.live(pattern, options))
  const reader = bus.live(pattern, { ...more, since: 'now' })
  const stored = bus.log.read({ match: pattern, ...(since === 'beginning' ? {} : { since }) })
  return followStored(stored, reader, more.signal)
}

async function* followLive(reader: Live<Event>): AsyncGenerator<Followed> {
  for await (const event of reader) yield { event, cursor: () => reader.cursor }
}

async function* followStored(
  stored: AsyncIterable<Event>,
  reader: Live<Event>,
  signal: AbortSignal,
): AsyncGenerator<Followed> {
  await reader.ready()
  if (signal.aborted) return
  const attached = readCursor(reader.cursor, partitionsIn(reader.cursor))
  const shown = attached.map(() => 0)
  for await (const event of stored) {
    if (signal.aborted) return
    shown[partitionOf(event)] = event.seq
    // Everything up to this seq has been shown; a cursor beyond a partition's end would look like a lost tail.
    const passed = () => attached.map((end, partition) => Math.max(shown[partition]!, Math.min(end, event.seq)))
    yield { event, cursor: () => writeCursor(passed()) }
  }
  for await (const followed of followLive(reader)) {
    if (followed.event.seq > shown[partitionOf(followed.event)]!) yield followed
  }
}

const partitionOf = ({ id }: Event): number => Number(id.slice(0, id.indexOf('-')))
