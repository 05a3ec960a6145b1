/** Every reply of route/*.lua on a real Redis. The tests set the clock. */
import { describe, expect, onTestFinished, test } from 'vitest'
import { routeKeys } from '../../src/redis/keys.ts'
import { runScript } from '../../src/redis/script.ts'
import { type Definition, writeDefinition } from '../../src/route/definition.ts'
import {
  commitScript,
  type Place,
  putScript,
  removedScript,
  removeScript,
  type SaidRoute,
  tableScript,
} from '../../src/route/scripts.ts'
import { freshNamespace, plainRedis } from '../support/bus.ts'

const definitionOf = (match: string | null, kind = 'queue') =>
  writeDefinition({ kind, match, options: {} } as Definition)
const guardMs = 600_000

/** A registry of its own with two partitions, at a time that only the test moves. */
function registry() {
  const redis = plainRedis()
  const { groupWake, ...stored } = routeKeys(freshNamespace())
  const keys = { ...stored, groupWake }
  onTestFinished(async () => void (await redis.unlink(...Object.values(stored))))
  let nowMs = 1_000_000
  const nowUs = () => nowMs * 1_000
  return {
    redis,
    keys,
    pass: (ms: number) => {
      nowMs += ms
    },
    put: (
      name: string,
      match: string | null,
      { start = [10, 20], lasts = [10, 20], force = false, kind = 'queue' } = {},
    ) =>
      runScript(redis, putScript, {
        ...{ keys, nowUs: nowUs(), name, definition: definitionOf(match, kind) },
        ...{ force, guardMs, starts: start.map((at, p) => ({ at, last: lasts[p]! })) },
      }),
    remove: (name: string) => runScript(redis, removeScript, { keys, nowUs: nowUs(), name, partitions: 2 }),
    removed: (name: string, mark: string) => runScript(redis, removedScript, { keys, name, mark }),
    table: (known = 0) => runScript(redis, tableScript, { keys, known }),
    own: (partition: number, epoch = 7) => redis.hset(keys.owners, partition, `w ${epoch} 0 w`),
    commit: (...said: SaidRoute[]) => runScript(redis, commitScript, { keys, said }),
    places: () => redis.hgetall(keys.own),
  }
}

const first = 1_000_000_000

describe('put', () => {
  test('creates: definition, revision and a place of its own in each partition', async () => {
    const { put, places, table } = registry()
    expect(await put('q', 'a.*')).toEqual({ kind: 'created', revision: first, born: first, seqs: [10, 20] })
    expect(await places()).toEqual({ '0 q': `10 ${first}`, '1 q': `20 ${first}` })
    const { version, definitions } = await table()
    expect(version).toBe(first)
    expect(definitions.get('q')).toEqual({
      ...{ name: 'q', kind: 'queue', match: 'a.*', options: {} },
      ...{ revision: first, born: first },
    })
  })

  test('an equal definition makes no revision, and says where it is', async () => {
    const { put, own, commit } = registry()
    await put('q', 'a')
    await own(0)
    await commit({ partition: 0, epoch: 7, main: 15, places: [{ name: 'q', revision: first, act: 'join', seq: 15 }] })
    const same = { kind: 'same', revision: first, born: first, seqs: [15, 20] }
    expect(await put('q', 'a', { start: [99, 99] })).toEqual(same)
  })

  test('changes: a higher revision, and it reads on by itself from where it is', async () => {
    const { put, own, commit, places, pass } = registry()
    await put('q', 'a')
    await own(0)
    await commit({ partition: 0, epoch: 7, main: 15, places: [{ name: 'q', revision: first, act: 'join', seq: 15 }] })
    const second = first + 1
    expect(await put('q', 'b')).toEqual({ kind: 'changed', revision: second, born: first, seqs: [15, 20] })
    expect(await places()).toEqual({ '0 q': `15 ${second}`, '1 q': `20 ${second}` })
    pass(1)
    expect(await put('q', 'c')).toMatchObject({ kind: 'changed', revision: first + 1_000 })
  })

  test('a definition that was replaced comes back only by force, or ten minutes later', async () => {
    const { put, pass } = registry()
    await put('q', 'a')
    await put('q', 'b')
    await put('q', 'c')
    expect(await put('q', 'a')).toEqual({ kind: 'elsewhere' })
    expect(await put('q', 'b')).toEqual({ kind: 'elsewhere' })
    expect(await put('q', 'a', { force: true })).toMatchObject({ kind: 'changed' })
    expect(await put('q', 'c')).toEqual({ kind: 'elsewhere' })
    expect(await put('q', 'a')).toMatchObject({ kind: 'same' })
    pass(guardMs)
    expect(await put('q', 'c')).toMatchObject({ kind: 'changed' })
  })

  test('a name is of one kind, as long as it is there', async () => {
    const { put, table } = registry()
    await put('q', 'a')
    const before = await table(0)
    expect(await put('q', 'a', { kind: 'webhook', force: true })).toEqual({ kind: 'taken', by: 'queue' })
    expect(await table(0)).toEqual(before)
  })

  test('one that matches nothing is nowhere, and begins with what comes next when that changes', async () => {
    const { put, places, own, commit } = registry()
    expect(await put('q', null)).toMatchObject({ kind: 'created', seqs: [10, 20] })
    expect(await places()).toEqual({})
    await own(0)
    await commit({ partition: 0, epoch: 7, main: 50, places: [] })
    expect(await put('q', 'a', { start: [0, 0], lasts: [40, 40] })).toMatchObject({ kind: 'changed', seqs: [50, 40] })
    expect(await places()).toEqual({ '0 q': `50 ${first + 1}`, '1 q': `40 ${first + 1}` })
    expect(await put('q', null, { force: true })).toMatchObject({ kind: 'changed', seqs: [50, 40] })
    expect(await places()).toEqual({})
  })

  test('whoever waits for changes hears of it', async () => {
    const { put, keys } = registry()
    const listener = plainRedis()
    const heard = new Promise((resolve) => listener.on('message', (_, message) => resolve(message)))
    await listener.subscribe(keys.groupWake)
    await put('q', 'a')
    expect(await heard).toBe('*')
  })
})

describe('remove', () => {
  test('nothing is left but a mark; the name waits for the end of its store', async () => {
    const { put, remove, removed, places, pass, table } = registry()
    expect(await remove('q')).toEqual({ kind: 'unknown' })
    await put('q', 'a')
    const reply = await remove('q')
    const text = `${first + 1} 1000000 queue`
    expect(reply).toEqual({ kind: 'removed', removal: { revision: first + 1, kind: 'queue', text } })
    expect(await places()).toEqual({})
    expect([...(await table()).removing.keys()]).toEqual(['q'])
    pass(25)
    const removing = { kind: 'removing', removal: { revision: first + 1, kind: 'queue', text } }
    expect(await put('q', 'a')).toEqual(removing)
    expect(await remove('q')).toEqual(removing)
    expect(await removed('q', 'another')).toBe('kept')
    expect(await removed('q', text)).toBe('free')
    expect(await removed('q', text)).toBe('kept')
  })

  test('a name that comes back is born again, above everything before; also with its old definition', async () => {
    const { put, remove, removed } = registry()
    await put('q', 'a')
    await put('q', 'b')
    const reply = await remove('q')
    if (reply.kind === 'removed') await removed('q', reply.removal.text)
    expect(await put('q', 'a')).toMatchObject({ kind: 'created', revision: first + 3, born: first + 3 })
  })
})

describe('table', () => {
  test('what has changed since, what is gone, and where everyone is', async () => {
    const { put, remove, table, own, commit } = registry()
    expect(await table()).toEqual({
      ...{ whole: false, version: 0, definitions: new Map() },
      ...{ mains: new Map(), own: new Map(), removing: new Map() },
    })
    await put('q', 'a')
    await put('r', 'a')
    const { version } = await table()
    await remove('q')
    await own(1)
    await commit({ partition: 1, epoch: 7, main: 30, places: [] })
    const changed = await table(version)
    expect(changed).toMatchObject({ whole: false, version: first + 2, removing: new Map([['q', expect.anything()]]) })
    expect([...changed.definitions]).toEqual([['q', undefined]])
    expect(changed.mains).toEqual(new Map([[1, 30]]))
    expect(changed.own).toEqual(
      new Map([
        ['0 r', { seq: 10, revision: first + 1 }],
        ['1 r', { seq: 20, revision: first + 1 }],
      ]),
    )
    expect((await table(first + 2)).definitions.size).toBe(0)
  })

  test('all of it, for whoever knows more than there is', async () => {
    const { put, table } = registry()
    await put('q', 'a')
    const whole = await table(first + 50)
    expect([whole.whole, [...whole.definitions.keys()]]).toEqual([true, ['q']])
  })

  test('a thousand removals are remembered; who has missed a forgotten one loads all of it', async () => {
    const { redis, put, remove, removed, table, keys } = registry()
    await put('stays', 'a')
    const { version } = await table()
    for (let i = 0; i < 1_001; i += 1) {
      await put(`q${i}`, 'a')
      const reply = await remove(`q${i}`)
      if (reply.kind === 'removed') await removed(`q${i}`, reply.removal.text)
    }
    expect(await redis.zcard(keys.changes)).toBe(901)
    const whole = await table(version)
    expect([whole.whole, [...whole.definitions.keys()]]).toEqual([true, ['stays']])
    expect((await table(whole.version - 10)).whole).toBe(false)
  })
})

describe('commit', () => {
  const at = (act: Place['act'], seq: number, revision = first): Place => ({ name: 'q', revision, act, seq })

  test('moves main and places, never back', async () => {
    const { put, own, commit, places, redis, keys } = registry()
    await put('q', 'a')
    await own(0)
    const { version, words } = await commit({ partition: 0, epoch: 7, main: 30, places: [at('own', 25)] })
    expect([version, words]).toEqual([first, [['done', 'done']]])
    await commit({ partition: 0, epoch: 7, main: 29, places: [at('own', 24)] })
    expect(await redis.hget(keys.cursors, '0')).toBe('30')
    expect(await places()).toMatchObject({ '0 q': `25 ${first}` })
  })

  test('under another epoch nothing is written', async () => {
    const { put, own, commit, places, redis, keys } = registry()
    await put('q', 'a')
    await own(0)
    const said = { main: 30, places: [at('join', 30)] }
    const { words } = await commit({ ...said, partition: 0, epoch: 6 }, { ...said, partition: 1, epoch: 7 })
    expect(words).toEqual([['stale'], ['stale']])
    expect(await redis.exists(keys.cursors)).toBe(0)
    expect(await places()).toMatchObject({ '0 q': `10 ${first}` })
  })

  test('who is where main is joins; twice is once', async () => {
    const { put, own, commit, places } = registry()
    await put('q', 'a')
    await own(0)
    for (const _ of [1, 2])
      expect((await commit({ partition: 0, epoch: 7, main: 30, places: [at('join', 30)] })).words).toEqual([
        ['done', 'done'],
      ])
    expect(await places()).toEqual({ '1 q': `20 ${first}` })
  })

  test('not when main was further already', async () => {
    const { put, own, commit, places } = registry()
    await put('q', 'a')
    await own(0)
    await commit({ partition: 0, epoch: 7, main: 30, places: [] })
    const { words } = await commit({ partition: 0, epoch: 7, main: 29, places: [at('join', 29)] })
    expect(words).toEqual([['done', 'early']])
    expect(await places()).toMatchObject({ '0 q': `10 ${first}` })
  })

  test('who falls behind gets a place as main moves on', async () => {
    const { put, own, commit, places } = registry()
    await put('q', 'a')
    await own(0)
    await commit({ partition: 0, epoch: 7, main: 30, places: [at('join', 30)] })
    const { words } = await commit({ partition: 0, epoch: 7, main: 40, places: [at('own', 30)] })
    expect(words).toEqual([['done', 'done']])
    expect(await places()).toMatchObject({ '0 q': `30 ${first}` })
  })

  test('of another revision, or gone: its place stays, main moves', async () => {
    const { put, remove, own, commit, places, redis, keys } = registry()
    await put('q', 'a')
    await own(0)
    await put('q', 'b')
    for (const act of ['own', 'join'] as const)
      expect((await commit({ partition: 0, epoch: 7, main: 30, places: [at(act, 30)] })).words).toEqual([
        ['done', 'outdated'],
      ])
    expect(await places()).toMatchObject({ '0 q': `10 ${first + 1}` })
    await remove('q')
    const gone = await commit({ partition: 0, epoch: 7, main: 31, places: [at('own', 30, first + 1)] })
    expect([gone.version, gone.words]).toEqual([first + 2, [['done', 'gone']]])
    expect(await places()).toEqual({})
    expect(await redis.hget(keys.cursors, '0')).toBe('31')
  })
})
