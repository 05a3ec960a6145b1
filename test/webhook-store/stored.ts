/** Webhooks and their lanes, as they are stored and as the reference says it. */
import { createHash } from 'node:crypto'
import { readFileSync } from 'node:fs'
import type { Redis } from 'ioredis'
import type { WebhookKeys } from '../../src/redis/keys.ts'
import { readAll, storedOf, textsIn } from '../lanes/store.ts'
import { counters, type Hook, type ReferenceShard } from './reference.ts'

const source = readFileSync(new URL('./stored.lua', import.meta.url), 'utf8')
const sha = createHash('sha1').update(source).digest('hex')

type RawHook = [fields: string[], attempts: string[], open: (string | string[])[]]
type Raw = [deadlines: string[], announced: string[], hooks: RawHook[]]

const tallied = new Set<string>([...counters, 'failures', 'failingSince', 'deliveredAt', 'retrying'])

const pairs = <T>(flat: readonly T[]): [string, T][] =>
  Array.from({ length: flat.length / 2 }, (_, i) => [String(flat[2 * i]), flat[2 * i + 1]!])

export type StoredLanes = ReturnType<typeof storedOf>

export interface StoredHooks {
  deadlines: Record<string, string>
  announced: string[]
  /** Of all batches. */
  texts: string[]
  hooks: Record<string, StoredHook>
}

interface StoredHook {
  /** Counters that are 0 are left out. */
  fields: Record<string, string>
  attempts: string[]
  open: Record<string, string[]>
}

export async function loadStored(redis: Redis): Promise<void> {
  await redis.script('LOAD', source)
}

/** All of a shard, as a test compares it. Sent in the same write as what comes before it, it is of the same instant. */
export async function storedIn(redis: Redis, keys: WebhookKeys, names: readonly string[]) {
  const { deadlines, announced, definitions, tallies } = keys
  const args = [
    4,
    deadlines,
    announced,
    definitions,
    tallies,
    keys.hookPrefix,
    keys.openPrefix,
    keys.attemptsPrefix,
    ...names,
  ]
  const raw = redis.call('evalsha', sha, ...args) as Promise<Raw>
  const all = await readAll({ redis, keys })
  return { lanes: storedOf(all), hooks: storedHooks(await raw, textsIn(all), names) }
}

function storedHooks([deadlines, announced, hooks]: Raw, texts: string[], names: readonly string[]): StoredHooks {
  return {
    deadlines: Object.fromEntries(pairs(deadlines)),
    announced: announced.sort(),
    texts: texts.sort(),
    hooks: Object.fromEntries(
      hooks.flatMap((hook, i) => (hook[0].length === 0 ? [] : [[names[i]!, storedHook(hook)]])),
    ),
  }
}

function storedHook([flat, attempts, open]: RawHook): StoredHook {
  const fields = pairs(flat).filter(([name, value]) => value !== '0' || !tallied.has(name))
  return { fields: Object.fromEntries(fields), attempts, open: Object.fromEntries(pairs(open)) as StoredHook['open'] }
}

export function expectedHooks(reference: ReferenceShard): StoredHooks {
  const hooks = [...reference.hooks.values()]
  return {
    deadlines: Object.fromEntries(
      hooks.flatMap(({ name, open }) => [...open].map(([sequence, { due }]) => [`${name} ${sequence}`, String(due)])),
    ),
    announced: [...reference.announced].sort(),
    texts: worksIn(reference)
      .map((work) => reference.itemText(work))
      .sort(),
    hooks: Object.fromEntries(
      hooks.map((hook) => [
        hook.name,
        {
          ...{ fields: fieldsOf(hook), attempts: hook.attempts },
          open: Object.fromEntries([...hook.open].map(([sequence, { wrap, pieces }]) => [sequence, [wrap, ...pieces]])),
        },
      ]),
    ),
  }
}

const worksIn = ({ lanes, objects, leases, later, dead }: ReferenceShard) => [
  ...[...lanes.values()].flatMap(({ waiting }) => waiting),
  ...[...objects.values()].flat(),
  ...[...leases.values()].flatMap(({ items }) => [...items.values()]),
  ...[...later.values(), ...dead.values()].flatMap(({ work }) => work ?? []),
]

function fieldsOf({ limits, applied, open, failed, counts, facts, ...hook }: Hook): Record<string, string> {
  const { revision, born, defined, secrets, sequences } = hook
  const bytes = (wrap: string, pieces: readonly string[]) => Buffer.byteLength([wrap, ...pieces].join(''))
  const plain = { revision, born, defined, secrets, sequences, ...limits }
  return Object.fromEntries([
    ...Object.entries(plain).map(([field, value]) => [field, String(value)]),
    ...[...applied].map(([partition, seq]) => [`applied:${partition}`, String(seq)]),
    ...[...open].map(([sequence, { opened, wrap, pieces }]) => [
      ...[`open:${sequence}`, `${opened} ${pieces.length} ${bytes(wrap, pieces)}`],
    ]),
    ...[...failed].map(([sequence, id]) => [`later:${sequence}`, id]),
    ...(failed.size === 0 ? [] : [['retrying', String(failed.size)]]),
    ...counters.flatMap((counter) => (counts[counter] === 0 ? [] : [[counter, String(counts[counter])]])),
    ...facts,
  ])
}
