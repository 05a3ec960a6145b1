/**
 * What a processor could not handle, as it is kept: dead letters, shelves of objects set aside, what blocks a partition.
 *
 * A shelf holds one object's events in order, outside the log.
 *   parked     nobody touches it until someone resumes it
 *   released   the partition's owner works it off, before anything newer of the object
 * As long as an object has a shelf, what the log brings for it goes there and not to the handler.
 */
import { envelopeOf } from '../../envelope.ts'
import { Event } from '../../event.ts'

export type ShelfState = 'parked' | 'released'

/** Why something was set aside, for people. */
export interface Reason {
  id: string
  error: string
  attempts: number
  /** ms. */
  at: number
}

export interface DeadLetter extends Reason {
  event: Event
  partition: number
  object: string
}

/** What is set aside together: an event without key is an object of its own. A tenant never begins with #. */
export const objectOf = (event: Event): string => (event.key === null ? `#${event.id}` : `${event.tenant}/${event.key}`)

/** An event as it lies on a shelf. */
export const shelfText = (event: Event): string =>
  JSON.stringify({ seq: event.seq, prev: event.prev, envelope: envelopeOf(event) })

export function readShelfText(partition: number, text: string): Event {
  const { seq, prev, envelope } = JSON.parse(text) as { seq: number; prev: number | null; envelope: string }
  return new Event(partition, seq, String(prev ?? ''), envelope)
}

export const letterText = (event: Event, reason: Reason): string =>
  JSON.stringify({ ...reason, object: objectOf(event), event: shelfText(event) })

export function readLetter(text: string): DeadLetter {
  const { event, ...rest } = JSON.parse(text) as Reason & { object: string; event: string }
  const partition = Number(rest.id.slice(0, rest.id.indexOf('-')))
  return { ...rest, partition, event: readShelfText(partition, event) }
}

export interface Shelf {
  object: string
  partition: number
  state: ShelfState
  /** Newest event that lies on it. */
  last: number
  reason: Partial<Reason>
}

export function readShelf(object: string, text: string): Shelf {
  const [partition, state, last, ...reason] = text.split(' ')
  return {
    object,
    partition: Number(partition),
    state: state as ShelfState,
    last: Number(last),
    reason: JSON.parse(reason.join(' ')) as Partial<Reason>,
  }
}
