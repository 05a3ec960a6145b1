/** A shard whose clock only the test moves, and short words for what is done to its webhooks. */
import { expect, onTestFinished } from 'vitest'
import type { Claim, ClaimReply, Outcome } from '../../src/lanes/acts.ts'
import { readItem } from '../../src/lanes/item.ts'
import { readRecord, waitingIn } from '../../src/lanes/record.ts'
import { renewScript } from '../../src/lanes/scripts.ts'
import { webhookKeys } from '../../src/redis/keys.ts'
import { runScript } from '../../src/redis/script.ts'
import { type Batch, readBatch } from '../../src/sinks/webhook/batch.ts'
import {
  acceptScript,
  announcedScript,
  dropLettersScript,
  dropScript,
  type Ended,
  type Gathered,
  inspectScript,
  lettersScript,
  type MadeHook,
  makeScript,
  pauseScript,
  readWork,
  removeScript,
  rotateScript,
  workScript,
} from '../../src/sinks/webhook/scripts.ts'
import { readTallies } from '../../src/sinks/webhook/tallies.ts'
import { freshNamespace, keysOf, plainRedis } from '../support/bus.ts'

export type ClockedShard = Awaited<ReturnType<typeof clockedShard>>
export type Claimed = Extract<ClaimReply, { kind: 'claimed' }>

/** A batch, under which lease it is held, and as which item it lies there. */
export interface HeldBatch extends Batch {
  token: string
  text: string
}

/** The beginning of the ids of batches that one call seals. */
export const seedOf = (call: number): string => `s${String(call).padStart(16, '0')}`

export const plainWrap = 'busbar\n[\n]'

const hookDefaults = {
  ...{ revision: 1, born: 1, definition: '{"url":"u"}', maxEvents: 3, maxWaitMs: 100, maxBytes: 10_000 },
  ...{ keepEvents: 1_000, sequences: 1, secret: '', newSecret: 'made', overlapMs: 500, applied: [0, 0] },
}

/** What an attempt came to, as the lanes hear it. */
const outcomes: Record<Ended['became'], Outcome> = {
  delivered: { kind: 'ack' },
  failed: { kind: 'retry', afterMs: 50, reason: 'it answered 500' },
  dead: { kind: 'dead', reason: 'it answered 500' },
  throttled: { kind: 'throttle', forMs: 50 },
  back: { kind: 'back' },
}

export type EndSaid = Partial<Pick<Ended, 'attempt' | 'disable'>> & { outcome?: Outcome }

export async function clockedShard() {
  const redis = plainRedis()
  const namespace = freshNamespace()
  const keys = webhookKeys(namespace, 3)
  onTestFinished(async () => {
    const left = await keysOf(redis, namespace)
    if (left.length > 0) await redis.unlink(...left)
  })
  let nowMs = 1_000_000
  let count = 0
  const ground = () => ({ keys, nowMs, seed: seedOf(++count) })

  /** Events of a webhook, seqs one behind the other, with texts of their own or all in sequence 0. */
  const gathered = (
    name: string,
    events: readonly (string | { text: string; sequence: number })[],
    { from = 1, partition = 0, wrap = plainWrap, revision = 1, born = 1 } = {},
  ): Gathered => ({
    ...{ name, revision, born, wrap, last: from + events.length - 1 },
    events: events.map((event, i) => {
      const { text, sequence } = typeof event === 'string' ? { text: event, sequence: 0 } : event
      return { sequence, piece: `${partition}-${from + i} ${text}` }
    }),
  })
  const deliver = (deliveries: readonly Gathered[], { partition = 0, replay = '' } = {}) =>
    runScript(redis, acceptScript, { ...ground(), replay, partition, deliveries })
  const work = async (ended: readonly Ended[], claim: Claim | undefined) =>
    readWork({ ended, claim }, await runScript(redis, workScript, { ...ground(), ended, claim }))
  const ending = (batch: HeldBatch, became: Ended['became'], said: EndSaid = {}): Ended => ({
    settlement: { token: batch.token, id: batch.id, outcome: said.outcome ?? outcomes[became] },
    ...{ name: batch.subscription, sequence: batch.sequence, events: batch.events, became },
    ...{ attempt: said.attempt ?? '', disable: said.disable ?? '' },
  })
  const claim = (n: number, said: Partial<Claim> = {}) => {
    const token = `t${++count}`
    return { token, n, leaseMs: 10_000, worker: 'w', start: 's', byHand: true, ...said } as Claim & { token: string }
  }
  const take = async (n = 10, said: Partial<Claim> = {}) => {
    const asked = claim(n, said)
    const reply = await work([], asked)
    expect(reply.claimed?.kind).toBe('claimed')
    const claimed = reply.claimed as Claimed
    const batches = claimed.items.map((text): HeldBatch => ({ ...readBatch(text), token: asked.token, text }))
    return { ...reply, claimed, token: asked.token, batches }
  }
  /** Without those that are 0, and without when its log was last given a time. */
  const tallies = async (name: string) => {
    const packed = await redis.hgetBuffer(keys.tallies, name)
    const { loggedAt: _, ...its } = packed ? readTallies(packed) : { loggedAt: 0 }
    return Object.fromEntries(Object.entries(its).flatMap(([field, value]) => (value ? [[field, String(value)]] : [])))
  }
  const secrets = async (name: string): Promise<Record<string, string>> => {
    const stored = await redis.hget(keys.definitions, name)
    return stored ? { secrets: stored.slice(0, stored.lastIndexOf('\n')) } : {}
  }
  const fields = async (name: string): Promise<Record<string, string>> => ({
    ...(await redis.hgetall(keys.hookPrefix + name)),
    ...(await secrets(name)),
    ...(await tallies(name)),
  })
  return {
    ...{ redis, namespace, keys, gathered, deliver, work, ending, claim, take, fields },
    pass: (ms: number) => {
      nowMs += ms
    },
    now: () => nowMs,
    make: (name: string, said: Partial<MadeHook> = {}) =>
      runScript(redis, makeScript, { ...ground(), hook: { ...hookDefaults, ...said, name } }),
    /** One delivery of one webhook; answers its reply. */
    accept: async (...said: Parameters<typeof gathered>) =>
      (await deliver([gathered(...said)], { partition: said[2]?.partition ?? 0 }))[0]!,
    /** Takes what there is and answers its bodies. */
    bodies: async (n = 10) => (await take(n)).batches.map(({ body }) => body),
    end: async (batch: HeldBatch, became: Ended['became'], said: EndSaid = {}) =>
      (await work([ending(batch, became, said)], undefined)).settled,
    renew: (tokens: readonly string[], leaseMs = 10_000) =>
      runScript(redis, renewScript, { ...ground(), tokens, leaseMs }),
    pause: (act: 'pause' | 'resume', name: string) => runScript(redis, pauseScript, { ...ground(), act, name }),
    announced: (name: string, disabledAt: string) =>
      runScript(redis, announcedScript, { ...ground(), name, disabledAt }),
    letters: (act: 'redrive' | 'discard', ...ids: string[]) =>
      runScript(redis, lettersScript, { ...ground(), act, ids }),
    rotate: (name: string, secret: string, overlapMs = 500) =>
      runScript(redis, rotateScript, { ...ground(), name, secret, overlapMs }),
    dropLetters: (bytes: number, most = 100) => runScript(redis, dropLettersScript, { ...ground(), bytes, most }),
    drop: (name: string, bytes: number, most = 100) => runScript(redis, dropScript, { ...ground(), name, bytes, most }),
    remove: (name: string, revision = 1) => runScript(redis, removeScript, { ...ground(), name, revision }),
    inspect: (name: string, most = 100) => runScript(redis, inspectScript, { ...ground(), name, most }),
    /** Counters of a webhook that are not 0. */
    counts: async (name: string) => {
      const names = ['backlog', 'in', 'delivered', 'dead', 'dropped', 'batches', 'attempts', 'throttled', 'stale']
      const its = await fields(name)
      return Object.fromEntries(names.flatMap((one) => (Number(its[one] ?? 0) === 0 ? [] : [[one, Number(its[one])]])))
    },
    /** Of its lane. */
    record: async (name: string) => {
      const record = await redis.hgetBuffer(keys.lanes, name)
      if (!record) return undefined
      const { held, later, behind, dead, notBefore, bytes } = readRecord(record)
      return { waiting: waitingIn(readRecord(record)), held, later, behind, dead, notBefore, bytes }
    },
    /** Open batches: how many events, when they began, when they are due. */
    open: async (name: string) => {
      const its = Object.entries(await fields(name)).filter(([field]) => field.startsWith('open:'))
      return Promise.all(
        its.sort().map(async ([field, value]) => {
          const sequence = field.slice('open:'.length)
          const [openedMs, events, bytes] = value.split(' ').map(Number)
          const due = await redis.zscore(keys.deadlines, `${name} ${sequence}`)
          const pieces = await redis.lrange(`${keys.openPrefix}${name}:${sequence}`, 0, -1)
          return { sequence, openedMs, events, bytes, dueMs: Number(due), pieces }
        }),
      )
    },
    dead: async () => (await redis.hvals(keys.dead)).map((text) => readItem(text.split('\x1e')[2]!).id),
    inLine: () => redis.zrange(keys.turns, '0', '-1'),
    keysLeft: () => keysOf(redis, namespace),
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
