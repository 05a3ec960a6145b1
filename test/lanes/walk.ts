/** A walk through a store: each step is done to the store and to the reference, and both must answer and hold the same. */
import { isDeepStrictEqual } from 'node:util'
import type { Redis } from 'ioredis'
import { expect } from 'vitest'
import type { ClaimReply } from '../../src/lanes/acts.ts'
import { checkStore } from '../../src/lanes/fsck.ts'
import type { QueueLimits } from '../../src/lanes/limits.ts'
import {
  cancelMark,
  cancelScript,
  discardScript,
  enterScript,
  extendScript,
  fsckScript,
  makeScript,
  operationsScript,
  parkedScript,
  pauseScript,
  peekScript,
  redriveScript,
  removeScript,
  renewScript,
  sendScript,
} from '../../src/lanes/scripts.ts'
import type { LaneKeys } from '../../src/redis/keys.ts'
import { inTheSameWrite, runScript, type Script } from '../../src/redis/script.ts'
import { collect } from '../support/log.ts'
import { acceptScript, claimScript, settleScript } from './one-act.ts'
import { OperationsWalk, type SeenOperations } from './operations-walk.ts'
import { ReferenceStore, type Work } from './reference.ts'
import { type Definition, laneNames, type Step, weightsOf } from './steps.ts'
import { expectedOf, itemText, sentEnvelope, storedIn, workOf } from './store.ts'

/** Makes another script of one. */
export type Plant = <Input, Reply>(script: Script<Input, Reply>) => Script<Input, Reply>

type Event = Work & { seq: number }
type StepOf<Do extends Step['do']> = Extract<Step, { do: Do }>

const leaseMs = 1_000
const scripts = [
  ...[claimScript, discardScript, enterScript, extendScript, makeScript, parkedScript, pauseScript, redriveScript],
  ...[cancelScript, operationsScript],
  ...[renewScript, sendScript],
]

export class Walk {
  readonly #redis: Redis
  readonly #keys: LaneKeys
  readonly #reference: ReferenceStore
  readonly #plant: Plant
  readonly #operations: OperationsWalk | undefined
  readonly #tokens: string[] = []
  readonly #starts = new Map([
    ['w', 's0'],
    ['v', 's0'],
  ])
  readonly #heldBack = new Map<number, Event[]>()
  #last: { partition: number; works: Event[] } | undefined
  #seq = 0
  #count = 0
  #revision = 0
  #weights: Record<string, number> = {}
  /** After the last step that did something. */
  #stored: ReturnType<typeof storedIn> | undefined
  #seen: Promise<SeenOperations> | undefined
  /** An empty lane may be due, for its rate is to be forgotten. */
  #hadLaneRate = false

  constructor(redis: Redis, keys: LaneKeys, { way, limits, track }: Definition, plant: Plant) {
    this.#redis = redis
    this.#keys = keys
    this.#reference = new ReferenceStore({ ...way, limits })
    this.#plant = plant
    this.#operations = track ? new OperationsWalk() : undefined
  }

  /** A script that the server does not know is sent again, and what was read with it is of an instant before. */
  static async load(redis: Redis, plant: Plant): Promise<void> {
    for (const script of scripts) await redis.script('LOAD', plant(script as Script<unknown, unknown>).source)
  }

  async begin(): Promise<void> {
    same(await this.#make(this.#reference.limits), 'made')
  }

  /** Nothing is wrong with it, and nothing is left of it. */
  async end(): Promise<void> {
    const look = (most: number, asks: Parameters<typeof fsckScript.args>[0]['asks']) =>
      runScript(this.#redis, fsckScript, { keys: this.#keys, most, asks })
    expect(await collect(checkStore('mail', look))).toEqual([])
    const removal = { ...this.#ground, revision: this.#revision }
    while ((await runScript(this.#redis, removeScript, removal)) === 'more');
    same(await this.#redis.exists(...Object.values(this.#keys)), 0)
  }

  async take(one: Step): Promise<void> {
    this.#operations?.begin(one)
    switch (one.do) {
      case 'accept':
        return this.#acceptFresh(one)
      case 'acceptAgain':
        return this.#acceptAgain(one)
      case 'send':
        return this.#send(one)
      case 'claim':
        return this.#claim(one)
      case 'claimAgain':
        return this.#claimAgain(one)
      case 'pop':
        return this.#pop(one)
      case 'settle':
        return this.#settle(one)
      case 'settleAll':
        return this.#settleAll(one)
      case 'renew':
        return this.#renew(one)
      case 'extend':
        return this.#extend(one)
      case 'wait':
        this.#reference.now += one.ms
        return
      case 'redefine':
        return this.#redefine(one)
      case 'pause':
        this.#reference.paused = one.act === 'pause'
        return this.#pause(one.act, '')
      case 'pauseLane':
        this.#reference.pauseLane(one.lane, one.act)
        return this.#pause(one.act, one.lane)
      case 'redrive':
      case 'discard':
        return this.#endLetter(one)
      case 'resumeParked':
      case 'discardParked':
        return this.#endParked(one)
      case 'enter':
        return this.#enter(one)
      case 'cancel':
        return this.#cancel(one)
      case 'peek':
        return this.#peekAlone(one)
    }
  }

  /** All of the store is read in the same round trip: that is half of what a step costs. */
  async #run<Input, Reply>(script: Script<Input, Reply>, input: Input): Promise<Reply> {
    const [reply, stored, seen] = inTheSameWrite(this.#redis, () => [
      runScript(this.#redis, this.#plant(script), input),
      storedIn({ redis: this.#redis, keys: this.#keys }),
      this.#operations?.look(this.#redis, this.#ground),
    ])
    this.#stored = stored
    this.#seen = seen
    return reply
  }

  get #ground() {
    return { keys: this.#keys, nowMs: this.#reference.now }
  }

  #make(limits: QueueLimits) {
    const { attempts, ordered, parks } = this.#reference
    this.#revision += 1
    this.#hadLaneRate ||= limits.ratePerTenant !== undefined
    const track = this.#operations && { mode: 'all' as const, hides: '0' }
    const input = { revision: this.#revision, born: 1, attempts, ordered, parks, limits, track, applied: [0, 0] }
    return this.#run(makeScript, { ...this.#ground, ...input, weights: this.#weights })
  }

  async #redefine({ weights, limits }: StepOf<'redefine'>): Promise<void> {
    this.#weights = weightsOf(weights)
    this.#reference.redefine(this.#weights, limits ?? this.#reference.limits)
    same(await this.#make(this.#reference.limits), 'raised')
  }

  #fresh({ lane, key }: { lane: string; key: string }): Event {
    this.#seq += 1
    const its = this.#reference.ordered ? key : ''
    this.#operations?.entered(`0-${this.#seq}`)
    const times = { expires: 0, enqueued: this.#reference.now, first: 0 }
    return { id: `0-${this.#seq}`, lane, ...times, priority: 0, attempts: 0, key: its, seq: this.#seq }
  }

  /** What was held back comes again, before all else. */
  #acceptFresh({ partition, lanes }: StepOf<'accept'>): Promise<void> {
    const before = this.#heldBack.get(partition) ?? []
    return this.#accept(partition, [...before, ...lanes.map((place) => this.#fresh(place))])
  }

  async #acceptAgain({ extra }: StepOf<'acceptAgain'>): Promise<void> {
    if (!this.#last) return
    await this.#accept(this.#last.partition, [...this.#last.works, ...extra.map((place) => this.#fresh(place))])
  }

  async #accept(partition: number, works: Event[]): Promise<void> {
    const [first, last] = [works[0]!.seq, works.at(-1)!.seq]
    const items = works.map((work) => ({ lane: work.lane, item: itemText(work) }))
    // The other partition's owner does not know yet that it is tracked.
    const inputs = this.#operations && partition === 0 ? [] : undefined
    const input = { ...this.#ground, revision: this.#revision, born: 1, partition, first, last, items, inputs }
    const expected = this.#reference.accept(partition, works)
    same(await this.#run(acceptScript, input), expected)
    const applied = this.#reference.applied.get(partition)!
    this.#heldBack.set(
      partition,
      works.filter(({ seq }) => seq > applied),
    )
    this.#last = { partition, works }
  }

  async #send({ items }: StepOf<'send'>): Promise<void> {
    this.#count += 1
    const reference = this.#reference
    const sent = items.map(({ place, delay, ttl, priority }) => {
      const { seq: _, ...fresh } = this.#fresh(place)
      const work = { ...fresh, priority, expires: ttl && reference.now + ttl }
      const word = reference.send(work, delay) ? work.id : `full ${reference.limits.backlog}`
      const once = { once: '', fingerprint: 'f', envelope: sentEnvelope(work.id, work.lane) }
      const { id, lane, key } = work
      return { word, item: { id, lane, key, delayMs: delay, ttlMs: ttl, priority, ...once } }
    })
    reference.sent()
    const input = { ...this.#ground, process: 'p', n: this.#count, items: sent.map(({ item }) => item) }
    const words = sent.map(({ word }) => word)
    same(await this.#run(sendScript, input), { kind: 'sent', nowMs: reference.now, words })
  }

  /** Of a lease, by chance; now and then of one that is over. */
  #token(i: number): string {
    const live = [...this.#reference.leases.keys()]
    const some = live.length > 0 && i % 5 > 0 ? live : this.#tokens
    return some[i % Math.max(1, some.length)] ?? 'none'
  }

  #newToken(sign: string): string {
    const token = `${sign}${this.#tokens.length}`
    this.#tokens.push(token)
    return token
  }

  #ids(token: string, places: readonly number[]): string[] {
    const held = [...(this.#reference.leases.get(token)?.items.keys() ?? [])]
    return places.map((place) => held[place % Math.max(1, held.length)] ?? '0-0')
  }

  #claimInput(token: string | undefined, n: number, worker: string) {
    return { ...this.#ground, token, n, leaseMs, worker, start: this.#starts.get(worker)! }
  }

  async #claim({ n, worker, peeks }: StepOf<'claim'>): Promise<void> {
    const token = this.#newToken('t')
    const peeked = peeks && this.#reference.givesAtOnce(n) ? await this.#peek(n) : undefined
    const expected = this.#reference.claim(token, n, leaseMs, worker, this.#starts.get(worker)!)
    const reply = await this.#run(claimScript, this.#claimInput(token, n, worker))
    this.#judge(reply, n, expected)
    // With nothing due and nothing expired, what was peeked is what is given.
    if (peeked) same(peeked, expected)
  }

  async #claimAgain({ lease }: StepOf<'claimAgain'>): Promise<void> {
    const token = this.#token(lease)
    if (!this.#reference.leases.has(token)) return
    const expected = this.#reference.claim(token, 3, leaseMs, 'w', this.#starts.get('w')!)
    const reply = await this.#run(claimScript, this.#claimInput(token, 3, 'w'))
    same(itemsOf(reply).map(workOf).sort(byId), expected.sort(byId))
  }

  async #pop({ n }: StepOf<'pop'>): Promise<void> {
    const expected = this.#reference.pop(n)
    this.#judge(await this.#run(claimScript, this.#claimInput(undefined, n, 'w')), n, expected)
  }

  /** What is given, and when to ask again. */
  #judge(reply: ClaimReply, n: number, expected: readonly Work[]): void {
    if (reply.kind !== 'claimed' || this.#reference.paused) return same(reply.kind, 'paused')
    same(reply.items.map(workOf), expected)
    if (n > 0 && expected.length === n) return same(reply.dueInMs, undefined)
    const { now } = this.#reference
    const due = this.#reference.due()
    const dueInMs = due && Math.max(0, due - now)
    if (!this.#hadLaneRate) same(reply.dueInMs, dueInMs)
    else if (dueInMs !== undefined) expect(reply.dueInMs ?? Number.POSITIVE_INFINITY).toBeLessThanOrEqual(dueInMs)
  }

  async #settle({ lease, items, outcome }: StepOf<'settle'>): Promise<void> {
    const token = this.#token(lease)
    const ids = this.#ids(token, items)
    const settlements = ids.map((id) => ({ token, id, outcome }))
    const stale = this.#reference.settle(token, ids, outcome)
    const reply = await this.#run(settleScript, { ...this.#ground, settlements })
    same(reply.kind === 'settled' && reply.stale.map((at) => ids[at]).sort(), stale.sort())
  }

  /** All that a lease holds, without naming it; or more than that, as one says whose lease has lapsed in part. */
  async #settleAll({ lease, tooMany }: StepOf<'settleAll'>): Promise<void> {
    const token = this.#token(lease)
    const held = [...(this.#reference.leases.get(token)?.items.keys() ?? [])]
    const of = held.length + tooMany
    if (of === 0) return
    const outcome = { kind: 'ack' } as const
    const settlements = Array.from({ length: of }, () => ({ token, id: held[0] ?? 'none', outcome, of }))
    if (tooMany === 0) this.#reference.settle(token, held, outcome)
    const reply = await this.#run(settleScript, { ...this.#ground, settlements })
    same(reply.kind === 'settled' && reply.stale.length, tooMany === 0 ? 0 : of)
  }

  async #renew({ lease }: StepOf<'renew'>): Promise<void> {
    const token = this.#token(lease)
    const isHeld = this.#reference.renew(token, leaseMs)
    const ids = [...(this.#reference.leases.get(token)?.items.keys() ?? [])]
    const cancelled = ids.filter((id) => this.#reference.cancels.has(id)).map((id) => cancelMark + id)
    const lost = isHeld ? cancelled : [token]
    same(await this.#run(renewScript, { ...this.#ground, leaseMs, tokens: [token] }), lost)
  }

  async #extend({ lease, item, ms }: StepOf<'extend'>): Promise<void> {
    const token = this.#token(lease)
    const [id] = this.#ids(token, [item]) as [string]
    const ownToken = this.#newToken('x')
    const kind = this.#reference.extend(token, id, ms, ownToken)
    same((await this.#run(extendScript, { ...this.#ground, token, id, forMs: ms, ownToken })).kind, kind)
  }

  async #pause(act: 'pause' | 'resume', lane: string): Promise<void> {
    same(await this.#run(pauseScript, { ...this.#ground, act, lane }), 'done')
  }

  async #endLetter(one: StepOf<'redrive' | 'discard'>): Promise<void> {
    const ids = [[...this.#reference.dead.keys()][one.letter] ?? '0-0']
    const script = one.do === 'redrive' ? redriveScript : discardScript
    same(await this.#run(script, { ...this.#ground, ids }), this.#reference[one.do](ids))
  }

  async #endParked(one: StepOf<'resumeParked' | 'discardParked'>): Promise<void> {
    const objects = [[...this.#reference.parked.keys()][one.object] ?? 'a none']
    const act = one.do === 'resumeParked' ? 'resume' : 'discard'
    const items = act === 'resume' ? this.#reference.resume(objects) : this.#reference.discardParked(objects)
    same((await this.#run(parkedScript, { ...this.#ground, act, objects })).items, items)
  }

  async #enter({ worker }: StepOf<'enter'>): Promise<void> {
    const start = `s${Number(this.#starts.get(worker)!.slice(1)) + 1}`
    this.#starts.set(worker, start)
    const handedBack = this.#reference.enter(worker, start)
    const input = { ...this.#ground, act: 'enter' as const, worker, start }
    same(await this.#run(enterScript, input), { kind: 'entered', handedBack })
  }

  async #cancel({ item }: StepOf<'cancel'>): Promise<void> {
    const id = this.#operations?.lately(item)
    if (id === undefined) return
    const state = this.#operations!.stateOf(id)
    if (state === 'queued' || state === 'running') this.#reference.cancel(id)
    const expected = { queued: 'cancelled', running: 'asked', none: 'unknown' }[state as string] ?? 'ended'
    same(await this.#run(cancelScript, { ...this.#ground, id }), expected)
  }

  async #peek(n: number): Promise<Work[]> {
    return (await this.#run(peekScript, { ...this.#ground, n }))!.map(workOf)
  }

  async #peekAlone({ n }: StepOf<'peek'>): Promise<void> {
    expect((await this.#peek(n)).length).toBeLessThanOrEqual(n)
  }

  /** The store holds what the reference holds, and its counts are what can be counted. */
  async check(): Promise<void> {
    if (!this.#stored) return
    const { records, letters, store, places, later, ...stored } = await this.#stored
    this.#stored = undefined
    const isKept = (id: string) => this.#hadLaneRate && id.startsWith('@') && records[id.slice(1)]?.notBefore === 0
    const waitedFor = Object.fromEntries(Object.entries(later).filter(([id]) => !isKept(id)))
    same({ ...stored, later: waitedFor }, expectedOf(this.#reference))
    const { waiting, behind, held, counts } = this.#reference
    const bytes = bytesOf(Object.values({ ...stored.waiting, ...stored.behind }).flat())
    same(counted(store), { ...counts, waiting, behind, held, bytes, deadBytes: bytesOf(stored.dead) })
    for (const name of laneNames) this.#checkLane(name, records[name], later[`@${name}`] !== undefined)
    same(letters.length, this.#reference.dead.size)
    same(places, waiting + held)
    if (this.#operations) this.#operations.check(await this.#seen!, this.#reference)
  }

  #checkLane(
    name: string,
    record: Awaited<ReturnType<typeof storedIn>>['records'][string] | undefined,
    isDue: boolean,
  ): void {
    const facts = this.#reference.facts(name)
    const { now } = this.#reference
    const paced = this.#reference.lane(name).jar.level(now)
    const isEmpty = Object.values({ ...facts, paced }).every((value) => value === 0)
    // One whose rate is to be forgotten is there until someone claims.
    if (isEmpty && !isDue) return same(record, undefined)
    const works = this.#reference.worksOf(name)
    const { bytes, ranked, left: _, paced: pacedUntil, ...rest } = record!
    same(rest, facts)
    same(Math.max(0, pacedUntil - now), paced)
    same(bytes, bytesOf(works))
    // Besides those with a priority, some that were put back.
    const inLine = this.#reference.lane(name).waiting
    same(ranked >= inLine.filter(({ priority }) => priority !== 0).length, true)
  }
}

/** As toEqual, which takes ten times as long. */
function same(actual: unknown, expected: unknown): void {
  if (!isDeepStrictEqual(actual, expected)) expect(actual).toEqual(expected)
}

const byId = (a: Work, b: Work): number => (a.id < b.id ? -1 : 1)
const itemsOf = (reply: ClaimReply): readonly string[] => (reply.kind === 'claimed' ? reply.items : [])
const bytesOf = (works: readonly Work[]): number => works.reduce((sum, work) => sum + itemText(work).length, 0)

function counted(store: Record<string, string>) {
  const names = ['waiting', 'behind', 'held', 'bytes', 'in', 'out', 'expired', 'dropped', 'discarded', 'deadBytes']
  return Object.fromEntries(names.map((name) => [name, Number(store[name] ?? 0)]))
}
