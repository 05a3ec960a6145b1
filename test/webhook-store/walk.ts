/** A walk through a shard: each step is done to the webhooks and to the reference, and both must answer and hold the same. */
import { isDeepStrictEqual } from 'node:util'
import type { Redis } from 'ioredis'
import { expect } from 'vitest'
import type { Claim } from '../../src/lanes/acts.ts'
import { renewScript } from '../../src/lanes/scripts.ts'
import type { WebhookKeys } from '../../src/redis/keys.ts'
import { inTheSameWrite, runScript, type Script } from '../../src/redis/script.ts'
import {
  acceptScript,
  dropScript,
  type Ended,
  inspectScript,
  lettersScript,
  makeScript,
  pauseScript,
  readWork,
  removeScript,
  rotateScript,
  type WorkReply,
  workScript,
} from '../../src/sinks/webhook/scripts.ts'
import { expectedOf } from '../lanes/store.ts'
import type { Plant } from '../lanes/walk.ts'
import { seedOf } from './clocked.ts'
import { Invariants } from './invariants.ts'
import { type Delivered, ReferenceShard } from './reference.ts'
import { type Definitions, hookNames, partitions, type Step } from './steps.ts'
import { expectedHooks, loadStored, type StoredLanes, storedIn } from './stored.ts'

type StepOf<Do extends Step['do']> = Extract<Step, { do: Do }>
type Own<Input> = Omit<Input, 'keys' | 'nowMs' | 'seed'>
type DeliveryStep = StepOf<'accept'>['deliveries'][number]
type Definition = Definitions['a']

const leaseMs = 1_000
const overlapMs = 500
const wraps = ['busbar\n{"s":"é","events":[\n]}', 'routemaster\n[\n]']
const scripts = [
  ...[acceptScript, dropScript, inspectScript, lettersScript, makeScript, pauseScript, removeScript, rotateScript],
  ...[workScript, renewScript],
]

export class Walk {
  readonly #redis: Redis
  readonly #keys: WebhookKeys
  readonly #definitions: Definitions
  readonly #plant: Plant
  readonly #reference = new ReferenceShard()
  readonly #invariants = new Invariants()
  readonly #tokens: string[] = []
  readonly #formats = new Map<string, number>()
  readonly #seqs = Array.from({ length: partitions }, () => 0)
  #last: { partition: number; delivery: Delivered } | undefined
  #calls = 0
  #revision = 0
  /** After the last step that did something. */
  #stored: ReturnType<typeof storedIn> | undefined

  constructor(redis: Redis, keys: WebhookKeys, definitions: Definitions, plant: Plant) {
    this.#redis = redis
    this.#keys = keys
    this.#definitions = definitions
    this.#plant = plant
  }

  /** A script that the server does not know is sent again, and what was read with it is of an instant before. */
  static async load(redis: Redis, plant: Plant): Promise<void> {
    await loadStored(redis)
    for (const script of scripts) await redis.script('LOAD', plant(script as Script<unknown, unknown>).source)
  }

  async begin(): Promise<void> {
    for (const [name, definition] of Object.entries(this.#definitions)) await this.#define({ name, definition })
  }

  /** Nothing is left of them. */
  async end(): Promise<void> {
    for (const name of hookNames) await this.#removeInSteps(name, 2)
    same(await this.#redis.exists(...Object.values(this.#keys)), 0)
    await this.#redis.unlink(...[0, 1].map((job) => this.#job(job)))
  }

  async take(one: Step): Promise<void> {
    this.#reference.begin(seedOf(this.#calls + 1))
    switch (one.do) {
      case 'accept':
        return this.#acceptFresh(one)
      case 'acceptAgain':
        return this.#acceptAgain(one)
      case 'replay':
        return this.#replay(one)
      case 'claim':
        return this.#claim(this.#newToken(), one.n)
      case 'claimAgain':
        return this.#claimAgain(one)
      case 'end':
        return this.#end(one)
      case 'renew':
        return this.#renew(one)
      case 'wait':
        this.#reference.now += one.ms
        return
      case 'pause':
        return this.#pause(one)
      case 'resume':
        return this.#pause({ ...one, act: 'resume' })
      case 'letters':
        return this.#letters(one)
      case 'drop':
        return this.#drop(one)
      case 'rotate':
        return this.#rotate(one)
      case 'define':
        return this.#define(one)
      case 'remove':
        return this.#remove(one)
      case 'inspect':
        return this.#inspect(one)
    }
  }

  /** All of the shard is read in the same round trip: that is half of what a step costs. */
  async #run<Input, Reply>(script: Script<Input, Reply>, input: Own<Input>): Promise<Reply> {
    const [reply, stored] = inTheSameWrite(this.#redis, () => [
      this.#runAlone(script, input),
      storedIn(this.#redis, this.#keys, hookNames),
    ])
    // A shard that is spoiled cannot be read; that is told when it is looked at, unless the reply was wrong already.
    stored.catch(() => undefined)
    this.#stored = stored
    return reply
  }

  #runAlone<Input, Reply>(script: Script<Input, Reply>, input: Own<Input>): Promise<Reply> {
    this.#calls += 1
    const ground = { keys: this.#keys, nowMs: this.#reference.now, seed: seedOf(this.#calls) }
    return runScript(this.#redis, this.#plant(script), { ...ground, ...input } as Input)
  }

  async #define({ name, definition }: { name: string; definition: Definition }): Promise<void> {
    this.#revision += 1
    const revision = this.#revision
    const its = this.#reference.hooks.get(name)
    const sequences = its?.sequences ?? definition.sequences
    const hook = { name, revision, born: its?.born ?? revision, definition: '{}', ...definition.limits, sequences }
    const reply = this.#reference.make(name, revision, definition.limits, sequences)
    this.#formats.set(name, definition.format)
    const secrets = { secret: '', newSecret: 'made', overlapMs }
    const input = { hook: { ...hook, ...secrets, applied: [] } }
    same(await this.#run(makeScript, input), reply)
  }

  /** Fresh events have the next seqs of their partition. */
  #delivery(partition: number, { name, events, fence }: DeliveryStep): Delivered {
    const hook = this.#reference.hooks.get(name)
    const { revision = this.#revision, born = this.#revision, sequences = 1 } = hook ?? {}
    const fences = {
      now: { revision, born },
      older: { revision: revision - 1, born },
      newer: { revision: ++this.#revision, born },
      earlier: { revision, born: born - 1 },
      unborn: { revision: ++this.#revision, born: this.#revision },
    }
    const pieces = events.map(({ sequence, size }) => {
      const seq = ++this.#seqs[partition]!
      return { sequence: sequence % sequences, piece: `${partition}-${seq} {"n":"${'é'.repeat(size / 2)}${seq}"}` }
    })
    const its = fences[fence as keyof typeof fences]
    return { name, ...its, last: this.#seqs[partition]!, wrap: this.#wrapOf(name), events: pieces }
  }

  #wrapOf(name: string): string {
    return wraps[this.#formats.get(name) ?? 0]!
  }

  #acceptFresh({ partition, deliveries }: StepOf<'accept'>): Promise<void> {
    return this.#accept(
      partition,
      deliveries.map((delivery) => this.#delivery(partition, delivery)),
    )
  }

  /** What was taken, or some of it, comes again with more behind it. */
  async #acceptAgain({ extra }: StepOf<'acceptAgain'>): Promise<void> {
    if (!this.#last) return
    const { partition, delivery } = this.#last
    const more = this.#delivery(partition, { name: delivery.name, events: extra, fence: 'now' })
    const events = [...delivery.events, ...more.events]
    const hook = this.#reference.hooks.get(delivery.name)
    const isFitting = events.every(({ sequence }) => sequence < (hook?.sequences ?? 1))
    if (isFitting) await this.#accept(partition, [{ ...more, events }])
  }

  async #accept(partition: number, deliveries: readonly Delivered[], replay = ''): Promise<void> {
    const expected = this.#reference.gatherAll(partition, deliveries, replay)
    same(await this.#run(acceptScript, { replay, partition, deliveries }), expected)
    if (replay === '') this.#last = { partition, delivery: deliveries[0]! }
  }

  #job(job: number): string {
    return `${this.#keys.replayPrefix}j${job}`
  }

  async #replay({ name, job, seqs }: StepOf<'replay'>): Promise<void> {
    const hook = this.#reference.hooks.get(name)
    if (!hook) return
    const sorted = [...new Set(seqs)].sort((a, b) => a - b)
    // In partitions of their own: by their ids events are told apart.
    const partition = partitions + job
    const events = sorted.map((seq) => ({
      sequence: seq % hook.sequences,
      piece: `${partition}-${seq} {"again":${seq}}`,
    }))
    const { revision, born } = hook
    const delivery = { name, revision, born, last: sorted.at(-1)!, wrap: this.#wrapOf(name), events }
    await this.#accept(partition, [delivery], this.#job(job))
  }

  /** Of a lease, by chance; now and then of one that is over. */
  #token(i: number): string {
    const live = [...this.#reference.leases.keys()]
    const some = live.length > 0 && i % 5 > 0 ? live : this.#tokens
    return some[i % Math.max(1, some.length)] ?? 'none'
  }

  #newToken(): string {
    const token = `t${this.#tokens.length}`
    this.#tokens.push(token)
    return token
  }

  #claimAct(token: string, n: number): Claim {
    return { token, n, leaseMs, worker: 'w', start: 's', byHand: true }
  }

  async #claim(token: string, n: number): Promise<void> {
    const expected = this.#expectedClaim(token, n)
    const claim = this.#claimAct(token, n)
    this.#judge(readWork({ ended: [], claim }, await this.#run(workScript, { ended: [], claim })), expected, n)
  }

  async #claimAgain({ lease }: StepOf<'claimAgain'>): Promise<void> {
    const token = this.#token(lease)
    if (!this.#reference.leases.has(token)) return
    const expected = this.#expectedClaim(token, 3).sort()
    const claim = this.#claimAct(token, 3)
    const { claimed } = readWork({ ended: [], claim }, await this.#run(workScript, { ended: [], claim }))
    same(claimed?.kind === 'claimed' && [...claimed.items].sort(), expected)
  }

  #expectedClaim(token: string, n: number): string[] {
    if (this.#reference.hooks.size === 0) return []
    this.#reference.sealDue()
    const works = this.#reference.claim(token, n, leaseMs, 'w', 's')
    return works.map((work) => this.#reference.itemText(work))
  }

  /** What is given, what is said of whose it is, and when to ask again. */
  #judge({ claimed, hooks, hasAnnouncements }: WorkReply, expected: readonly string[], n: number): void {
    const { now, announced, firstDeadline, hooks: known } = this.#reference
    if (claimed?.kind !== 'claimed' || known.size === 0) return same([claimed?.kind, known.size], ['gone', 0])
    same(claimed.items, expected)
    this.#invariants.given(claimed.items)
    same(hasAnnouncements, announced.size > 0)
    const isFull = n > 0 && expected.length === n
    const due = Math.min(firstDeadline, isFull ? Number.POSITIVE_INFINITY : (this.#reference.due() ?? firstDeadline))
    same(claimed.dueInMs, Number.isFinite(due) ? Math.max(0, due - now) : undefined)
    const names = [...new Set(expected.map((text) => text.split(' ')[2]!))]
    same(
      [...hooks.values()],
      names.map((name) => {
        const { secrets, facts } = known.get(name)!
        const [failures, since] = [Number(facts.get('failures') ?? 0), facts.get('failingSince')]
        return { name, stored: `${secrets}\n{}`, failures, failingSince: since ? Number(since) : undefined }
      }),
    )
  }

  async #end({ lease, batches, ending, isLogged, disables, claims }: StepOf<'end'>): Promise<void> {
    const token = this.#token(lease)
    const ids = this.#ids(token, batches)
    if (ids.length === 0) return
    const said = { became: ending.became, attempt: isLogged ? `{"call":${this.#calls}}` : '' }
    const disable = disables && ending.became === 'back' ? 'it answered 410 Gone' : ''
    const ended = ids.map((id): Ended => {
      const { hook: name, sequence, pieces } = this.#reference.batches.get(id)!
      const settlement = { token, id, outcome: ending.outcome }
      return { settlement, name, sequence, events: pieces.length, disable, ...said }
    })
    const claim = claims < 0 ? undefined : this.#claimAct(this.#newToken(), claims)
    const isGone = this.#reference.hooks.size === 0
    const stale = this.#reference.end(token, ids, ending.outcome, { ...said, disable })
    const expected = claim && this.#expectedClaim(claim.token!, claim.n)
    const reply = readWork({ ended, claim }, await this.#run(workScript, { ended, claim }))
    if (isGone) same(reply.settled, { kind: 'gone' })
    else same(reply.settled?.kind === 'settled' && reply.settled.stale.map((at) => ids[at]).sort(), stale.sort())
    if (expected) this.#judge(reply, expected, claims)
  }

  /** Of batches that are held under a token; of one that is over, batches that once were. */
  #ids(token: string, places: readonly number[]): string[] {
    const held = [...(this.#reference.leases.get(token)?.items.keys() ?? [])]
    const some = held.length > 0 ? held : [...this.#reference.batches.keys()]
    return some.length === 0 ? [] : places.map((place) => some[place % some.length]!)
  }

  async #renew({ lease }: StepOf<'renew'>): Promise<void> {
    const token = this.#token(lease)
    const lost = this.#reference.renew(token, leaseMs) ? [] : [token]
    same(await this.#run(renewScript, { leaseMs, tokens: [token] }), lost)
  }

  async #pause({ name, act }: { name: string; act: 'pause' | 'resume' }): Promise<void> {
    const isThere = this.#reference.hooks.has(name)
    if (isThere && act === 'pause') this.#reference.pause(name)
    else if (isThere) this.#reference.resumeHook(name)
    same(await this.#run(pauseScript, { act, name }), isThere ? 'done' : 'gone')
  }

  async #letters({ act, letters }: StepOf<'letters'>): Promise<void> {
    const dead = [...this.#reference.dead.keys()]
    const ids = [...new Set(letters.map((at) => dead[at % Math.max(1, dead.length)] ?? 'none'))]
    if (act === 'redrive') this.#invariants.redriven(ids)
    const done = this.#reference.endLetters(act, ids)
    same(await this.#run(lettersScript, { act, ids }), done)
  }

  async #drop({ name, bytes, most }: StepOf<'drop'>): Promise<void> {
    const dropped = this.#reference.drop(name, bytes, most)
    same(await this.#run(dropScript, { name, bytes, most }), dropped)
  }

  async #rotate({ name, secret }: StepOf<'rotate'>): Promise<void> {
    const isThere = this.#reference.hooks.has(name)
    if (isThere) this.#reference.rotate(name, secret, overlapMs)
    same(await this.#run(rotateScript, { name, secret, overlapMs }), isThere ? 'done' : 'gone')
  }

  async #remove({ name, most }: StepOf<'remove'>): Promise<void> {
    if (this.#reference.hooks.has(name)) this.#reference.removeHook(name)
    this.#invariants.removed(name)
    await this.#removeInSteps(name, most)
    this.#stored = storedIn(this.#redis, this.#keys, hookNames)
  }

  /** Of so many batches each. */
  async #removeInSteps(name: string, most: number): Promise<void> {
    this.#revision += 1
    const inSteps = { ...removeScript, args: (input: never) => [...removeScript.args(input).slice(0, -1), most] }
    const input = { name, revision: this.#revision }
    while ((await this.#runAlone(inSteps as typeof removeScript, input)) === 'more');
  }

  async #inspect({ name, most }: StepOf<'inspect'>): Promise<void> {
    const seen = await this.#run(inspectScript, { name, most })
    const hook = this.#reference.hooks.get(name)
    if (!hook || !seen) return same([seen, hook], [undefined, undefined])
    const { now } = this.#reference
    const open = [...hook.open].map(([sequence, { due, pieces }]) => ({ sequence, dueMs: due, events: pieces.length }))
    same(
      { nowMs: seen.nowMs, dead: seen.dead, open: seen.open },
      {
        nowMs: now,
        dead: this.#reference.facts(name).dead,
        open: open.sort((a, b) => (a.sequence < b.sequence ? -1 : 1)),
      },
    )
    const places = this.#placesOf(name)
    same(seen.sealed.length, Math.min(most, places.size))
    for (const { place, headers } of seen.sealed) same(place, places.get(headers.slice(0, headers.indexOf(' '))))
  }

  #placesOf(name: string): Map<string, string> {
    const { leases, later, objects } = this.#reference
    const its = (place: string, works: readonly { id: string; lane: string }[]) =>
      works.filter(({ lane }) => lane === name).map(({ id }) => [id, place] as const)
    return new Map([
      ...its(
        'held',
        [...leases.values()].flatMap(({ items }) => [...items.values()]),
      ),
      ...its('waiting', this.#reference.lane(name).waiting),
      ...its(
        'later',
        [...later.values()].flatMap(({ work }) => work ?? []),
      ),
      ...its('behind', [...objects.values()].flat()),
    ])
  }

  /** The shard holds what the reference holds, and its counts are what can be counted. */
  async check(): Promise<void> {
    if (!this.#stored) return
    const { lanes, hooks } = await this.#stored
    this.#stored = undefined
    same(hooks, expectedHooks(this.#reference))
    const { records, letters: _, store, places, ...stored } = lanes
    same(stored, expectedOf(this.#reference))
    const { waiting, behind, held, counts } = this.#reference
    const bytes = hookNames.reduce((sum, name) => sum + this.#bytesOf(name), 0)
    const deadBytes = [...this.#reference.dead.values()].reduce((sum, { work }) => sum + this.#sizeOf(work), 0)
    same(counted(store), { ...counts, waiting, behind, held, bytes, deadBytes, hooks: this.#reference.hooks.size })
    same(places, waiting + held)
    for (const name of hookNames) this.#checkLane(name, records[name])
    this.#invariants.hold(lanes, hooks)
  }

  #bytesOf(name: string): number {
    const works = this.#reference.worksOf(name)
    return works.reduce((sum, work) => sum + this.#sizeOf(work), 0)
  }

  #sizeOf(work: Parameters<ReferenceShard['itemText']>[0]): number {
    return Buffer.byteLength(this.#reference.itemText(work))
  }

  #checkLane(name: string, record: StoredLanes['records'][string] | undefined): void {
    const facts = this.#reference.facts(name)
    if (Object.values(facts).every((value) => value === 0)) return same(record, undefined)
    const { bytes, ranked: _, left: __, paced: ___, ...rest } = record!
    same(rest, facts)
    same(bytes, this.#bytesOf(name))
  }
}

/** As toEqual, which takes ten times as long. */
function same(actual: unknown, expected: unknown): void {
  if (!isDeepStrictEqual(actual, expected)) expect(actual).toEqual(expected)
}

function counted(store: Record<string, string>) {
  const names = [
    'waiting',
    'behind',
    'held',
    'bytes',
    'in',
    'out',
    'expired',
    'dropped',
    'discarded',
    'deadBytes',
    'hooks',
  ]
  return Object.fromEntries(names.map((name) => [name, Number(store[name] ?? 0)]))
}
