/** One random schedule of routers and clients over the model: who is executed, answered, paused, killed, and in which order. */

import type { FlushInput } from '../../src/log/flush.ts'
import type { LogHint } from '../../src/log/hint.ts'
import { type ChangeContext, finishRemoval, putSubscription, removeSubscription } from '../../src/route/change.ts'
import type { RouteLog } from '../../src/route/ports.ts'
import { Routing } from '../../src/route/routing.ts'
import type { RoutedSink } from '../../src/route/sink.ts'
import type { Clock, Timer } from '../../src/runtime/clock.ts'
import type { Telemetry } from '../../src/runtime/telemetry.ts'
import { type Bug, partitions, problemOf, randomOf, World } from './model.ts'

interface Op {
  /** Whose answer it is: a router's number, or a client's. */
  of: number
  /** For people who look at a schedule. */
  what(): string
  run(): unknown
  answer(value: unknown): void
  fail(error: Error): void
  state: 'sent' | 'executed'
  value?: unknown
  error?: Error
}

interface Alarm {
  of: number
  at: number
  fn(): void
}

interface Router {
  id: number
  routing: Routing
  lasts: number[]
  waiters: Set<{ partition: number; above: number; wake(hint?: LogHint): void }>
  paused: boolean
}

const types = ['a', 'b'] as const
const patterns = ['a', 'b', '>', 'a', 'b', '>', null] as const
const names = ['q', 'r'] as const
const entriesPerPage = 3
/** Routers have numbers below, clients from here on. */
const firstClient = 1_000

export interface ScheduleOptions {
  steps: number
  bug?: Bug | undefined
  trace?: (line: string) => void
}

export class Schedule {
  readonly world: World
  /** What routers said about themselves. */
  readonly reports = new Set<string>()
  /** How many events went straight from the log into a store. */
  takenStraight = 0
  readonly #telemetry: Telemetry = {
    emit: (name, fields) => this.reports.add(fields?.problem === 'no answer' ? `${name}: no answer` : name),
    listen: () => undefined,
    counts: () => new Map(),
  }
  readonly #random: (below: number) => number
  /** Little happens at once: routers come to rest between events. */
  readonly #isQuiet: boolean
  readonly #options: ScheduleOptions
  readonly #ops: Op[] = []
  readonly #alarms: Alarm[] = []
  readonly #dead = new Set<number>()
  readonly #routers: Router[] = []
  /** The client that works on a name, if one does. */
  readonly #clients = new Map<string, number>()
  #clientIds = firstClient
  #routerIds = 0
  #now = 0
  #isCalm = false

  constructor(seed: number, options: ScheduleOptions) {
    this.#options = options
    this.#random = randomOf(seed)
    this.#isQuiet = seed % 3 === 0
    this.world = new World(options.bug)
    this.#routers.push(this.#startRouter(), this.#startRouter())
    for (let p = 0; p < partitions; p += 1) this.#grant(p, this.#routers[p % 2]!)
  }

  /** Answers what went wrong. */
  async run(): Promise<string | undefined> {
    for (let i = 0; i < this.#options.steps; i += 1) {
      this.world.step += 1
      this.#act()
      await turns(4)
      for (let more = 0; this.#isQuiet && more < 4; more += 1) {
        this.world.step += 1
        this.#progress()
        await turns(4)
      }
    }
    return (await this.#comeToRest()) ?? problemOf(this.world)
  }

  #act(): void {
    const dice = this.#random(100)
    if (dice < 50) this.#progress()
    else if (dice < 64) this.#publish()
    else if (dice < 76) this.#startClient()
    else if (dice < 82) this.#ring()
    else if (dice < 86) this.#look(this.#pick(this.#routers))
    else if (dice < 88) this.#tellOfChange(this.#pick(this.#routers))
    else if (dice < 90) this.#move()
    else if (dice < 92) this.#pauseOrResume()
    else if (dice < 93) this.#crashRouter()
    else if (dice < 95) this.#crashClient()
    else if (dice < 97) this.#refuse()
    else if (dice < 98) this.#pick(this.#routers).routing.restart()
    else this.#loseAnswer()
  }

  // What was sent is executed; what was executed is answered.
  #progress(): void {
    const able = this.#ops.filter((op) => op.state === 'sent' || !this.#isPaused(op.of))
    if (able.length === 0) return this.#ring()
    const op = this.#pick(able)
    if (op.state === 'sent') {
      this.#execute(op)
      if (this.#random(3) === 0 || this.#isPaused(op.of)) return
    }
    this.#answer(op)
  }

  #execute(op: Op): void {
    op.state = 'executed'
    if (this.#options.trace) this.#trace(`execute ${op.of} ${op.what()}`)
    try {
      op.value = op.run()
    } catch (error) {
      op.error = error as Error
    }
  }

  #answer(op: Op): void {
    this.#ops.splice(this.#ops.indexOf(op), 1)
    if (this.#dead.has(op.of)) return
    if (op.error) op.fail(op.error)
    else op.answer(op.value)
  }

  // The connection breaks: nobody knows whether it was executed.
  #loseAnswer(): void {
    const routers = this.#ops.filter((op) => op.of < firstClient && !this.#isPaused(op.of))
    if (routers.length === 0) return
    const op = this.#pick(routers)
    if (op.state === 'sent' && this.#random(2) === 0) this.#execute(op)
    op.error = new Error('Connection is closed.')
    this.#answer(op)
  }

  #publish(): void {
    const partition = this.#random(partitions)
    const type = () => types[this.#random(types.length)]!
    const [first, more] = [type(), this.#random(4) === 0 ? [type()] : []]
    // Half of the lone events are published by one of the routers. If it takes them along they are stored some time after.
    if (more.length === 0 && this.#random(2) === 0 && this.#takesNext(this.#pick(this.#routers), partition, first))
      return
    this.#store(partition, [first, ...more])
  }

  #store(partition: number, types: readonly string[]): LogHint {
    const hint = this.world.publish(partition, types)
    this.#trace(`publish ${hint.last} into ${partition}`)
    for (const router of this.#routers)
      if (!router.paused && this.#random(10) < 7) this.#reached(router, partition, hint.last, hint)
    return hint
  }

  #takesNext({ routing, paused }: Router, partition: number, type: string): boolean {
    const along = paused ? undefined : routing.runs.get(partition)?.takeNext({ type, tenant: 't', start: '' })
    void along?.store({ kinds: type } as FlushInput)
    return along !== undefined
  }

  #reached(router: Router, partition: number, last: number, hint?: LogHint): void {
    if (last <= router.lasts[partition]!) return
    router.lasts[partition] = last
    for (const waiter of [...router.waiters]) {
      if (waiter.partition !== partition || waiter.above >= last) continue
      router.waiters.delete(waiter)
      waiter.wake(hint)
    }
  }

  // The slow look that makes up for lost hints.
  #look(router: Router): void {
    if (!router.paused) for (let p = 0; p < partitions; p += 1) this.#reached(router, p, this.world.last(p))
  }

  // The heartbeat, or the hint, that says the table has changed.
  #tellOfChange(router: Router): void {
    if (!router.paused) router.routing.load().catch(() => undefined)
  }

  #ring(): void {
    const able = this.#alarms.filter(({ of }) => !this.#isPaused(of))
    if (able.length === 0) return
    const alarm = able.reduce((first, each) => (each.at < first.at ? each : first))
    this.#alarms.splice(this.#alarms.indexOf(alarm), 1)
    this.#now = Math.max(this.#now, alarm.at)
    if (!this.#dead.has(alarm.of)) alarm.fn()
  }

  #grant(partition: number, router: Router): void {
    const epoch = this.world.owners[partition]!.epoch + 1
    this.world.owners[partition] = { router: router.id, epoch }
    this.#trace(`grant ${partition} to ${router.id}`)
    router.routing.lost(partition)
    router.routing.gained({ partition, epoch })
  }

  // By force: the one before hears of it later, when it is not paused, or by a stale commit.
  #move(): void {
    const partition = this.#random(partitions)
    const to = this.#pick(this.#routers.filter(({ paused }) => !paused))
    const from = this.#routers.find(({ id }) => id === this.world.owners[partition]!.router)
    if (!to) return
    this.#grant(partition, to)
    if (from && from !== to)
      this.#alarms.push({ of: from.id, at: this.#now + this.#random(300), fn: () => this.#lose(from, partition) })
  }

  #lose(router: Router, partition: number): void {
    if (this.world.owners[partition]!.router !== router.id) router.routing.lost(partition)
  }

  #pauseOrResume(): void {
    const router = this.#pick(this.#routers)
    router.paused = !router.paused
    this.#trace(`${router.paused ? 'pause' : 'resume'} ${router.id}`)
    if (!router.paused || this.#random(2) === 0) return
    const other = this.#routers.find((each) => each !== router && !each.paused)
    if (other) for (let p = 0; p < partitions; p += 1) this.#grant(p, other)
  }

  #crashRouter(): void {
    const i = this.#random(this.#routers.length)
    const crashed = this.#routers[i]!
    this.#trace(`crash ${crashed.id}`)
    this.#dead.add(crashed.id)
    const fresh = this.#startRouter()
    this.#routers[i] = fresh
    for (const [p, { router }] of this.world.owners.entries())
      if (router === crashed.id) this.#grant(p, this.#pick(this.#routers.filter(({ paused }) => !paused)) ?? fresh)
  }

  // Whatever it has sent may still be executed, at any time.
  #crashClient(): void {
    const busy = [...this.#clients]
    if (busy.length === 0) return
    const [name, id] = this.#pick(busy)
    this.#trace(`crash client ${id} of ${name}`)
    this.#dead.add(id)
    this.#clients.delete(name)
  }

  #refuse(): void {
    const name = this.#pick(names)
    if (!this.world.refusing.delete(name)) this.world.refusing.add(name)
  }

  #startClient(): void {
    const name = this.#pick(names)
    if (this.#clients.has(name)) return
    const id = this.#clientIds++
    this.#clients.set(name, id)
    const work = this.#random(5) === 0 ? this.#remove(id, name) : this.#put(id, name)
    void work.then(() => this.#clients.get(name) === id && this.#clients.delete(name))
  }

  async #put(id: number, name: string): Promise<void> {
    const match = this.#pick(patterns)
    const from = this.#random(2) === 0 ? 'now' : 'beginning'
    this.#trace(`client ${id}: put ${name} ${match} from ${from}`)
    const definition = { name, kind: 'queue' as const, match, options: {} }
    const { subscription } = await putSubscription(this.#client(id), definition, { from, force: false })
    const life = this.world.lives.get(subscription.born)!
    const put = life.revisions.find(({ revision }) => revision === subscription.revision)!
    put.answeredAt = Math.min(put.answeredAt, this.world.step)
    this.#trace(`client ${id}: answered`)
  }

  async #remove(id: number, name: string): Promise<void> {
    this.#trace(`client ${id}: remove ${name}`)
    await removeSubscription(this.#client(id), name)
  }

  #client(id: number): ChangeContext {
    const { world } = this
    return {
      sinks: { queue: this.#sink(id) },
      startsOf: (from) =>
        this.#call(
          id,
          () => 'lasts',
          () => world.log.map((_, p) => ({ at: from === 'now' ? world.last(p) : 0, last: world.last(p) })),
        ),
      put: ({ name, definition, starts }) =>
        this.#call(
          id,
          () => `put ${name}`,
          () => world.put(name, definition, starts),
        ),
      remove: (name) =>
        this.#call(
          id,
          () => `remove ${name}`,
          () => world.remove(name),
        ),
      removed: (name, mark) =>
        this.#call(
          id,
          () => `removed ${name}`,
          () => world.removed(name, mark),
        ),
      bornOf: (name) =>
        this.#call(
          id,
          () => `born of ${name}`,
          () => world.bornOf(name),
        ),
    }
  }

  #sink(of: number): RoutedSink {
    const { world } = this
    return {
      make: (subscription, applied) =>
        this.#call(
          of,
          () => `make ${subscription.name} ${subscription.revision} at ${applied}`,
          () => world.make(subscription, applied),
        ),
      accept: (partition, deliveries) =>
        deliveries.map((delivery) => {
          const { subscription, events } = delivery
          const what = () =>
            `accept ${subscription.name} ${subscription.revision} ${partition}: ${events.map(({ seq }) => seq)}`
          return this.#call(of, what, () => world.accept(partition, delivery))
        }),
      takeNext: (partition, next) => {
        let tell: (seq: number | undefined) => void
        const taken = new Promise<number | undefined>((resolve) => {
          tell = resolve
        })
        const what = () => `publish into ${partition} and take it after ${next.after} for ${next.subscription.name}`
        const take = (type: string) => this.#count(world.takeNext(partition, next, this.#store(partition, [type])))
        const store = ({ kinds }: FlushInput) =>
          this.#call(of, what, () => take(kinds)).then(
            (seq) => void tell(seq),
            () => void tell(undefined),
          )
        return { taken, store: (flush) => store(flush).then(() => undefined) }
      },
      remove: (name, revision) =>
        this.#call(
          of,
          () => `take away ${name}`,
          () => world.removeStore(name, revision),
        ),
    }
  }

  #count(seq: number | undefined): number | undefined {
    if (seq !== undefined) this.takenStraight += 1
    return seq
  }

  #startRouter(): Router {
    const id = this.#routerIds++
    const { world } = this
    const router: Router = {
      ...{ id, lasts: world.log.map(() => 0), waiters: new Set(), paused: false },
      routing: new Routing({
        ...{ partitions, sinks: { queue: this.#sink(id) }, clock: this.#clock(id), telemetry: this.#telemetry },
        log: this.#log(id, () => router),
        load: (known) =>
          this.#call(
            id,
            () => 'load',
            () => world.load(known),
          ),
        commit: (said) =>
          this.#call(
            id,
            () => `commit ${JSON.stringify(said)}`,
            () => world.commit(said),
          ),
        stale: () => undefined,
      }),
    }
    return router
  }

  #log(of: number, router: () => Router): RouteLog {
    return {
      open: async () => undefined,
      read: (partition, after) =>
        this.#call(
          of,
          () => `read ${partition} after ${after}`,
          () => this.world.read(partition, after, entriesPerPage),
        ),
      last: (partition) => router().lasts[partition]!,
      reached: (partition, last) => this.#reached(router(), partition, last),
      whenAbove: (partition, above, wake) => {
        if (router().lasts[partition]! > above) {
          wake()
          return () => undefined
        }
        const waiter = { partition, above, wake }
        router().waiters.add(waiter)
        return () => router().waiters.delete(waiter)
      },
      hold: async () => undefined,
      dropHold: async () => undefined,
    }
  }

  #clock(of: number): Clock {
    return {
      now: () => this.#now,
      monotonicMs: () => this.#now,
      after: (ms, fn): Timer => {
        const alarm = { of, at: this.#now + ms, fn }
        this.#alarms.push(alarm)
        return {
          cancel: () => {
            const i = this.#alarms.indexOf(alarm)
            if (i >= 0) this.#alarms.splice(i, 1)
          },
        }
      },
    }
  }

  #call<T>(of: number, what: () => string, run: () => T): Promise<T> {
    return new Promise((resolve, reject) => {
      if (this.#dead.has(of)) return
      this.#ops.push({ of, what, run, answer: resolve as (value: unknown) => void, fail: reject, state: 'sent' })
    })
  }

  /** No more trouble: everything that was begun is finished, and everyone hears everything. */
  async #comeToRest(): Promise<string | undefined> {
    this.#isCalm = true
    this.world.refusing.clear()
    for (const router of this.#routers) router.paused = false
    for (const [p, { router }] of this.world.owners.entries())
      for (const each of this.#routers) if (each.id !== router) each.routing.lost(p)
    for (let i = 0; i < 3_000; i += 1) {
      this.world.step += 1
      if (i % 20 === 0) for (const router of this.#routers) this.#hearAll(router)
      const [op] = this.#ops
      if (!op) this.#ring()
      else {
        if (op.state === 'sent') this.#execute(op)
        this.#answer(op)
      }
      await turns(4)
      if (this.#ops.length === 0 && this.#isAtRest()) return undefined
    }
    return 'it does not come to rest'
  }

  #hearAll(router: Router): void {
    this.#look(router)
    this.#tellOfChange(router)
    for (const name of names) if (!this.#clients.has(name)) void this.#finish(name)
  }

  // What a dead remover has left is finished by whoever comes by.
  async #finish(name: string): Promise<void> {
    const removal = this.world.removalOf(name)
    if (removal) await finishRemoval(this.#client(this.#clientIds++), name, removal)
  }

  #isAtRest(): boolean {
    const { world } = this
    if (this.#clients.size > 0 || !world.isSettled) return false
    return world.owners.every(({ router }, p) => {
      const { routing } = this.#routers.find(({ id }) => id === router)!
      if (routing.table.wanting === 0) return world.registered.every(({ match }) => match === null)
      const run = routing.runs.get(p)
      return (run?.isIdle && run.main >= world.last(p)) ?? false
    })
  }

  #isPaused(of: number): boolean {
    if (this.#isCalm || of >= firstClient) return false
    for (const router of this.#routers) if (router.id === of) return router.paused
    return false
  }

  #pick<T>(list: readonly T[]): T {
    return list[this.#random(Math.max(1, list.length))]!
  }

  #trace(line: string): void {
    this.#options.trace?.(`${this.world.step}: ${line}`)
  }
}

async function turns(count: number): Promise<void> {
  for (let i = 0; i < count; i += 1) await undefined
}
