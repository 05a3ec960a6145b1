/** The script of publish/, with what it is given and what it answers. */
import type { PartitionKeys } from '../redis/keys.ts'
import { defineScript, type WrittenArgs } from '../redis/script.ts'

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
  /** Object and envelope of each event, in turn. */
  events: WrittenArgs
}

export type Exception =
  | readonly [first: number, kind: 'conflict', head: string]
  | readonly [first: number, kind: 'reused']
  | readonly [first: number, kind: 'duplicate', last: string, events: string | number, prev: string]

export type FlushReply =
  | {
      kind: 'stored'
      last: number
      /** Of the stored events, joined by spaces; empty for null. */
      prevs: string
      exceptions: readonly Exception[]
    }
  | { kind: 'late' }
  | { kind: 'malformed' }

export const publishScript = defineScript({
  file: new URL('./publish.lua', import.meta.url),
  keys: ({ keys }: FlushInput) => [keys.log, keys.meta, keys.heads, keys.headsOld, keys.states],
  args: ({ keys, process, n, floor, nowUs, kinds, live, options, events }) => [
    process,
    n,
    floor,
    nowUs ?? '',
    keys.oncePrefix,
    keys.wake,
    kinds,
    live,
    options,
    events,
  ],
  reply: ([kind, last, prevs, ...exceptions]: [
    'stored' | 'late' | 'malformed',
    string,
    string,
    ...Exception[],
  ]): FlushReply => (kind === 'stored' ? { kind, last: Number(last), prevs, exceptions } : { kind }),
})
