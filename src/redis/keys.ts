/**
 * Every Redis key of Busbar, spelled here and nowhere else. docs/keys.md is checked against this file.
 *
 * `<ns>:{<owner>}:<what>`: the braces keep all keys of one owner in one cluster slot. Names that users choose never
 * stand in a key unless they are limited to safe characters (namespace, tenant, type) or hashed.
 */

export interface PartitionKeys {
  readonly log: string
  readonly meta: string
  readonly heads: string
  readonly headsOld: string
  readonly states: string
  readonly holds: string
  readonly oncePrefix: string
  readonly wake: string
}

/** All of a group lies in one slot. */
export interface GroupKeys {
  readonly group: string
  readonly members: string
  readonly owners: string
  readonly cursors: string
  readonly groupWake: string
}

/** What each key is: type, lifetime, sentence. Names are those of the functions below. */
export const keyTable = {
  namespace: ['hash', 'for ever', 'Partition count, hash tags and retention of the namespace.'],
  log: [
    'stream',
    'until retention',
    'The partition: one entry per flush, with the prevs and the envelopes of its events.',
  ],
  meta: [
    'hash',
    'for ever',
    'last, trimmed, events, bytes, lost, headsClosed; topic:<topic> → events published; call:<process> → its last flush and the answer, forgotten an hour later.',
  ],
  heads: ['hash', 'two generations', 'Object → seq of its last event, current generation.'],
  headsOld: ['hash', 'until its events are trimmed', 'Object → seq, the generation before.'],
  states: ['hash', 'until written as null', 'Object → its state document.'],
  holds: ['hash', 'while their owners live', 'Who still needs the log → seq up to which it may be trimmed.'],
  once: ['string', '24 hours', 'Idempotency key (hashed) → first answer.'],
  wake: ['channel', 'no storage', 'Hint: the partition has grown.'],
  group: [
    'hash',
    'while the group is declared',
    'When its members were last heard, and when its partitions are divided.',
  ],
  members: ['hash', 'while the group is declared', 'Member → start id, when it was last heard, when it joined.'],
  owners: ['hash', 'while the group is declared', 'Partition → owner, epoch, until when, and who is to have it.'],
  cursors: ['hash', 'while the group is declared', 'Partition → seq up to which everything is done.'],
  groupWake: ['channel', 'no storage', "Hint: the named members' partitions have changed."],
  live: ['channel', 'no storage', 'Live channel: one message per event, when switched on.'],
} as const

export type KeyName = keyof typeof keyTable

/** The keys that are written with a time to live, and the longest there is. */
export const timeToLiveMs: Partial<Record<KeyName, number>> = { once: 86_400_000 }

export const namespaceKey = (ns: string): string => `${ns}:{namespace}:namespace`

/** What SCAN finds all keys of a namespace by. */
export const namespacePattern = (ns: string): string => `${ns}:*`

export const liveChannelPrefix = (ns: string): string => `${ns}:live:`

export function partitionKeys(ns: string, tag: string): PartitionKeys {
  const base = `${ns}:{${tag}}`
  return {
    log: `${base}:log`,
    meta: `${base}:meta`,
    heads: `${base}:heads`,
    headsOld: `${base}:headsOld`,
    states: `${base}:states`,
    holds: `${base}:holds`,
    oncePrefix: `${base}:once:`,
    wake: `${base}:wake`,
  }
}

/** `name` is of safe characters only. */
export function groupKeys(ns: string, name: string): GroupKeys {
  const base = `${ns}:{group.${name}}`
  return {
    group: `${base}:group`,
    members: `${base}:members`,
    owners: `${base}:owners`,
    cursors: `${base}:cursors`,
    groupWake: `${base}:wake`,
  }
}

/** Tells which row of the table a stored key of the namespace belongs to; undefined for a key that nobody owns. */
export function keyRecogniser(ns: string, partitions: readonly PartitionKeys[]): (key: string) => KeyName | undefined {
  const whole = new Map<string, KeyName>([[namespaceKey(ns), 'namespace']])
  const prefixes = new Map<string, KeyName>()
  for (const keys of partitions) {
    for (const [field, key] of Object.entries(keys)) {
      const name = field.replace('Prefix', '') as KeyName
      if (keyTable[name][0] === 'channel') continue
      if (field === name) whole.set(key, name)
      else prefixes.set(key, name)
    }
  }
  return (key) => {
    const found = /^[^:]*:\{[^}]*\}:[^:]*:(?=[\s\S])/.exec(key)
    return whole.get(key) ?? (found ? prefixes.get(found[0]) : groupKeyOf(ns, key))
  }
}

const groupKeyShape = /^([^:]+):\{group\.[^}]+\}:(group|members|owners|cursors)$/

function groupKeyOf(ns: string, key: string): KeyName | undefined {
  const [, itsNs, name] = groupKeyShape.exec(key) ?? []
  return itsNs === ns ? (name as KeyName) : undefined
}
