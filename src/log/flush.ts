/** What goes into a partition of the log in one call, and what becomes of it. */
import type { PartitionKeys } from '../redis/keys.ts'
import type { WrittenArgs } from '../redis/script.ts'

export interface FlushInput {
  keys: PartitionKeys
  process: string
  n: number
  floor: number
  /** Instead of the server's clock, for tests. */
  nowUs?: number | undefined
  kinds: string
  live: string
  options: string
  /** Of all events, one behind the other: one argument. */
  records: string | WrittenArgs
  /** Of each event. */
  objects: WrittenArgs
}

export type Exception =
  | readonly [first: number, kind: 'conflict', head: string]
  | readonly [first: number, kind: 'reused']
  /** Only of a call that appends a delayed event: it is in the log already, or was cancelled. */
  | readonly [first: number, kind: 'gone']
  | readonly [first: number, kind: 'duplicate', last: string, events: string | number, prev: string]

export interface StoredReply {
  kind: 'stored'
  last: number
  /** Of the stored events, joined by spaces; empty for null. */
  prevs: string
  exceptions: readonly Exception[]
  /** Of a lone event: the partition's last seq before it. */
  before?: number
}

export type FlushReply = StoredReply | { kind: 'closed' } | { kind: 'late' } | { kind: 'malformed' }
