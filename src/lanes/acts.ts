/** What can be done in a store with others in one call: settle held items, take events in, claim. work.lua does it. */
import type { Redis } from 'ioredis'
import { defineScript, runScript, type WrittenArgs, writeArg, writeArgs } from '../redis/script.ts'
import { routedOperation } from './operation.ts'
import {
  claimPart,
  inputWords,
  plannedParts,
  type ShownInput,
  type StoreInput,
  settlePart,
  storeArgs,
  storeKeys,
} from './scripts.ts'

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
  /** Of a tracked queue: what is shown instead of the data of some. */
  inputs?: readonly ShownInput[] | undefined
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
      /** Not all that is due was brought back yet, or something lined up too late to be given: there may be some at once. */
      more: boolean
      /** Until something is; only known when there was less than asked for. */
      dueInMs: number | undefined
      items: readonly string[]
    }
  /** `more`: as above. */
  | { kind: 'paused'; more: boolean }
  | { kind: 'replaced' }
  | { kind: 'gone' }

type RawClaim =
  | ['claimed', number, string, number, number, ...string[]]
  | ['paused', number, string, number]
  | ['replaced']
  | ['gone']

/** What a tracked queue may keep. */
interface LookedThrough {
  /** For which list of what is never shown (Redactor.list). */
  list?: string
}

/** What became of one held item. */
export type Outcome =
  | { kind: 'ack' }
  /** The same of a tracked queue; its output is JSON, or ''. */
  | ({ kind: 'done'; output: string } & LookedThrough)
  | { kind: 'back' }
  | ({ kind: 'retry'; afterMs: number; reason: string } & LookedThrough)
  | ({ kind: 'dead'; reason: string } & LookedThrough)
  | { kind: 'throttle'; forMs: number }

export interface Settlement {
  token: string
  id: string
  outcome: Outcome
  /** How many its lease was given, and which of them it is: when all of them are done at once, only the first is named. */
  of?: number | undefined
  at?: number | undefined
}

/** Places in `settlements` of those that were not held under their tokens any more. */
export type SettleReply = { kind: 'settled'; stale: readonly number[] } | { kind: 'gone' }

/** Those of one token, kind and list that are one behind the other make a group: these are named once. */
function settleWords(settlements: readonly Settlement[]): WrittenArgs {
  let groups = 0
  let text = ''
  let count = 2
  for (let from = 0; from < settlements.length; ) {
    const till = endOfGroup(settlements, from)
    const size = till - from
    const { token, outcome, of } = settlements[from]!
    const outputs = of === size ? outputsOf(settlements, from, till) : undefined
    const kind = !outputs ? outcome.kind : outputs.length > 0 ? 'outputs' : 'all'
    text += writeArg(token) + writeArg(kind) + writeArg(size) + writeArg(listOf(outcome))
    if (outputs) text += writeArg(firstOf(settlements, from, till)) + outputs.map(writeArg).join('')
    else for (let i = from; i < till; i += 1) text += settlementWords(settlements[i]!)
    count += 4 + (outputs ? 1 + outputs.length : size * wordsOf[outcome.kind])
    groups += 1
    from = till
  }
  return { text: writeArg('settle') + writeArg(groups) + text, count }
}

/** The id of the one that was given first. */
function firstOf(settlements: readonly Settlement[], from: number, till: number): string {
  let first = from
  while (first < till - 1 && settlements[first]!.at !== 0) first += 1
  return settlements[first]!.id
}

/** Of a whole lease that is done, in the order in which it was given; none if all are empty. */
function outputsOf(settlements: readonly Settlement[], from: number, till: number): string[] | undefined {
  const { kind } = settlements[from]!.outcome
  if (kind === 'ack') return []
  if (kind !== 'done') return undefined
  const outputs = new Array<string>(till - from)
  let bytes = 0
  for (let i = from; i < till; i += 1) {
    const { at, outcome } = settlements[i] as Settlement & { at: number; outcome: { output: string } }
    outputs[at] = outcome.output
    bytes += outcome.output.length
  }
  return bytes > 0 ? outputs : []
}

const listOf = (outcome: Outcome): string => ('list' in outcome && outcome.list) || ''

function endOfGroup(settlements: readonly Settlement[], from: number): number {
  const { token, outcome } = settlements[from]!
  const list = listOf(outcome)
  for (let till = from + 1; till < settlements.length; till += 1) {
    const next = settlements[till]!
    if (next.token !== token || next.outcome.kind !== outcome.kind || listOf(next.outcome) !== list) return till
  }
  return settlements.length
}

/** How many words one is. */
const wordsOf: Record<Outcome['kind'], number> = { ack: 1, done: 2, back: 1, retry: 3, dead: 2, throttle: 2 }

function settlementWords({ id, outcome }: Settlement): string {
  switch (outcome.kind) {
    case 'done':
      return writeArg(id) + writeArg(outcome.output)
    case 'retry':
      return writeArg(id) + writeArg(outcome.afterMs) + writeArg(outcome.reason)
    case 'dead':
      return writeArg(id) + writeArg(outcome.reason)
    case 'throttle':
      return writeArg(id) + writeArg(outcome.forMs)
    default:
      return writeArg(id)
  }
}

const mostLaneArgs = 10_000
const laneArgs = new Map<string, string>()

/** The same tenants come again and again: what they are on the wire is written once. */
function laneArg(lane: string): string {
  const known = laneArgs.get(lane)
  if (known !== undefined) return known
  if (laneArgs.size >= mostLaneArgs) laneArgs.clear()
  const written = writeArg(lane)
  laneArgs.set(lane, written)
  return written
}

const appliedField = ({ partition }: Pick<Accept, 'partition'>): string => `applied:${partition}`
/** A field that no store has is no fence. */
const workerField = ({ worker, byHand }: Claim): string => (byHand ? 'by-hand' : `worker:${worker}`)

function acceptWords({ revision, born, first, last, items, inputs }: Accept, field: string): WrittenArgs {
  let { text, count } = writeArgs(['accept', field, revision, born, first, last, items.length, inputs ? 1 : 0])
  for (const { lane } of items) text += laneArg(lane)
  count += 2 * items.length
  if (!inputs) {
    for (const { item } of items) text += writeArg(item)
    return { text, count }
  }
  const entriesOf = new Map<string, string>()
  for (const { lane, item } of items) {
    const { name, object, entry } = routedOperation(lane, item)
    text += writeArg(name) + writeArg(item)
    if (object === undefined) continue
    const entries = entriesOf.get(object)
    entriesOf.set(object, entries === undefined ? entry : `${entries}\n${entry}`)
  }
  const before = writeArgs([
    'inputs',
    ...inputWords(inputs),
    entriesOf.size,
    ...entriesOf.keys(),
    ...entriesOf.values(),
  ])
  return { text: before.text + text, count: before.count + count + items.length }
}

const claimWords = ({ token = '', n, leaseMs, worker, start, idleName = '' }: Claim, field: string): WrittenArgs =>
  writeArgs(['claim', field, token, n, leaseMs, worker, start, idleName])

type RawSettled = ['settled', ...number[]] | ['gone']
type RawAccepted = ['accepted' | 'full', number] | ['outdated', number] | ['gone']

export const readSettled = ([kind, ...places]: RawSettled): SettleReply =>
  kind === 'settled' ? { kind, stale: places.map((place) => place - 1) } : { kind }

export const readAccepted = ([kind, items]: RawAccepted): AcceptReply =>
  kind === 'accepted' || kind === 'full' ? { kind, items: items! } : { kind }

export function readClaimed(raw: RawClaim): ClaimReply {
  if (raw[0] === 'paused') return { kind: 'paused', more: raw[3] === 1 }
  if (raw[0] !== 'claimed') return { kind: raw[0] }
  const [kind, revision, now, more, due] = raw
  const items = raw.slice(5) as string[]
  return { kind, revision, nowMs: Number(now), more: more === 1, dueInMs: due < 0 ? undefined : due, items }
}

/** One act, as words for the script; `field` of the store it needs to know. */
export interface Act<Reply> {
  words(): WrittenArgs
  field?: string
  /** How many items it is about. */
  size: number
  /** What it does, if lone.lua may do it too. */
  accept?: Accept
  claim?: Claim
  read(raw: never): Reply
}

export const settleAct = (settlements: readonly Settlement[]): Act<SettleReply> => ({
  words: () => settleWords(settlements),
  size: settlements.length,
  read: readSettled,
})

export function acceptAct(accept: Accept): Act<AcceptReply> {
  const field = appliedField(accept)
  return { words: () => acceptWords(accept, field), field, size: accept.items.length, accept, read: readAccepted }
}

export function claimAct(claim: Claim): Act<ClaimReply> {
  const field = workerField(claim)
  return { words: () => claimWords(claim, field), field, size: claim.n, claim, read: readClaimed }
}

/** Each once. */
function fieldsOf(acts: readonly Act<unknown>[]): string[] {
  const fields: string[] = []
  for (const { field } of acts) if (field !== undefined && !fields.includes(field)) fields.push(field)
  return fields
}

/** The acts are done in this order: what one makes ready the next can claim. */
export const workScript = defineScript({
  file: new URL('./work.lua', import.meta.url),
  parts: {
    around: plannedParts.around,
    within: [...plannedParts.within, settlePart, new URL('./accept.part.lua', import.meta.url), claimPart],
  },
  keys: (input: StoreInput & { acts: readonly Act<unknown>[] }) => storeKeys(input),
  keysFrom: ({ keys }) => keys,
  args: (input) => {
    const args = storeArgs(input, fieldsOf(input.acts))
    for (const { words } of input.acts) args.push(words())
    return args
  },
  reply: (raw: unknown[]) => raw,
})

/** One event, and a claim that comes with it. */
export interface Lone {
  accept: Accept
  claim: Claim & { token: string }
}

/** What these acts are, if that is all. */
function loneOf([first, second, ...others]: readonly Act<unknown>[]): Lone | undefined {
  const [accept, claim] = [first?.accept, second?.claim]
  if (!accept || !claim || others.length > 0) return undefined
  const { token, n } = claim
  if (accept.items.length > 1 || accept.inputs || token === undefined || n < 1) return undefined
  return { accept, claim: { ...claim, token } }
}

export const lonePart = new URL('./lone.part.lua', import.meta.url)

export const loneKeys = ({ keys }: StoreInput): string[] => [
  keys.store,
  keys.lanes,
  keys.later,
  keys.leases,
  keys.items,
  keys.idle,
]

/** What both acts are about, in one word: the path of latency. */
export function loneWords(
  { keys, nowMs }: StoreInput,
  accept: Pick<Accept, 'revision' | 'born' | 'partition'>,
  claim: Lone['claim'],
): string {
  const { revision, born } = accept
  const { token, n, leaseMs, worker, start, idleName } = claim
  const wish = `${workerField(claim)} ${token} ${n} ${leaseMs} ${worker} ${start} ${idleName || '-'}`
  return `${nowMs ?? '-'} ${keys.heldPrefix} ${appliedField(accept)} ${revision} ${born} ${wish}`
}

/** Answers what the two acts do; undefined when work.lua has to look at it. */
export const loneScript = defineScript({
  file: new URL('./lone.lua', import.meta.url),
  parts: { around: [], within: [lonePart] },
  keys: (input: StoreInput & Lone) => loneKeys(input),
  keysFrom: ({ keys }) => keys,
  args: ({ accept, claim, ...store }) => {
    const { lane, item } = accept.items[0]!
    return [loneWords(store, accept, claim), lane, accept.last, item]
  },
  reply: (raw: unknown[]) => (raw.length === 0 ? undefined : raw),
})

/** Does one event and its claim by the short way; undefined when that is not what is asked for, `busy` when there is more to do. */
export async function runLone(
  redis: Redis,
  { acts, ...store }: StoreInput & { acts: readonly Act<unknown>[] },
): Promise<unknown[] | 'busy' | undefined> {
  const lone = loneOf(acts)
  return lone && ((await runScript(redis, loneScript, { ...store, ...lone })) ?? 'busy')
}
