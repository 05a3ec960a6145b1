/** The scripts of sinks/stream/, with what they are given and what they answer. */
import { createHash } from 'node:crypto'
import type { ProcessorKeys } from '../../redis/keys.ts'
import { defineScript } from '../../redis/script.ts'

/** What a processor keeps of what it could not handle, at most. */
export const keepLimits = { dead: 10_000, shelves: 1_000, shelved: 10_000 } as const

interface Cursors {
  keys: ProcessorKeys
  /** Partition → seq. */
  cursors: ReadonlyMap<number, number>
}

const flat = (cursors: ReadonlyMap<number, number>): number[] => [...cursors].flat()

export const declareScript = defineScript({
  file: new URL('./declare.lua', import.meta.url),
  keys: ({ keys }: Cursors) => [keys.cursors],
  args: ({ cursors }) => flat(cursors),
  reply: ([kind]: ['created' | 'known']) => kind,
})

/** What became of an event that was not simply handled. */
export type Fate =
  | readonly ['dead', id: string, letter: string]
  | readonly ['park', object: string, reason: string]
  | readonly ['shelve', object: string, seq: string, event: string]
  | readonly ['unshelve', object: string, event: string]
  | readonly ['close', object: string]
  | readonly ['block', reason: string]

export interface SettleInput {
  keys: ProcessorKeys
  partition: number
  epoch: number
  cursor: number
  /** Instead of the server's clock, for tests. */
  nowUs: number | undefined
  fates: readonly Fate[]
}

export const settleScript = defineScript({
  file: new URL('./settle.lua', import.meta.url),
  keys: ({ keys }: SettleInput) => [
    keys.owners,
    keys.cursors,
    keys.group,
    keys.blocked,
    keys.dead,
    keys.deadOrder,
    keys.shelves,
  ],
  args: ({ keys, partition, epoch, cursor, nowUs, fates }) => [
    partition,
    epoch,
    cursor,
    nowUs ?? '',
    keys.shelfPrefix,
    keepLimits.dead,
    keepLimits.shelves,
    keepLimits.shelved,
    ...fates.map((fate) => JSON.stringify(fate)),
  ],
  reply: ([kind]: ['settled' | 'stale' | 'full']) => kind,
})

interface ResetInput {
  keys: ProcessorKeys
  positions: readonly { partition: number; cursor: number; trimmed: number }[]
  nowUs: number | undefined
}

export const resetScript = defineScript({
  file: new URL('./reset.lua', import.meta.url),
  keys: ({ keys }: ResetInput) => [keys.owners, keys.cursors, keys.group, keys.blocked, keys.shelves],
  args: ({ keys, positions, nowUs }) => [
    nowUs ?? '',
    keys.groupWake,
    keys.shelfPrefix,
    ...positions.flatMap(({ partition, cursor, trimmed }) => [partition, cursor, trimmed]),
  ],
  reply: ([kind]: ['reset' | 'unknown']) => kind,
})

interface ResumeInput {
  keys: ProcessorKeys
  scope: 'all' | 'partitions' | 'objects'
  which: readonly (string | number)[]
}

export const resumeScript = defineScript({
  file: new URL('./resume.lua', import.meta.url),
  keys: ({ keys }: ResumeInput) => [keys.group, keys.blocked, keys.shelves],
  args: ({ keys, scope, which }) => [keys.groupWake, scope, ...which],
  reply: ([, partitions, objects]: ['resumed', number, number]) => ({ partitions, objects }),
})

const sha1 = (text: string): string => createHash('sha1').update(text).digest('hex')

export const shelfKey = (keys: ProcessorKeys, object: string): string => `${keys.shelfPrefix}${sha1(object)}`

interface RedriveInput {
  keys: ProcessorKeys
  partition: number
  object: string
  letters: readonly { id: string; event: string }[]
}

export const redriveScript = defineScript({
  file: new URL('./redrive.lua', import.meta.url),
  keys: ({ keys, object }: RedriveInput) => [
    keys.group,
    keys.dead,
    keys.deadOrder,
    keys.shelves,
    shelfKey(keys, object),
  ],
  args: ({ keys, partition, object, letters }) => [
    keys.groupWake,
    partition,
    object,
    keepLimits.shelves,
    keepLimits.shelved,
    ...letters.flatMap(({ id, event }) => [id, event]),
  ],
  reply: (raw: ['redriven', number] | ['full']) => (raw[0] === 'full' ? ('full' as const) : raw[1]),
})

interface DiscardInput {
  keys: ProcessorKeys
  scope: 'letters' | 'objects'
  which: readonly string[]
}

export const discardScript = defineScript({
  file: new URL('./discard.lua', import.meta.url),
  keys: ({ keys }: DiscardInput) => [keys.group, keys.dead, keys.deadOrder, keys.shelves],
  args: ({ keys, scope, which }) => [keys.groupWake, keys.shelfPrefix, scope, ...which],
  reply: ([, events]: ['discarded', number]) => events,
})
