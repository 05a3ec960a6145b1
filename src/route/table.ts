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

  /** Answers the names of those that are new, changed or gone. */
  take({ whole, version, definitions }: Loaded): string[] {
    this.#version = version
    const changed: string[] = []
    for (const [name, definition] of definitions)
      if (this.get(name)?.revision !== definition?.revision) changed.push(name)
    if (whole) for (const name of this.#rows.keys()) if (!definitions.has(name)) changed.push(name)
    for (const name of changed) this.#put(name, definitions.get(name))
    return changed
  }

  #put(name: string, subscription: Subscription | undefined): void {
    this.#rows.get(name)?.drop()
    this.#rows.delete(name)
    if (!subscription) return
    const { match } = subscription
    const drop = match === null ? () => undefined : this.#patterns.add(match, subscription)
    this.#rows.set(name, { subscription, drop })
  }
}
