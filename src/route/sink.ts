/**
 * What routing asks of the stores behind subscriptions, and what it tells them.
 *
 * A store keeps, per partition, the seq up to which it has taken everything (`applied`) and skips what is not above it. So a
 * chunk that is sent twice, by the same router or by two, is taken once; no store knows who owns a partition. It also keeps two
 * numbers of its subscription: `revision`, which every change of the definition raises, and `born`, the revision of its creation.
 *
 *   lower in the call than in the store    the caller knows an old definition: 'outdated', nothing is taken
 *   higher revision in the call            the store adopts it and takes the events
 *   higher born in the call                the store is left from an earlier subscription of that name: as if there were none
 */

import type { FlushInput, FlushReply } from '../log/flush.ts'
import type { Pattern } from '../pattern.ts'

/** An event on its way into stores. */
export interface Routed {
  readonly seq: number
  readonly tenant: string
  /** As text; '' for none. */
  readonly prev: string
  readonly envelope: string
}

export interface Subscription {
  readonly name: string
  readonly kind: 'queue' | 'webhook'
  readonly revision: number
  /** The revision of its creation: another one after it was removed and created again. */
  readonly born: number
  /** Null: nothing comes by itself. */
  readonly match: Pattern | null
  /** The rest of the definition. */
  readonly options: Readonly<Record<string, unknown>>
}

/** An event that is about to be stored, and who alone wants its kind. */
export interface NextRouted {
  readonly subscription: Subscription
  readonly tenant: string
  /** Up to where its partition is routed. */
  readonly after: number
}

export interface Delivery {
  readonly subscription: Subscription
  /** In order of seq. */
  readonly events: readonly Routed[]
}

/** `partly`: some of it was taken, and there is no room for the next yet; `full`: there is none for the first. */
export type Accepted = 'accepted' | 'partly' | 'full' | 'outdated' | 'gone'

/** Stores a lone event, and takes it. */
export interface Along {
  /** To be asked once. Answers undefined when it was not stored so: then it is stored as any other. */
  store(flush: FlushInput): Promise<FlushReply | undefined>
  /** Its seq, if it was taken. */
  taken: Promise<number | undefined>
}

export interface RoutedSink {
  /**
   * Makes the store unless there is one: everything up to `applied` (one seq per partition) counts as taken. Raises its
   * revision to the subscription's. A store of an earlier life (lower `born`) gives way to the new one.
   */
  make(subscription: Subscription, applied: readonly number[]): Promise<void>
  /** Takes the next event of a partition in the visit that stores it, if it can; undefined when that is not to be tried. */
  takeNext?(partition: number, next: NextRouted): Along | undefined
  /** One chunk of a partition; one answer per delivery, each on its own: a store may answer late or with an error. */
  accept(partition: number, deliveries: readonly Delivery[]): readonly Promise<Accepted>[]
  /**
   * Takes the store away, in bounded steps; harmless when it is gone already. One that was born after `revision`, the removal's,
   * belongs to a later subscription of that name and stays.
   */
  remove(name: string, revision: number): Promise<void>
  /** What people may see of a definition's options. Without it, all of them. */
  shown?(options: Subscription['options']): Subscription['options']
  /** Since when the store hands nothing out, in ms; undefined when it does. For people only. */
  pausedSince?(name: string): Promise<number | undefined>
}
