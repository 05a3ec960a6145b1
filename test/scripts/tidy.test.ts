/** The rules for scripts and keys: headers say what the code uses, declarations pass what headers say, docs list it all. */
import { readdirSync, readFileSync } from 'node:fs'
import { join, relative, resolve } from 'node:path'
import { describe, expect, test } from 'vitest'
import { commitScript, heartbeatScript } from '../../src/group/scripts.ts'
import { acceptAct, claimAct, loneScript, settleAct, workScript } from '../../src/lanes/acts.ts'
import {
  enterScript,
  extendScript,
  forgetScript,
  cancelScript as laneCancelScript,
  discardScript as laneDiscardScript,
  dropLettersScript as laneDropLettersScript,
  dropScript as laneDropScript,
  fsckScript as laneFsckScript,
  redriveScript as laneRedriveScript,
  removeScript as laneRemoveScript,
  makeScript,
  noteScript,
  operationsScript,
  parkedScript,
  pauseScript,
  peekScript,
  renewScript,
  sendScript,
} from '../../src/lanes/scripts.ts'
import { closeScript } from '../../src/log/closing.ts'
import { countScript } from '../../src/log/count.ts'
import { holdScript } from '../../src/log/holds.ts'
import { openScript } from '../../src/log/namespace.ts'
import { historyScript } from '../../src/log/read.ts'
import { trimScript } from '../../src/log/retention.ts'
import { liftScript } from '../../src/log/rollback.ts'
import { triggerChangeScript, triggerScript } from '../../src/operations/triggers.ts'
import { cancelScript, delayScript, dueScript, publishOneScript, publishScript } from '../../src/publish/scripts.ts'
import {
  answersChannel,
  groupKeys,
  keyRecogniser,
  keyTable,
  liveChannelPrefix,
  namespaceKey,
  operationKeys,
  partitionKeys,
  processorKeys,
  processorsKey,
  queueKeys,
  routeKeys,
  topicWakeChannel,
  triggerKeys,
  webhookKeys,
  workersKeys,
} from '../../src/redis/keys.ts'
import {
  commitScript as commitRouteScript,
  putScript,
  removedScript,
  removeScript,
  fsckScript as routeFsckScript,
  tableScript,
} from '../../src/route/scripts.ts'
import { nextScript } from '../../src/sinks/queue/next.ts'
import {
  declareScript,
  discardScript,
  redriveScript,
  resetScript,
  resumeScript,
  settleScript,
} from '../../src/sinks/stream/scripts.ts'
import {
  announcedScript,
  dropLettersScript,
  dropScript,
  acceptScript as hookAcceptScript,
  makeScript as hookMakeScript,
  pauseScript as hookPauseScript,
  removeScript as hookRemoveScript,
  workScript as hookWorkScript,
  inspectScript,
  lettersScript,
  rotateScript,
} from '../../src/sinks/webhook/scripts.ts'
import { firedScript, scheduleScript } from '../../src/tasks/scripts.ts'

const root = resolve(import.meta.dirname, '../..')
const read = (path: string) => readFileSync(join(root, path), 'utf8')
const filesIn = (folder: string, ending: string): string[] =>
  readdirSync(join(root, folder), { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile() && entry.name.endsWith(ending))
    .map((entry) => relative(root, join(entry.parentPath, entry.name)))

const keys = partitionKeys('ns', '0.0')
const objects = { text: '', count: 1 }
const flush = { keys, process: 'p', n: 1, floor: 0, kinds: '', live: '', options: '', records: '', objects }

const timing = { heartbeatMs: 1, expiryMs: 1, graceMs: 1, joinDelayMs: 1 }
const beat = {
  keys: groupKeys('ns', 'g'),
  act: 'beat' as const,
  name: 'm',
  start: 's',
  partitions: 1,
  timing,
  about: '',
}

const stream = processorKeys('ns', 'p')
const cursors = new Map([[0, 1]])

const lanes = { keys: queueKeys('ns', 'q') }
const sent = {
  id: 'i',
  lane: 'l',
  key: 'k',
  delayMs: 0,
  ttlMs: 0,
  priority: 0,
  once: '',
  fingerprint: 'f',
  envelope: '{}',
}
const settlements = [{ token: 't', id: 'i', outcome: { kind: 'ack' as const } }]
const lease = { leaseMs: 1, worker: 'w', start: 's' }

const shard = { keys: webhookKeys('ns', 1), seed: 's' }
const hook = {
  ...{ name: 'h', revision: 1, born: 1, definition: '{}', maxEvents: 1, maxWaitMs: 1, maxBytes: 1, keepEvents: 1 },
  ...{ sequences: 1, secret: '', newSecret: 's', overlapMs: 1, applied: [0] },
}
const gathered = { name: 'h', revision: 1, born: 1, last: 1, wrap: 'f\n[\n]' }
const attempt = { name: 'h', sequence: '0', became: 'delivered' as const, events: 1, attempt: '{}', disable: '' }

/** Each script with its declaration, called with some input. */
const declared: Record<string, { keys: readonly string[]; args: readonly unknown[]; source: string }> = {
  'src/publish/publish.lua': call(publishScript, flush),
  'src/publish/publish-one.lua': call(publishOneScript, flush),
  'src/publish/delay.lua': call(delayScript, {
    keys,
    partition: 0,
    due: { delayMs: 1 },
    furthestMs: 1,
    most: 1,
    once: { key: `${keys.oncePrefix}x`, forMs: 1 },
    call: 't',
    body: 'b',
    channel: 'c',
    envelope: '{}',
  }),
  'src/publish/due.lua': call(dueScript, { keys, maxEvents: 1, maxBytes: 1 }),
  'src/publish/cancel.lua': call(cancelScript, { keys, number: '1' }),
  'src/log/namespace.lua': call(openScript, { name: 'ns', partitions: 2, retention: undefined }),
  'src/log/history.lua': call(historyScript, { keys, object: 'o', from: 1, limit: 1 }),
  'src/log/trim.lua': call(trimScript, { keys, ageSeq: 0, maxEvents: 0, maxBytes: 0 }),
  'src/log/hold.lua': call(holdScript, { keys, name: 'h', seq: 1, epoch: 0 }),
  'src/group/heartbeat.lua': call(heartbeatScript, beat),
  'src/group/commit.lua': call(commitScript, {
    keys: beat.keys,
    said: [{ partition: 1, epoch: 1, cursor: 1, release: false }],
  }),
  'src/tasks/schedule.lua': call(scheduleScript, { keys: workersKeys('ns'), name: 's', definition: '{}', most: 1 }),
  'src/tasks/fired.lua': call(firedScript, { keys: workersKeys('ns'), name: 's', definition: '{}', firedMs: 1 }),
  'src/route/put.lua': call(putScript, {
    ...{ keys: routeKeys('ns'), name: 's', definition: '{}', force: false },
    ...{ guardMs: 1, starts: [{ at: 0, last: 0 }] },
  }),
  'src/route/remove.lua': call(removeScript, { keys: routeKeys('ns'), name: 's', partitions: 1 }),
  'src/route/removed.lua': call(removedScript, { keys: routeKeys('ns'), name: 's', mark: '1 1 queue' }),
  'src/route/fsck.lua': call(routeFsckScript, { keys: routeKeys('ns'), most: 1, what: 'own', from: '0' }),
  'src/route/table.lua': call(tableScript, { keys: routeKeys('ns'), known: 0 }),
  'src/route/commit.lua': call(commitRouteScript, {
    keys: routeKeys('ns'),
    said: [{ partition: 0, epoch: 1, main: 1, places: [{ name: 's', revision: 1, act: 'own', seq: 1 }] }],
  }),
  'src/log/close.lua': call(closeScript, { keys, untilMs: 1 }),
  'src/log/lift.lua': call(liftScript, { keys, seen: 1 }),
  'src/log/count.lua': call(countScript, { keys, after: 0, upTo: 1, maxEntries: 1 }),
  'src/sinks/stream/declare.lua': call(declareScript, { keys: stream, cursors }),
  'src/sinks/stream/settle.lua': call(settleScript, {
    ...{ keys: stream, partition: 0, epoch: 1, cursor: 1, nowUs: 1 },
    fates: [['close', 'o']],
  }),
  'src/sinks/stream/reset.lua': call(resetScript, {
    keys: stream,
    positions: [{ partition: 0, cursor: 1, trimmed: 0 }],
    nowUs: 1,
  }),
  'src/sinks/stream/resume.lua': call(resumeScript, { keys: stream, scope: 'objects', which: ['o'] }),
  'src/sinks/stream/redrive.lua': call(redriveScript, {
    ...{ keys: stream, partition: 0, object: 'o' },
    letters: [{ id: '0-1', event: 'e' }],
  }),
  'src/sinks/stream/discard.lua': call(discardScript, { keys: stream, scope: 'letters', which: ['0-1'] }),
  'src/lanes/make.lua': call(makeScript, {
    ...{ ...lanes, revision: 1, born: 1, attempts: 1, ordered: true, parks: true, limits: {}, applied: [0] },
    weights: { l: 2 },
  }),
  'src/lanes/send.lua': call(sendScript, { ...lanes, process: 'p', n: 1, items: [sent] }),
  'src/lanes/work.lua': call(workScript, {
    ...lanes,
    acts: [
      settleAct(settlements),
      acceptAct({ revision: 1, born: 1, partition: 0, first: 1, last: 1, items: [{ lane: 'l', item: 'i' }] }),
      claimAct({ ...lease, token: 't', n: 1 }),
    ],
  }),
  'src/lanes/lone.lua': call(loneScript, {
    ...lanes,
    accept: { revision: 1, born: 1, partition: 0, first: 1, last: 1, items: [{ lane: 'l', item: 'i' }] },
    claim: { ...lease, token: 't', n: 1 },
  }),
  'src/sinks/queue/next.lua': call(nextScript, {
    ...{ store: lanes, flush, claim: { ...lease, token: 't', n: 1 }, lane: 'l', after: 1 },
    accept: { revision: 1, born: 1, partition: 0 },
  }),
  'src/lanes/cancel.lua': call(laneCancelScript, { ...lanes, id: 'i' }),
  'src/lanes/forget.lua': call(forgetScript, { ...lanes, most: 1 }),
  'src/lanes/note.lua': call(noteScript, { ...lanes, token: 't', id: 'i', list: '0', progress: '1', lines: ['l'] }),
  'src/lanes/operations.lua': call(operationsScript, { ...lanes, ask: { act: 'get', names: ['n'] }, detail: true }),
  'src/operations/trigger.lua': call(triggerScript, { ns: 'ns', name: 't', nowMs: 1, hash: 'h', definition: '{}' }),
  'src/operations/trigger-change.lua': call(triggerChangeScript, { ns: 'ns', act: 'rotate', name: 't', nowMs: 1 }),
  'src/lanes/renew.lua': call(renewScript, { ...lanes, leaseMs: 1, tokens: ['t'] }),
  'src/lanes/extend.lua': call(extendScript, { ...lanes, token: 't', id: 'i', forMs: 1, ownToken: 'o' }),
  'src/lanes/enter.lua': call(enterScript, { ...lanes, act: 'enter', worker: 'w', start: 's' }),
  'src/lanes/parked.lua': call(parkedScript, { ...lanes, act: 'resume', objects: ['l k'] }),
  'src/lanes/pause.lua': call(pauseScript, { ...lanes, act: 'pause', lane: '' }),
  'src/lanes/peek.lua': call(peekScript, { ...lanes, n: 1 }),
  'src/lanes/drop-letters.lua': call(laneDropLettersScript, { ...lanes, bytes: 1, most: 1 }),
  'src/lanes/drop.lua': call(laneDropScript, { ...lanes, name: 'l', bytes: 1, most: 1 }),
  'src/lanes/redrive.lua': call(laneRedriveScript, { ...lanes, ids: ['i'] }),
  'src/lanes/discard.lua': call(laneDiscardScript, { ...lanes, ids: ['i'] }),
  'src/lanes/fsck.lua': call(laneFsckScript, { ...lanes, most: 1, asks: [{ what: 'lanes', from: '0', name: '' }] }),
  'src/lanes/remove.lua': call(laneRemoveScript, { ...lanes, revision: 1 }),
  'src/sinks/webhook/make.lua': call(hookMakeScript, { ...shard, hook }),
  'src/sinks/webhook/accept.lua': call(hookAcceptScript, {
    ...{ ...shard, replay: '', partition: 0 },
    deliveries: [{ ...gathered, events: [{ sequence: 0, piece: '0-1 {}' }] }],
  }),
  'src/sinks/webhook/work.lua': call(hookWorkScript, {
    ...shard,
    ended: [{ settlement: settlements[0]!, ...attempt }],
    claim: { ...lease, token: 't', n: 1 },
  }),
  'src/sinks/webhook/pause.lua': call(hookPauseScript, { ...shard, act: 'pause', name: 'h' }),
  'src/sinks/webhook/announced.lua': call(announcedScript, { ...shard, name: 'h', disabledAt: '1' }),
  'src/sinks/webhook/letters.lua': call(lettersScript, { ...shard, act: 'redrive', ids: ['b'] }),
  'src/sinks/webhook/rotate.lua': call(rotateScript, { ...shard, name: 'h', secret: 's', overlapMs: 1 }),
  'src/sinks/webhook/drop-letters.lua': call(dropLettersScript, { ...shard, bytes: 1, most: 1 }),
  'src/sinks/webhook/drop.lua': call(dropScript, { ...shard, name: 'h', bytes: 1, most: 1 }),
  'src/sinks/webhook/remove.lua': call(hookRemoveScript, { ...shard, name: 'h', revision: 1 }),
  'src/sinks/webhook/inspect.lua': call(inspectScript, { ...shard, name: 'h', most: 1 }),
}

function call<Input>(
  script: { keys(input: Input): readonly string[]; args(input: Input): readonly unknown[]; source: string },
  input: Input,
) {
  return { keys: script.keys(input), args: script.args(input), source: script.source }
}

interface Slot {
  index: number
  name: string
  /** `ARGV[10…]`: this one and all after it. */
  open: boolean
}

/** The comment block at the top, and the code below it. */
function halves(text: string): { header: string; body: string } {
  const lines = text.split('\n')
  const end = lines.findIndex((line) => !line.startsWith('--'))
  return { header: lines.slice(0, end).join('\n'), body: lines.slice(end).join('\n') }
}

const allLua = filesIn('src', '.lua')
const isPart = (path: string): boolean => path.endsWith('.part.lua')
const scripts = allLua.filter((path) => !isPart(path))
/** What the loader joined to it, in the order in which it did. */
function partsOf(path: string): string[] {
  const source = declared[path]?.source ?? ''
  const parts = allLua.filter((part) => isPart(part) && source.includes(read(part)))
  return parts.sort((a, b) => source.indexOf(read(a)) - source.indexOf(read(b)))
}

/** Without the function that the loader puts around the parts within it. */
const unwrapped = (source: string): string =>
  source.replace('\nlocal function run()\n', '').replace(/\nend\nreturn run\(\)\n$/, '')

/** The whole of a script: its first line, then the parts that it is joined from, then its own. */
function split(path: string): { flags: string; header: string; body: string } {
  const text = read(path)
  const end = text.indexOf('\n')
  const pieces = [...partsOf(path).map(read), text.slice(end + 1)].map(halves)
  return {
    flags: text.slice(0, end),
    header: pieces.map(({ header }) => header).join('\n'),
    body: pieces.map(({ body }) => body).join('\n'),
  }
}

const documented = (header: string, list: 'KEYS' | 'ARGV'): Slot[] =>
  [...header.matchAll(new RegExp(`^-- ${list}\\[(\\d+)(…?)\\] +(\\w*)`, 'gm'))].map(([, index, open, name]) => ({
    index: Number(index),
    name: name!,
    open: open !== '',
  }))

/** Every slot that the code uses, also through a shorter name of the list, and computed ones from an open slot on. */
function used(body: string, list: 'KEYS' | 'ARGV', slots: readonly Slot[]): number[] {
  const alias = new RegExp(`local (?:\\w+, )?(\\w+) = (?:\\S+, )?${list}$`, 'm').exec(body)?.[1] ?? list
  const open = slots.find((slot) => slot.open)?.index ?? Number.POSITIVE_INFINITY
  const found = [...body.matchAll(new RegExp(`\\b(?:${list}|${alias})\\[([^\\]]+)\\]`, 'g'))].map(([, index]) =>
    /^\d+$/.test(index!) ? Math.min(Number(index), open) : open,
  )
  return [...new Set(found)].sort((a, b) => a - b)
}

const mayBeRefused = [
  ...['src/publish/publish.lua', 'src/publish/publish-one.lua', 'src/sinks/queue/next.lua'],
  'src/publish/delay.lua',
  ...['src/lanes/send.lua', 'src/lanes/make.lua', 'src/sinks/webhook/make.lua', 'src/operations/trigger.lua'],
]

describe.each(scripts)('%s', (path) => {
  const { flags, header, body } = split(path)

  test.each(['KEYS', 'ARGV'] as const)('documents exactly the %s that it uses, in order', (list) => {
    const slots = documented(header, list)
    expect(slots.map(({ index }) => index)).toEqual(slots.map((_, i) => i + 1))
    expect(used(body, list, slots)).toEqual(slots.map(({ index }) => index))
  })

  test('has a local of the same name for each key, and for each argument unless it is the hot one', () => {
    const locals = [...body.matchAll(/^local (?!function)([\w, ]+)/gm)].flatMap(([, names]) =>
      names!.trim().split(/, */),
    )
    const args = path === 'src/publish/publish.lua' ? [] : documented(header, 'ARGV').filter(({ open }) => !open)
    const names = [...documented(header, 'KEYS'), ...args].map(({ name }) => name)
    expect(names.filter((name) => !locals.includes(name))).toEqual([])
  })

  test('says what it replies, and each reply is in the code', () => {
    expect(header).toMatch(/^-- Replies /m)
    const replies = header.slice(header.indexOf('-- Replies'))
    for (const [, tag] of replies.matchAll(/\{'(\w+)'/g)) expect(body, `reply ${tag}`).toContain(`{'${tag}'`)
    for (const [, tag] of body.matchAll(/return \{'(\w+)'/g)) expect(replies, `reply ${tag}`).toContain(`{'${tag}'`)
  })

  test('is declared with as many keys and arguments as it documents', () => {
    const declaration = declared[path]
    expect(declaration, `${path} in the table of this test`).toBeDefined()
    const [flagged = '', ...rest] = read(path).split(/(?<=^.*\n)/)
    expect(unwrapped(declaration!.source)).toBe([flagged, ...partsOf(path).map(read), ...rest].join(''))
    expect(declaration!.keys).toHaveLength(documented(header, 'KEYS').length)
    const args = documented(header, 'ARGV')
    if (args.at(-1)?.open) expect(declaration!.args.length).toBeGreaterThanOrEqual(args.length)
    else expect(declaration!.args).toHaveLength(args.length)
  })

  test('keeps to one cluster slot, or says that it is not for a cluster', () => {
    const tags = declared[path]!.keys.map((key) => /\{([^}]+)\}/.exec(key)?.[1])
    expect(new Set(tags).size).toBe(path === 'src/sinks/queue/next.lua' ? 2 : 1)
    expect(header.includes('not for a cluster')).toBe(path === 'src/sinks/queue/next.lua')
  })

  test('may run without memory, unless it takes something new in', () => {
    expect(flags).toMatch(/^#!lua( flags=[a-z,-]+)?$/)
    expect(flags.includes('allow-oom')).toBe(!mayBeRefused.includes(path))
  })
})

test('every part is joined into some script, and has no flags of its own', () => {
  const joined = new Set(scripts.flatMap(partsOf))
  expect(allLua.filter(isPart).filter((part) => !joined.has(part))).toEqual([])
  for (const part of joined) expect(read(part)).not.toContain('#!')
})

test('every script is declared once, beside it', () => {
  const declarations = filesIn('src', '.ts').flatMap((path) =>
    [...read(path).matchAll(/defineScript\(\{\s*file: new URL\('\.\/([\w-]+\.lua)', import\.meta\.url\)/g)].map(
      ([, file]) => join(path, '..', file!),
    ),
  )
  expect(declarations.sort()).toEqual([...scripts].sort())
})

describe('keys', () => {
  const spelled = partitionKeys('<ns>', '<tag>')
  const ofProcessor = processorKeys('<ns>', '<processor>')
  const ofQueue = queueKeys('<ns>', '<queue>')
  const ofShard = webhookKeys('<ns>', '<shard>')
  /** A store of lanes is a queue's, or that of the webhooks of a shard, which has no weights, parks nothing and is sent nothing. */
  const ofQueueAlone = ['weights', 'parked', 'remembered', 'forget']
  const ofLanes = Object.fromEntries(
    Object.entries(ofQueue).map(([name, key]) =>
      ofQueueAlone.includes(name) ? [name, key] : [name, [key, ofShard[name as keyof typeof ofQueue]]],
    ),
  )
  const ofOperations = operationKeys('<ns>', '<queue>')
  const spelling: Record<string, string | readonly string[]> = {
    ...spelled,
    ...ofShard,
    ...ofLanes,
    ...ofProcessor,
    ...workersKeys('<ns>'),
    ...routeKeys('<ns>'),
    ...groupKeys('<ns>', '<group>'),
    ...triggerKeys('<ns>'),
    ...ofOperations,
    namespace: namespaceKey('<ns>'),
    processors: processorsKey('<ns>'),
    dead: [ofProcessor.dead, ofQueue.dead, ofShard.dead],
    deadOrder: [ofProcessor.deadOrder, ofQueue.deadOrder, ofShard.deadOrder],
    shelf: `${ofProcessor.shelfPrefix}<sha1>`,
    ranked: [`${ofQueue.rankedPrefix}<tenant>`, `${ofShard.rankedPrefix}<webhook>`],
    held: [ofQueue, ofShard].map(({ heldPrefix }) => `${heldPrefix}<token>`),
    hook: `${ofShard.hookPrefix}<webhook>`,
    open: `${ofShard.openPrefix}<webhook>:<sequence>`,
    attempts: `${ofShard.attemptsPrefix}<webhook>`,
    replay: `${ofShard.replayPrefix}<id>`,
    topicWake: topicWakeChannel('<ns>', '<topic>'),
    answers: answersChannel('<ns>', '<process>'),
    live: `${liveChannelPrefix('<ns>')}<tenant>:<type>`,
    once: `${spelled.oncePrefix}<sha1>`,
  }
  const spellings = (name: string): string[] => [spelling[name]!].flat()

  test('docs/keys.md lists exactly what src/redis/keys.ts has', () => {
    const rows = [...read('docs/keys.md').matchAll(/^\| `(\w+)` \| `(.+)` \| (\w+) \| (.+) \| (.+) \|$/gm)].map((row) =>
      row.slice(1),
    )
    expect(rows).toEqual(Object.entries(keyTable).map(([name, row]) => [name, spellings(name).join('`, `'), ...row]))
  })

  test('every stored key is recognised by its name, and nothing else', () => {
    const recognise = keyRecogniser('<ns>', [spelled])
    for (const [name, [type]] of Object.entries(keyTable))
      for (const key of spellings(name)) expect(recognise(key), key).toBe(type === 'channel' ? undefined : name)
    for (const key of [
      '<ns>',
      '<ns>:{<tag>}:',
      spelled.oncePrefix,
      `${spelled.log}:x`,
      spelled.log.replace('<ns>', 'x'),
      ...[`${ofQueue.store}:x`, `${ofQueue.store}-x`, ofQueue.rankedPrefix, `${ofQueue.heldPrefix}x:y`],
      ofQueue.store.replace('<ns>', 'x'),
      ...[`${ofShard.deadlines}:x`, ofShard.hookPrefix, `${ofShard.hookPrefix}x:y`, `${ofShard.openPrefix}x`],
      ofShard.deadlines.replace('<ns>', 'x'),
    ])
      expect(recognise(key), key).toBeUndefined()
  })
})
