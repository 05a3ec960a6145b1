/** A store whose clock only the test moves, and short words for what is done to it. */
import { expect } from 'vitest'
import type { Claim, ClaimReply, Outcome, Settlement } from '../../src/lanes/acts.ts'
import { readItem, routedItem } from '../../src/lanes/item.ts'
import type { QueueLimits } from '../../src/lanes/limits.ts'
import type { Track } from '../../src/lanes/operation.ts'
import { readRecord, waitingIn } from '../../src/lanes/record.ts'
import {
  cancelScript,
  discardScript,
  enterScript,
  extendScript,
  forgetScript,
  makeScript,
  noteScript,
  operationsScript,
  pauseScript,
  peekScript,
  redriveScript,
  removeScript,
  renewScript,
  type SentItem,
  sendScript,
} from '../../src/lanes/scripts.ts'
import { runScript } from '../../src/redis/script.ts'
import { plainRedis } from '../support/bus.ts'
import { acceptScript, claimScript, settleScript } from './one-act.ts'
import { storedIn, type TestStoreOptions, testStore } from './store.ts'

export type ClockedStore = Awaited<ReturnType<typeof clockedStore>>
export type Claimed = Extract<ClaimReply, { kind: 'claimed' }>

export const idsOf = (items: readonly string[]): string[] => items.map((item) => readItem(item).id)
export const lanesOf = (items: readonly string[]): string => items.map((item) => readItem(item).lane).join('')

const range = (from: number, to: number): number[] => Array.from({ length: to - from + 1 }, (_, i) => from + i)

export async function clockedStore({
  attempts = 3,
  ordered = false,
  parks = false,
  limits = {},
  ...options
}: TestStoreOptions = {}) {
  const { redis, namespace, keys } = await testStore({ attempts, ordered, parks, limits, ...options })
  let nowMs = 1_000_000
  let count = 0
  const ground = () => ({ keys, nowMs })
  const item = (lane: string, said: Partial<SentItem> = {}): SentItem => {
    count += 1
    const id = `i${String(count).padStart(6, '0')}`
    const none = { key: '', delayMs: 0, ttlMs: 0, priority: 0, once: '', fingerprint: 'f' }
    return { id, lane, ...none, envelope: `{}\n{"n":${count}}`, ...said }
  }
  const sendAll = (items: readonly SentItem[], { n = ++count, process = 'p' } = {}) =>
    runScript(redis, sendScript, { ...ground(), process, n, items })
  const claim = (n: number, said: Partial<Claim> = {}) => {
    count += 1
    const input = { token: `t${count}`, leaseMs: 10_000, worker: 'w', start: 's', ...said }
    return runScript(redis, claimScript, { ...ground(), ...input, n })
  }
  /** What was claimed, under which token. */
  const take = async (n: number, said: Partial<Claim> = {}) => {
    const token = said.token ?? `t${++count}`
    const reply = await claim(n, { ...said, token })
    expect(reply.kind).toBe('claimed')
    return { token, ...(reply as Claimed), ids: idsOf((reply as Claimed).items) }
  }
  const settle = (token: string, ids: readonly string[], outcome: Outcome) =>
    runScript(redis, settleScript, { ...ground(), settlements: ids.map((id) => ({ token, id, outcome })) })
  /** Only the first is named. */
  const settleAll = (token: string, [first]: readonly string[], of: number) => {
    const settlement: Settlement = { token, id: first!, outcome: { kind: 'ack' }, of }
    return runScript(redis, settleScript, { ...ground(), settlements: Array(of).fill(settlement) })
  }
  return {
    redis,
    namespace,
    keys,
    item,
    sendAll,
    claim,
    take,
    settle,
    settleAll,
    ground,
    pass: (ms: number) => {
      nowMs += ms
    },
    now: () => nowMs,
    make: (
      revision: number,
      {
        weights = {},
        born = 1,
        applied = [0, 0],
        tries = attempts,
        limits: its = limits as QueueLimits,
        track = options.track as Track | null | undefined,
      } = {},
    ) =>
      runScript(redis, makeScript, {
        ...ground(),
        revision,
        born,
        attempts: tries,
        ordered,
        parks,
        limits: its,
        track: track ?? undefined,
        applied,
        weights,
      }),
    /** Takes events in: seqs one behind the other, in these lanes. */
    accept: (
      lanes: readonly string[],
      { from = 1, partition = 0, revision = 1, born = 1, keys: its = [] as readonly string[] } = {},
    ) => {
      const items = lanes.map((lane, i) => ({
        lane,
        item: routedItem(`${partition}-${from + i}`, from + i, lane, '', '{}\n{}', its[i]),
      }))
      const input = { revision, born, partition, first: from, last: from + lanes.length - 1, items }
      return runScript(redis, acceptScript, { ...ground(), ...input })
    },
    /** Sends items into one lane and answers their ids. */
    send: async (lane: string, said: Partial<SentItem> & { times?: number } = {}) => {
      const { times = 1, ...rest } = said
      const ids: string[] = []
      for (let from = 0; from < times; from += 1_000) {
        const items = range(from + 1, Math.min(times, from + 1_000)).map(() => item(lane, rest))
        expect((await sendAll(items)).kind).toBe('sent')
        ids.push(...items.map(({ id }) => id))
      }
      return ids
    },
    renew: (tokens: readonly string[], leaseMs = 10_000) =>
      runScript(redis, renewScript, { ...ground(), tokens, leaseMs }),
    extend: (token: string, id: string, forMs: number, ownToken: string) =>
      runScript(redis, extendScript, { ...ground(), token, id, forMs, ownToken }),
    enter: (worker: string, start: string, act: 'enter' | 'leave' = 'enter') =>
      runScript(redis, enterScript, { ...ground(), act, worker, start }),
    pause: (act: 'pause' | 'resume', lane = '') => runScript(redis, pauseScript, { ...ground(), act, lane }),
    peek: async (n: number) => {
      const items = await runScript(redis, peekScript, { ...ground(), n })
      return items && idsOf(items)
    },
    redrive: (...ids: string[]) => runScript(redis, redriveScript, { ...ground(), ids }),
    discard: (...ids: string[]) => runScript(redis, discardScript, { ...ground(), ids }),
    cancel: (id: string) => runScript(redis, cancelScript, { ...ground(), id }),
    forget: (most: number) => runScript(redis, forgetScript, { ...ground(), most }),
    note: (token: string, id: string, progress: string, ...lines: string[]) =>
      runScript(redis, noteScript, { ...ground(), token, id, list: '0', progress, lines }),
    operation: async (name: string) => {
      const ask = { act: 'get' as const, names: [name] }
      return (await runScript(redis, operationsScript, { ...ground(), ask, detail: true }))?.rows[0]
    },
    operationsOf: async (object: string, before?: { queuedMs: number; name: string }, most = 100) => {
      const ask = { act: 'of' as const, object, before, most }
      const seen = await runScript(redis, operationsScript, { ...ground(), ask, detail: false })
      return seen!.rows.map((row) => row.name)
    },
    remove: (revision = 1) => runScript(redis, removeScript, { ...ground(), revision }),
    /** Counters that are not 0. */
    counts: async () => {
      const names = ['waiting', 'held', 'in', 'out', 'expired', 'dropped', 'discarded']
      const values = await redis.hmget(keys.store, ...names)
      return Object.fromEntries(
        names.map((name, i) => [name, Number(values[i] ?? 0)]).filter(([, value]) => value !== 0),
      )
    },
    record: async (lane: string) => {
      const record = await redis.hgetBuffer(keys.lanes, lane)
      if (!record) return undefined
      const { head: _, tail: __, ...facts } = readRecord(record)
      return { ...facts, waiting: waitingIn(readRecord(record)) }
    },
    stored: () => storedIn({ redis, keys }),
    /** Hears the hints from now on; answers what was said so far: a message of our own comes after all of them. */
    listen: async () => {
      const listener = plainRedis()
      const heard: string[] = []
      await listener.subscribe(keys.laneWake)
      listener.on('message', (_, names) => heard.push(names))
      return async () => {
        await redis.publish(keys.laneWake, 'end')
        await expect.poll(() => heard.at(-1)).toBe('end')
        return heard.splice(0).slice(0, -1)
      }
    },
  }
}
