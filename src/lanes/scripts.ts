/** The scripts of lanes/, with what they are given and what they answer. */
import type { LaneKeys } from '../redis/keys.ts'
import { defineScript, type ScriptArg } from '../redis/script.ts'

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

const storeKeys = ({ keys }: StoreInput): string[] => [
  keys.store,
  keys.turns,
  keys.lanes,
  keys.weights,
  keys.later,
  keys.laterItems,
  keys.leases,
  keys.holders,
  keys.dead,
  keys.deadOrder,
  keys.idle,
  keys.waiting,
]
/** `field`: what of the store is read besides. */
const storeArgs = ({ keys, nowMs }: StoreInput, field = ''): ScriptArg[] => [
  nowMs ?? '',
  keys.rankedPrefix,
  keys.heldPrefix,
  keys.laneWake,
  field,
]
const withMemory = (input: StoreInput): string[] => [...storeKeys(input), input.keys.remembered, input.keys.forget]

const parts = [new URL('./store.part.lua', import.meta.url)]
const plannedParts = [...parts, new URL('./plan.part.lua', import.meta.url)]

export interface MakeInput extends StoreInput {
  revision: number
  born: number
  /** Infinity: for ever. */
  attempts: number
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
    input.applied.length,
    ...input.applied,
    ...Object.entries(input.weights).flat(),
  ],
  reply: ([kind]: ['made' | 'raised' | 'outdated' | 'left']) => kind,
})

export interface AcceptInput extends StoreInput {
  revision: number
  born: number
  partition: number
  first: number
  last: number
  groups: readonly { lane: string; items: readonly string[] }[]
}

export type AcceptReply = { kind: 'accepted'; items: number } | { kind: 'outdated' } | { kind: 'gone' }

export const acceptScript = defineScript({
  file: new URL('./accept.lua', import.meta.url),
  parts,
  keys: (input: AcceptInput) => storeKeys(input),
  args: (input) => [
    ...storeArgs(input, `applied:${input.partition}`),
    input.revision,
    input.born,
    input.first,
    input.last,
    ...input.groups.flatMap(({ lane, items }) => [lane, items.length, ...items]),
  ],
  reply: ([kind, items]: ['accepted', number] | ['outdated', number] | ['gone']): AcceptReply =>
    kind === 'accepted' ? { kind, items: items! } : { kind },
})

export interface SentItem {
  id: string
  lane: string
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
}

export type SendReply = { kind: 'sent'; words: readonly string[] } | { kind: 'late' } | { kind: 'gone' }

export const sendScript = defineScript({
  file: new URL('./send.lua', import.meta.url),
  parts,
  keys: (input: SendInput) => withMemory(input),
  args: (input) => [
    ...storeArgs(input),
    input.process,
    input.n,
    laneLimits.callMs,
    laneLimits.onceMs,
    ...input.items.flatMap((item) => [
      item.id,
      item.lane,
      item.delayMs,
      item.ttlMs,
      item.priority,
      item.once,
      item.fingerprint,
      item.envelope,
    ]),
  ],
  reply: ([kind, ...words]: ['sent', ...string[]] | ['late'] | ['gone']): SendReply =>
    kind === 'sent' ? { kind, words } : { kind },
})

export interface ClaimInput extends StoreInput {
  /** Undefined takes the items for good. */
  token: string | undefined
  n: number
  leaseMs: number
  worker: string
  start: string
  /** Under which it hears of work when there is less than it asks for. */
  idleName?: string
}

export type ClaimReply =
  | {
      kind: 'claimed'
      revision: number
      nowMs: number
      /** Not all that is due was brought back yet. */
      more: boolean
      /** Until something is; only known when there was less than asked for. */
      dueInMs: number | undefined
      items: readonly string[]
    }
  | { kind: 'paused' }
  | { kind: 'replaced' }
  | { kind: 'gone' }

type RawClaim =
  | ['claimed', number, string, number, number, ...string[]]
  | ['paused', number, string]
  | ['replaced']
  | ['gone']

export const claimScript = defineScript({
  file: new URL('./claim.lua', import.meta.url),
  parts: plannedParts,
  keys: (input: ClaimInput) => storeKeys(input),
  args: (input) => [
    ...storeArgs(input, `worker:${input.worker}`),
    input.token ?? '',
    input.n,
    input.leaseMs,
    input.worker,
    input.start,
    input.idleName ?? '',
  ],
  reply: (raw: RawClaim): ClaimReply => {
    if (raw[0] !== 'claimed') return { kind: raw[0] }
    const [kind, revision, now, more, due, ...items] = raw
    return { kind, revision, nowMs: Number(now), more: more === 1, dueInMs: due < 0 ? undefined : due, items }
  },
})

/** What became of one held item. */
export type Outcome =
  | { kind: 'ack' }
  | { kind: 'back' }
  | { kind: 'retry'; afterMs: number; reason: string }
  | { kind: 'dead'; reason: string }
  | { kind: 'throttle'; forMs: number }

export interface Settlement {
  token: string
  id: string
  outcome: Outcome
}

/** Places in `settlements` of those that were not held under their tokens any more. */
export type SettleReply = { kind: 'settled'; stale: readonly number[] } | { kind: 'gone' }

/** Of one token and kind, one behind the other. */
interface SettleGroup {
  token: string
  kind: Outcome['kind']
  settlements: Settlement[]
}

function grouped(settlements: readonly Settlement[]): SettleGroup[] {
  const groups: SettleGroup[] = []
  for (const settlement of settlements) {
    const { token, outcome } = settlement
    const last = groups.at(-1)
    if (last?.token === token && last.kind === outcome.kind) last.settlements.push(settlement)
    else groups.push({ token, kind: outcome.kind, settlements: [settlement] })
  }
  return groups
}

function settleArgs({ id, outcome }: Settlement): ScriptArg[] {
  switch (outcome.kind) {
    case 'retry':
      return [id, outcome.afterMs, outcome.reason]
    case 'dead':
      return [id, outcome.reason]
    case 'throttle':
      return [id, outcome.forMs]
    default:
      return [id]
  }
}

export const settleScript = defineScript({
  file: new URL('./settle.lua', import.meta.url),
  parts,
  keys: (input: StoreInput & { settlements: readonly Settlement[] }) => storeKeys(input),
  args: (input) => [
    ...storeArgs(input),
    ...grouped(input.settlements).flatMap(({ token, kind, settlements }) => [
      token,
      kind,
      settlements.length,
      ...settlements.flatMap(settleArgs),
    ]),
  ],
  reply: ([kind, ...places]: ['settled', ...number[]] | ['gone']): SettleReply =>
    kind === 'settled' ? { kind, stale: places.map((place) => place - 1) } : { kind },
})

export const renewScript = defineScript({
  file: new URL('./renew.lua', import.meta.url),
  parts,
  keys: (input: StoreInput & { leaseMs: number; tokens: readonly string[] }) => storeKeys(input),
  args: (input) => [...storeArgs(input), input.leaseMs, ...input.tokens],
  /** The tokens that hold nothing any more. */
  reply: ([, ...lost]: ['renewed', ...string[]]) => lost,
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
  keys: (input: StoreInput & { act: 'pause' | 'resume' }) => storeKeys(input),
  args: (input) => [...storeArgs(input), input.act],
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
