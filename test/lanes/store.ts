/** A store of its own for one test, and all that is in it. */
import { expect, onTestFinished } from 'vitest'
import { readItem, readLetter } from '../../src/lanes/item.ts'
import type { QueueLimits } from '../../src/lanes/limits.ts'
import { type LaneRecord, placeField, readLease, readRecord, waitingIn } from '../../src/lanes/record.ts'
import { makeScript } from '../../src/lanes/scripts.ts'
import { type LaneKeys, queueKeys } from '../../src/redis/keys.ts'
import { runScript } from '../../src/redis/script.ts'
import { freshNamespace, keysOf, plainRedis } from '../support/bus.ts'
import type { ReferenceStore, Work } from './reference.ts'

export type TestStore = Awaited<ReturnType<typeof testStore>>

export interface TestStoreOptions {
  attempts?: number
  ordered?: boolean
  parks?: boolean
  limits?: QueueLimits
  partitions?: number
  /** Of another server than the one that all tests share. */
  url?: string
}

export async function testStore({
  attempts = 3,
  ordered = false,
  parks = false,
  limits = {},
  partitions = 2,
  url,
}: TestStoreOptions = {}) {
  const redis = plainRedis(url)
  const namespace = freshNamespace()
  const keys = queueKeys(namespace, 'mail')
  onTestFinished(async () => {
    const left = await keysOf(redis, namespace)
    if (left.length > 0) await redis.unlink(...left)
  })
  const make = (
    revision = 1,
    weights: Record<string, number> = {},
    plant: (script: typeof makeScript) => typeof makeScript = (script) => script,
  ) =>
    runScript(redis, plant(makeScript), {
      ...{ keys, revision, born: 1, attempts, ordered, parks, limits, weights },
      applied: Array.from({ length: partitions }, () => 0),
    })
  await make()
  return { redis, namespace, keys, make, ordered, parks }
}

const envelopeOf = (id: string, lane: string): string => `{"type":"mail.sent","tenant":"${lane}"}\n{"id":"${id}"}`

export const sentEnvelope = envelopeOf

export const itemText = ({ id, expires, lane, attempts, first, enqueued, priority, key }: Work): string =>
  `${id} ${expires} ${lane} ${attempts} ${first} ${enqueued} ${priority} ${key === '' ? '' : `${key} `}\n${envelopeOf(id, lane)}`

export const workOf = (text: string): Work => {
  const { id, lane, expiresMs, priority, enqueuedMs, attempts, firstClaimedMs, key } = readItem(text)
  const times = { expires: expiresMs, enqueued: enqueuedMs, first: firstClaimedMs }
  return { id, lane, ...times, priority, attempts, key: key ?? '' }
}

const factsOf = ({ head: _, tail: __, ...record }: LaneRecord, waiting: number) => ({ ...record, waiting })

const pairs = (flat: readonly string[]): [string, string][] =>
  Array.from({ length: flat.length / 2 }, (_, i) => [flat[2 * i]!, flat[2 * i + 1]!])

/** All of a store, as a test compares it. */
export async function storedIn({ redis, keys }: { redis: TestStore['redis']; keys: LaneKeys }) {
  const records = await redis.hgetallBuffer(keys.lanes)
  const waiting: Record<string, Work[]> = {}
  const textsAt = async (fields: readonly Buffer[]) =>
    (fields.length > 0 ? await redis.hmget(keys.items, ...fields) : []) as string[]
  for (const lane of Object.keys(records)) {
    const ranked = async (from: string, to: string) =>
      (await redis.zrangebyscoreBuffer(keys.rankedPrefix + lane, from, to)).map((place) =>
        Buffer.concat([Buffer.from(`${lane} `), place]),
      )
    const { head, tail } = readRecord(records[lane]!)
    const plain = Array.from({ length: tail - head }, (_, i) => placeField(lane, head + i))
    const works = await textsAt([...(await ranked('-inf', '(0')), ...plain, ...(await ranked('(0', '+inf'))])
    if (works.length > 0) waiting[lane] = works.map(workOf)
  }
  const leases: Record<string, { ends: number; items: Work[] }> = {}
  for (const [token, ends] of pairs(await redis.zrange(keys.leases, '0', '-1', 'WITHSCORES'))) {
    const { items } = readLease((await redis.getBuffer(keys.heldPrefix + token))!)
    const works = (await textsAt(items.map(({ field }) => field))).map(workOf)
    expect(works.map(({ id, lane }) => ({ id, lane }))).toEqual(items.map(({ id, lane }) => ({ id, lane })))
    leases[token] = { ends: Number(ends), items: works.sort(byId) }
  }
  const behind: Record<string, Work[]> = {}
  for (const [object, packed] of Object.entries(await redis.hgetallBuffer(keys.objects))) {
    const [from, to] = [packed.readUIntBE(0, 6), packed.readUIntBE(6, 6)]
    const fields = Array.from({ length: to - from }, (_, i) => placeField(object, from + i))
    const texts = fields.length > 0 ? await redis.hmget(keys.behind, ...fields) : []
    behind[object] = texts.map((text) => workOf(text!))
  }
  const later = pairs(await redis.zrange(keys.later, '0', '-1', 'WITHSCORES'))
  const dead = await redis.hgetall(keys.dead)
  return {
    line: await redis.zrange(keys.turns, '0', '-1'),
    records: Object.fromEntries(
      Object.entries(records).map(([lane, record]) => [
        lane,
        factsOf(readRecord(record), waitingIn(readRecord(record))),
      ]),
    ),
    /** Places in use: one for each item that waits or is held. */
    places: await redis.hlen(keys.items),
    waiting,
    behind,
    parked: Object.fromEntries(
      Object.entries(await redis.hgetall(keys.parked)).map(([object, text]) => [
        object,
        workOf(text.split('\x1e')[2]!),
      ]),
    ),
    leases,
    later: Object.fromEntries(later.map(([id, due]) => [id, Number(due)])),
    laterItems: (await redis.hvals(keys.laterItems)).map(workOf).sort(byId),
    dead: Object.entries(dead)
      .map(([, text]) => workOf(text.split('\x1e')[2]!))
      .sort(byId),
    letters: Object.values(dead).map(readLetter),
    store: await redis.hgetall(keys.store),
  }
}

const byId = (a: Work, b: Work): number => (a.id < b.id ? -1 : 1)

/** The same of the reference. */
export function expectedOf(reference: ReferenceStore) {
  const lanes = [...reference.lanes].filter(([, { waiting }]) => waiting.length > 0)
  const leases = [...reference.leases].map(([token, { ends, items }]) => [
    token,
    { ends, items: [...items.values()].sort(byId) },
  ])
  const laterWorks = [...reference.later.values()].flatMap(({ work }) => work ?? [])
  return {
    line: reference.line,
    waiting: Object.fromEntries(lanes.map(([name, { waiting }]) => [name, waiting])),
    behind: Object.fromEntries(reference.objects),
    parked: Object.fromEntries([...reference.parked].map(([object, { work }]) => [object, work])),
    leases: Object.fromEntries(leases),
    later: Object.fromEntries([...reference.later].map(([id, { due }]) => [id, due])),
    laterItems: laterWorks.sort(byId),
    dead: [...reference.dead.values()].map(({ work }) => work).sort(byId),
  }
}
