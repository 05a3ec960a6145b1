/** The types of a bus: what its methods are told and what they answer. */
import type { Duration } from './duration.ts'
import type { BusbarError } from './errors.ts'
import type { Event } from './event.ts'
import type { MatchedTypes } from './pattern.ts'
import type { CallOptions, Published } from './publish/call.ts'
import type { EventInput, EventPlace } from './publish/written-event.ts'
import type { DataIn, DataOut, Registry } from './registry.ts'
import type { BatchContext, BatchItem, WorkContext } from './sinks/queue/context.ts'
import type { ClaimedLease } from './sinks/queue/lease.ts'
import type { WorkOptions } from './sinks/queue/options.ts'
import type { ClaimOptions, SendOptions } from './sinks/queue/queue.ts'
import type { Sent } from './sinks/queue/sender.ts'
import type { PartitionEvents } from './sinks/stream/events.ts'
import type { ProcessorContext } from './sinks/stream/options.ts'

export interface PublishOptions extends EventPlace {
  idempotencyKey?: string
  /** seq of the object's last event, or null for none: anything else is a CONFLICT. */
  expectPrev?: number | null
  timeout?: Duration
  delay?: undefined
  at?: undefined
}

/** Not visible before it is due; then it gets its place in the log. */
export interface DelayOptions extends EventPlace {
  /** From now, at most 366 days. Give this or `at`. */
  delay?: Duration | undefined
  /** A Date, or ms since the epoch; one that has passed means at once. */
  at?: Date | number | undefined
  idempotencyKey?: string
  timeout?: Duration
}

export interface CommitOptions extends CallOptions {
  tenant?: string
  timeout?: Duration
}

export interface PublishAllEvent extends EventInput {
  idempotencyKey?: string
  expectPrev?: number | null
}

/** One answer of publishAll: what publish would have answered, or the error it would have thrown. */
export type PublishAllAnswer = (Published & { error?: undefined }) | { error: BusbarError }

export type TypeName<R extends Registry> = (keyof R & string) | (string & {})

/** `[type, data]` or `[type, data, { time, trace }]`. */
export type CommitEvent<R extends Registry> =
  | {
      [T in keyof R & string]: readonly [type: T, data: DataIn<R, T>, more?: Pick<EventInput, 'time' | 'trace'>]
    }[keyof R & string]
  | readonly [type: string, data?: unknown, more?: Pick<EventInput, 'time' | 'trace'>]

/** Events as the registry and a pattern literal say they are. */
export type EventOf<R extends Registry, P> = [keyof R & string] extends [never]
  ? Event
  : { [T in MatchedTypes<keyof R & string, P>]: Event<DataOut<R, T>, T> }[MatchedTypes<keyof R & string, P>]

export interface Live<E> extends AsyncIterableIterator<E>, AsyncDisposable {
  /** Resolves when every matching event published from now on will be delivered. */
  ready(): Promise<void>
  /** Where to go on after the last delivered event. */
  readonly cursor: string
}

export interface RunOptions {
  /** Names of the processors, queues and tasks to start; no others are. Default: all. */
  only?: readonly string[]
  /** Whether SIGTERM and SIGINT close the bus. Default true. */
  signals?: boolean
  /** What this process is, for people who look at `busbar workers`. Default 'worker'. */
  role?: string
}

/** Gets the events of one partition, for as long as this process holds it. */
export type ProcessorHandler<E extends Event> = (
  events: PartitionEvents<E>,
  context: ProcessorContext,
) => Promise<void> | void

/** Gets one event at a time. */
export type EventHandler<E extends Event> = (event: E, context: ProcessorContext) => Promise<void> | void

/** Something declared on a bus. */
export interface Declared extends AsyncDisposable {
  readonly name: string
  /** Ends it in this process: what is in hand is finished, or aborted at the timeout. */
  close(options?: { timeout?: Duration }): Promise<void>
}

/** A work queue of this bus. */
export interface Queue<E extends Event = Event> {
  readonly name: string
  /** Handles its items, so many at once; run() starts it. Returning is done; a thrown error follows the retry policy. */
  work(handler: (event: E, context: WorkContext) => unknown, options?: WorkOptions & { batch?: undefined }): Declared
  /** The same with up to `batch` items at once, each settled on its own. */
  work(
    handler: (items: readonly BatchItem[], context: BatchContext) => unknown,
    options: WorkOptions & { batch: number },
  ): Declared
  /** Puts an item straight into it. */
  send(data: unknown, options?: SendOptions): Promise<Sent>
  /** Claims by hand: what is not settled before its lease ends is given to someone else. */
  claim(options?: ClaimOptions): Promise<ClaimedLease<E['data']>>
  /** Claims and acks in one step. */
  pop(options?: { max?: number }): Promise<E[]>
}
