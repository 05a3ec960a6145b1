/** What must hold of webhooks whatever happens, said of what is stored and given alone: no reference is asked what ought to be there. */
import { isDeepStrictEqual } from 'node:util'
import { type Batch, readBatch } from '../../src/sinks/webhook/batch.ts'
import type { StoredHooks, StoredLanes } from './stored.ts'

export class Invariants {
  /** All that were seen, by id and by text. */
  readonly #batches = new Map<string, Batch>()
  readonly #texts = new Map<string, Batch>()
  /** That were given before, or put back in line by hand, which ends their order. */
  readonly #outOfOrder = new Set<string>()
  /** By webhook and sequence: the batch that was last given for the first time. */
  readonly #lastGiven = new Map<string, string>()
  readonly #attempts = new Map<string, number>()
  /** Events, by webhook. */
  readonly #redriven = new Map<string, number>()

  redriven(ids: readonly string[]): void {
    for (const { id, subscription, events } of ids.flatMap((one) => this.#batches.get(one) ?? [])) {
      this.#outOfOrder.add(id)
      this.#attempts.delete(id)
      this.#redriven.set(subscription, (this.#redriven.get(subscription) ?? 0) + events)
    }
  }

  removed(name: string): void {
    this.#redriven.delete(name)
  }

  /** HOOK-5, HOOK-9: attempts grow by one; those of a sequence come in the order in which they were sealed, and ids say in which. */
  given(texts: readonly string[]): void {
    for (const { id, subscription, sequence, attempts } of texts.map(readBatch)) {
      const more = attempts - (this.#attempts.get(id) ?? 0)
      holds(more === 0 || more === 1, `HOOK-5 of ${id}: ${more} attempts more`)
      this.#attempts.set(id, attempts)
      if (this.#outOfOrder.has(id)) continue
      this.#outOfOrder.add(id)
      const last = this.#lastGiven.get(`${subscription} ${sequence}`)
      holds(last === undefined || orderOf(id) > orderOf(last), `HOOK-9: ${id} after ${last}`)
      this.#lastGiven.set(`${subscription} ${sequence}`, id)
    }
  }

  hold(lanes: StoredLanes, stored: StoredHooks): void {
    const batches = stored.texts.map((text) => this.#read(text))
    eachIsInOnePlace(lanes, stored, batches)
    openOnesAreWhatTheySay(stored)
    sequencesAreServedOneByOne(lanes)
    eventsAreThereOnce(stored, batches)
    this.#nothingIsLost(stored)
  }

  /** W04: a batch that is seen again is the same byte for byte, but for its attempts. */
  #read(text: string): Batch {
    const known = this.#texts.get(text)
    if (known) return known
    const batch = readBatch(text)
    const before = this.#batches.get(batch.id) ?? batch
    const untried = { attempts: 0, firstTriedMs: undefined }
    holds(isDeepStrictEqual({ ...batch, ...untried }, { ...before, ...untried }), `W04: ${batch.id} has changed`)
    this.#batches.set(batch.id, batch)
    this.#texts.set(text, batch)
    return batch
  }

  /** What came in is here, delivered, dead or dropped; what was redriven has died before. */
  #nothingIsLost({ hooks }: StoredHooks): void {
    for (const [name, { fields }] of Object.entries(hooks)) {
      const count = (counter: string) => Number(fields[counter] ?? 0)
      const all = count('backlog') + count('delivered') + count('dead') + count('dropped')
      holds(all === count('in') + (this.#redriven.get(name) ?? 0), `some events of ${name} are lost, or made up`)
    }
  }
}

/** HOOK-1: waiting, behind, held, to be tried again, or dead; twin keys have the same members. */
function eachIsInOnePlace(lanes: StoredLanes, { deadlines, hooks }: StoredHooks, batches: readonly Batch[]): void {
  holds(isEachOnce(batches.map(({ id }) => id)), 'HOOK-1: a batch is in two places')
  const open = Object.entries(hooks).flatMap(([name, its]) => Object.keys(its.open).map((one) => `${name} ${one}`))
  holds(areAlike(Object.keys(deadlines), open), `HOOK-1: open are ${open}, due ${Object.keys(deadlines)}`)
  const later = Object.keys(lanes.later).filter((id) => !id.startsWith('@'))
  const items = lanes.laterItems.map(({ id }) => id)
  holds(areAlike(later, items), `HOOK-1: ${later} are to be tried again, there are ${items}`)
}

/** HOOK-2, HOOK-3: an open batch has one list, as many events and bytes as it says; with one event more it would have been sealed. */
function openOnesAreWhatTheySay({ hooks }: StoredHooks): void {
  for (const { fields, open } of Object.values(hooks)) {
    for (const [sequence, [wrap, ...pieces]] of Object.entries(open)) {
      const [, events, bytes] = fields[`open:${sequence}`]!.split(' ').map(Number)
      const are = { events: pieces.length, bytes: Buffer.byteLength(wrap! + pieces.join('')) }
      holds(isDeepStrictEqual(are, { events, bytes }), `HOOK-2: ${fields[`open:${sequence}`]} has ${pieces}`)
    }
  }
}

/** HOOK-4, HOOK-9: a batch is held under one lease, and of a sequence one at a time is held, waits to be given or to be tried again. */
function sequencesAreServedOneByOne({ leases, waiting, laterItems }: StoredLanes): void {
  const held = Object.values(leases).flatMap(({ items }) => items)
  const there = [...held, ...Object.values(waiting).flat(), ...laterItems]
  const sequences = there.map(({ lane, key }) => `${lane} ${key}`)
  holds(isEachOnce(sequences), `HOOK-4, HOOK-9: two at a time of ${sequences}`)
}

/** HOOK-2: an event is in one batch of its webhook. */
function eventsAreThereOnce({ hooks }: StoredHooks, batches: readonly Batch[]): void {
  const sealed = batches.flatMap(({ subscription, ids }) => ids.map((id) => `${subscription} ${id}`))
  const open = Object.entries(hooks).flatMap(([name, its]) =>
    Object.values(its.open).flatMap(([, ...pieces]) => pieces.map((piece) => `${name} ${piece.split(' ')[0]}`)),
  )
  holds(isEachOnce([...sealed, ...open]), `HOOK-2: an event is there twice: ${[...sealed, ...open]}`)
}

/** After each step of each walk: an expect for each would take most of the time. */
function holds(does: boolean, otherwise: string): void {
  if (!does) throw new Error(otherwise)
}

const isEachOnce = (names: readonly string[]): boolean => new Set(names).size === names.length
const areAlike = (some: readonly string[], others: readonly string[]): boolean =>
  isDeepStrictEqual([...some].sort(), [...others].sort())

/** Of the call that sealed it, and which one of the call: its last digits are not in the order of characters. */
function orderOf(id: string): string {
  const digits = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_'
  return id.slice(0, -3) + [...id.slice(-3)].map((digit) => String(digits.indexOf(digit)).padStart(2, '0')).join('')
}
