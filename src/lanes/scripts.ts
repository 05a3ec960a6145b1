/** The scripts of lanes/, with what they are given and what they answer. */
import type { LaneKeys } from '../redis/keys.ts'
import { defineScript, type ScriptArg } from '../redis/script.ts'
import { limitWords, type QueueLimits } from './limits.ts'
import { type OperationRow, readRow as readOperation, type Track, trackWords } from './operation.ts'

/** Every script is given this. */
export interface StoreInput {
  keys: LaneKeys
  /** Instead of the server's clock, for tests. */
  nowMs?: number | undefined
}

export const laneLimits = {
  /** Items per claim. */
  claim: 1_000,
  /** Lanes and leases per step of a removal. */
  removal: 500,
  callMs: 3_600_000,
  onceMs: 86_400_000,
} as const

export const storeKeys = ({ keys }: StoreInput): string[] => [
  keys.store,
  keys.turns,
  keys.lanes,
  keys.weights,
  keys.later,
  keys.laterItems,
  keys.leases,
  keys.items,
  keys.dead,
  keys.deadOrder,
  keys.idle,
  keys.objects,
  keys.behind,
  keys.parked,
]
/** `fields`: what of the store is read besides. */
export const storeArgs = ({ keys, nowMs }: StoreInput, fields: readonly string[] = []): ScriptArg[] => [
  nowMs ?? '',
  keys.rankedPrefix,
  keys.heldPrefix,
  keys.laneWake,
  fields.join(' '),
]
const withMemory = (input: StoreInput): string[] => [...storeKeys(input), input.keys.remembered, input.keys.forget]

const parts = {
  around: [new URL('./store.part.lua', import.meta.url)],
  within: [
    new URL('./operation-index.part.lua', import.meta.url),
    new URL('./operation-ends.part.lua', import.meta.url),
    new URL('./operation-entry.part.lua', import.meta.url),
    new URL('./operations.part.lua', import.meta.url),
    new URL('./items.part.lua', import.meta.url),
    new URL('./order.part.lua', import.meta.url),
    new URL('./limits.part.lua', import.meta.url),
  ],
}
export const plannedParts = { ...parts, within: [...parts.within, new URL('./plan.part.lua', import.meta.url)] }
/** Acts of a call: settle has to be among them, and comes first. */
export const settlePart = new URL('./settle.part.lua', import.meta.url)
export const claimPart = new URL('./claim.part.lua', import.meta.url)

export interface MakeInput extends StoreInput {
  revision: number
  born: number
  /** Infinity: for ever. */
  attempts: number
  /** For as long as there is this store. */
  ordered: boolean
  /** After its last attempt the object of an item is set aside. */
  parks: boolean
  limits: QueueLimits
  /** Undefined: not tracked. */
  track?: Track | undefined
  applied: readonly number[]
  weights: Readonly<Record<string, number>>
}

export const makeScript = defineScript({
  file: new URL('./make.lua', import.meta.url),
  parts,
  keys: (input: MakeInput) => storeKeys(input),
  args: (input) => [
    ...storeArgs(input),
    input.revision,
    input.born,
    Number.isFinite(input.attempts) ? input.attempts : 0,
    input.ordered ? 1 : 0,
    input.parks ? 1 : 0,
    limitWords(input.limits),
    trackWords(input.track),
    input.applied.length,
    ...input.applied,
    ...Object.entries(input.weights).flat(),
  ],
  reply: ([kind]: ['made' | 'raised' | 'outdated' | 'left']) => kind,
})

export interface SentItem {
  id: string
  lane: string
  /** As `keyWord` writes it; '' without one. */
  key: string
  delayMs: number
  /** 0: for ever. */
  ttlMs: number
  priority: number
  /** Hash of lane and idempotency key; '' without one. */
  once: string
  fingerprint: string
  envelope: string
}

export interface SendInput extends StoreInput {
  process: string
  n: number
  items: readonly SentItem[]
  /** Of a tracked queue. */
  shown?: ShownInputs | undefined
}

/** What is shown of an item instead of its data. */
export interface ShownInput {
  id: string
  shown: string
}

/** What is shown instead of the data of some, by the definition of this revision. */
export interface ShownInputs {
  revision: number
  inputs: readonly ShownInput[]
}

export const inputWords = (inputs: readonly ShownInput[]): ScriptArg[] => [
  inputs.length,
  ...inputs.flatMap(({ id, shown }) => [id, shown]),
]

export type SendReply = { kind: 'sent'; nowMs: number; words: readonly string[] } | { kind: 'late' } | { kind: 'gone' }

export const sendScript = defineScript({
  file: new URL('./send.lua', import.meta.url),
  parts,
  keys: (input: SendInput) => withMemory(input),
  args: (input) => [
    ...storeArgs(input, input.shown ? ['defined'] : []),
    input.process,
    input.n,
    laneLimits.callMs,
    laneLimits.onceMs,
    input.items.length,
    ...input.items.flatMap((item) => [
      item.id,
      item.lane,
      item.key,
      item.delayMs,
      item.ttlMs,
      item.priority,
      item.once,
      item.fingerprint,
      item.envelope,
    ]),
    ...(input.shown ? [input.shown.revision, ...inputWords(input.shown.inputs)] : []),
  ],
  reply: ([kind, now, ...words]: ['sent', string, ...string[]] | ['late'] | ['gone']): SendReply =>
    kind === 'sent' ? { kind, nowMs: Number(now), words } : { kind },
})

/** No token begins with it. */
export const cancelMark = '!'

export const renewScript = defineScript({
  file: new URL('./renew.lua', import.meta.url),
  parts,
  keys: (input: StoreInput & { leaseMs: number; tokens: readonly string[] }) => storeKeys(input),
  args: (input) => [...storeArgs(input), input.leaseMs, ...input.tokens],
  /** The tokens that hold nothing any more; and, behind `cancelMark`, items that someone wants cancelled. */
  reply: ([, ...words]: ['renewed', ...string[]]) => words,
})

export interface ExtendInput extends StoreInput {
  token: string
  id: string
  forMs: number
  /** Of the lease that the item gets for itself. */
  ownToken: string
}

export type ExtendReply =
  | { kind: 'extended'; token: string; endsMs: number }
  | { kind: 'released' }
  | { kind: 'stale' }
  | { kind: 'gone' }

export const extendScript = defineScript({
  file: new URL('./extend.lua', import.meta.url),
  parts,
  keys: (input: ExtendInput) => storeKeys(input),
  args: (input) => [...storeArgs(input), input.token, input.id, input.forMs, input.ownToken],
  reply: (raw: ['extended', string, string] | ['released'] | ['stale'] | ['gone']): ExtendReply =>
    raw[0] === 'extended' ? { kind: raw[0], token: raw[1], endsMs: Number(raw[2]) } : { kind: raw[0] },
})

export const pauseScript = defineScript({
  file: new URL('./pause.lua', import.meta.url),
  parts,
  /** `lane`: '' for the whole queue. */
  keys: (input: StoreInput & { act: 'pause' | 'resume'; lane: string }) => storeKeys(input),
  args: (input) => [...storeArgs(input), input.act, input.lane],
  reply: ([kind]: ['done' | 'gone']) => kind,
})

type Letters = StoreInput & { ids: readonly string[] }

export const redriveScript = defineScript({
  file: new URL('./redrive.lua', import.meta.url),
  parts,
  keys: (input: Letters) => storeKeys(input),
  args: (input) => [...storeArgs(input), ...input.ids],
  reply: ([, letters = 0]: ['redriven', number] | ['gone']) => letters,
})

export const discardScript = defineScript({
  file: new URL('./discard.lua', import.meta.url),
  parts,
  keys: (input: Letters) => storeKeys(input),
  args: (input) => [...storeArgs(input), ...input.ids],
  reply: ([, letters = 0]: ['discarded', number] | ['gone']) => letters,
})

export const parkedScript = defineScript({
  file: new URL('./parked.lua', import.meta.url),
  parts,
  keys: (input: StoreInput & { act: 'resume' | 'discard'; objects: readonly string[] }) => storeKeys(input),
  args: (input) => [...storeArgs(input), input.act, ...input.objects],
  reply: ([, objects = 0, items = 0, more = 0]: ['done', number, number, number] | ['gone']) => ({
    objects,
    items,
    isMore: more === 1,
  }),
})

export interface EnterInput extends StoreInput {
  act: 'enter' | 'leave'
  worker: string
  start: string
}

export const enterScript = defineScript({
  file: new URL('./enter.lua', import.meta.url),
  parts,
  keys: (input: EnterInput) => storeKeys(input),
  args: (input) => [...storeArgs(input), input.act, input.worker, input.start],
  reply: ([kind, handedBack = 0]: ['entered', number] | ['left'] | ['gone']) => ({ kind, handedBack }),
})

export const dropScript = defineScript({
  file: new URL('./drop.lua', import.meta.url),
  parts,
  keys: (input: StoreInput & { name: string; bytes: number; most: number }) => storeKeys(input),
  args: (input) => [...storeArgs(input), input.name, input.bytes, input.most],
  reply: ([, items, bytes]: ['dropped', number, number]) => ({ items, bytes }),
})

/** What was given up of a lane's dead letters. */
export interface DroppedLetters {
  lane: string
  items: number
  bytes: number
}

export const readDroppedLetters = ([, ...words]: ['dropped', ...(string | number)[]]): DroppedLetters[] =>
  Array.from({ length: words.length / 3 }, (_, i) => ({
    lane: String(words[3 * i]),
    items: Number(words[3 * i + 1]),
    bytes: Number(words[3 * i + 2]),
  }))

export const dropLettersScript = defineScript({
  file: new URL('./drop-letters.lua', import.meta.url),
  parts,
  keys: (input: StoreInput & { bytes: number; most: number }) => storeKeys(input),
  args: (input) => [...storeArgs(input), input.bytes, input.most],
  reply: readDroppedLetters,
})

export const forgetScript = defineScript({
  file: new URL('./forget.lua', import.meta.url),
  parts,
  keys: (input: StoreInput & { most: number }) => storeKeys(input),
  args: (input) => [...storeArgs(input), input.most],
  reply: ([, operations]: ['forgotten', number]) => operations,
})

export const cancelScript = defineScript({
  file: new URL('./cancel.lua', import.meta.url),
  parts,
  keys: (input: StoreInput & { id: string }) => storeKeys(input),
  args: (input) => [...storeArgs(input), input.id],
  reply: ([kind]: ['cancelled' | 'asked' | 'ended' | 'unknown' | 'gone']) => kind,
})

export interface NoteInput extends StoreInput {
  token: string
  id: string
  /** For which it was looked through (Redactor.list). */
  list: string
  /** JSON; '' for none. */
  progress: string
  lines: readonly string[]
}

export const noteScript = defineScript({
  file: new URL('./note.lua', import.meta.url),
  parts,
  keys: (input: NoteInput) => storeKeys(input),
  args: (input) => [...storeArgs(input), input.token, input.id, input.list, input.progress, ...input.lines],
  reply: ([kind]: ['noted' | 'stale' | 'gone']) => kind,
})

export type OperationsAsk =
  | { act: 'get'; names: readonly string[] }
  /** `object`: "<tenant>/<key>"; `before`: the last of the page before. */
  | { act: 'of'; object: string; before: { queuedMs: number; name: string } | undefined; most: number }

export interface SeenOperations {
  rows: readonly OperationRow[]
  /** There are more of the object. */
  isMore: boolean
}

/** Undefined when there is no such store. */
export const operationsScript = defineScript({
  file: new URL('./operations.lua', import.meta.url),
  parts,
  keys: (input: StoreInput & { ask: OperationsAsk; detail: boolean }) => storeKeys(input),
  args: ({ ask, detail, ...input }) => [
    ...[...storeArgs(input), ask.act, detail ? 1 : 0],
    ...(ask.act === 'get' ? ask.names : [ask.object, ask.before?.queuedMs ?? '', ask.before?.name ?? '', ask.most]),
  ],
  reply: ([kind, more, ...rows]: ['seen', number, ...string[][]] | ['gone']): SeenOperations | undefined =>
    kind === 'seen' ? { rows: rows.map(readOperation), isMore: more === 1 } : undefined,
})

export const peekScript = defineScript({
  file: new URL('./peek.lua', import.meta.url),
  parts: plannedParts,
  keys: (input: StoreInput & { n: number }) => storeKeys(input),
  args: (input) => [...storeArgs(input), input.n],
  reply: ([kind, ...items]: ['next', ...string[]] | ['gone']) => (kind === 'next' ? items : undefined),
})

export const removeScript = defineScript({
  file: new URL('./remove.lua', import.meta.url),
  parts,
  keys: (input: StoreInput & { revision: number }) => withMemory(input),
  args: (input) => [...storeArgs(input), input.revision, laneLimits.removal],
  reply: ([kind]: ['more' | 'removed']) => kind,
})

/** One look at a part of a store: what of it, from where on, of which lane or token. */
export interface FsckAsk {
  what: string
  from: string
  name: string
  /** How many it is about, as far as that is known. */
  pieces?: number
}

export interface FsckAnswer {
  /** Where to go on; '' at the end. */
  next: string
  rows: readonly (readonly string[])[]
}

export interface FsckSeen {
  /** Changes with the store. */
  marks: string
  counters: readonly string[]
  answers: readonly FsckAnswer[]
}

export interface FsckInput extends StoreInput {
  /** Pieces per answer, about. */
  most: number
  asks: readonly FsckAsk[]
}

type RawAnswer = readonly [next: string, ...rows: (string | (string | number)[])[]]

/** Many rows come as one text each. */
const readRow = (row: string | (string | number)[]): string[] =>
  typeof row === 'string' ? row.split(' ') : row.map(String)

/** Undefined when there is no such store. */
export const fsckScript = defineScript({
  file: new URL('./fsck.lua', import.meta.url),
  parts,
  keys: (input: FsckInput) => withMemory(input),
  args: (input) => [
    ...storeArgs(input),
    input.most,
    ...input.asks.flatMap(({ what, from, name }) => [what, from, name]),
  ],
  reply: (raw: ['seen', string, (string | number)[], ...RawAnswer[]] | ['gone']): FsckSeen | undefined => {
    if (raw[0] === 'gone') return undefined
    const [, marks, counters, ...answers] = raw
    return {
      marks,
      counters: counters.map(String),
      answers: answers.map(([next, ...rows]) => ({ next, rows: rows.map(readRow) })),
    }
  },
})
