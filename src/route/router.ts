/**
 * The router of a process: a member of the group `route` that routes the partitions it is given.
 *
 *   made       nothing is connected
 *   running    member of the group; without subscriptions it only says that it is there
 *   closed     what it held is committed and let go
 */
import type { Kind } from '../envelope.ts'
import { GroupMember, type Keeper } from '../group/member.ts'
import { type Grant, type GroupTiming, commitScript as groupCommitScript } from '../group/scripts.ts'
import type { LogGrowth } from '../log/growth.ts'
import { moveHold } from '../log/holds.ts'
import type { Namespace } from '../log/namespace.ts'
import { LogPages } from '../log/read.ts'
import type { Connection } from '../redis/connection.ts'
import type { Hints } from '../redis/hints.ts'
import { type RouteKeys, routeGroup, routeKeys } from '../redis/keys.ts'
import { runScript } from '../redis/script.ts'
import type { Clock } from '../runtime/clock.ts'
import { type Loop, type LoopContext, startLoop } from '../runtime/loop.ts'
import type { RouteLog } from './ports.ts'
import { Routing } from './routing.ts'
import { commitScript, type Loaded, type Removal, tableScript } from './scripts.ts'
import type { Along } from './sink.ts'
import type { Sinks } from './stores.ts'
import type { RouteTable } from './table.ts'

export interface RouterOptions extends LoopContext {
  /** Time as the network has it, also where a test stops the clock. */
  network: Clock
  worker: string
  groupTiming: GroupTiming
  sinks: Sinks
  /** Subscriptions have come, changed or gone. */
  changed?(table: RouteTable): void
  /** A removal that another process has not finished. */
  finishRemoval(name: string, removal: Removal): Promise<void>
}

export interface RouterGround {
  namespace: Namespace
  reads: Connection
  /** On which this process publishes, and stores take what is published along. */
  writes: Connection
  hints: Hints
  growth: LogGrowth
  about: Readonly<Record<string, unknown>>
}

interface Running {
  ground: RouterGround
  keys: RouteKeys
  member: GroupMember
  routing: Routing
  unlisten(): void
}

/** What keeps the log for routers. */
const holdName = 'route'
const choresMs = 5_000

export class Router implements Keeper {
  readonly #options: RouterOptions
  #running: Running | undefined
  /** Holds are moved lazily; without subscriptions, and without a removal to finish, there is nothing to do. */
  #chores: Loop | undefined
  #closed = false
  /** Removals that were under way at the last load, and those that already were a while before. */
  #removing: Loaded['removing'] = new Map()
  #lingering: Loaded['removing'] = new Map()

  constructor(options: RouterOptions) {
    this.#options = options
  }

  async start(ground: RouterGround): Promise<void> {
    if (this.#running || this.#closed) return
    const { network: clock, randomness, telemetry, worker, groupTiming: timing } = this.#options
    const { namespace, reads, writes, hints, about } = ground
    const keys = routeKeys(namespace.name)
    const loops = { clock, randomness, telemetry }
    const partitions = namespace.partitions.length
    const options = { group: routeGroup, keys, partitions, name: worker, timing, about }
    const member = new GroupMember({ ...loops, connection: reads, hints }, options, this)
    const routing = this.#routingOn(ground, keys)
    // Either may be the first to meet a Redis that has lost its tail.
    const unlistens = [reads, writes].map((connection) => connection.onReady(() => routing.restart()))
    const unlisten = () => unlistens.forEach((each) => void each())
    this.#running = { ground, keys, member, routing, unlisten }
    this.#chores = startLoop(loops, 'route.chores', () => this.#doChores())
    await member.start()
  }

  /** Whether everything up to these seqs is in the stores, as far as it is this process's. Asks for the newest table first. */
  async isIdleUpTo(lasts: readonly number[]): Promise<boolean> {
    if (!this.#running || this.#closed) return true
    const { routing, member } = this.#running
    await routing.load()
    const isThrough = (partition: number, main: number) => routing.table.wanting === 0 || main >= lasts[partition]!
    return member.isSure && [...routing.runs.values()].every((run) => run.isIdle && isThrough(run.partition, run.main))
  }

  /** A lone event of this kind is about to be stored, by this process: answers who takes it right away. */
  takeNext(partition: number, kind: Kind): Along | undefined {
    return this.#running?.routing.runs.get(partition)?.takeNext(kind)
  }

  async close(deadlineMs: number): Promise<void> {
    this.#closed = true
    if (!this.#running) return
    const { member, routing, unlisten } = this.#running
    const { network } = this.#options
    const until = network.monotonicMs() + deadlineMs
    const left = () => Math.max(10, until - network.monotonicMs())
    unlisten()
    const late = new Promise<void>((resolve) => network.after(left(), resolve))
    const letGo = [...routing.runs.keys()].map((partition) => this.#letGo(partition, 'closed'))
    await Promise.race([Promise.all([this.#chores?.stop({ deadlineMs: left() }), ...letGo]), late])
    await member.stop(left())
    routing.end()
  }

  gained({ partition, epoch, cursor }: Grant): void {
    if (this.#closed) return
    this.#options.telemetry.emit('route.gained', { partition, epoch, cursor })
    this.#running!.routing.gained({ partition, epoch })
  }

  asked(partition: number): void {
    void this.#release(partition)
  }

  lost(partition: number): void {
    const { routing } = this.#running!
    const run = routing.runs.get(partition)
    if (!run) return
    routing.lost(partition)
    this.#emitLost(partition, run.epoch, 'lost')
  }

  changed(): void {
    // A Redis that is away just now: on its return everything is loaded again.
    this.#running!.routing.load().catch(() => undefined)
  }

  replaced(): void {
    this.#options.telemetry.emit('group.replaced', { group: routeGroup, worker: this.#options.worker })
  }

  async #release(partition: number): Promise<void> {
    const { ground, keys, member, routing } = this.#running!
    const run = routing.runs.get(partition)
    if (!run) return
    await this.#letGo(partition, 'released')
    const said = [{ partition, epoch: run.epoch, cursor: 0, release: true }]
    // If it does not get through, the other one waits for the end of the grace.
    await runScript(ground.reads.redis, groupCommitScript, { keys, said }).catch(() => undefined)
    member.released(partition)
  }

  async #letGo(partition: number, why: string): Promise<void> {
    const { routing } = this.#running!
    const run = routing.runs.get(partition)
    if (!run) return
    await routing.letGo(partition)
    this.#emitLost(partition, run.epoch, why)
  }

  #emitLost(partition: number, epoch: number, why: string): void {
    this.#options.telemetry.emit('route.lost', { partition, epoch, why })
  }

  #routingOn(ground: RouterGround, keys: RouteKeys): Routing {
    const { network: clock, telemetry, sinks } = this.#options
    const { redis } = ground.reads
    return new Routing({
      ...{ clock, telemetry, sinks, log: logOn(ground), partitions: ground.namespace.partitions.length },
      load: async (known) => {
        const loaded = await runScript(redis, tableScript, { keys, known })
        this.#removing = loaded.removing
        return loaded
      },
      changed: (table) => this.#options.changed?.(table),
      commit: (said) => runScript(redis, commitScript, { keys, said }),
      stale: (partition, epoch) => {
        this.#emitLost(partition, epoch, 'stale')
        this.#running!.member.released(partition)
      },
    })
  }

  async #doChores(): Promise<{ againInMs: number }> {
    const { routing } = this.#running!
    // Partitions load the table when they begin; who has none would know it by hints alone, and may still post webhooks.
    if (routing.runs.size === 0) await routing.load()
    for (const run of routing.runs.values()) await run.moveHold()
    await this.#finishRemovals(routing)
    return { againInMs: choresMs }
  }

  /** What is still under way at the next look is left by a process that died. One of the routers is enough. */
  async #finishRemovals(routing: Routing): Promise<void> {
    if (this.#removing.size === 0 || !routing.runs.has(0)) return
    await routing.load()
    for (const [name, removal] of this.#removing)
      if (this.#lingering.get(name)?.text === removal.text) await this.#options.finishRemoval(name, removal)
    this.#lingering = this.#removing
  }
}

function logOn({ namespace, reads, growth }: RouterGround): RouteLog {
  const { redis } = reads
  const pages = new LogPages()
  return {
    open: () => growth.start(),
    read: (partition, after) => pages.readRaw(redis, namespace, partition, after),
    last: (partition) => growth.last(partition),
    reached: (partition, last) => growth.reached(partition, last),
    whenAbove: (partition, above, wake) => growth.whenAbove(partition, above, wake),
    hold: (place) => moveHold(redis, namespace, holdName, place),
    dropHold: async (partition) => {
      await redis.hdel(namespace.partitions[partition]!.holds, holdName)
    },
  }
}
