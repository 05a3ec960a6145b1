/** A store of its own for one test, and all that is in it. */
import { createHash } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { expect, onTestFinished } from 'vitest'
import { readItem, readLetter } from '../../src/lanes/item.ts'
import type { QueueLimits } from '../../src/lanes/limits.ts'
import type { Track } from '../../src/lanes/operation.ts'
import { type LaneRecord, placeField, readLease, readRecord, waitingIn } from '../../src/lanes/record.ts'
import { makeScript, storeKeys } from '../../src/lanes/scripts.ts'
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
  track?: Track
  partitions?: number
  /** Of another server than the one that all tests share. */
  url?: string
}

export async function testStore({
  attempts = 3,
  ordered = false,
  parks = false,
  limits = {},
  track,
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
  const make = (revision = 1, weights: Record<string, number> = {}) =>
    runScript(redis, makeScript, {
      ...{ keys, revision, born: 1, attempts, ordered, parks, limits, track, weights },
      applied: Array.from({ length: partitions }, () => 0),
    })
  await make()
  return { redis, namespace, keys, make }
}

const envelopeOf = (id: string, lane: string): string =>
  `{"type":"mail.sent","tenant":"${lane}","key":"k"}\n{"id":"${id}"}`

export const sentEnvelope = envelopeOf

export const itemText = ({ id, expires, lane, attempts, first, enqueued, priority, key }: Work): string =>
  `${id} ${expires} ${lane} ${attempts} ${first} ${enqueued} ${priority} ${key === '' ? '' : `${key} `}\n${envelopeOf(id, lane)}`

export const workOf = (text: string): Work => {
  const { id, lane, expiresMs, priority, enqueuedMs, attempts, firstClaimedMs, key } = readItem(text)
  const times = { expires: expiresMs, enqueued: enqueuedMs, first: firstClaimedMs }
  return { id, lane, ...times, priority, attempts, key: key ?? '' }
}

const factsOf = ({ head: _, tail: __, ...record }: LaneRecord, waiting: number) => ({ ...record, waiting })

const pairs = <T>(flat: readonly T[]): [T, T][] =>
  Array.from({ length: flat.length / 2 }, (_, i) => [flat[2 * i]!, flat[2 * i + 1]!])

/** Names and fields may be bytes of any value, so characters are taken for bytes. */
const named = (flat: readonly Buffer[]): [string, Buffer][] =>
  pairs(flat).map(([name, value]) => [name.toString('latin1'), value])
const texts = (flat: readonly Buffer[]): Record<string, string> =>
  Object.fromEntries(named(flat).map(([name, value]) => [name, value.toString()]))
const letterItem = (text: string): Work => workOf(text.split('\x1e')[2]!)

const source = readFileSync(new URL('./stored.lua', import.meta.url), 'utf8')
const sha = createHash('sha1').update(source).digest('hex')

/** As stored.lua replies. */
export type Stored = [...flat: Buffer[][], ranked: Buffer[][], held: Buffer[]]

/** One call: a walk through a store looks at all of it after every step. */
export async function readAll({ redis, keys }: { redis: TestStore['redis']; keys: LaneKeys }): Promise<Stored> {
  const its = storeKeys({ keys })
  const args = [its.length, ...its, keys.rankedPrefix, keys.heldPrefix]
  try {
    return (await redis.callBuffer('evalsha', sha, ...args)) as Stored
  } catch (error) {
    if (!String(error).includes('NOSCRIPT')) throw error
    return (await redis.callBuffer('eval', source, ...args)) as Stored
  }
}

/** Those of a lane in order: with a priority or put back, plain, of a low priority. */
function waitingAt(lane: string, { head, tail }: LaneRecord, ranked: readonly Buffer[]): string[] {
  const places = pairs(ranked).map(([place, score]) => ({
    field: `${lane} ${place.toString('latin1')}`,
    score: Number(score),
  }))
  return [
    ...places.filter(({ score }) => score < 0).map(({ field }) => field),
    ...Array.from({ length: tail - head }, (_, i) => placeField(lane, head + i).toString('latin1')),
    ...places.filter(({ score }) => score > 0).map(({ field }) => field),
  ]
}

function behindOf(objects: Buffer[], behind: Buffer[]): Record<string, Work[]> {
  const there = texts(behind)
  return Object.fromEntries(
    named(objects).map(([object, packed]) => {
      const [from, to] = [packed.readUIntBE(0, 6), packed.readUIntBE(6, 6)]
      const fields = Array.from({ length: to - from }, (_, i) => placeField(object, from + i).toString('latin1'))
      return [object, fields.map((field) => workOf(there[field]!))]
    }),
  )
}

/** The texts of all items, letters without what was added when they died. */
export function textsIn(all: Stored): string[] {
  const [, , , , laterItems, , items, dead, , behind] = all as Buffer[][]
  const letters = Object.values(texts(dead!)).map((letter) => letter.split('\x1e')[2]!)
  return [items!, behind!].flatMap((flat) => Object.values(texts(flat))).concat(laterItems!.map(String), letters)
}

export const storedIn = async (where: { redis: TestStore['redis']; keys: LaneKeys }) => storedOf(await readAll(where))

/** All of a store, as a test compares it. */
export function storedOf(all: Stored) {
  const [store, turns, lanes, later, laterItems, leases, items, dead, objects, behind, parked] = all as Buffer[][]
  const [ranked, held] = all.slice(-2) as [Buffer[][], Buffer[]]
  const there = texts(items!)
  const worksAt = (fields: readonly string[]): Work[] => fields.map((field) => workOf(there[field]!))
  const records = named(lanes!).map(([lane, packed]) => [lane, readRecord(packed)] as const)
  const waiting = records.map(([lane, record], i) => [lane, worksAt(waitingAt(lane, record, ranked[i]!))] as const)
  return {
    line: turns!.map(String),
    records: Object.fromEntries(records.map(([lane, record]) => [lane, factsOf(record, waitingIn(record))])),
    /** Places in use: one for each item that waits or is held. */
    places: items!.length / 2,
    waiting: Object.fromEntries(waiting.filter(([, works]) => works.length > 0)),
    behind: behindOf(objects!, behind!),
    parked: Object.fromEntries(Object.entries(texts(parked!)).map(([object, text]) => [object, letterItem(text)])),
    leases: Object.fromEntries(
      named(leases!).map(([token, ends], i) => {
        const its = readLease(held[i]!).items
        const works = worksAt(its.map(({ field }) => field.toString('latin1')))
        expect(works.map(({ id, lane }) => `${id} ${lane}`)).toEqual(its.map(({ id, lane }) => `${id} ${lane}`))
        return [token, { ends: Number(ends), items: works.sort(byId) }]
      }),
    ),
    later: Object.fromEntries(named(later!).map(([id, due]) => [id, Number(due)])),
    laterItems: laterItems!.map((text) => workOf(String(text))).sort(byId),
    dead: Object.values(texts(dead!)).map(letterItem).sort(byId),
    letters: Object.values(texts(dead!)).map(readLetter),
    store: texts(store!),
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
