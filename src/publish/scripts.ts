/** The scripts of publish/, with what they are given and what they answer. */
import type { Redis } from 'ioredis'
import type { Exception, FlushInput, FlushReply } from '../log/flush.ts'
import type { PartitionKeys } from '../redis/keys.ts'
import { defineScript, runScript, type ScriptArg } from '../redis/script.ts'

type RawStored = ['stored', last: string, prevs: string, ...Exception[]]

const noExceptions: readonly Exception[] = []

export const publishScript = defineScript({
  file: new URL('./publish.lua', import.meta.url),
  keys: ({ keys }: FlushInput) => [
    keys.log,
    keys.meta,
    keys.heads,
    keys.headsOld,
    keys.states,
    keys.delayed,
    keys.delayedEvents,
  ],
  keysFrom: ({ keys }) => keys,
  args: ({ keys, process, n, floor, nowUs, kinds, live, options, records, objects }) => [
    process,
    n,
    floor,
    nowUs ?? '',
    keys.oncePrefix,
    keys.wake,
    kinds,
    live,
    options,
    records,
    objects,
  ],
  reply: (raw: RawStored | ['closed', string] | ['late'] | ['malformed']): FlushReply => {
    if (raw[0] !== 'stored') return { kind: raw[0] }
    const [kind, last, prevs, ...exceptions] = raw
    return { kind, last: Number(last), prevs, exceptions }
  },
})

/** Whether publish-one.lua can do it. */
export const isLone = ({ n, nowUs, live, options, objects }: FlushInput): boolean =>
  objects.count === 1 && options === '' && live === '' && n > 1 && nowUs === undefined

export const onePart = new URL('./one.part.lua', import.meta.url)

export const oneKeys = ({ keys }: FlushInput): string[] => [keys.log, keys.meta, keys.heads, keys.headsOld]

export const oneArgs = ({ keys, process, n, floor, records, objects }: FlushInput): ScriptArg[] => [
  `${process} ${n} ${floor} ${keys.wake}`,
  records,
  objects,
]

export type RawOne = ['stored', last: string, prev: string, before: string] | ['late'] | ['whole']

/** Undefined when publish.lua has to look at it. */
export function readOne([kind, last, prevs, before]: RawOne): FlushReply | undefined {
  if (kind !== 'stored') return kind === 'late' ? { kind } : undefined
  return { kind, last: Number(last), prevs: prevs!, exceptions: noExceptions, before: Number(before) }
}

export const publishOneScript = defineScript({
  file: new URL('./publish-one.lua', import.meta.url),
  parts: { around: [], within: [onePart] },
  keys: oneKeys,
  keysFrom: ({ keys }) => keys,
  args: oneArgs,
  reply: readOne,
})

/** A lone plain event by the short way, unless there is more to be looked at. Who repeats it may come by the other one: its n is the same. */
export async function storeFlush(redis: Redis, input: FlushInput): Promise<FlushReply> {
  const stored = isLone(input) ? await runScript(redis, publishOneScript, input) : undefined
  return stored ?? runScript(redis, publishScript, input)
}

export interface DelayInput {
  keys: PartitionKeys
  /** Instead of the server's clock, for tests. */
  nowUs?: number | undefined
  partition: number
  due: { delayMs: number } | { atMs: number }
  furthestMs: number
  most: number
  /** Where the answer is remembered, and for how long. */
  once: { key: string; forMs: number }
  /** Random, the same when the call is repeated. */
  call: string
  body: string
  channel: string
  envelope: string
}

export type DelayReply =
  | { kind: 'kept' | 'duplicate'; id: string; dueMs: number }
  | { kind: 'reused' }
  | { kind: 'full'; waiting: number }
  | { kind: 'far'; furthestMs: number }

export const delayScript = defineScript({
  file: new URL('./delay.lua', import.meta.url),
  keys: ({ keys, once }: DelayInput) => [keys.delayed, keys.delayedEvents, keys.meta, once.key],
  args: ({ nowUs, partition, due, furthestMs, most, once, call, body, channel, envelope }) => [
    nowUs ?? '',
    partition,
    'delayMs' in due ? due.delayMs : '',
    'atMs' in due ? due.atMs : '',
    furthestMs,
    most,
    once.forMs,
    call,
    body,
    channel,
    envelope,
  ],
  reply: (
    raw: ['kept' | 'duplicate', string, string] | ['reused'] | ['full', number] | ['far', string],
  ): DelayReply => {
    switch (raw[0]) {
      case 'reused':
        return { kind: raw[0] }
      case 'full':
        return { kind: raw[0], waiting: raw[1] }
      case 'far':
        return { kind: raw[0], furthestMs: Number(raw[1]) }
      default:
        return { kind: raw[0], id: raw[1], dueMs: Number(raw[2]) }
    }
  },
})

export interface DueInput {
  keys: PartitionKeys
  /** Instead of the server's clock, for tests. */
  nowUs?: number | undefined
  maxEvents: number
  maxBytes: number
}

export interface DueReply {
  /** Until there are more; undefined when none waits. */
  moreInMs: number | undefined
  events: readonly { number: string; envelope: string }[]
}

export const dueScript = defineScript({
  file: new URL('./due.lua', import.meta.url),
  keys: ({ keys }: DueInput) => [keys.delayed, keys.delayedEvents],
  args: ({ nowUs, maxEvents, maxBytes }) => [nowUs ?? '', maxEvents, maxBytes],
  reply: ([, moreInMs, ...flat]: ['due', number, ...string[]]): DueReply => ({
    moreInMs: moreInMs < 0 ? undefined : moreInMs,
    events: Array.from({ length: flat.length / 2 }, (_, i) => ({ number: flat[2 * i]!, envelope: flat[2 * i + 1]! })),
  }),
})

export const cancelScript = defineScript({
  file: new URL('./cancel.lua', import.meta.url),
  keys: ({ keys }: { keys: PartitionKeys; number: string }) => [keys.delayed, keys.delayedEvents],
  args: ({ number }) => [number],
  reply: ([kind]: ['cancelled' | 'gone']) => kind,
})
