/** What can be done in a store with others in one call: settle held items, take events in, claim. work.lua does it. */
import { defineScript, type ScriptArg } from '../redis/script.ts'
import { plannedParts, type StoreInput, storeArgs, storeKeys } from './scripts.ts'

export interface AcceptedItem {
  lane: string
  item: string
}

/** Events of one partition for a store. */
export interface Accept {
  revision: number
  born: number
  partition: number
  first: number
  last: number
  items: readonly AcceptedItem[]
}

export type AcceptReply = { kind: 'accepted' | 'full'; items: number } | { kind: 'outdated' } | { kind: 'gone' }

export interface Claim {
  /** Undefined takes the items for good. */
  token: string | undefined
  n: number
  leaseMs: number
  worker: string
  start: string
  /** Not by a worker: no other start of its name is in its way. */
  byHand?: boolean
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

const settleWords = (settlements: readonly Settlement[]): ScriptArg[] => {
  const groups = grouped(settlements)
  return [
    'settle',
    groups.length,
    ...groups.flatMap(({ token, kind, settlements: ofGroup }) => [
      token,
      kind,
      ofGroup.length,
      ...ofGroup.flatMap(settleArgs),
    ]),
  ]
}

const appliedField = ({ partition }: Accept): string => `applied:${partition}`
/** A field that no store has is no fence. */
const workerField = ({ worker, byHand }: Claim): string => (byHand ? 'by-hand' : `worker:${worker}`)

const acceptWords = (accept: Accept): ScriptArg[] => [
  ...['accept', appliedField(accept), accept.revision, accept.born, accept.first, accept.last, accept.items.length],
  ...accept.items.flatMap(({ lane, item }) => [lane, item]),
]

const claimWords = (claim: Claim): ScriptArg[] => [
  ...['claim', workerField(claim), claim.token ?? '', claim.n, claim.leaseMs],
  ...[claim.worker, claim.start, claim.idleName ?? ''],
]

type RawSettled = ['settled', ...number[]] | ['gone']
type RawAccepted = ['accepted' | 'full', number] | ['outdated', number] | ['gone']

export const readSettled = ([kind, ...places]: RawSettled): SettleReply =>
  kind === 'settled' ? { kind, stale: places.map((place) => place - 1) } : { kind }

export const readAccepted = ([kind, items]: RawAccepted): AcceptReply =>
  kind === 'accepted' || kind === 'full' ? { kind, items: items! } : { kind }

export function readClaimed(raw: RawClaim): ClaimReply {
  if (raw[0] !== 'claimed') return { kind: raw[0] }
  const [kind, revision, now, more, due, ...items] = raw
  return { kind, revision, nowMs: Number(now), more: more === 1, dueInMs: due < 0 ? undefined : due, items }
}

/** One act, as words for the script; `field` of the store it needs to know. */
export interface Act<Reply> {
  words: readonly ScriptArg[]
  field?: string
  /** How many items it is about. */
  size: number
  read(raw: never): Reply
}

export const settleAct = (settlements: readonly Settlement[]): Act<SettleReply> => ({
  words: settleWords(settlements),
  size: settlements.length,
  read: readSettled,
})

export const acceptAct = (accept: Accept): Act<AcceptReply> => ({
  words: acceptWords(accept),
  field: appliedField(accept),
  size: accept.items.length,
  read: readAccepted,
})

export const claimAct = (claim: Claim): Act<ClaimReply> => ({
  words: claimWords(claim),
  field: workerField(claim),
  size: claim.n,
  read: readClaimed,
})

/** The acts are done in this order: what one makes ready the next can claim. */
export const workScript = defineScript({
  file: new URL('./work.lua', import.meta.url),
  parts: {
    around: [new URL('./lone.part.lua', import.meta.url), ...plannedParts.around],
    within: [
      ...plannedParts.within,
      new URL('./settle.part.lua', import.meta.url),
      new URL('./accept.part.lua', import.meta.url),
      new URL('./claim.part.lua', import.meta.url),
    ],
  },
  keys: (input: StoreInput & { acts: readonly Act<unknown>[] }) => storeKeys(input),
  args: (input) => [
    ...storeArgs(input, [...new Set(input.acts.flatMap(({ field }) => field ?? []))]),
    ...input.acts.flatMap(({ words }) => words),
  ],
  reply: (raw: unknown[]) => raw,
})
