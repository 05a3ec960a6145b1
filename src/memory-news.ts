/**
 * What was given up for memory, until an event has told of it.
 *
 *   new      counted together, one entry for each backlog
 *   chunk    some entries on their way under one idempotency key, which stays until there is an answer: told once, however often it is tried
 *
 * Bounded: of backlogs beyond the first thousand only the sum is told.
 */
import { BusbarError } from './errors.ts'
import type { Telemetry } from './runtime/telemetry.ts'

/** What was given up of one backlog. */
export interface Dropped {
  kind: 'queue' | 'webhook'
  /** '' in an event that tells of more backlogs than can be named. */
  name: string
  /** Of a queue: whose items. */
  tenant?: string
  /** They were dead letters. */
  letters?: true
  items: number
  bytes: number
}

export interface NewsContext {
  telemetry: Telemetry
  newKey(): string
  announce(dropped: readonly Dropped[], key: string): Promise<void>
}

interface Chunk {
  key: string
  dropped: Dropped[]
  hasFailed: boolean
}

const mostBacklogs = 1_000
// Names and tenants have some hundred bytes at most: far below what an event may have.
const perChunk = 50

export class DroppedNews {
  readonly #context: NewsContext
  readonly #new = new Map<string, Dropped>()
  #chunk: Chunk | undefined

  constructor(context: NewsContext) {
    this.#context = context
  }

  add(dropped: Dropped): void {
    const key = keyOf(dropped)
    if (this.#new.has(key) || this.#new.size < mostBacklogs) merge(this.#new, key, dropped)
    else merge(this.#new, dropped.kind, { kind: dropped.kind, name: '', items: dropped.items, bytes: dropped.bytes })
  }

  /** As much as goes through now. */
  async tell(): Promise<void> {
    while (this.#chunk || this.#new.size > 0) {
      this.#chunk ??= this.#nextChunk()
      if (!(await this.#telling(this.#chunk))) return
      this.#chunk = undefined
    }
  }

  #nextChunk(): Chunk {
    const entries = [...this.#new].slice(0, perChunk)
    for (const [key] of entries) this.#new.delete(key)
    return { key: this.#context.newKey(), dropped: entries.map(([, dropped]) => dropped), hasFailed: false }
  }

  /** Whether it is over: told, or it never can be. */
  async #telling(chunk: Chunk): Promise<boolean> {
    const { announce, telemetry } = this.#context
    try {
      await announce(chunk.dropped, chunk.key)
      return true
    } catch (error) {
      const willRepeat = !(error instanceof BusbarError) || error.retryable
      if (!chunk.hasFailed || !willRepeat)
        telemetry.emit('memory.untold', { backlogs: chunk.dropped.length, willRepeat, problem: String(error) })
      chunk.hasFailed = true
      return !willRepeat
    }
  }
}

export const keyOf = ({ kind, name, tenant, letters }: Dropped): string => `${kind} ${name} ${tenant} ${letters}`

/** Adds to what is there of the same backlog. */
export function merge(to: Map<string, Dropped>, key: string, dropped: Dropped): void {
  const known = to.get(key)
  const items = (known?.items ?? 0) + dropped.items
  to.set(key, { ...(known ?? dropped), items, bytes: (known?.bytes ?? 0) + dropped.bytes })
}
