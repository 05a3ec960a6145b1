/** The scripts of route/, with what they are given and what they answer. */
import type { RouteKeys } from '../redis/keys.ts'
import { defineScript } from '../redis/script.ts'
import { readSubscription } from './definition.ts'
import type { Subscription } from './sink.ts'

/** Removals that are remembered, so that routers load only what changed. */
const maxRemovals = 1_000

interface PutInput {
  keys: RouteKeys
  /** Instead of the server's clock, for tests. */
  nowUs?: number | undefined
  name: string
  definition: string
  force: boolean
  guardMs: number
  starts: readonly Start[]
}

/** Of a partition: where a new subscription begins, and how far the log reaches. */
export interface Start {
  at: number
  last: number
}

/** A store that is being taken away; `text` as it is stored. */
export interface Removal {
  revision: number
  kind: string
  text: string
}

export type PutReply =
  | { kind: 'created' | 'changed' | 'same'; revision: number; born: number; seqs: readonly number[] }
  | { kind: 'elsewhere' }
  /** By a subscription of another kind. */
  | { kind: 'taken'; by: string }
  | { kind: 'removing'; removal: Removal }

type RawRemoving = ['removing', mark: string]
type RawPut = ['created' | 'changed' | 'same', ...string[]] | ['elsewhere'] | ['taken', by: string] | RawRemoving

export const putScript = defineScript({
  file: new URL('./put.lua', import.meta.url),
  keys: ({ keys }: PutInput) => [
    keys.group,
    keys.subscriptions,
    keys.changes,
    keys.own,
    keys.cursors,
    keys.replaced,
    keys.removing,
  ],
  args: ({ keys, nowUs, name, definition, force, guardMs, starts }) => [
    nowUs ?? '',
    keys.groupWake,
    name,
    definition,
    force ? 'force' : '',
    guardMs,
    ...starts.flatMap(({ at, last }) => [at, last]),
  ],
  reply: (raw: RawPut): PutReply => {
    if (raw[0] === 'elsewhere') return { kind: raw[0] }
    if (raw[0] === 'taken') return { kind: raw[0], by: raw[1] }
    if (raw[0] === 'removing') return { kind: raw[0], removal: readRemoval(raw[1]) }
    const [kind, ...numbers] = raw
    const [revision, born, ...seqs] = numbers.map(Number)
    return { kind, revision: revision!, born: born!, seqs }
  },
})

function readRemoval(text: string): Removal {
  const [revision, , kind] = text.split(' ')
  return { revision: Number(revision), kind: kind!, text }
}

interface RemoveInput {
  keys: RouteKeys
  nowUs?: number | undefined
  name: string
  partitions: number
}

export type RemoveReply = { kind: 'removed' | 'removing'; removal: Removal } | { kind: 'unknown' }

export const removeScript = defineScript({
  file: new URL('./remove.lua', import.meta.url),
  keys: ({ keys }: RemoveInput) => [
    keys.group,
    keys.subscriptions,
    keys.changes,
    keys.own,
    keys.replaced,
    keys.removing,
  ],
  args: ({ keys, nowUs, name, partitions }) => [nowUs ?? '', keys.groupWake, name, partitions, maxRemovals],
  reply: (raw: ['removed', mark: string] | RawRemoving | ['unknown']): RemoveReply =>
    raw[0] === 'unknown' ? { kind: raw[0] } : { kind: raw[0], removal: readRemoval(raw[1]) },
})

export const removedScript = defineScript({
  file: new URL('./removed.lua', import.meta.url),
  keys: ({ keys }: { keys: RouteKeys; name: string; mark: string }) => [keys.removing],
  args: ({ name, mark }) => [name, mark],
  reply: ([kind]: ['free' | 'kept']) => kind,
})

/** Where a subscription is in a partition when it does not ride with main. */
export interface OwnPlace {
  seq: number
  revision: number
}

/** What a router has to know, as it was at one instant. */
export interface Loaded {
  /** Whether these are all definitions, or those that changed. */
  whole: boolean
  version: number
  /** Undefined for one that is gone. */
  definitions: ReadonlyMap<string, Subscription | undefined>
  /** Main, for each partition that has one. */
  mains: ReadonlyMap<number, number>
  /** By "<partition> <name>". */
  own: ReadonlyMap<string, OwnPlace>
  /** By name: stores that are being taken away. */
  removing: ReadonlyMap<string, Removal>
}

type Pairs = readonly string[]
type RawTable = ['whole' | 'changes', string, definitions: Pairs, cursors: Pairs, own: Pairs, removing: Pairs]

function* pairs(flat: Pairs): Generator<[string, string]> {
  for (let i = 0; i < flat.length; i += 2) yield [flat[i]!, flat[i + 1]!]
}

function readOwn(text: string): OwnPlace {
  const [seq, revision] = text.split(' ')
  return { seq: Number(seq), revision: Number(revision) }
}

export const tableScript = defineScript({
  file: new URL('./table.lua', import.meta.url),
  keys: ({ keys }: { keys: RouteKeys; known: number }) => [
    keys.group,
    keys.subscriptions,
    keys.changes,
    keys.own,
    keys.cursors,
    keys.removing,
  ],
  args: ({ known }) => [known],
  reply: ([kind, version, definitions, cursors, own, removing]: RawTable): Loaded => ({
    whole: kind === 'whole',
    version: Number(version),
    definitions: new Map(
      [...pairs(definitions)].map(([name, text]) => [name, text === '' ? undefined : readSubscription(name, text)]),
    ),
    mains: new Map([...pairs(cursors)].map(([partition, seq]) => [Number(partition), Number(seq)])),
    own: new Map([...pairs(own)].map(([field, text]) => [field, readOwn(text)])),
    removing: new Map([...pairs(removing)].map(([name, text]) => [name, readRemoval(text)])),
  }),
})

/** Where a subscription is now: by itself, or with main from here on. */
export interface Place {
  name: string
  /** The revision it was read for. */
  revision: number
  act: 'own' | 'join'
  seq: number
}

/** How far the owner of a partition is. */
export interface SaidRoute {
  partition: number
  epoch: number
  main: number
  places: readonly Place[]
}

export interface Committed {
  /** The highest revision there is. */
  version: number
  /** For each partition: a word for it, and one for each place. */
  words: readonly (readonly ('done' | 'stale' | 'outdated' | 'gone' | 'early')[])[]
}

export const commitScript = defineScript({
  file: new URL('./commit.lua', import.meta.url),
  keys: ({ keys }: { keys: RouteKeys; said: readonly SaidRoute[] }) => [
    keys.owners,
    keys.cursors,
    keys.own,
    keys.subscriptions,
    keys.group,
  ],
  args: ({ said }) =>
    said.flatMap(({ partition, epoch, main, places }) => [
      partition,
      epoch,
      main,
      places.length,
      ...places.flatMap(({ name, revision, act, seq }) => [name, revision, act, seq]),
    ]),
  reply: ([, version, ...words]: ['committed', string, ...Committed['words']]): Committed => ({
    version: Number(version),
    words,
  }),
})

interface FsckInput {
  keys: RouteKeys
  /** Pieces, about. */
  most: number
  what: string
  from: string
}

export interface FsckSeen {
  /** The highest revision. */
  highest: number
  /** Where to go on; '' at the end. */
  next: string
  rows: readonly (readonly string[])[]
}

export const fsckScript = defineScript({
  file: new URL('./fsck.lua', import.meta.url),
  keys: ({ keys }: FsckInput) => [
    keys.group,
    keys.subscriptions,
    keys.changes,
    keys.own,
    keys.cursors,
    keys.removing,
    keys.replaced,
  ],
  args: ({ most, what, from }) => [most, what, from],
  reply: ([, revision, [next, ...rows]]: ['seen', string, [string, ...string[][]]]): FsckSeen => ({
    highest: Number(revision),
    next,
    rows,
  }),
})
