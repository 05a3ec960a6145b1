/**
 * Operations as anyone may ask about them: where one is, what has happened to an object, how a queue does.
 *
 * What a record says it says with the queue: both are written by the same script. Nothing is kept here.
 */
import type { Redis } from 'ioredis'
import { type Duration, durationParameter } from '../duration.ts'
import { BusbarError, shown } from '../errors.ts'
import { defaultTenant, limits } from '../event.ts'
import { checkParameter, checkTenant, checkText } from '../event-checks.ts'
import { type OperationRow, operationLimits } from '../lanes/operation.ts'
import { cancelScript, type OperationsAsk, operationsScript, type SeenOperations } from '../lanes/scripts.ts'
import { nowMs } from '../lanes/store.ts'
import type { LogSource } from '../log/view.ts'
import type { Hints } from '../redis/hints.ts'
import { operationKeys, queueKeys } from '../redis/keys.ts'
import { runScript } from '../redis/script.ts'
import type { Subscriptions } from '../route/subscriptions.ts'
import type { Clock } from '../runtime/clock.ts'
import { checkKnown } from '../unknown-name.ts'
import {
  notFound,
  type Operation,
  type OperationPlace,
  type OperationSummary,
  operationOf,
  placeOf,
  summaryOf,
} from './operation.ts'
import { type OperationStats, statsOf } from './stats.ts'
import { type WaitOptions, waitFor } from './wait.ts'

export interface OfOptions {
  tenant?: string
  /** Without it neither input nor output, error, progress and log are read. Default true. */
  detail?: boolean
}

export interface PageOptions extends OfOptions {
  /** At most 1,000. Default 100. There are fewer when they are large: `next` says whether there are more. */
  limit?: number
  /** `next` of the page before. */
  cursor?: string
}

export interface OperationPage<O extends OperationSummary = OperationSummary> {
  operations: O[]
  /** Where the next page begins; null when this was the last. */
  next: string | null
}

export interface OperationsView {
  /** OPERATION_NOT_FOUND when there is none of that id, or it ended more than 24 hours ago. */
  get(id: string): Promise<Operation>
  /** Resolves when it has ended, or with what it is at the timeout: `status` says which. Default 30s. */
  wait(id: string, options?: WaitOptions): Promise<Operation>
  /** What has happened to an object in all tracked queues, the newest first. */
  of(key: string, options?: OfOptions & { detail?: true }): AsyncGenerator<Operation, void, undefined>
  of(key: string, options: OfOptions & { detail: false }): AsyncGenerator<OperationSummary, void, undefined>
  /** The same, page by page. */
  page(key: string, options?: PageOptions & { detail?: true }): Promise<OperationPage<Operation>>
  page(key: string, options: PageOptions): Promise<OperationPage>
  /** QUEUE_NOT_FOUND when there is no such queue, or it was never tracked. `last`: at most 24h, which is the default; whole minutes. */
  stats(queue: string, options?: { last?: Duration }): Promise<OperationStats>
  /**
   * One that has not begun will not. One that runs is told by its signal, in whichever process: unless it succeeds nevertheless it ends as
   * cancelled. One that has ended stays as it is. Answers what it is then.
   */
  cancel(id: string): Promise<Operation>
}

export interface OperationsGround {
  source: LogSource
  subscriptions: Subscriptions
  hints(): Promise<Hints>
  clock: Clock
  /** For what waits for an answer. */
  network: Clock
}

const knownOfOf = new Set(['tenant', 'detail'])
const knownOfPage = new Set(['tenant', 'detail', 'limit', 'cursor'])
const pageSize = 100
const mostPerPage = 1_000

export function createOperationsView(ground: OperationsGround): OperationsView {
  const get = async (id: string) => {
    const place = placeOf(id)
    const operation = await find(ground, place)
    if (!operation) throw await missing(ground, id, place)
    return operation
  }
  const page = (key: string, options: PageOptions = {}) => pageOf(ground, key, options)
  return {
    get,
    wait: (id, options = {}) =>
      waitFor(id, options, {
        ...ground,
        find: (place, timeoutMs) => find(ground, place, timeoutMs),
        missing: (place) => missing(ground, id, place),
      }),
    of: (key: string, options: OfOptions = {}) => allOf(key, options, page) as never,
    page: page as OperationsView['page'],
    stats: (queue, options = {}) => readStats(ground, queue, options),
    cancel: async (id) => {
      const place = placeOf(id)
      const { queue, itemId } = place
      const reply = await ask(ground, queue, (redis, store) => runScript(redis, cancelScript, { ...store, id: itemId }))
      if (reply === 'unknown' || reply === 'gone') throw await missing(ground, id, place)
      return get(id)
    },
  }
}

const missing = async (ground: OperationsGround, id: string, place: OperationPlace): Promise<BusbarError> =>
  notFound(id, await whyMissing(ground, place))

/** What its queue has to do with it that nothing is known of it; undefined when that is not its queue's doing. */
async function whyMissing({ subscriptions }: OperationsGround, { queue }: OperationPlace): Promise<string | undefined> {
  const found = await subscriptions.find(queue)
  if (found?.kind !== 'queue') return `there is no queue ${queue}`
  if (!found.options.track) return `queue ${queue} is not tracked`
  return found.options.track === 'failures'
    ? `queue ${queue} keeps failures only: it has succeeded, was never started, or ended more than 24 hours ago`
    : undefined
}

const ask = <T>(
  { source, clock }: OperationsGround,
  queue: string,
  work: (redis: Redis, store: { keys: ReturnType<typeof queueKeys>; nowMs: number | undefined }) => Promise<T>,
  timeoutMs?: number,
): Promise<T> =>
  source.read((redis, { name }) => work(redis, { keys: queueKeys(name, queue), nowMs: nowMs(clock) }), timeoutMs)

const nothing: SeenOperations = { rows: [], isMore: false }

const look = async (
  ground: OperationsGround,
  queue: string,
  asked: OperationsAsk,
  detail: boolean,
  timeoutMs?: number,
): Promise<SeenOperations> =>
  (await ask(
    ground,
    queue,
    (redis, store) => runScript(redis, operationsScript, { ...store, ask: asked, detail }),
    timeoutMs,
  )) ?? nothing

async function find(
  ground: OperationsGround,
  { queue, name }: OperationPlace,
  timeoutMs?: number,
): Promise<Operation | undefined> {
  const { rows } = await look(ground, queue, { act: 'get', names: [name] }, true, timeoutMs)
  return rows[0] && operationOf(queue, rows[0])
}

async function* allOf(
  key: string,
  options: OfOptions,
  page: (key: string, options: PageOptions) => Promise<OperationPage>,
): AsyncGenerator<OperationSummary, void, undefined> {
  checkKnown(options, knownOfOf)
  for (let cursor: string | null | undefined; cursor !== null; ) {
    const found: OperationPage = await page(key, { ...options, ...(cursor === undefined ? {} : { cursor }) })
    yield* found.operations
    cursor = found.next
  }
}

/** The newest of each tracked queue, merged: by the time at which they were queued, then by name. */
async function pageOf(ground: OperationsGround, key: string, options: PageOptions): Promise<OperationPage> {
  checkKnown(options, knownOfPage)
  const { tenant = defaultTenant, detail = true, limit = pageSize } = options
  if (!Number.isInteger(limit) || limit < 1 || limit > mostPerPage)
    throw invalid('limit', limit, `must be a whole number from 1 to ${mostPerPage}`)
  checkParameter(checkTenant, tenant)
  checkParameter((given) => checkText('key', given, limits.keyBytes), key)
  const object = `${tenant}/${key}`
  const after = options.cursor === undefined ? undefined : readCursor(options.cursor)
  const queues = await trackedQueues(ground)
  const found = await Promise.all(
    queues.map(async (queue) => {
      const asked = { act: 'of' as const, object, before: after && beforeIn(queue, after), most: limit }
      const { rows, isMore } = await lookFor(ground, queue, asked, detail)
      return { rows: rows.map((row) => ({ queue, row })), isMore }
    }),
  )
  const rows = found.flatMap((ofQueue) => ofQueue.rows).sort(newestFirst)
  const shownRows = rows.slice(0, wholeRows(rows, found, limit))
  const last = shownRows.at(-1)
  return {
    operations: shownRows.map(({ queue, row }) => (detail ? operationOf(queue, row) : summaryOf(queue, row))),
    next: last && (rows.length > shownRows.length || found.some(({ isMore }) => isMore)) ? writeCursor(last) : null,
  }
}

/** Those that are over, and were still in the index, are taken out of it by each look, a thousand at a time: of a million that are kept at most. */
async function lookFor(ground: OperationsGround, queue: string, asked: OperationsAsk, detail: boolean) {
  for (let looks = 0; looks < 2_000; looks += 1) {
    const seen = await look(ground, queue, asked, detail)
    if (seen.rows.length > 0 || !seen.isMore) return seen
  }
  return nothing
}

/** How many of the merged rows there are before a queue that has more would come again. */
function wholeRows(merged: readonly Found[], found: readonly { rows: Found[]; isMore: boolean }[], limit: number) {
  const ends = found.flatMap(({ rows, isMore }) => (isMore ? merged.indexOf(rows.at(-1)!) + 1 : []))
  return Math.min(limit, ...ends)
}

/** Also those that are not tracked any more, as long as something of them is kept. */
async function trackedQueues({ source, subscriptions }: OperationsGround): Promise<string[]> {
  const queues = (await subscriptions.list()).filter(({ kind }) => kind === 'queue')
  const areTracked = await source.read((redis, { name: ns }) =>
    Promise.all(
      queues.map(async ({ name, options }) => options.track || redis.hexists(queueKeys(ns, name).store, 'track')),
    ),
  )
  return queues.filter((_, i) => areTracked[i]).map(({ name }) => name)
}

interface Found {
  queue: string
  row: OperationRow
}

/** As the index of a queue has them; those of one name by their queues. */
function newestFirst(a: Found, b: Found): number {
  if (a.row.queuedMs !== b.row.queuedMs) return b.row.queuedMs - a.row.queuedMs
  if (a.row.name !== b.row.name) return a.row.name < b.row.name ? 1 : -1
  return a.queue < b.queue ? -1 : 1
}

interface Cursor {
  queuedMs: number
  queue: string
  name: string
}

const writeCursor = ({ queue, row: { queuedMs, name } }: Found): string => `${queuedMs}.${queue}.${name}`

function readCursor(cursor: string): Cursor {
  const [, queuedMs, queue, name] = /^(\d{1,16})\.([a-z0-9_-]{1,64})\.([\w-]{1,64})$/.exec(String(cursor)) ?? []
  if (name === undefined) throw invalid('cursor', cursor, 'must be what `next` of a page says')
  return { queuedMs: Number(queuedMs), queue: queue!, name }
}

/** In a queue that comes behind the cursor's, the operation of the same name is still to come: the sign is before all that names are made of. */
const beforeIn = (queue: string, cursor: Cursor) => ({
  queuedMs: cursor.queuedMs,
  name: queue > cursor.queue ? `${cursor.name}!` : cursor.name,
})

async function readStats(
  { source, subscriptions, clock }: OperationsGround,
  queue: string,
  options: { last?: Duration },
): Promise<OperationStats> {
  checkKnown(options, new Set(['last']))
  const { last = operationLimits.keepMs } = options
  const lastMs = durationParameter('last', last)
  if (lastMs < 1 || lastMs > operationLimits.keepMs) throw invalid('last', last, 'must be from 1ms to 24h')
  const found = await subscriptions.find(queue)
  return source.read(async (redis, { name }) => {
    const [stored, [seconds]] = await Promise.all([redis.hgetall(operationKeys(name, queue).opCounts), redis.time()])
    // One that is not tracked any more keeps what was counted.
    if (found?.kind !== 'queue' || (!found.options.track && stored.total === undefined))
      throw BusbarError.of('QUEUE_NOT_FOUND', { name: shown(queue), namespace: name, isTracked: true })
    return statsOf(queue, stored, nowMs(clock) ?? Number(seconds) * 1_000, lastMs)
  })
}

const invalid = (name: string, value: unknown, problem: string): BusbarError =>
  BusbarError.of('PARAMETER_INVALID', { name, value: shown(value), problem })
