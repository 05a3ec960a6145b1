/**
 * A model of everything that routing stands on, for random schedules: the log, the scripts in {group.route}, the stores, time.
 *
 * The scripts' decisions are restated here as their specification; test/scripts/route.test.ts holds the real ones to it on a real
 * Redis. What is driven is the very code of src/route: Routing with its partitions, and change.ts.
 *
 * Nothing happens by itself. Every call waits until the scheduler executes it, and its answer until the scheduler gives it; in any
 * order, or never.
 */
import type { Entry } from '../../src/log/entry.ts'
import type { LogHint } from '../../src/log/hint.ts'
import type { RawPage } from '../../src/log/read.ts'
import { readSubscription } from '../../src/route/definition.ts'
import type {
  Committed,
  Loaded,
  OwnPlace,
  PutReply,
  Removal,
  RemoveReply,
  SaidRoute,
  Start,
} from '../../src/route/scripts.ts'
import type { Accepted, Delivery, NextRouted, Subscription } from '../../src/route/sink.ts'

export const partitions = 2

/** A bug, planted to see whether the checks find it. */
export type Bug =
  | 'no-revision-check'
  | 'created-just-ride'
  | 'join-any-revision'
  | 'gone-is-accepted'
  | 'no-born'
  | 'takes-the-last'

export interface LoggedEvent {
  seq: number
  type: string
  /** Step at which it was published. */
  at: number
}

/** One life of a subscription: from its creation to its removal. */
export interface Life {
  name: string
  start: readonly number[]
  /** Each with the step at which the caller had its answer. */
  revisions: { revision: number; match: string | null; answeredAt: number }[]
}

interface Store {
  born: number
  revision: number
  applied: number[]
  taken: number[][]
}

/** Xorshift: the same seed, the same schedule. */
export function randomOf(seed: number): (below: number) => number {
  let x = (Math.imul(seed + 1, 0x9e3779b1) ^ 0x5bd1e995) >>> 0 || 1
  return (below) => {
    x ^= x << 13
    x >>>= 0
    x ^= x >>> 17
    x ^= x << 5
    x >>>= 0
    return x % below
  }
}

export class World {
  readonly bug: Bug | undefined
  step = 0
  readonly log: { events: LoggedEvent[]; entries: Entry[] }[] = []
  readonly lives = new Map<number, Life>()
  readonly stores = new Map<string, Store>()
  /** Names whose stores answer with an error. */
  readonly refusing = new Set<string>()
  readonly owners: { router: number; epoch: number }[] = []
  readonly #mains = new Map<number, number>()
  readonly #own = new Map<string, OwnPlace>()
  readonly #definitions = new Map<string, { text: string; subscription: Subscription }>()
  readonly #changes = new Map<string, number>()
  readonly #removing = new Map<string, string>()
  #revision = 0
  #seq = 0

  constructor(bug: Bug | undefined) {
    this.bug = bug
    for (let p = 0; p < partitions; p += 1) {
      this.log.push({ events: [], entries: [] })
      this.owners.push({ router: -1, epoch: 0 })
    }
  }

  publish(partition: number, types: readonly string[]): LogHint {
    const { events, entries } = this.log[partition]!
    const before = this.last(partition)
    this.#seq += 1
    const envelopes = types.map((type) => {
      events.push({ seq: ++this.#seq, type, at: this.step })
      return `\x1e{"type":"${type}","tenant":"t"}\n1`
    })
    const entry: Entry = [`${this.#seq}-0`, [types.map(() => '').join(' '), envelopes.join('')]]
    entries.push(entry)
    return { before, last: this.#seq, kinds: '', entry: types.length === 1 ? entry : undefined }
  }

  last(partition: number): number {
    return this.log[partition]!.events.at(-1)?.seq ?? 0
  }

  read(partition: number, after: number, count: number): RawPage {
    const all = this.log[partition]!.entries
    let first = all.length
    while (first > 0 && Number.parseInt(all[first - 1]![0], 10) > after) first -= 1
    const entries = all.slice(first, first + count)
    const last = entries.length > 0 ? Number.parseInt(entries.at(-1)![0], 10) : after
    return { entries, last, complete: entries.length < count, trimmed: 0 }
  }

  // put.lua
  put(name: string, definition: string, starts: readonly Start[]): PutReply {
    const removal = this.removalOf(name)
    if (removal) return { kind: 'removing', removal }
    const stored = this.#subscriptionOf(name)
    const seqs = starts.map(({ at: start, last }, p) => {
      if (!stored) return start
      const at = this.#own.get(`${p} ${name}`)?.seq ?? this.#main(p)
      return stored.match === null ? Math.max(at, last) : at
    })
    if (stored && this.#definitions.get(name)!.text === definition)
      return { kind: 'same', revision: stored.revision, born: stored.born, seqs }
    const revision = ++this.#revision
    const born = stored?.born ?? revision
    const subscription = readSubscription(name, `${revision} ${born} ${definition}`)
    this.#definitions.set(name, { text: definition, subscription })
    this.#changes.set(name, revision)
    for (const [p, seq] of seqs.entries()) {
      if (subscription.match === null) this.#own.delete(`${p} ${name}`)
      else if (stored || this.bug !== 'created-just-ride') this.#own.set(`${p} ${name}`, { seq, revision })
    }
    if (!stored) this.lives.set(born, { name, start: seqs, revisions: [] })
    const match = subscription.match as string | null
    this.lives.get(born)!.revisions.push({ revision, match, answeredAt: Number.POSITIVE_INFINITY })
    return { kind: stored ? 'changed' : 'created', revision, born, seqs }
  }

  // remove.lua
  remove(name: string): RemoveReply {
    const removal = this.removalOf(name)
    if (removal) return { kind: 'removing', removal }
    if (!this.#definitions.has(name)) return { kind: 'unknown' }
    const revision = ++this.#revision
    this.#removing.set(name, `${revision} 0 queue`)
    this.#definitions.delete(name)
    for (let p = 0; p < partitions; p += 1) this.#own.delete(`${p} ${name}`)
    this.#changes.set(name, revision)
    return { kind: 'removed', removal: this.removalOf(name)! }
  }

  // removed.lua
  removed(name: string, mark: string): void {
    if (this.#removing.get(name) === mark) this.#removing.delete(name)
  }

  bornOf(name: string): number | undefined {
    return this.#subscriptionOf(name)?.born
  }

  // table.lua
  load(known: number): Loaded {
    const changed = [...this.#changes].filter(([, revision]) => revision > known)
    return {
      whole: false,
      version: this.#revision,
      definitions: new Map(changed.map(([name]) => [name, this.#subscriptionOf(name)])),
      mains: new Map(this.#mains),
      own: new Map([...this.#own].map(([field, place]) => [field, { ...place }])),
      removing: new Map(),
    }
  }

  // commit.lua
  commit(said: readonly SaidRoute[]): Committed {
    const words = said.map(({ partition, epoch, main, places }): Committed['words'][number] => {
      if (this.owners[partition]!.epoch !== epoch) return ['stale']
      this.#mains.set(partition, Math.max(main, this.#main(partition)))
      return ['done', ...places.map((place) => this.#place(partition, place))]
    })
    return { version: this.#revision, words }
  }

  #place(partition: number, { name, revision, act, seq }: SaidRoute['places'][number]) {
    const field = `${partition} ${name}`
    const stored = this.#subscriptionOf(name)
    if (!stored) return 'gone'
    if (stored.revision !== revision && !(act === 'join' && this.bug === 'join-any-revision')) return 'outdated'
    const before = this.#own.get(field)
    if (act === 'join') {
      if (seq < this.#main(partition)) return 'early'
      this.#own.delete(field)
    } else if (!before || before.seq < seq) this.#own.set(field, { seq, revision })
    return 'done'
  }

  /** A store, as sink.ts asks for it. */
  make({ name, revision, born }: Subscription, applied: readonly number[]): void {
    const store = this.stores.get(name)
    const isLeft = store && store.born < born && this.bug !== 'no-born'
    if (!store || isLeft) this.stores.set(name, { born, revision, applied: [...applied], taken: applied.map(() => []) })
    else store.revision = Math.max(store.revision, revision)
  }

  accept(partition: number, { subscription, events }: Delivery): Accepted {
    const { name, revision, born } = subscription
    if (this.refusing.has(name)) throw new Error('refused')
    const store = this.stores.get(name)
    const knowsBorn = this.bug !== 'no-born'
    if (!store || (knowsBorn && store.born < born)) return this.bug === 'gone-is-accepted' ? 'accepted' : 'gone'
    if (this.bug !== 'no-revision-check' && (store.revision > revision || (knowsBorn && store.born > born)))
      return 'outdated'
    store.revision = Math.max(store.revision, revision)
    for (const { seq } of events) {
      if (seq <= store.applied[partition]!) continue
      store.taken[partition]!.push(seq)
      store.applied[partition] = seq
    }
    return 'accepted'
  }

  // next.lua
  takeNext(partition: number, { subscription, after }: NextRouted, { before, last: seq }: LogHint): number | undefined {
    const { name, revision, born } = subscription
    const store = this.stores.get(name)
    if ((before !== after && this.bug !== 'takes-the-last') || this.refusing.has(name)) return undefined
    if (!store || store.revision !== revision || store.born !== born || store.applied[partition]! >= seq)
      return undefined
    store.taken[partition]!.push(seq)
    store.applied[partition] = seq
    return seq
  }

  removeStore(name: string, revision: number): void {
    const store = this.stores.get(name)
    if (store && (store.born <= revision || this.bug === 'no-born')) this.stores.delete(name)
  }

  get registered(): Subscription[] {
    return [...this.#definitions.values()].map(({ subscription }) => subscription)
  }

  get isSettled(): boolean {
    return this.#own.size === 0 && this.#removing.size === 0
  }

  #main(partition: number): number {
    return this.#mains.get(partition) ?? 0
  }

  #subscriptionOf(name: string): Subscription | undefined {
    return this.#definitions.get(name)?.subscription
  }

  removalOf(name: string): Removal | undefined {
    const text = this.#removing.get(name)
    return text === undefined ? undefined : { revision: Number.parseInt(text, 10), kind: 'queue', text }
  }
}

/** What is wrong with what the stores hold, after everything has come to rest; undefined when all is well. */
export function problemOf(world: World): string | undefined {
  for (const { name, born } of world.registered) {
    const life = world.lives.get(born)!
    const store = world.stores.get(name)
    if (store && store.born !== born && world.bug !== 'no-born') return `${name}: the store is of another life`
    for (const [p, { events }] of world.log.entries()) {
      const taken = store?.taken[p] ?? []
      for (let i = 1; i < taken.length; i += 1)
        if (taken[i]! <= taken[i - 1]!) return `${name}: ${taken[i]} after ${taken[i - 1]} in partition ${p}`
      const has = new Set(taken)
      for (const event of events) {
        const wanted = wish(life, event, p)
        if (wanted === true && !has.has(event.seq)) return `${name}: ${event.seq} of partition ${p} is missing`
        if (wanted === false && has.has(event.seq)) return `${name}: ${event.seq} of partition ${p} is too much`
      }
    }
  }
  return undefined
}

/** Whether the store must have it; undefined where a change was under way and it may go by either definition. */
function wish({ start, revisions }: Life, { seq, type, at }: LoggedEvent, partition: number): boolean | undefined {
  if (seq <= start[partition]!) return false
  let first = 0
  for (const [i, { answeredAt }] of revisions.entries()) if (answeredAt <= at) first = i
  const wants = new Set(revisions.slice(first).map(({ match }) => match === '>' || match === type))
  return wants.size > 1 ? undefined : wants.has(true)
}
