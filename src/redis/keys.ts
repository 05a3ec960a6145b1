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
  readonly delayed: string
  readonly delayedEvents: string
  readonly oncePrefix: string
  readonly wake: string
}

/** All of a group lies in one slot. */
export interface GroupKeys {
  readonly group: string
  readonly members: string
  readonly owners: string
  readonly cursors: string
  readonly rates: string
  readonly groupWake: string
}

/** A processor is a group with what it could not handle. */
export interface ProcessorKeys extends GroupKeys {
  readonly blocked: string
  readonly dead: string
  readonly deadOrder: string
  readonly shelves: string
  readonly shelfPrefix: string
}

/** A store of lanes: fair work under leases. All of it lies in one slot. */
export interface LaneKeys {
  readonly store: string
  readonly turns: string
  readonly lanes: string
  readonly weights: string
  readonly later: string
  readonly laterItems: string
  readonly leases: string
  readonly items: string
  readonly dead: string
  readonly deadOrder: string
  readonly idle: string
  readonly objects: string
  readonly behind: string
  readonly parked: string
  readonly remembered: string
  readonly forget: string
  readonly rankedPrefix: string
  readonly heldPrefix: string
  readonly laneWake: string
}

/** A shard of webhooks: a store of lanes, one lane for each subscription, and what is gathered for them. */
export interface WebhookKeys extends LaneKeys {
  readonly deadlines: string
  readonly announced: string
  readonly definitions: string
  readonly tallies: string
  readonly hookPrefix: string
  readonly openPrefix: string
  readonly attemptsPrefix: string
  readonly replayPrefix: string
}

/** URLs that start operations. */
export interface TriggerKeys {
  readonly triggers: string
  readonly triggerSecrets: string
}

/** What is known of the operations of a tracked queue, in the slot of its store: operations.part.lua and its neighbours name them too. */
export interface OperationKeys {
  readonly ops: string
  readonly opItems: string
  readonly opsLast: string
  readonly opsOf: string
  readonly opNotes: string
  readonly opsEnded: string
  readonly opCounts: string
  readonly opCancels: string
  readonly opsWake: string
}

/** The table of subscriptions and how far they are, in the slot of the group of routers. */
export interface RouteKeys extends GroupKeys {
  readonly subscriptions: string
  readonly changes: string
  readonly own: string
  readonly replaced: string
  readonly removing: string
}

/** What the leader looks after, in the slot of the group of all running processes. */
export interface WorkersKeys {
  readonly schedules: string
  readonly due: string
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
    'last, trimmed, events, bytes, lost, headsClosed, delayed, closedUntil; topic:<topic> → events published; last:<topic> → seq of the last flush that had the topic; call:<process> → its last flush and the answer, forgotten an hour later.',
  ],
  heads: ['hash', 'two generations', 'Object → seq of its last event, current generation.'],
  headsOld: ['hash', 'until its events are trimmed', 'Object → seq, the generation before.'],
  states: ['hash', 'until written as null', 'Object → its state document.'],
  holds: ['hash', 'while their owners live', 'Who still needs the log → seq up to which it may be trimmed.'],
  delayed: ['zset', 'until they are due', 'Delayed event (its number) → when it is due, in µs.'],
  delayedEvents: ['hash', 'until they are due', 'Delayed event (its number) → its envelope.'],
  once: ['string', '24 hours', 'Idempotency key (hashed) → first answer.'],
  wake: ['channel', 'no storage', 'Hint: the partition has grown.'],
  topicWake: ['channel', 'no storage', 'Hint: a partition has grown by events of this topic.'],
  answers: [
    'channel',
    'no storage',
    'Nothing is sent here. Who listens hears of its own lone events by their answers.',
  ],
  group: [
    'hash',
    'while the group is declared',
    'When its members were last heard, and when its partitions are divided.',
  ],
  members: ['hash', 'while the group is declared', 'Member → start id, when it was last heard, when it joined.'],
  owners: ['hash', 'while the group is declared', 'Partition → owner, epoch, until when, and who is to have it.'],
  cursors: ['hash', 'while the group is declared', 'Partition → seq up to which everything is done.'],
  rates: ['hash', 'while the group is declared', 'Partition → events handled a second, and when that was.'],
  groupWake: ['channel', 'no storage', "Hint: the named members' partitions have changed; `*` names all."],
  processors: ['hash', 'until removed', 'Processor → its definition as last declared, and where it began.'],
  triggers: [
    'hash',
    'until removed',
    'Trigger → hash of its secret, whether it is enabled, times, and its definition.',
  ],
  triggerSecrets: ['hash', 'until rotated or removed', 'Hash of a secret → its trigger.'],
  blocked: ['hash', 'until resumed', 'Partition → the event that blocks it and its error.'],
  dead: ['hash', 'until redriven or discarded', 'Event or item id → a dead letter: what it was, error and attempts.'],
  deadOrder: ['zset', 'until redriven or discarded', 'Ids of the dead letters by the time they became that.'],
  shelves: ['hash', 'until empty', 'Object → its shelf: partition, parked or released, last seq on it, error.'],
  shelf: ['list', 'until empty', 'The set-aside events of one object (hashed), in order.'],
  schedules: ['hash', 'until removed', 'Schedule → the time up to which its ticks are fired, and its definition.'],
  due: [
    'channel',
    'no storage',
    'Hint for the leader: a partition has a new earliest delayed event, or a schedule has changed.',
  ],
  store: [
    'hash',
    'while the queue is registered',
    'Revision, attempts and counters of a queue; applied:<partition> → seq up to which events were taken; worker:<name> → start of a named worker.',
  ],
  turns: ['zset', 'until empty', 'Lane → its number in line: exactly the lanes that can give.'],
  lanes: ['hash', 'until empty', 'Lane → its record: waiting, bytes, held and so on, packed.'],
  weights: ['hash', 'while the queue is registered', 'Lane → items per turn, where that is not 1.'],
  later: ['zset', 'until due', 'Item, or @<lane>, → ms until which it waits.'],
  laterItems: ['hash', 'until due', 'Item id → the item that waits for a time.'],
  leases: ['zset', 'until settled or lapsed', 'Token → ms at which its lease lapses.'],
  items: ['hash', 'until settled', 'Lane and place → the item that waits there, or is held.'],
  idle: ['zset', 'until work comes', 'Who waits for work → since when.'],
  objects: [
    'hash',
    'while one of its items is there',
    'Ordered queue: object that has an owner → places of those behind it.',
  ],
  behind: ['hash', 'until its turn', 'Ordered queue: object and place → item that waits for the one before it.'],
  parked: [
    'hash',
    'until resumed or discarded',
    'Ordered queue: object that is set aside → why, and the item that failed.',
  ],
  remembered: [
    'hash',
    'an hour, 24 hours',
    'Last flush of each sending process; idempotency key (hashed) → first answer.',
  ],
  forget: ['zset', 'an hour, 24 hours', 'Field of remembered → when it is forgotten.'],
  ranked: [
    'zset',
    'until empty',
    'Places of one tenant’s waiting items that have a priority or were put back, in their order.',
  ],
  held: [
    'string',
    'until settled or lapsed',
    'Of one lease: worker, its start, when it was claimed; then the ids and places of its items, of an ordered queue with their keys.',
  ],
  laneWake: [
    'channel',
    'no storage',
    'Hint: the named ones may claim; an operation is to be cancelled; of webhooks also @<ms>: a batch is due then.',
  ],
  deadlines: ['zset', 'until sealed', 'Subscription and sequence of an open batch → ms at which it is due.'],
  announced: ['set', 'until published', 'Webhooks that were disabled, of which no event tells yet.'],
  definitions: ['hash', 'while one is registered', 'Webhook → its secrets and its definition, for whoever dispatches.'],
  tallies: ['hash', 'while one is registered', 'Webhook → its health and its counters, packed.'],
  hook: [
    'hash',
    'while the webhook is registered',
    'Revision and limits of a webhook; applied:<partition> → seq up to which events were taken; open:<sequence> → when its open batch began, events and bytes; later:<sequence> → batch that waits to be tried again.',
  ],
  open: [
    'list',
    'until sealed',
    'An open batch: how it will be wrapped, then its events with their ids, as they will be sent.',
  ],
  attempts: ['list', '30 days', 'The last 100 attempts of a webhook, the newest first.'],
  replay: ['hash', '24 hours', 'Of one replay: partition → seq up to which events were taken.'],
  ops: [
    'hash',
    '24 hours after its end',
    'Operation of a tracked queue → its record: state, version, attempts, times, worker, output or error; none while it has only entered.',
  ],
  opItems: ['hash', 'with its operation', 'Operation → its item as it entered, with what is shown of its data.'],
  opsLast: [
    'hash',
    'with its operations',
    'Object → its last operations, and when each was queued where its name does not say it.',
  ],
  opsOf: [
    'zset',
    'with its operations',
    'Operations with a key before those in opsLast, by their texts: object, when it was queued, operation.',
  ],
  opNotes: ['hash', 'with its operation', 'Operation → its progress and its last log lines.'],
  opsEnded: ['list', '24 hours', 'Ended operations in the order of their ends, to be forgotten.'],
  opCounts: [
    'hash',
    'total while the queue is registered, minutes 24 hours',
    'Minute → ended operations by outcome, and how long they took; kept → how many are in opsEnded.',
  ],
  opCancels: ['hash', 'until its item comes up', 'Operation that is to be cancelled → since when.'],
  opsWake: ['channel', 'no storage', 'Hint: these operations have ended.'],
  subscriptions: ['hash', 'until removed', 'Subscription → its revision, that of its creation, and its definition.'],
  changes: ['zset', 'the last 1,000 removals', 'Subscription → revision of its last change or of its removal.'],
  own: [
    'hash',
    'until it rides with main',
    'Partition and subscription → seq up to which it has everything, and revision.',
  ],
  replaced: ['hash', 'until removed', 'Subscription → hashes of the definitions replaced in the last 10 minutes.'],
  removing: ['hash', 'until its store is gone', 'Removed subscription → revision, time and kind.'],
  live: ['channel', 'no storage', 'Live channel: one message per event, when switched on.'],
} as const

export type KeyName = keyof typeof keyTable

/** The keys that are written with a time to live, and the longest there is. */
export const timeToLiveMs: Partial<Record<KeyName, number>> = {
  once: 86_400_000,
  attempts: 2_595_600_000,
  replay: 86_400_000,
}

export const namespaceKey = (ns: string): string => `${ns}:{namespace}:namespace`

export const processorsKey = (ns: string): string => `${ns}:{namespace}:processors`

export const triggerKeys = (ns: string): TriggerKeys => ({
  triggers: `${ns}:{namespace}:triggers`,
  triggerSecrets: `${ns}:{namespace}:triggerSecrets`,
})

/** What SCAN finds all keys of a namespace by. */
export const namespacePattern = (ns: string): string => `${ns}:*`

/** What SCAN finds the keys of all queues by. */
export const queuesPattern = (ns: string): string => `${ns}:{queue.*`

/** publish.lua makes the same of a partition's `wake`. */
export const topicWakeChannel = (ns: string, topic: string): string => `${ns}:wake:${topic}`

/** publish.lua makes the same of a partition's `wake` and the process. */
export const answersChannel = (ns: string, process: string): string => `${ns}:answers:${process}`

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
    delayed: `${base}:delayed`,
    delayedEvents: `${base}:delayedEvents`,
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
    rates: `${base}:rates`,
    groupWake: `${base}:wake`,
  }
}

/** A processor's name is of safe characters only. */
export function processorKeys(ns: string, name: string): ProcessorKeys {
  const base = `${ns}:{group.stream.${name}}`
  return {
    ...groupKeys(ns, `stream.${name}`),
    blocked: `${base}:blocked`,
    dead: `${base}:dead`,
    deadOrder: `${base}:deadOrder`,
    shelves: `${base}:shelves`,
    shelfPrefix: `${base}:shelf:`,
  }
}

/** A queue's name is of safe characters only; so is a tenant, the name of a lane. */
export const queueKeys = (ns: string, name: string): LaneKeys => laneKeys(`${ns}:{queue.${name}}`)

/** Webhooks lie in so many shards, by their names: a claim serves all of a shard. */
export const webhookShards = 16

/** A webhook's name, that of its lane, is of safe characters only. */
export function webhookKeys(ns: string, shard: number | string): WebhookKeys {
  const base = `${ns}:{webhook.${shard}}`
  return {
    ...laneKeys(base),
    deadlines: `${base}:deadlines`,
    announced: `${base}:announced`,
    definitions: `${base}:definitions`,
    tallies: `${base}:tallies`,
    hookPrefix: `${base}:hook:`,
    openPrefix: `${base}:open:`,
    attemptsPrefix: `${base}:attempts:`,
    replayPrefix: `${base}:replay:`,
  }
}

function laneKeys(base: string): LaneKeys {
  return {
    store: `${base}:store`,
    turns: `${base}:turns`,
    lanes: `${base}:lanes`,
    weights: `${base}:weights`,
    later: `${base}:later`,
    laterItems: `${base}:laterItems`,
    leases: `${base}:leases`,
    items: `${base}:items`,
    dead: `${base}:dead`,
    deadOrder: `${base}:deadOrder`,
    idle: `${base}:idle`,
    objects: `${base}:objects`,
    behind: `${base}:behind`,
    parked: `${base}:parked`,
    remembered: `${base}:remembered`,
    forget: `${base}:forget`,
    rankedPrefix: `${base}:ranked:`,
    heldPrefix: `${base}:held:`,
    laneWake: `${base}:wake`,
  }
}

export function operationKeys(ns: string, queue: string): OperationKeys {
  const base = `${ns}:{queue.${queue}}`
  return {
    ops: `${base}:ops`,
    opItems: `${base}:opItems`,
    opsLast: `${base}:opsLast`,
    opsOf: `${base}:opsOf`,
    opNotes: `${base}:opNotes`,
    opsEnded: `${base}:opsEnded`,
    opCounts: `${base}:opCounts`,
    opCancels: `${base}:opCancels`,
    opsWake: `${base}:opsWake`,
  }
}

/** The group that every running process joins; who owns its one partition leads. */
export const workersGroup = 'workers'

/** The group of those that declare a task for one of them; a task's name is of safe characters only. */
export const taskGroup = (task: string): string => `task.${task}`

export function workersKeys(ns: string): WorkersKeys {
  const base = `${ns}:{group.${workersGroup}}`
  return { schedules: `${base}:schedules`, due: `${base}:due` }
}

/** The group of which every running process is a member: it hands events to the stores of subscriptions. */
export const routeGroup = 'route'

export function routeKeys(ns: string): RouteKeys {
  const base = `${ns}:{group.${routeGroup}}`
  return {
    ...groupKeys(ns, routeGroup),
    subscriptions: `${base}:subscriptions`,
    changes: `${base}:changes`,
    own: `${base}:own`,
    replaced: `${base}:replaced`,
    removing: `${base}:removing`,
  }
}

/** Tells which row of the table a stored key of the namespace belongs to; undefined for a key that nobody owns. */
export function keyRecogniser(ns: string, partitions: readonly PartitionKeys[]): (key: string) => KeyName | undefined {
  const whole = new Map<string, KeyName>([
    [namespaceKey(ns), 'namespace'],
    [processorsKey(ns), 'processors'],
    [triggerKeys(ns).triggers, 'triggers'],
    [triggerKeys(ns).triggerSecrets, 'triggerSecrets'],
  ])
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
    const ofPartition = whole.get(key) ?? (found ? prefixes.get(found[0]) : undefined)
    return ofPartition ?? groupKeyOf(ns, key) ?? queueKeyOf(ns, key) ?? webhookKeyOf(ns, key)
  }
}

const groupKeyShape = /^([^:]+):\{group\.[^}]+\}:(\w+)$|^([^:]+):\{group\.[^}]+\}:(shelf):[^:]+$/
const groupKeyNames: readonly string[] = [
  ...['group', 'members', 'owners', 'cursors', 'rates'],
  ...['blocked', 'dead', 'deadOrder', 'shelves', 'schedules'],
  ...['subscriptions', 'changes', 'own', 'replaced', 'removing'],
]

function groupKeyOf(ns: string, key: string): KeyName | undefined {
  const [, itsNs, name = '', shelfNs, shelf] = groupKeyShape.exec(key) ?? []
  if (itsNs === ns && groupKeyNames.includes(name)) return name as KeyName
  return shelfNs === ns ? (shelf as KeyName) : undefined
}

const queueKeyShape = /^([^:]+):\{queue\.[^}]+\}:(\w+)(?::([^:]+))?$/
const queueKeyNames: readonly string[] = [
  ...['store', 'turns', 'lanes', 'weights', 'later', 'laterItems', 'leases', 'items'],
  ...['dead', 'deadOrder', 'idle', 'objects', 'behind', 'parked', 'remembered', 'forget'],
  ...['ops', 'opItems', 'opsLast', 'opsOf', 'opNotes', 'opsEnded', 'opCounts', 'opCancels'],
]
const queueKeyPrefixes: readonly string[] = ['ranked', 'held']

function queueKeyOf(ns: string, key: string): KeyName | undefined {
  const [, itsNs, name = '', of] = queueKeyShape.exec(key) ?? []
  const names = of === undefined ? queueKeyNames : queueKeyPrefixes
  return itsNs === ns && names.includes(name) ? (name as KeyName) : undefined
}

const webhookKeyShape = /^([^:]+):\{webhook\.[^}]+\}:(\w+)(?::([^:]+)(:[^:]+)?)?$/
const webhookKeyNames: readonly string[] = [...queueKeyNames, 'deadlines', 'announced', 'definitions', 'tallies']
const webhookKeyPrefixes: readonly string[] = [...queueKeyPrefixes, 'hook', 'attempts', 'replay']

function webhookKeyOf(ns: string, key: string): KeyName | undefined {
  const [, itsNs, name = '', of, sequence] = webhookKeyShape.exec(key) ?? []
  if (itsNs !== ns) return undefined
  if (sequence !== undefined) return name === 'open' ? name : undefined
  const names = of === undefined ? webhookKeyNames : webhookKeyPrefixes
  return names.includes(name) ? (name as KeyName) : undefined
}

/** What SCAN finds the keys of all shards by. */
export const webhooksPattern = (ns: string): string => `${ns}:{webhook.*`

/** Of the key of a shard: which one, and the webhook that it is of, for keys that have one. */
export function webhookKeyParts(ns: string, key: string): { shard: number; webhook: string | undefined } | undefined {
  const [, itsNs, shard, what, name] = /^([^:]+):\{webhook\.(\d+)\}:(\w+)(?::([^:]+))?/.exec(key) ?? []
  if (itsNs !== ns) return undefined
  const isItsOwn = ['hook', 'open', 'attempts', 'ranked'].includes(what!)
  return { shard: Number(shard), webhook: isItsOwn ? name : undefined }
}

/** What the key of a queue says. */
export interface QueueKeyParts {
  key: string
  queue: string
  what: string
  /** Of the lane or lease, for keys that have one. */
  name: string | undefined
}

export function queueKeyParts(ns: string, key: string): QueueKeyParts | undefined {
  const [, itsNs, queue, what, name] = /^([^:]+):\{queue\.([^}]+)\}:(\w+)(?::([\s\S]*))?$/.exec(key) ?? []
  return itsNs === ns ? { key, queue: queue!, what: what!, name } : undefined
}
