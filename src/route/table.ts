/** The table of subscriptions in this process: who wants what, as last loaded. */
import { createPatternTable } from '../pattern.ts'
import type { Loaded } from './scripts.ts'
import type { Subscription } from './sink.ts'

interface Row {
  subscription: Subscription
  drop(): void
}

export class RouteTable {
  readonly #rows = new Map<string, Row>()
  readonly #patterns = createPatternTable<Subscription>()
  #version = 0

  /** The revision up to which it is known. */
  get version(): number {
    return this.#version
  }

  /** How many want anything at all. */
  get wanting(): number {
    return this.#patterns.size
  }

  get(name: string): Subscription | undefined {
    return this.#rows.get(name)?.subscription
  }

  *all(): Generator<Subscription> {
    for (const { subscription } of this.#rows.values()) yield subscription
  }

  /** Shared: do not change the list. */
  match(tenant: string, type: string): readonly Subscription[] {
    return this.#patterns.match(tenant, type)
  }

  /** Answers the names of those that are new, changed or gone. All of it is taken, or nothing: then it is asked for again. */
  take(loaded: Loaded): string[] {
    const changed = this.#changedIn(loaded)
    const rows = this.#rowsOf(changed, loaded.definitions)
    for (const [name, row] of rows) {
      this.#rows.get(name)?.drop()
      if (row) this.#rows.set(name, row)
      else this.#rows.delete(name)
    }
    this.#version = loaded.version
    return changed
  }

  #changedIn({ whole, definitions }: Loaded): string[] {
    const changed: string[] = []
    for (const [name, definition] of definitions)
      if (this.get(name)?.revision !== definition?.revision) changed.push(name)
    if (whole) for (const name of this.#rows.keys()) if (!definitions.has(name)) changed.push(name)
    return changed
  }

  /** A later version may have stored a pattern that this one cannot read. */
  #rowsOf(names: readonly string[], definitions: Loaded['definitions']): Map<string, Row | undefined> {
    const rows = new Map<string, Row | undefined>()
    try {
      for (const name of names) rows.set(name, this.#rowOf(definitions.get(name)))
      return rows
    } catch (error) {
      for (const row of rows.values()) row?.drop()
      throw error
    }
  }

  #rowOf(subscription: Subscription | undefined): Row | undefined {
    if (!subscription) return undefined
    const { match } = subscription
    return { subscription, drop: match === null ? () => undefined : this.#patterns.add(match, subscription) }
  }
}
