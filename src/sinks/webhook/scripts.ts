/** The scripts of webhooks, with what they are given and what they answer. */
import {
  type Claim,
  type ClaimReply,
  claimAct,
  readClaimed,
  readSettled,
  type Settlement,
  type SettleReply,
  settleAct,
} from '../../lanes/acts.ts'
import {
  claimPart,
  plannedParts,
  readDroppedLetters,
  type StoreInput,
  settlePart,
  storeArgs,
  storeKeys,
} from '../../lanes/scripts.ts'
import type { WebhookKeys } from '../../redis/keys.ts'
import { defineScript, type ScriptArg, type WrittenArgs, writeArg } from '../../redis/script.ts'

export interface ShardInput extends StoreInput {
  keys: WebhookKeys
  /** Random: begins the ids of batches that are sealed by the call. */
  seed: string
}

const shardKeys = (input: ShardInput): string[] => {
  const { deadlines, announced, definitions, tallies } = input.keys
  return [...storeKeys(input), deadlines, announced, definitions, tallies]
}
const shardArgs = (input: ShardInput, fields?: readonly string[]): ScriptArg[] => [
  ...storeArgs(input, fields),
  input.keys.hookPrefix,
  input.keys.openPrefix,
  input.seed,
]

const hooksPart = new URL('./hooks.part.lua', import.meta.url)
const parts = { ...plannedParts, within: [...plannedParts.within, hooksPart] }
const workParts = { ...parts, within: [...plannedParts.within, settlePart, claimPart, hooksPart] }

/** Of a definition, what the scripts of a shard have to know. */
export interface MadeHook {
  name: string
  revision: number
  born: number
  definition: string
  maxEvents: number
  maxWaitMs: number
  maxBytes: number
  keepEvents: number
  sequences: number
  /** That the definition has; '' for none: then `newSecret` is used if it is new. */
  secret: string
  newSecret: string
  overlapMs: number
  applied: readonly number[]
}

export const makeScript = defineScript({
  file: new URL('./make.lua', import.meta.url),
  parts,
  keys: (input: ShardInput & { hook: MadeHook }) => shardKeys(input),
  args: ({ hook, ...input }) => [
    ...shardArgs(input),
    ...[hook.name, hook.revision, hook.born, hook.definition],
    ...[hook.maxEvents, hook.maxWaitMs, hook.maxBytes, hook.keepEvents, hook.sequences],
    ...[hook.secret, hook.newSecret, hook.overlapMs],
    ...hook.applied,
  ],
  reply: ([kind]: ['made' | 'raised' | 'outdated' | 'left']) => kind,
})

/** Events of one partition for one subscription. */
export interface Gathered {
  name: string
  revision: number
  born: number
  last: number
  /** Format, start and end of a body, in lines. */
  wrap: string
  events: readonly { sequence: number; piece: string }[]
}

export interface AcceptInput extends ShardInput {
  /** Key of the replay; '' when events come by their route. */
  replay: string
  partition: number
  deliveries: readonly Gathered[]
}

export type GatherReply =
  /** How many were new, and how many gave way because it keeps no more. */
  { kind: 'accepted'; events: number; dropped: number } | { kind: 'outdated' } | { kind: 'gone' }

type RawGathered = ['accepted', number, number] | ['outdated', number] | ['gone']

// A step of some ms; what is still too much is dropped with what comes next.
const mostDrops = 100

export const acceptScript = defineScript({
  file: new URL('./accept.lua', import.meta.url),
  parts,
  keys: (input: AcceptInput) => shardKeys(input),
  keysFrom: ({ keys }) => keys,
  args: ({ replay, partition, deliveries, ...input }) => [
    ...shardArgs(input),
    ...[replay, partition, mostDrops],
    ...deliveries.flatMap(({ name, revision, born, last, wrap, events }) => [
      ...[name, revision, born, last, wrap, events.length],
      ...events.flatMap(({ sequence, piece }) => [sequence, piece]),
    ]),
  ],
  reply: (raw: RawGathered[]): GatherReply[] =>
    raw.map(([kind, events, dropped]) =>
      kind === 'accepted' ? { kind, events: events!, dropped: dropped! } : { kind },
    ),
})

/** What an attempt came to, as a shard counts it. */
export interface Ended {
  settlement: Settlement
  name: string
  sequence: string
  became: 'delivered' | 'failed' | 'dead' | 'throttled' | 'back'
  events: number
  /** JSON of the attempt; '' when there was none. */
  attempt: string
  /** Why the webhook is to be disabled; '' if not. */
  disable: string
}

/** What is known of a subscription whose batch was claimed. */
export interface HookFacts {
  name: string
  /** As stored, secrets and definition; '' when it was removed. */
  stored: string
  failures: number
  /** ms; undefined when the last attempt was good. */
  failingSince: number | undefined
}

export interface WorkReply {
  settled: SettleReply | undefined
  claimed: ClaimReply | undefined
  hooks: ReadonlyMap<string, HookFacts>
  /** A webhook was disabled of which no event tells yet. */
  hasAnnouncements: boolean
}

export interface WorkInput extends ShardInput {
  ended: readonly Ended[]
  claim: Claim | undefined
}

type RawHooks = ['hooks', number, ...string[]]

export const workScript = defineScript({
  file: new URL('./work.lua', import.meta.url),
  parts: workParts,
  keys: (input: WorkInput) => shardKeys(input),
  keysFrom: ({ keys }) => keys,
  args: ({ ended, claim, ...input }) => {
    const claimed = claim && claimAct(claim)
    const settled = settleAct(ended.map(({ settlement }) => settlement))
    return [
      ...shardArgs(input, claimed?.field ? [claimed.field] : []),
      input.keys.attemptsPrefix,
      ...(ended.length > 0 ? [settled.words(), endedWords(ended)] : []),
      ...(claimed ? [claimed.words()] : []),
    ]
  },
  reply: (raw: unknown[]) => raw,
})

function endedWords(ended: readonly Ended[]): WrittenArgs {
  let text = writeArg('ended') + writeArg(ended.length)
  for (const { settlement, name, sequence, became, events, attempt, disable } of ended)
    text +=
      writeArg(`${became} ${name} ${sequence} ${events}`) +
      writeArg(attempt) +
      writeArg(became === 'failed' ? settlement.id : disable)
  return { text, count: 2 + 3 * ended.length }
}

/** The acts that were asked for decide what stands where. */
export function readWork({ ended, claim }: Pick<WorkInput, 'ended' | 'claim'>, raw: readonly unknown[]): WorkReply {
  const replies = [...raw]
  const described = replies.pop() as RawHooks
  const hooks = new Map<string, HookFacts>()
  for (let at = 2; at < described.length; at += 3) {
    const [name, stored, failing] = [described[at] as string, described[at + 1] as string, described[at + 2] as string]
    const [failures, failingSince] =
      failing === '' ? [0, undefined] : (failing.split(' ').map(Number) as [number, number])
    hooks.set(name, { name, stored, failures, failingSince })
  }
  return {
    settled: ended.length > 0 ? readSettled(replies.shift() as never) : undefined,
    claimed: claim ? readClaimed(replies.shift() as never) : undefined,
    hooks,
    hasAnnouncements: described[1] === 1,
  }
}

export const pauseScript = defineScript({
  file: new URL('./pause.lua', import.meta.url),
  parts,
  keys: (input: ShardInput & { act: 'pause' | 'resume'; name: string }) => shardKeys(input),
  args: ({ act, name, ...input }) => [...shardArgs(input), act, name],
  reply: ([kind]: ['done' | 'gone']) => kind,
})

export const announcedScript = defineScript({
  file: new URL('./announced.lua', import.meta.url),
  parts,
  keys: (input: ShardInput & { name: string; disabledAt: string }) => shardKeys(input),
  args: ({ name, disabledAt, ...input }) => [...shardArgs(input), name, disabledAt],
  reply: ([kind]: ['done' | 'changed']) => kind,
})

export const lettersScript = defineScript({
  file: new URL('./letters.lua', import.meta.url),
  parts,
  keys: (input: ShardInput & { act: 'redrive' | 'discard'; ids: readonly string[] }) => shardKeys(input),
  args: ({ act, ids, ...input }) => [...shardArgs(input), act, ...ids],
  reply: ([, letters]: ['done', number]) => letters,
})

export const rotateScript = defineScript({
  file: new URL('./rotate.lua', import.meta.url),
  parts,
  keys: (input: ShardInput & { name: string; secret: string; overlapMs: number }) => shardKeys(input),
  args: ({ name, secret, overlapMs, ...input }) => [...shardArgs(input), name, secret, overlapMs],
  reply: ([kind]: ['done' | 'gone']) => kind,
})

export interface Dropped {
  batches: number
  events: number
  bytes: number
}

export const dropScript = defineScript({
  file: new URL('./drop.lua', import.meta.url),
  parts,
  keys: (input: ShardInput & { name: string; bytes: number; most: number }) => shardKeys(input),
  args: ({ name, bytes, most, ...input }) => [...shardArgs(input), name, bytes, most],
  reply: ([, batches, events, bytes]: ['dropped', number, number, number]): Dropped => ({ batches, events, bytes }),
})

/** `items`: events. */
export const dropLettersScript = defineScript({
  file: new URL('./drop-letters.lua', import.meta.url),
  parts,
  keys: (input: ShardInput & { bytes: number; most: number }) => shardKeys(input),
  args: ({ bytes, most, ...input }) => [...shardArgs(input), bytes, most],
  reply: readDroppedLetters,
})

const removedPerStep = 500

export const removeScript = defineScript({
  file: new URL('./remove.lua', import.meta.url),
  parts,
  keys: (input: ShardInput & { name: string; revision: number }) => shardKeys(input),
  args: ({ name, revision, ...input }) => [
    ...shardArgs(input),
    ...[name, revision, input.keys.attemptsPrefix, removedPerStep],
  ],
  reply: ([kind]: ['more' | 'removed']) => kind,
})

export interface SeenHook {
  nowMs: number
  /** Dead letters. */
  dead: number
  fields: Readonly<Record<string, string>>
  /** Without a time when no deadline is there. */
  open: readonly { sequence: string; dueMs: number | undefined; events: number }[]
  sealed: readonly SeenBatch[]
}

export interface SeenBatch {
  place: 'held' | 'waiting' | 'later' | 'behind'
  /** Of the item and of the batch, in lines. */
  headers: string
  bytes: number
  /** Of one that is held. */
  lease: { worker: string; sinceMs: number; untilMs: number } | undefined
  /** Of one that is to be tried again. */
  dueMs: number | undefined
}

type RawSealed = [SeenBatch['place'], string, number, ...string[]]
type RawSeen = ['gone'] | ['seen', string, number, string[], [string, string, number][], RawSealed[]]

export const inspectScript = defineScript({
  file: new URL('./inspect.lua', import.meta.url),
  parts,
  keys: (input: ShardInput & { name: string; most: number }) => shardKeys(input),
  args: ({ name, most, ...input }) => [...shardArgs(input), name, most],
  reply: (raw: RawSeen): SeenHook | undefined => {
    if (raw[0] === 'gone') return undefined
    const [, now, dead, flat, open, sealed] = raw
    return {
      nowMs: Number(now),
      dead,
      fields: Object.fromEntries(Array.from({ length: flat.length / 2 }, (_, i) => [flat[2 * i]!, flat[2 * i + 1]!])),
      open: open.map(([sequence, due, events]) => ({ sequence, dueMs: due ? Number(due) : undefined, events })),
      sealed: sealed.map(([place, headers, bytes, ...more]) => ({
        ...{ place, headers, bytes },
        lease: place === 'held' ? { worker: more[0]!, sinceMs: Number(more[1]), untilMs: Number(more[2]) } : undefined,
        dueMs: place === 'later' ? Number(more[0]) : undefined,
      })),
    }
  },
})
