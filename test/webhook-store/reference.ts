/**
 * Webhooks of a shard, as plainly as they can be said. What the scripts must agree with.
 *
 * Sealed batches are items of an ordered store of lanes, and that store has a reference of its own. Here is what comes before and around it.
 */
import type { Outcome } from '../../src/lanes/acts.ts'
import type { Ended } from '../../src/sinks/webhook/scripts.ts'
import { ReferenceStore, type Work } from '../lanes/reference.ts'
import { mayBecome, type State } from './states.ts'

export interface HookLimits {
  maxEvents: number
  maxWaitMs: number
  maxBytes: number
  keepEvents: number
}

interface OpenBatch {
  opened: number
  due: number
  wrap: string
  pieces: string[]
}

export interface SealedBatch {
  id: string
  hook: string
  sequence: string
  sealed: number
  pieces: readonly string[]
  /** Header and body, as they are from now on. */
  content: string
  state: State
}

export interface Hook {
  name: string
  revision: number
  born: number
  defined: number
  limits: HookLimits
  sequences: number
  secrets: string
  applied: Map<number, number>
  open: Map<string, OpenBatch>
  /** By sequence: the one that was last tried in vain. */
  failed: Map<string, string>
  attempts: string[]
  counts: Record<Counter, number>
  /** Absent when there is nothing to say. */
  facts: Map<'failures' | 'failingSince' | 'deliveredAt' | 'paused' | 'disabled' | 'disabledAt', string>
}

export const counters = [
  ...(['backlog', 'in', 'delivered', 'dead', 'dropped', 'batches', 'attempts', 'throttled', 'stale'] as const),
] as const
export type Counter = (typeof counters)[number]

export interface Delivered {
  name: string
  revision: number
  born: number
  last: number
  wrap: string
  events: readonly { sequence: number; piece: string }[]
}

type Attempted = Pick<Ended, 'became' | 'attempt' | 'disable'>

const lookAgainMs = 1_000
const dueMost = 100
const dropMost = 100
const mostSecrets = 5

const bytes = (text: string): number => Buffer.byteLength(text)
const bytesOf = ({ wrap, pieces }: OpenBatch): number =>
  bytes(wrap) + pieces.reduce((sum, piece) => sum + bytes(piece), 0)
const seqOf = (piece: string): number => Number(/^\d+-(\d+) /.exec(piece)![1])
const digits = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_'

function contentOf(hook: string, { opened, wrap, pieces }: Omit<OpenBatch, 'due'>): string {
  const [, format, start, end] = /^([^\n]*)\n([^\n]*)\n([\s\S]*)$/.exec(wrap)!
  const ids = pieces.map((piece) => piece.slice(0, piece.indexOf(' '))).join(',')
  const events = pieces.map((piece) => piece.slice(piece.indexOf(' ') + 1)).join(',')
  const header = { type: 'busbar.batch', tenant: hook, format, events: pieces.length, opened, ids }
  return `${JSON.stringify(header)}\n${start}${events}${end}`
}

export class ReferenceShard extends ReferenceStore {
  readonly hooks = new Map<string, Hook>()
  /** All that ever were, by id. */
  readonly batches = new Map<string, SealedBatch>()
  readonly announced = new Set<string>()
  readonly replays = new Map<string, number>()
  #seed = ''
  #sealedHere = 0

  constructor() {
    super({ ordered: true, parks: false, limits: {} })
    this.attempts = 0
  }

  /** The next call: batches that it seals have ids that begin with its seed. */
  begin(seed: string): void {
    this.#seed = seed
    this.#sealedHere = 0
  }

  make(name: string, revision: number, limits: HookLimits, sequences: number): 'made' | 'raised' {
    const known = this.hooks.get(name)
    if (known) {
      Object.assign(known, { limits, defined: revision, revision: Math.max(known.revision, revision) })
      for (const open of known.open.values()) open.due = open.opened + limits.maxWaitMs
      return 'raised'
    }
    const counts = Object.fromEntries(counters.map((counter) => [counter, 0])) as Record<Counter, number>
    const empty = { applied: new Map(), open: new Map(), failed: new Map(), attempts: [], counts, facts: new Map() }
    const its = { name, revision, born: revision, defined: revision, limits, sequences, secrets: '0 made' }
    this.hooks.set(name, { ...its, ...empty })
    return 'made'
  }

  gatherAll(partition: number, deliveries: readonly Delivered[], replay: string) {
    const replies = deliveries.map((delivery) => this.#gatherOne(partition, delivery, replay))
    this.lineUp()
    return replies
  }

  #gatherOne(partition: number, { name, revision, born, last, wrap, events }: Delivered, replay: string) {
    const hook = this.hooks.get(name)
    if (!hook || born > hook.born) return { kind: 'gone' as const }
    if (revision < hook.revision || born < hook.born) return { kind: 'outdated' as const }
    hook.revision = revision
    const job = `${replay} ${partition}`
    const applied = (replay ? this.replays.get(job) : hook.applied.get(partition)) ?? 0
    const { counts } = hook
    if (applied >= last) return { kind: 'accepted' as const, events: 0, dropped: 0 }
    const droppedBefore = counts.dropped
    const fresh = events.filter(({ piece }) => seqOf(piece) > applied)
    for (const { sequence, piece } of fresh) this.#gather(hook, String(sequence), wrap, piece)
    for (const sequence of new Set(fresh.map((event) => String(event.sequence)))) this.#sealIfDue(hook, sequence)
    hook.counts.in += fresh.length
    hook.counts.backlog += fresh.length
    for (let drops = 0; hook.counts.backlog > hook.limits.keepEvents && drops < dropMost; drops += 1)
      if (!this.#dropOne(hook)) break
    if (replay) this.replays.set(job, last)
    else hook.applied.set(partition, last)
    const dropped = counts.dropped - droppedBefore
    return { kind: 'accepted' as const, events: fresh.length, dropped }
  }

  #gather(hook: Hook, sequence: string, wrap: string, piece: string): void {
    const { maxEvents, maxBytes, maxWaitMs } = hook.limits
    const before = hook.open.get(sequence)
    const isOver =
      before && (before.pieces.length >= maxEvents || bytesOf(before) + bytes(piece) > maxBytes || before.wrap !== wrap)
    if (isOver) this.#seal(hook, sequence)
    const open = hook.open.get(sequence) ?? { opened: this.now, due: this.now + maxWaitMs, wrap, pieces: [] }
    open.pieces.push(piece)
    hook.open.set(sequence, open)
    if (open.pieces.length >= maxEvents) this.#seal(hook, sequence)
  }

  #isBusy(name: string, sequence: string): boolean {
    return this.objects.has(`${name} ${sequence}`)
  }

  #sealIfDue(hook: Hook, sequence: string): void {
    const open = hook.open.get(sequence)
    if (open && open.opened + hook.limits.maxWaitMs <= this.now && !this.#isBusy(hook.name, sequence))
      this.#seal(hook, sequence)
  }

  #seal(hook: Hook, sequence: string): void {
    const { opened, wrap, pieces } = hook.open.get(sequence)!
    const count = this.#sealedHere++
    const end = [count >> 12, count >> 6, count].map((digit) => digits[digit & 63]).join('')
    const id = `${this.#seed}${end}`
    hook.open.delete(sequence)
    const content = contentOf(hook.name, { opened, wrap, pieces })
    this.batches.set(id, { id, hook: hook.name, sequence, sealed: this.now, pieces, content, state: 'open' })
    this.#become(id, 'sealed')
    this.counts.in += 1
    hook.counts.batches += 1
    const none = { expires: 0, priority: 0, attempts: 0, first: 0 }
    this.arrive({ id, lane: hook.name, key: sequence, enqueued: this.now, ...none })
  }

  /** What is due when someone claims, as far as it can go out. */
  sealDue(): void {
    const open = [...this.hooks.values()].flatMap((hook) =>
      [...hook.open].map(([sequence, batch]) => ({ hook, sequence, batch, member: `${hook.name} ${sequence}` })),
    )
    const due = open.filter(({ batch }) => batch.due <= this.now)
    due.sort((a, b) => a.batch.due - b.batch.due || (a.member < b.member ? -1 : 1))
    for (const { hook, sequence, batch } of due.slice(0, dueMost)) {
      if (this.#isBusy(hook.name, sequence)) batch.due = this.now + lookAgainMs
      else this.#seal(hook, sequence)
    }
    this.lineUp()
  }

  override claim(token: string, n: number, leaseMs: number, worker: string, start: string): Work[] {
    const before = new Set(this.#heldIds())
    // A lapsed lease lets go of what it held before anyone is given it.
    for (const [, lease] of this.leases)
      if (lease.ends <= this.now && !this.leases.has(token)) for (const id of lease.items.keys()) before.delete(id)
    const lapsed = this.#heldIds().filter((id) => !before.has(id))
    for (const id of lapsed) this.#become(id, 'sealed')
    const given = super.claim(token, n, leaseMs, worker, start)
    for (const { id } of given) if (!before.has(id)) this.#become(id, 'leased')
    return given
  }

  #heldIds(): string[] {
    return [...this.leases.values()].flatMap(({ items }) => [...items.keys()])
  }

  /** Of one lease, all alike. Answers the ids that it did not hold. */
  end(token: string, ids: readonly string[], outcome: Outcome, attempted: Attempted): string[] {
    const held = new Set(this.leases.get(token)?.items.keys())
    const stale = super.settle(token, ids, outcome)
    ids.forEach((id, i) => {
      const isStale = !held.has(id) || ids.indexOf(id) !== i
      this.#endOne(id, isStale, attempted)
    })
    this.lineUp()
    return stale
  }

  #endOne(id: string, isStale: boolean, { became, attempt, disable }: Attempted): void {
    const batch = this.batches.get(id)
    const hook = batch && this.hooks.get(batch.hook)
    if (!hook) return
    // What was logged before is said again.
    if (isStale && (attempt === '' || hook.attempts.includes(attempt))) return
    if (attempt !== '') {
      hook.attempts.unshift(attempt)
      hook.counts.attempts += 1
    }
    if (isStale) {
      hook.counts.stale += 1
      return
    }
    this.#endings[became](hook, batch)
    if (disable !== '') this.disable(hook.name, disable)
    if (became === 'delivered' || became === 'dead') this.#sealIfDue(hook, batch.sequence)
  }

  readonly #endings: Record<Ended['became'], (hook: Hook, batch: SealedBatch) => void> = {
    delivered: (hook, { id, sequence, pieces }) => {
      this.#become(id, 'gone')
      hook.failed.delete(sequence)
      hook.counts.delivered += pieces.length
      hook.counts.backlog -= pieces.length
      hook.facts.set('deliveredAt', String(this.now))
      hook.facts.delete('failures')
      hook.facts.delete('failingSince')
    },
    failed: (hook, { id, sequence }) => {
      this.#become(id, 'sealed')
      this.#fails(hook)
      hook.failed.set(sequence, id)
    },
    dead: (hook, { id, sequence, pieces }) => {
      this.#become(id, 'dead')
      hook.failed.delete(sequence)
      this.#fails(hook)
      hook.counts.dead += pieces.length
      hook.counts.backlog -= pieces.length
    },
    throttled: (hook, { id }) => {
      this.#become(id, 'sealed')
      hook.counts.throttled += 1
    },
    back: (_, { id }) => this.#become(id, 'sealed'),
  }

  #fails({ facts }: Hook): void {
    facts.set('failures', String(Number(facts.get('failures') ?? 0) + 1))
    if (!facts.has('failingSince')) facts.set('failingSince', String(this.now))
  }

  #become(id: string, state: State): void {
    const batch = this.batches.get(id)!
    if (!mayBecome[batch.state][state]) throw new Error(`a batch that is ${batch.state} has become ${state}`)
    batch.state = state
  }

  pause(name: string): void {
    const { facts } = this.hooks.get(name)!
    if (!facts.has('paused')) facts.set('paused', String(this.now))
    this.pauseLane(name, 'pause')
  }

  disable(name: string, why: string): void {
    this.hooks.get(name)!.facts.set('disabled', why).set('disabledAt', String(this.now))
    this.announced.add(name)
    this.pauseLane(name, 'pause')
  }

  resumeHook(name: string): void {
    const { facts, failed } = this.hooks.get(name)!
    for (const fact of ['paused', 'disabled', 'disabledAt', 'failures', 'failingSince'] as const) facts.delete(fact)
    this.announced.delete(name)
    for (const id of failed.values()) {
      const waits = this.later.get(id)
      if (waits) waits.due = this.now
    }
    this.pauseLane(name, 'resume')
  }

  endLetters(act: 'redrive' | 'discard', ids: readonly string[]): number {
    for (const id of new Set(ids.filter((one) => this.dead.has(one)))) {
      const { hook, pieces } = this.batches.get(id)!
      this.#become(id, act === 'redrive' ? 'sealed' : 'gone')
      if (act === 'redrive') this.hooks.get(hook)!.counts.backlog += pieces.length
    }
    return act === 'redrive' ? super.redrive(ids) : super.discard(ids)
  }

  /** Those that were replaced before go on as long as their time is not over. */
  rotate(name: string, secret: string, overlapMs: number): void {
    const hook = this.hooks.get(name)!
    const [current, ...before] = hook.secrets.split('\n').map((line) => line.split(' ') as [string, string])
    if (current![1] === secret) return
    const old = before.filter(([until, one]) => Number(until) > this.now && one !== secret)
    const replaced = [String(this.now + overlapMs), current![1]]
    hook.secrets = [['0', secret], replaced, ...old]
      .slice(0, mostSecrets)
      .map((line) => line.join(' '))
      .join('\n')
  }

  drop(name: string, wanted: number, most: number) {
    const dropped = { batches: 0, events: 0, bytes: 0 }
    const hook = this.hooks.get(name)
    while (hook && dropped.batches < most && dropped.bytes < wanted) {
      const work = this.#dropOne(hook)
      if (!work) break
      dropped.batches += 1
      dropped.events += this.batches.get(work.id)!.pieces.length
      dropped.bytes += bytes(this.itemText(work))
    }
    this.lineUp()
    return dropped
  }

  /** The first that waits, or the first of those that lie behind others where most do, whichever was sealed first. */
  #dropOne(hook: Hook): Work | undefined {
    const { waiting } = this.lane(hook.name)
    const first = waiting.find((work) => !this.moved.has(work)) ?? waiting[0]
    const behind = this.#longestBehind(hook)
    const work = first && (!behind[0] || first.enqueued <= behind[0].enqueued) ? first : behind.shift()
    if (!work) return undefined
    if (work === first) this.#dropWaiting(first)
    const { length } = this.batches.get(work.id)!.pieces
    this.#become(work.id, 'gone')
    this.counts.dropped += 1
    hook.counts.dropped += length
    hook.counts.backlog -= length
    return work
  }

  #dropWaiting(first: Work): void {
    const { waiting } = this.lane(first.lane)
    waiting.splice(waiting.indexOf(first), 1)
    this.touch(first.lane)
    this.passOn([first])
  }

  #longestBehind({ name, sequences }: Hook): Work[] {
    const all = Array.from({ length: sequences }, (_, sequence) => this.objects.get(`${name} ${sequence}`) ?? [])
    return all.reduce((longest, behind) => (behind.length > longest.length ? behind : longest))
  }

  /** Nothing is left of it; with the last one nothing of the shard. */
  removeHook(name: string): void {
    const isIts = ({ lane }: Work) => lane === name
    const { later, dead, leases } = this
    const held = [...leases.values()].flatMap(({ items }) => [...items.values()])
    const waiting = [...later.values()].flatMap(({ work }) => work ?? [])
    const letters = [...dead.values()].map(({ work }) => work)
    this.counts.discarded += [...this.worksOf(name), ...[...held, ...waiting, ...letters].filter(isIts)].length
    for (const [id, { work }] of later) if (id === `@${name}` || (work && isIts(work))) later.delete(id)
    for (const [id, { work }] of dead) if (isIts(work)) dead.delete(id)
    for (const [token, { items }] of leases) {
      for (const [id, work] of items) if (isIts(work)) items.delete(id)
      if (items.size === 0) leases.delete(token)
    }
    for (const object of this.objects.keys()) if (object.startsWith(`${name} `)) this.objects.delete(object)
    this.lanes.delete(name)
    this.line = this.line.filter((other) => other !== name)
    this.announced.delete(name)
    this.hooks.delete(name)
    if (this.hooks.size === 0) Object.assign(this.counts, { in: 0, out: 0, expired: 0, dropped: 0, discarded: 0 })
  }

  /** As it lies in the store, body and all. */
  itemText({ id, attempts, first }: Work): string {
    const { hook, sequence, sealed, content } = this.batches.get(id)!
    return `${id} 0 ${hook} ${attempts} ${first} ${sealed} 0 ${sequence} \n${content}`
  }

  /** When the first open batch is due. */
  get firstDeadline(): number {
    return Math.min(...[...this.hooks.values()].flatMap(({ open }) => [...open.values()].map(({ due }) => due)))
  }
}
