/** Where one event went: what each way to consume answers of it, when it is asked. */
import type { Event } from './event.ts'

/**
 *   pending   it has not come there yet
 *   waiting   in line, or behind the cursor of a processor that has not come to it yet
 *   behind    it waits for another of its object
 *   later     it waits for a time: delayed, or to be tried again
 *   held      someone works on it
 *   blocked   it could not be handled, and its partition of the processor stands still at it
 *   parked    its object is set aside
 *   dead      given up, and kept for a person
 *   done      handled, or gone by a rule (expired, dropped, discarded)
 *   unknown   it is not among what was looked at, and not all was
 */
export type TracedState =
  | 'pending'
  | 'waiting'
  | 'behind'
  | 'later'
  | 'held'
  | 'blocked'
  | 'parked'
  | 'dead'
  | 'done'
  | 'unknown'

export interface TracedPlace {
  kind: 'queue' | 'processor' | 'webhook'
  /** Of the queue, processor or webhook. */
  name: string
  state: TracedState
  /** Of a tracked queue: what `bus.operations` knows it by, and its status. */
  operation?: { id: string; status: string }
  /** Those that have ended or begun, where that is known. */
  attempts?: number
  /** Why it was given up or set aside, or its last attempt failed. */
  error?: string
  /** Of a webhook: the batch that it travels in. */
  batch?: string
}

/** The event that is asked about. One that retention has passed is known by its id alone. */
export interface TracedEvent {
  readonly id: string
  readonly partition: number
  readonly seq: number
  readonly event: Event | undefined
}

/** A way to consume. It answers a place for each of its own that the event went to or will go to. */
export interface TracedSink {
  trace(asked: TracedEvent): Promise<TracedPlace[]>
}

export interface Trace {
  id: string
  /** Undefined when retention has passed it: then only what still knows it is named. */
  event: Event | undefined
  places: TracedPlace[]
}
