/**
 * A lease by its token: what whoever has nothing else of a claim, such as a client of the HTTP door, says of its items.
 *
 * Every call may be repeated after a lost answer: what is not held any more is stale, and nothing changes.
 */
import { createHash } from 'node:crypto'
import type { Duration } from '../../duration.ts'
import type { Outcome } from '../../lanes/acts.ts'
import { readItem, saidReason } from '../../lanes/item.ts'
import { checkTime, invalid } from './checks.ts'
import type { LeaseDoor } from './lease.ts'

/** Ids of items, by whether what was said of them counts; the stale ones were not held under this token. */
export interface SettledItems {
  settled: string[]
  stale: string[]
}

export interface ExtendedItem extends SettledItems {
  /** Of the item's own lease from now on, and its end in ms; null when it is not held any more. */
  token: string | null
  until: number | null
}

const tokenShape = /^[\w-]{20}$/
const idLength = 100

export class HeldLease {
  readonly token: string
  readonly #open: () => Promise<LeaseDoor>

  constructor(token: string, open: () => Promise<LeaseDoor>) {
    if (!tokenShape.test(String(token))) throw invalid('token', token, 'must be the token of a claim')
    this.token = token
    this.#open = open
  }

  /** `output`: what the operations of a tracked queue show. */
  async ack(ids: readonly string[], output?: unknown): Promise<SettledItems> {
    const door = await this.#open()
    return this.#settle(door, ids.map(checkId), door.doneWith(output))
  }

  /** Without a time it follows the queue's retry policy. */
  async retry(id: string, { after, reason }: { after?: Duration; reason?: string } = {}): Promise<SettledItems> {
    checkId(id)
    const wanted = after === undefined ? undefined : checkTime('after', after)
    const door = await this.#open()
    const afterMs = wanted ?? (await this.#backoffMs(door, id))
    const stored = saidReason(reason ?? 'the holder asked for a retry')
    return this.#settle(door, [id], { kind: 'retry', afterMs, reason: stored })
  }

  async dead(id: string, reason = 'the holder gave it up'): Promise<SettledItems> {
    return this.#settle(await this.#open(), [checkId(id)], { kind: 'dead', reason: saidReason(reason) })
  }

  /** Holds it for so long from now, in a lease of its own; 0 makes it available at once. */
  async extend(id: string, time: Duration): Promise<ExtendedItem> {
    const forMs = checkTime('time', time)
    const input = { token: this.token, id: checkId(id), forMs, ownToken: ownToken(this.token, id) }
    const { store, repeated } = await this.#open()
    const reply = await repeated(() => store.extend(input))
    if (reply.kind === 'extended') return { settled: [id], stale: [], token: reply.token, until: reply.endsMs }
    const isReleased = reply.kind === 'released'
    return { settled: isReleased ? [id] : [], stale: isReleased ? [] : [id], token: null, until: null }
  }

  /** How often it was tried stands in the item alone. */
  async #backoffMs({ store, repeated, backoffMs }: LeaseDoor, id: string): Promise<number> {
    const text = await repeated(() => store.heldItem(this.token, id))
    return text === null ? 0 : Math.round(backoffMs(readItem(text).attempts + 1))
  }

  async #settle({ settle }: LeaseDoor, ids: readonly string[], outcome: Outcome): Promise<SettledItems> {
    const unique = [...new Set(ids)]
    const words = await Promise.all(unique.map((id) => settle(this.token, id, outcome)))
    const those = (word: string) => unique.filter((_, i) => words[i] === word)
    return { settled: those('settled'), stale: those('stale') }
  }
}

/** The same each time it is asked for, so that a repeated call answers the same token. Nobody knows it who does not know the first. */
const ownToken = (token: string, id: string): string =>
  createHash('sha256').update(`${token}\n${id}`).digest('base64url').slice(0, 20)

function checkId(id: string): string {
  if (typeof id === 'string' && id.length > 0 && id.length <= idLength) return id
  throw invalid('id', id, `must be the id of a claimed item, at most ${idLength} characters`)
}
