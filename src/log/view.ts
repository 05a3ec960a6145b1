/** What people ask of the log: one event, an object's history, a stretch of time, and keeping a stretch from retention. */

import type { Redis } from 'ioredis'
import { kindOf } from '../envelope.ts'
import { defaultTenant, type Event, limits } from '../event.ts'
import { checkTenant, checkText } from '../event-checks.ts'
import { compilePattern, type Pattern } from '../pattern.ts'
import { checkKnown } from '../unknown-name.ts'
import { readCursor, seqBefore } from './cursor.ts'
import type { LogRecord } from './entry.ts'
import { dropHold, placeHold } from './holds.ts'
import type { Namespace } from './namespace.ts'
import { type HistoryOptions, LogPages, readEvent, readHistory, readLasts, toEvent } from './read.ts'

export interface ReadOptions {
  /** A time in ms or Date, or a cursor; everything after it. Default: from the beginning. */
  since?: number | Date | string
  /** A time in ms or Date: nothing at or after it. Default: what is stored when the reading begins. */
  until?: number | Date
  match?: Pattern
}

export interface LogView {
  get(id: string): Promise<Event | undefined>
  /** An object's events in order, the newest `limit` of them. */
  history(key: string, options?: HistoryOptions & { tenant?: string }): Promise<Event[]>
  /** What is stored now, over all partitions, in order of seq; ends when it has come to the end. */
  read(options?: ReadOptions): AsyncGenerator<Event, void, undefined>
  /** Retention keeps everything after the cursor until the hold is moved on or dropped. */
  hold(name: string, cursor: string): Promise<void>
  dropHold(name: string): Promise<void>
}

/** Runs reads against the log, waiting for a lost connection. */
export interface LogSource {
  read<T>(ask: (redis: Redis, namespace: Namespace) => Promise<T>, timeoutMs?: number): Promise<T>
}

const knownOfHistory = new Set(['tenant', 'limit', 'before'])
const knownOfRead = new Set(['since', 'until', 'match'])

export function createLogView(source: LogSource): LogView {
  return {
    get: (id) => source.read((redis, namespace) => readEvent(redis, namespace, String(id))),
    async history(key, { tenant = defaultTenant, ...options } = {}) {
      checkKnown(options, knownOfHistory)
      const object = `${checkTenant(tenant)}/${checkText('key', key, limits.keyBytes)}`
      return source.read((redis, namespace) => readHistory(redis, namespace, object, options))
    },
    read: (options = {}) => readLog(source, options),
    hold: (name, cursor) =>
      source.read((redis, namespace) =>
        placeHold(redis, namespace, checkHoldName(name), readCursor(cursor, namespace.partitions.length)),
      ),
    dropHold: (name) => source.read((redis, namespace) => dropHold(redis, namespace, checkHoldName(name))),
  }
}

const checkHoldName = (name: string): string => checkText('hold', name, 128)

/** Merges the partitions by seq, which is the server's clock: close to the order in which things happened. */
async function* readLog(source: LogSource, options: ReadOptions): AsyncGenerator<Event, void, undefined> {
  checkKnown(options, knownOfRead)
  const matcher = options.match === undefined ? undefined : compilePattern(options.match)
  const lasts = await source.read(readLasts)
  const starts = startOf(options.since, lasts.length)
  const end = options.until === undefined ? Number.MAX_SAFE_INTEGER : seqBefore(options.until)
  const runs = lasts.map((last, partition) => readPartition(source, partition, starts[partition]!, Math.min(last, end)))
  const heads = await Promise.all(runs.map((run) => run.next()))
  for (;;) {
    let lowest = -1
    for (const [partition, head] of heads.entries()) {
      if (head.done) continue
      const best = heads[lowest]
      if (!best || best.done || head.value.seq < best.value.seq) lowest = partition
    }
    const head = heads[lowest]
    if (!head || head.done) return
    const kind = kindOf(head.value.envelope)
    if (kind && (!matcher || matcher.matches(kind.tenant, kind.type))) yield toEvent(head.value)
    heads[lowest] = await runs[lowest]!.next()
  }
}

async function* readPartition(
  source: LogSource,
  partition: number,
  start: number,
  end: number,
): AsyncGenerator<LogRecord, void, undefined> {
  const pages = new LogPages()
  let after = start
  while (after < end) {
    const page = await source.read((redis, namespace) => pages.read(redis, namespace, partition, after))
    for (const record of page.records) {
      if (record.seq > end) return
      yield record
    }
    if (page.complete) return
    after = page.last
  }
}

function startOf(since: ReadOptions['since'], partitions: number): number[] {
  if (typeof since === 'string') return readCursor(since, partitions)
  return Array<number>(partitions).fill(since === undefined ? 0 : seqBefore(since))
}
