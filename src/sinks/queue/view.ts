/** Queues as people see them, from any process: what waits for whom, what failed, and what to do about it. */
import type { Redis } from 'ioredis'
import { didYouMean } from '../../did-you-mean.ts'
import { BusbarError, shown } from '../../errors.ts'
import type { Event } from '../../event.ts'
import { checkParameter, checkTenant } from '../../event-checks.ts'
import { readItem } from '../../lanes/item.ts'
import {
  enteredIn,
  firstPlace,
  forever,
  type LaneRecord,
  placeField,
  readRecord,
  throttleMark,
  waitingIn,
} from '../../lanes/record.ts'
import { pauseScript, peekScript } from '../../lanes/scripts.ts'
import { LaneStore } from '../../lanes/store.ts'
import type { LogSource } from '../../log/view.ts'
import type { Pattern } from '../../pattern.ts'
import type { Connection } from '../../redis/connection.ts'
import { type LaneKeys, queueKeys } from '../../redis/keys.ts'
import { runScript } from '../../redis/script.ts'
import type { SubscriptionFacts, Subscriptions } from '../../route/subscriptions.ts'
import type { Clock } from '../../runtime/clock.ts'
import { checkKnown } from '../../unknown-name.ts'
import { checkCount } from './checks.ts'
import { createDeadView, type QueueDeadView } from './dead-view.ts'
import { eventOf } from './held.ts'
import { type QueueOptions, type QueueSettings, settingsOf } from './options.ts'
import { createParkedView, type QueueParkedView } from './parked-view.ts'
import type { QueueDoor } from './queue.ts'
import type { Queues } from './queues.ts'

export interface QueueFacts extends QueueSettings {
  name: string
  match: Pattern | null
  revision: number
  paused: boolean
  /** Items in line (also of tenants that are paused or throttled), that wait for a time, are held under a lease, were given up. */
  waiting: number
  later: number
  held: number
  dead: number
  /** Of an ordered queue: items that wait for another of their object, and objects that are set aside. */
  behind: number
  parked: number
  /** Bytes of what waits. */
  bytes: number
  /** Ever: entered, and acked or popped. */
  in: number
  out: number
  /** Ever: past their time to live, given way to newer ones (dead letters, or by `drop-oldest`), dead letters and parked items given up. */
  expired: number
  dropped: number
  discarded: number
  /** Tenants with something in the queue. */
  tenants: number
  /** Age in ms of the oldest waiting item; null when none waits. Of more than 1,000 tenants: of the first in line and those that cannot give. */
  oldestMs: number | null
}

export interface TenantFacts {
  tenant: string
  weight: number
  waiting: number
  later: number
  held: number
  dead: number
  behind: number
  parked: number
  bytes: number
  /** Since the tenant last had nothing in the queue. */
  in: number
  out: number
  oldestMs: number | null
  /** It was throttled: nothing of it is given before. ms; null when it is not. */
  throttledUntil: number | null
  /** Nothing of it is given until someone resumes it. */
  paused: boolean
}

/** A queue by its name, whoever declared it. */
export type OpenQueue = Pick<QueueDoor, 'name' | 'send' | 'claim' | 'pop' | 'lease'>

export interface QueuesView {
  /** Sends to it, claims from it and settles what was claimed. QUEUE_NOT_FOUND when there is none of that name. */
  open(name: string): Promise<OpenQueue>
  /** Registers a queue, or changes its definition, as bus.queue() and run() do. */
  put(name: string, options?: QueueOptions): Promise<QueueFacts & { change: 'created' | 'changed' | 'same' }>
  list(): Promise<QueueFacts[]>
  /** QUEUE_NOT_FOUND when there is none of that name. */
  get(name: string): Promise<QueueFacts>
  /** Tenants with something in the queue, those with the most waiting first. */
  tenants(name: string, options?: { limit?: number }): Promise<TenantFacts[]>
  /** The events that would be given next, in order. Changes nothing. */
  peek(name: string, options?: { max?: number }): Promise<Event[]>
  /** Nothing is given until it is resumed, or nothing of one tenant; what comes meanwhile waits. */
  pause(name: string, options?: { tenant?: string }): Promise<void>
  resume(name: string, options?: { tenant?: string }): Promise<void>
  /** Takes it away, and everything in it. */
  remove(name: string): Promise<void>
  readonly dead: QueueDeadView
  readonly parked: QueueParkedView
}

/** A queue that is known to exist. */
export interface KnownQueue {
  redis: Redis
  keys: LaneKeys
  store: LaneStore
  facts: SubscriptionFacts
}

export type AskQueue = <T>(name: string, ask: (known: KnownQueue) => Promise<T>) => Promise<T>

export interface QueuesViewOptions {
  source: LogSource
  subscriptions: Subscriptions
  queues: Queues
  clock: Clock
  connection(): Promise<Connection>
}

const defaultTenants = 20
const mostPeeked = 1_000
const mostTenants = 1_000_000
// Of more tenants, finding the oldest item of all would take longer than anyone wants to wait for a list of queues.
const oldestAmong = 1_000

export function createQueuesView({ source, subscriptions, queues, clock, connection }: QueuesViewOptions): QueuesView {
  const known = async (facts: SubscriptionFacts): Promise<Omit<KnownQueue, 'redis'> & { redis: Redis }> => {
    const opened = await connection()
    return source.read(async (redis, namespace) => {
      const keys = queueKeys(namespace.name, facts.name)
      return { redis, keys, store: new LaneStore({ connection: opened, clock }, keys), facts }
    })
  }
  const find = async (name: string): Promise<SubscriptionFacts> => {
    const found = await subscriptions.find(name)
    if (found?.kind === 'queue') return found
    queues.forget(name)
    const others = (await subscriptions.list()).filter(({ kind }) => kind === 'queue')
    const names = others.map((facts) => facts.name)
    const meant = didYouMean(String(name), names)
    const namespace = await source.read(async (_, { name: own }) => own)
    throw BusbarError.of('QUEUE_NOT_FOUND', { name: shown(name), namespace, meant })
  }
  const ask: AskQueue = async (name, work) => {
    const queue = await known(await find(name))
    return source.read(() => work(queue))
  }
  // One that is misspelt would stop the whole queue, or let it go on.
  const pause = async (name: string, act: 'pause' | 'resume', options: { tenant?: string } = {}) => {
    checkKnown(options, new Set(['tenant']))
    const { tenant } = options
    return ask(name, async ({ redis, store }) => {
      if (tenant !== undefined) checkParameter(checkTenant, tenant)
      await runScript(redis, pauseScript, { ...store.ground, act, lane: tenant ?? '' })
    })
  }
  return {
    open: async (name) => queues.open((await find(name)).name),
    put: async (name, options = {}) => {
      const change = await queues.put(name, options)
      return { change, ...(await ask(name, (queue) => factsOf(queue, clock))) }
    },
    list: async () => {
      const all = (await subscriptions.list()).filter(({ kind }) => kind === 'queue')
      return Promise.all(all.map(async (facts) => factsOf(await known(facts), clock)))
    },
    get: (name) => ask(name, (queue) => factsOf(queue, clock)),
    tenants: async (name, options = {}) => {
      checkKnown(options, new Set(['limit']))
      const limit = checkCount('limit', options.limit ?? defaultTenants, mostTenants)
      return ask(name, (queue) => tenantsOf(queue, clock, limit))
    },
    peek: async (name, options = {}) => {
      checkKnown(options, new Set(['max']))
      const n = checkCount('max', options.max ?? 10, mostPeeked)
      return ask(name, async ({ redis, store }) => {
        const items = await runScript(redis, peekScript, { ...store.ground, n })
        return (items ?? []).map((text) => eventOf(readItem(text)))
      })
    },
    pause: (name, options) => pause(name, 'pause', options),
    resume: (name, options) => pause(name, 'resume', options),
    remove: async (name) => {
      await find(name)
      await subscriptions.remove(name)
    },
    dead: createDeadView(ask),
    parked: createParkedView(ask),
  }
}

const lanesPerLook = 500

/** When the oldest waiting item of each lane was enqueued, as far as its head says; null: none waits. */
async function oldestOf(redis: Redis, keys: LaneKeys, lanes: readonly string[]): Promise<(number | null)[]> {
  const oldest: (number | null)[] = []
  for (let from = 0; from < lanes.length; from += lanesPerLook)
    oldest.push(...(await oldestOfSome(redis, keys, lanes.slice(from, from + lanesPerLook))))
  return oldest
}

async function oldestOfSome(redis: Redis, keys: LaneKeys, lanes: readonly string[]): Promise<(number | null)[]> {
  const packed = await redis.hmgetBuffer(keys.lanes, ...lanes)
  const records = packed.map((record) => (record ? readRecord(record) : undefined))
  const firstRanked = await Promise.all(
    lanes.map((lane, i) => (records[i]?.ranked ? redis.zrangeBuffer(keys.rankedPrefix + lane, '0', '0') : [])),
  )
  const fields: Buffer[] = []
  for (const [i, lane] of lanes.entries()) {
    const [ranked] = firstRanked[i]!
    fields.push(placeField(lane, records[i]?.head ?? firstPlace))
    fields.push(ranked ? Buffer.concat([Buffer.from(`${lane} `), ranked]) : Buffer.alloc(0))
  }
  const texts = await redis.hmget(keys.items, ...fields)
  return lanes.map((_, i) => {
    const times = texts.slice(2 * i, 2 * i + 2).flatMap((text) => (text ? [readItem(text).enqueuedMs] : []))
    return times.length > 0 ? Math.min(...times) : null
  })
}

/** The lanes among which the oldest item is looked for: all, or the first in line and those that are kept out of it. */
async function lanesToAsk({ redis, keys, facts }: KnownQueue, tenants: number): Promise<string[]> {
  if (tenants <= oldestAmong) return redis.hkeys(keys.lanes)
  const last = String(oldestAmong - 1)
  const [first, due] = await Promise.all([redis.zrange(keys.turns, '0', last), redis.zrange(keys.later, '0', last)])
  const { weights } = settingsOf(facts.options)
  const paused = Object.keys(weights).filter((tenant) => weights[tenant] === 0)
  const throttled = due.filter((name) => name.startsWith(throttleMark)).map((name) => name.slice(throttleMark.length))
  return [...new Set([...first, ...paused, ...throttled])]
}

async function factsOf(queue: KnownQueue, clock: Clock): Promise<QueueFacts> {
  const { redis, keys, facts } = queue
  const [stored, later, dead, parked, tenants] = await Promise.all([
    redis.hgetall(keys.store),
    redis.hlen(keys.laterItems),
    redis.hlen(keys.dead),
    redis.hlen(keys.parked),
    redis.hlen(keys.lanes),
  ])
  const oldest = (await oldestOf(redis, keys, await lanesToAsk(queue, tenants))).filter((ms) => ms !== null)
  const number = (name: string) => Number(stored[name] ?? 0)
  const { name, match, revision } = facts
  return {
    ...{ name, match, revision, ...settingsOf(facts.options) },
    ...{ paused: stored.paused === '1', waiting: number('waiting'), later, held: number('held'), dead },
    ...{ behind: number('behind'), parked },
    ...{ bytes: number('bytes'), in: number('in'), out: number('out') },
    ...{ expired: number('expired'), dropped: number('dropped'), discarded: number('discarded'), tenants },
    oldestMs: oldest.length > 0 ? Math.max(0, serverNow(clock) - Math.min(...oldest)) : null,
  }
}

async function tenantsOf({ redis, keys, facts }: KnownQueue, clock: Clock, limit: number): Promise<TenantFacts[]> {
  const { weights } = settingsOf(facts.options)
  const records: [tenant: string, record: LaneRecord][] = []
  for await (const page of redis.hscanBufferStream(keys.lanes, { count: 1_000 }) as AsyncIterable<Buffer[]>)
    for (let i = 0; i < page.length; i += 2) records.push([page[i]!.toString(), readRecord(page[i + 1]!)])
  const unique = [...new Map(records)]
  unique.sort(([a, x], [b, y]) => waitingIn(y) - waitingIn(x) || (a < b ? -1 : 1))
  const shownLanes = unique.slice(0, limit)
  const oldest = await oldestOf(
    redis,
    keys,
    shownLanes.map(([tenant]) => tenant),
  )
  const nowMs = serverNow(clock)
  return shownLanes.map(([tenant, record], i) => ({
    ...{
      tenant,
      weight: Object.hasOwn(weights, tenant) ? weights[tenant]! : 1,
      waiting: waitingIn(record),
      later: record.later,
      held: record.held,
    },
    ...{ behind: record.behind, parked: record.parked },
    ...{ dead: record.dead, bytes: record.bytes, in: enteredIn(record), out: record.left },
    oldestMs: oldest[i] == null ? null : Math.max(0, nowMs - oldest[i]),
    throttledUntil: record.notBefore > nowMs && record.notBefore < forever ? record.notBefore : null,
    paused: record.notBefore === forever,
  }))
}

const serverNow = (clock: Clock): number => Math.floor((clock.serverUs?.() ?? clock.now() * 1000) / 1000)
