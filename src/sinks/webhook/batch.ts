/** A sealed batch, as it lies in its lane: what it is, and the body that is sent. */
import { type Item, readItem } from '../../lanes/item.ts'
import type { Format } from './format.ts'

export interface Batch {
  id: string
  subscription: string
  sequence: string
  /** Those that have ended. */
  attempts: number
  /** ms. */
  openedMs: number
  sealedMs: number
  /** ms at which its first attempt began; undefined while none has ended. */
  firstTriedMs: number | undefined
  format: Format
  /** How many. */
  events: number
  /** Of its events. */
  ids: readonly string[]
  body: string
}

interface BatchHeader {
  format: Format
  events: number
  opened: number
  ids: string
}

export const readBatch = (text: string): Batch => batchOf(readItem(text))

export function batchOf(item: Item): Batch {
  const { envelope } = item
  const end = envelope.indexOf('\n')
  const { format, events, opened, ids } = JSON.parse(envelope.slice(0, end)) as BatchHeader
  return {
    id: item.id,
    subscription: item.lane,
    sequence: item.key!,
    attempts: item.attempts,
    openedMs: opened,
    sealedMs: item.enqueuedMs,
    firstTriedMs: item.firstClaimedMs || undefined,
    format,
    events,
    ids: ids.split(','),
    body: envelope.slice(end + 1),
  }
}
