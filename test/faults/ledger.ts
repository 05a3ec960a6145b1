/**
 * Who published what, in which order, and what the answer was; compared at the end with what lies in the log.
 *
 *   stored     answered: there exactly once, under the answered id and prev
 *   unknown    OUTCOME_UNKNOWN: there once or not at all
 *   refused    any other error: not there
 *
 * Events of one publisher and key lie in the order of the calls, those of one commit without a hole; chains are unbroken,
 * and nothing is there that nobody published.
 */
import { expect } from 'vitest'
import { BusbarError, type ErrorCode } from '../../src/errors.ts'
import type { Published } from '../../src/publish/call.ts'
import { chainsOf, type StoredEvent } from '../support/stored.ts'

interface Entry {
  publisher: string
  key: string | undefined
  /** Number of the call: events of one commit share it. */
  call: number
  outcome: 'open' | 'stored' | 'unknown' | 'refused'
  code?: ErrorCode
  answer?: Published
}

export type Answer = Published | { error: BusbarError }
type Keys = readonly (string | undefined)[]
type Send = (data: number[]) => Promise<Answer[]>

export class Ledger {
  readonly #entries: Entry[] = []
  readonly #counts = new Map<string, number>()
  #calls = 0

  /** Writes an atomic call down before it is made, and its outcome afterwards. `send` gets the data of its events. */
  call(publisher: string, keys: Keys, send: Send): Promise<Answer[]> {
    this.#calls += 1
    return this.#record(
      keys.map((key) => ({ publisher, key, call: this.#calls, outcome: 'open' })),
      send,
    )
  }

  /** The same for several events that are stored each on its own. */
  calls(publisher: string, keys: Keys, send: Send): Promise<Answer[]> {
    return this.#record(
      keys.map((key) => {
        this.#calls += 1
        return { publisher, key, call: this.#calls, outcome: 'open' }
      }),
      send,
    )
  }

  async #record(entries: Entry[], send: Send): Promise<Answer[]> {
    const first = this.#entries.length
    this.#entries.push(...entries)
    const answers = await send(entries.map((_, i) => first + i)).catch((error: unknown) => {
      if (!(error instanceof BusbarError)) throw error
      return entries.map(() => ({ error }))
    })
    for (const [i, entry] of entries.entries()) {
      settle(entry, answers[i]!)
      for (const what of [entry.outcome, entry.code])
        if (what) this.#counts.set(what, (this.#counts.get(what) ?? 0) + 1)
    }
    return answers
  }

  /** How many events have this outcome, or this error. */
  count(what: Exclude<Entry['outcome'], 'open'> | ErrorCode): number {
    return this.#counts.get(what) ?? 0
  }

  /** Events whose calls have no outcome yet. */
  get open(): number {
    return this.#entries.length - this.count('stored') - this.count('unknown') - this.count('refused')
  }

  /** Every problem, none when the log is what the answers say. */
  problemsWith(log: readonly StoredEvent[]): string[] {
    const found = new Map<number, StoredEvent[]>()
    for (const event of log) {
      const n = Number(event.json)
      const same = found.get(n)
      if (same) same.push(event)
      else found.set(n, [event])
    }
    const problems: string[] = []
    for (const [n, events] of found)
      if (!this.#entries[n]) problems.push(`${events[0]!.id} was never published: ${events[0]!.json}`)
    for (const [n, entry] of this.#entries.entries())
      problems.push(...placeProblems(entry, found.get(n) ?? []).map((problem) => `event ${n} ${problem}`))
    return [...problems, ...this.#orderProblems(found), ...chainProblems(log)]
  }

  expectToMatch(log: readonly StoredEvent[]): void {
    const problems = this.problemsWith(log)
    expect(problems.slice(0, 10), `${problems.length} problems in ${this.#entries.length} events`).toEqual([])
  }

  #orderProblems(found: ReadonlyMap<number, StoredEvent[]>): string[] {
    const problems: string[] = []
    const before = new Map<string, { seq: number; call: number }>()
    for (const [n, { publisher, key, call }] of this.#entries.entries()) {
      const seq = found.get(n)?.[0]?.seq
      if (key === undefined || seq === undefined) continue
      const last = before.get(`${publisher} ${key}`)
      if (last && seq <= last.seq) problems.push(`event ${n} of ${key} lies before the one published before it`)
      if (last?.call === call && seq !== last.seq + 1) problems.push(`event ${n} is apart from its commit`)
      before.set(`${publisher} ${key}`, { seq, call })
    }
    return problems
  }
}

function settle(entry: Entry, answer: Answer): void {
  if (!('error' in answer)) {
    entry.outcome = 'stored'
    entry.answer = answer
    return
  }
  entry.outcome = answer.error.code === 'OUTCOME_UNKNOWN' ? 'unknown' : 'refused'
  entry.code = answer.error.code
}

function placeProblems({ outcome, code, answer }: Entry, events: readonly StoredEvent[]): string[] {
  if (events.length > 1) return [`is there ${events.length} times: ${events.map(({ id }) => id)}`]
  const [event] = events
  if (outcome === 'open') return ['has no answer']
  if (outcome === 'refused') return event ? [`was ${code} and is there: ${event.id}`] : []
  if (!answer) return []
  if (!event) return [`was answered with ${answer.id} and is not there`]
  if (event.id !== answer.id || event.seq !== answer.seq || event.prev !== answer.prev)
    return [`was answered with ${answer.id} after ${answer.prev} and is ${event.id} after ${event.prev}`]
  return []
}

function chainProblems(log: readonly StoredEvent[]): string[] {
  const problems: string[] = []
  const lastIn = new Map<number, number>()
  for (const { partition, seq, id } of log) {
    if (seq <= (lastIn.get(partition) ?? 0)) problems.push(`${id} is not above the one before it`)
    lastIn.set(partition, seq)
  }
  for (const [object, chain] of chainsOf(log))
    for (const [i, { id, prev }] of chain.entries())
      if (prev !== (chain[i - 1]?.seq ?? null)) problems.push(`${id} of ${object} has prev ${prev}`)
  return problems
}
