/** Random work on a store, step by step against a reference that says it plainly. Time is the test's. */
import { createHash } from 'node:crypto'
import fc from 'fast-check'
import { describe, expect, onTestFinished, test } from 'vitest'
import type { Outcome } from '../../src/lanes/acts.ts'
import { checkStore } from '../../src/lanes/fsck.ts'
import {
  discardScript,
  enterScript,
  extendScript,
  fsckScript,
  parkedScript,
  pauseScript,
  peekScript,
  redriveScript,
  renewScript,
  sendScript,
} from '../../src/lanes/scripts.ts'
import { runScript, type Script } from '../../src/redis/script.ts'
import { collect } from '../support/log.ts'
import { acceptScript, claimScript, settleScript } from './one-act.ts'
import { ReferenceStore, type Work } from './reference.ts'
import {
  expectedOf,
  itemText,
  sentEnvelope,
  storedIn,
  type TestStore,
  type TestStoreOptions,
  testStore,
  workOf,
} from './store.ts'

const laneNames = ['a', 'b', 'c', 'd']
const weightsOf = (weights: readonly number[]) => Object.fromEntries(laneNames.map((name, i) => [name, weights[i]!]))

const lane = fc.constantFrom(...laneNames)
/** A lane, and a key in it. */
const place = fc.record({ lane, key: fc.constantFrom('', 'k', 'k', 'l') })
const outcome: fc.Arbitrary<Outcome> = fc.oneof(
  { weight: 4, arbitrary: fc.constant<Outcome>({ kind: 'ack' }) },
  fc.constant<Outcome>({ kind: 'back' }),
  fc.constantFrom(0, 50, 500).map((afterMs): Outcome => ({ kind: 'retry', afterMs, reason: 'busy' })),
  fc.constant<Outcome>({ kind: 'dead', reason: 'poison' }),
  fc.constantFrom(50, 500).map((forMs): Outcome => ({ kind: 'throttle', forMs })),
)

const step = fc.oneof(
  fc.record({
    do: fc.constant('accept' as const),
    partition: fc.nat(1),
    lanes: fc.array(place, { minLength: 1, maxLength: 6 }),
  }),
  fc.record({ do: fc.constant('acceptAgain' as const), extra: fc.array(place, { maxLength: 2 }) }),
  fc.record({
    do: fc.constant('send' as const),
    place,
    delay: fc.constantFrom(0, 0, 100, 1_000),
    ttl: fc.constantFrom(0, 0, 300),
    priority: fc.constantFrom(0, 0, 5, -5, 1),
  }),
  {
    weight: 3,
    arbitrary: fc.record({ do: fc.constant('claim' as const), n: fc.nat(7), worker: fc.constantFrom('w', 'v') }),
  },
  fc.record({ do: fc.constant('claimAgain' as const), lease: fc.nat(20) }),
  fc.record({ do: fc.constant('pop' as const), n: fc.nat(3) }),
  {
    weight: 3,
    arbitrary: fc.record({
      do: fc.constant('settle' as const),
      lease: fc.nat(20),
      items: fc.array(fc.nat(9), { minLength: 1, maxLength: 4 }),
      outcome,
    }),
  },
  fc.record({ do: fc.constant('renew' as const), lease: fc.nat(20) }),
  fc.record({
    do: fc.constant('extend' as const),
    lease: fc.nat(20),
    item: fc.nat(9),
    ms: fc.constantFrom(0, 200, 2_000),
  }),
  { weight: 2, arbitrary: fc.record({ do: fc.constant('wait' as const), ms: fc.constantFrom(1, 60, 400, 1_500) }) },
  fc.record({
    do: fc.constant('weigh' as const),
    weights: fc.array(fc.constantFrom(0, 1, 1, 2, 3), { minLength: 4, maxLength: 4 }),
  }),
  fc.record({ do: fc.constant('pause' as const), act: fc.constantFrom('pause' as const, 'resume' as const) }),
  fc.record({ do: fc.constantFrom('redrive' as const, 'discard' as const), letter: fc.nat(5) }),
  fc.record({ do: fc.constantFrom('resumeParked' as const, 'discardParked' as const), object: fc.nat(3) }),
  fc.record({ do: fc.constant('enter' as const), worker: fc.constantFrom('w', 'v') }),
  fc.record({ do: fc.constant('peek' as const), n: fc.integer({ min: 1, max: 6 }) }),
)
type Step = typeof step extends fc.Arbitrary<infer T> ? T : never

const leaseMs = 1_000

type Plant = <Input, Reply>(script: Script<Input, Reply>) => Script<Input, Reply>

/** Does the same to a store and to the reference. */
class Walk {
  readonly #store: TestStore
  readonly #reference: ReferenceStore
  readonly #plant: Plant
  readonly #tokens: string[] = []
  readonly #starts = new Map([
    ['w', 's0'],
    ['v', 's0'],
  ])
  #last: { partition: number; works: (Work & { seq: number })[] } | undefined
  #seq = 0
  #count = 0
  #revision = 1

  constructor(store: TestStore, plant: Plant) {
    this.#store = store
    this.#reference = new ReferenceStore(store)
    this.#plant = plant
  }

  #run<Input, Reply>(script: Script<Input, Reply>, input: Input): Promise<Reply> {
    return runScript(this.#store.redis, this.#plant(script), input)
  }

  get #ground() {
    return { keys: this.#store.keys, nowMs: this.#reference.now }
  }

  #fresh({ lane: name, key }: { lane: string; key: string }): Work & { seq: number } {
    this.#seq += 1
    const enqueued = this.#reference.now
    return {
      id: `0-${this.#seq}`,
      lane: name,
      expires: 0,
      priority: 0,
      enqueued,
      attempts: 0,
      first: 0,
      key: this.#reference.ordered ? key : '',
      seq: this.#seq,
    }
  }

  async #accept(partition: number, works: (Work & { seq: number })[]): Promise<void> {
    const [first, last] = [works[0]!.seq, works.at(-1)!.seq]
    const input = {
      ...this.#ground,
      revision: this.#revision,
      born: 1,
      partition,
      first,
      last,
      items: works.map((work) => ({ lane: work.lane, item: itemText(work) })),
    }
    const items = this.#reference.accept(partition, works)
    expect(await this.#run(acceptScript, input)).toEqual({ kind: 'accepted', items })
    this.#last = { partition, works }
  }

  /** Of a lease, by chance; one that is over too. */
  #token(i: number): string {
    return this.#tokens[i % Math.max(1, this.#tokens.length)] ?? 'none'
  }

  #ids(token: string, places: readonly number[]): string[] {
    const held = [...(this.#reference.leases.get(token)?.items.keys() ?? [])]
    return places.map((place) => held[place % Math.max(1, held.length)] ?? '0-0')
  }

  async take(one: Step): Promise<void> {
    const reference = this.#reference
    const ground = this.#ground
    switch (one.do) {
      case 'accept':
        return this.#accept(
          one.partition,
          one.lanes.map((name) => this.#fresh(name)),
        )
      case 'acceptAgain':
        if (!this.#last) return
        return this.#accept(this.#last.partition, [...this.#last.works, ...one.extra.map((name) => this.#fresh(name))])
      case 'send': {
        this.#count += 1
        const { seq: _, ...fresh } = this.#fresh(one.place)
        const work = { ...fresh, priority: one.priority, expires: one.ttl && reference.now + one.ttl }
        reference.send(work, one.delay)
        const sent = { id: work.id, lane: work.lane, delayMs: one.delay, ttlMs: one.ttl, priority: one.priority }
        const item = { ...sent, key: work.key, once: '', fingerprint: 'f', envelope: sentEnvelope(work.id, work.lane) }
        const input = { ...ground, process: 'p', n: this.#count, items: [item] }
        expect(await this.#run(sendScript, input)).toMatchObject({ kind: 'sent', words: [work.id] })
        return
      }
      case 'claim': {
        const token = `t${this.#tokens.length}`
        this.#tokens.push(token)
        return this.#claimUnder(token, one.n, one.worker)
      }
      case 'claimAgain':
        if (reference.leases.has(this.#token(one.lease))) return this.#claimUnder(this.#token(one.lease), 3, 'w')
        return
      case 'pop': {
        const reply = await this.#run(claimScript, { ...this.#claimInput(undefined, one.n, 'w') })
        expect(itemsOf(reply).map(workOf)).toEqual(reference.pop(one.n))
        return
      }
      case 'settle': {
        const token = this.#token(one.lease)
        const ids = this.#ids(token, one.items)
        const settlements = ids.map((id) => ({ token, id, outcome: one.outcome }))
        const stale = reference.settle(token, ids, one.outcome)
        const reply = await this.#run(settleScript, { ...ground, settlements })
        expect(reply.kind === 'settled' && reply.stale.map((place) => ids[place]).sort()).toEqual(stale.sort())
        return
      }
      case 'renew': {
        const token = this.#token(one.lease)
        const lost = reference.renew(token, leaseMs) ? [] : [token]
        expect(await this.#run(renewScript, { ...ground, leaseMs, tokens: [token] })).toEqual(lost)
        return
      }
      case 'extend': {
        const token = this.#token(one.lease)
        const [id] = this.#ids(token, [one.item]) as [string]
        const ownToken = `x${this.#tokens.length}`
        this.#tokens.push(ownToken)
        const kind = reference.extend(token, id, one.ms, ownToken)
        expect(await this.#run(extendScript, { ...ground, token, id, forMs: one.ms, ownToken })).toMatchObject({
          kind,
        })
        return
      }
      case 'wait':
        reference.now += one.ms
        return
      case 'weigh':
        this.#revision += 1
        reference.weigh(weightsOf(one.weights))
        expect(await this.#store.make(this.#revision, weightsOf(one.weights), this.#plant)).toBe('raised')
        return
      case 'pause':
        reference.paused = one.act === 'pause'
        expect(await this.#run(pauseScript, { ...ground, act: one.act, lane: '' })).toBe('done')
        return
      case 'redrive':
      case 'discard': {
        const ids = [[...reference.dead.keys()][one.letter] ?? '0-0']
        const script = one.do === 'redrive' ? redriveScript : discardScript
        expect(await this.#run(script, { ...ground, ids })).toBe(reference[one.do](ids))
        return
      }
      case 'resumeParked':
      case 'discardParked': {
        const objects = [[...reference.parked.keys()][one.object] ?? 'a none']
        const act = one.do === 'resumeParked' ? 'resume' : 'discard'
        const items = act === 'resume' ? reference.resume(objects) : reference.discardParked(objects)
        expect(await this.#run(parkedScript, { ...ground, act, objects })).toMatchObject({ items })
        return
      }
      case 'enter': {
        const start = `s${Number(this.#starts.get(one.worker)!.slice(1)) + 1}`
        this.#starts.set(one.worker, start)
        const handedBack = reference.enter(one.worker, start)
        const input = { ...ground, act: 'enter' as const, worker: one.worker, start }
        expect(await this.#run(enterScript, input)).toEqual({ kind: 'entered', handedBack })
        return
      }
      case 'peek': {
        const before = await storedIn(this.#store)
        const next = await this.#run(peekScript, { ...ground, n: one.n })
        expect(await storedIn(this.#store)).toEqual(before)
        expect(next!.length).toBeLessThanOrEqual(one.n)
        return
      }
    }
  }

  #claimInput(token: string | undefined, n: number, worker: string) {
    return { ...this.#ground, token, n, leaseMs, worker, start: this.#starts.get(worker)! }
  }

  async #claimUnder(token: string, n: number, worker: string): Promise<void> {
    const again = this.#reference.leases.has(token)
    const expected = this.#reference.claim(token, n, leaseMs, worker, this.#starts.get(worker)!)
    const peeked = !again && n > 0 ? await this.#peek(n) : undefined
    const reply = await this.#run(claimScript, this.#claimInput(token, n, worker))
    if (this.#reference.paused && !again) return expect(reply.kind).toBe('paused')
    const given = itemsOf(reply).map(workOf)
    if (again) return expect(given.sort(byId)).toEqual(expected.sort(byId))
    expect(given).toEqual(expected)
    // With nothing due and nothing expired, what was peeked is what is given.
    if (peeked) expect(given).toEqual(peeked)
  }

  async #peek(n: number): Promise<Work[] | undefined> {
    const before = await storedIn(this.#store)
    const { now, paused } = this.#reference
    const isDue = [...Object.values(before.later), ...Object.values(before.leases).map(({ ends }) => ends)].some(
      (at) => at <= now,
    )
    const expires = Object.values(before.waiting)
      .flat()
      .some((work) => work.expires > 0 && work.expires <= now)
    if (isDue || expires || paused) return undefined
    return (await this.#run(peekScript, { ...this.#ground, n }))!.map(workOf)
  }

  /** The store holds what the reference holds, and its counts are what can be counted. */
  async check(): Promise<void> {
    const { records, letters, store, places, ...stored } = await storedIn(this.#store)
    expect(stored).toEqual(expectedOf(this.#reference))
    const { waiting, behind, held, counts, later, dead, parked } = this.#reference
    const bytes = bytesOf(Object.values({ ...stored.waiting, ...stored.behind }).flat())
    expect(counted(store)).toEqual({ ...counts, waiting, behind, held, bytes })
    for (const name of laneNames) {
      const record = records[name]
      const inLater = [...later.values()].filter(({ work }) => work?.lane === name).length
      const inDead = [...dead.values()].filter(({ work }) => work.lane === name).length
      const inHeld = Object.values(stored.leases)
        .flatMap(({ items }) => items)
        .filter((work) => work.lane === name).length
      const { waiting: works = [], credit = 0, waitsUntil = 0 } = this.#reference.lanes.get(name) ?? {}
      const inParked = [...parked.values()].filter(({ work }) => work.lane === name).length
      const isBehind = [...this.#reference.objects.values()].flat().filter((work) => work.lane === name)
      if (works.length + isBehind.length + inLater + inHeld + inDead + inParked + waitsUntil === 0) {
        expect(record).toBeUndefined()
        continue
      }
      const { bytes: itsBytes, ranked, left: _, ...rest } = record!
      expect(rest).toEqual({
        waiting: works.length,
        later: inLater,
        held: inHeld,
        dead: inDead,
        parked: inParked,
        behind: isBehind.length,
        paced: 0,
        notBefore: waitsUntil,
        credit,
      })
      expect(itsBytes).toBe(bytesOf([...works, ...isBehind]))
      // Besides those with a priority, some that were put back.
      expect(ranked).toBeGreaterThanOrEqual(works.filter(({ priority }) => priority !== 0).length)
    }
    expect(letters).toHaveLength(dead.size)
    expect(places).toBe(waiting + held)
  }
}

const byId = (a: Work, b: Work): number => (a.id < b.id ? -1 : 1)
const itemsOf = (reply: ReturnType<typeof claimScript.reply>): readonly string[] =>
  reply.kind === 'claimed' ? reply.items : []
const bytesOf = (works: readonly Work[]): number =>
  works.reduce((sum, work) => sum + Buffer.byteLength(itemText(work)), 0)

function counted(store: Record<string, string>) {
  const names = ['waiting', 'behind', 'held', 'bytes', 'in', 'out', 'expired', 'dropped', 'discarded']
  return Object.fromEntries(names.map((name) => [name, Number(store[name] ?? 0)]))
}

async function walk(store: TestStore, steps: readonly Step[], plant: Plant): Promise<void> {
  await store.redis.unlink(...(await store.redis.keys(`${store.namespace}:*`)))
  await store.make()
  const walking = new Walk(store, plant)
  for (const one of steps) {
    await walking.take(one)
    await walking.check()
  }
  expect(await findingsOf(store)).toEqual([])
}

const findingsOf = ({ redis, keys }: TestStore) =>
  collect(checkStore('mail', (most, asks) => runScript(redis, fsckScript, { keys, most, asks })))

const walks = fc.array(step, { minLength: 5, maxLength: 40, size: 'max' })

async function walkMany(
  numRuns: number,
  plant: Plant = (script) => script,
  options: TestStoreOptions = {},
): Promise<void> {
  const store = await testStore(options)
  await fc.assert(
    fc.asyncProperty(walks, (steps) => walk(store, steps, plant)),
    { numRuns, seed: 7, endOnFailure: true },
  )
}

/** The scripts with one line of them changed. */
function planting(line: string, bug: string): Plant {
  let found = false
  const plant: Plant = (script) => {
    if (!script.source.includes(line)) return script
    found = true
    const source = script.source.replace(line, bug)
    return { ...script, source, sha: createHash('sha1').update(source).digest('hex') }
  }
  onTestFinished(() => expect(found).toBe(true))
  return plant
}

const bugs: [what: string, line: string, bug: string][] = [
  ['a lane is put in line when its list was empty', 'gave[lane] = gives(lane)', 'gave[lane] = waits_in(lane) > 0'],
  ['a drained lane keeps its place', 'if gave[lane] then out[#out + 1] = name_of[lane] end', ''],
  ['a lane that was served keeps its number', 'credit_of[lane], turn_of[lane] = 0, next_turn()', 'credit_of[lane] = 0'],
  ['the rest of a turn is forgotten', 'credit_of[lane] = turn - given', 'credit_of[lane] = 0'],
  ['a lapsed lease is no attempt', 'attempts = tonumber(attempts) + 1', 'attempts = tonumber(attempts)'],
  ['what is handed back goes to the end', '(at_head and -number or number)', 'number'],
  ['an accept is applied twice', 'if applied < first or tonumber(', 'if true or tonumber('],
  ['a stale settle counts', "count('out', #names)", "count('out', size)"],
  ['what was acknowledged stays at its place', 'remove_items(done)', ''],
]

describe('a store of lanes', () => {
  test(
    '[Q31] does what the reference does, whatever happens in whatever order; turns holds exactly the lanes that can give, and fsck finds nothing',
    () => walkMany(100),
    60_000,
  )

  test.each([
    { ordered: true, parks: false },
    { ordered: true, parks: true },
  ])('[Q33] the same of an ordered one: %o', (options) => walkMany(100, undefined, options), 60_000)

  test.each(bugs)('the walk finds a planted bug: %s', async (_, line, bug) => {
    await expect(walkMany(100, planting(line, bug))).rejects.toThrow('Property failed')
  })
})
