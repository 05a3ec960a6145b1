/** Every reply of the scripts that open, read, hold and lift a log. Seqs are small because the tests set the clock. */
import { describe, expect, onTestFinished, test } from 'vitest'
import { closeScript } from '../../src/log/closing.ts'
import { holdScript } from '../../src/log/holds.ts'
import { openScript, type Retention } from '../../src/log/namespace.ts'
import { historyScript } from '../../src/log/read.ts'
import { liftScript } from '../../src/log/rollback.ts'
import { namespaceKey } from '../../src/redis/keys.ts'
import { runScript } from '../../src/redis/script.ts'
import { freshNamespace, plainRedis } from '../support/bus.ts'
import { envelopeOf, type Partition, testPartition } from '../support/partition.ts'

describe('namespace.lua', () => {
  const retention: Retention = { ageMs: 1, events: 2, bytes: 3 }

  function testNamespace() {
    const redis = plainRedis()
    const name = freshNamespace()
    onTestFinished(async () => void (await redis.unlink(namespaceKey(name))))
    return {
      open: (partitions?: number, kept?: Retention) =>
        runScript(redis, openScript, { name, partitions, retention: kept }),
      record: () => redis.hgetall(namespaceKey(name)),
    }
  }

  test('[P14] opened: made on first use, then answered as it is stored', async () => {
    const { open, record } = testNamespace()
    const [kind, tags] = await open(2)
    expect(kind).toBe('opened')
    expect(tags.split(',')).toHaveLength(2)
    expect(await record()).toEqual({ partitions: '2', tags })
    expect(await open(2)).toEqual(['opened', tags])
    expect(await open()).toEqual(['opened', tags])
    expect(await record()).toEqual({ partitions: '2', tags })
  })

  test('opened without a count: 16 partitions', async () => {
    const { open, record } = testNamespace()
    expect((await open())[1].split(',')).toHaveLength(16)
    expect(await record()).toMatchObject({ partitions: '16' })
  })

  test('[P14] mismatch: says what is stored and writes nothing, not even retention', async () => {
    const { open, record } = testNamespace()
    await open(2)
    const before = await record()
    expect(await open(3, retention)).toEqual(['mismatch', '2'])
    expect(await record()).toEqual(before)
  })

  test('[P15] retention: stored when given, left alone otherwise', async () => {
    const { open, record } = testNamespace()
    await open(2, retention)
    expect(JSON.parse((await record()).retention!)).toEqual(retention)
    await open(2)
    expect(JSON.parse((await record()).retention!)).toEqual(retention)
    await open(2, { ...retention, bytes: null })
    expect(JSON.parse((await record()).retention!)).toEqual({ ...retention, bytes: null })
  })
})

describe('history.lua, one event by its seq', () => {
  const find = async ({ redis, keys }: Partition, seq: number) => {
    const [its, ...found] = await runScript(redis, historyScript, { keys, object: '', from: seq, limit: 1 })
    expect(its).toBe(found.length > 0 ? String(seq) : undefined)
    return found.length > 0 ? found : undefined
  }

  test('[P01] found: the first, a middle and the last event of an entry, with its prev', async () => {
    const p = testPartition()
    await p.flush(['acme/a'], { nowUs: 50 })
    const envelopes = ['x', 'y', 'z'].map((data) => envelopeOf('acme/a', 'order.paid', data))
    await p.flush(
      envelopes.map((envelope) => ['acme/a', envelope] as const),
      { nowUs: 100 },
    )
    await p.flush(['acme/a'], { nowUs: 200 })
    expect(await find(p, 50)).toEqual(['', envelopeOf('acme/a')])
    expect(await find(p, 100)).toEqual(['50', envelopes[0]])
    expect(await find(p, 101)).toEqual(['100', envelopes[1]])
    expect(await find(p, 102)).toEqual(['101', envelopes[2]])
    expect(await find(p, 200)).toEqual(['102', envelopeOf('acme/a')])
  })

  test('missing: before the first, between two entries, after the last, in an empty log', async () => {
    const p = testPartition()
    expect(await find(p, 1)).toBeUndefined()
    await p.flush(['acme/a', 'acme/a'], { nowUs: 100 })
    await p.flush(['acme/a', 'acme/a'], { nowUs: 200 })
    for (const seq of [1, 99, 102, 199, 202, Number.MAX_SAFE_INTEGER]) expect(await find(p, seq)).toBeUndefined()
  })
})

describe('history.lua', () => {
  const walk = ({ redis, keys }: Partition, object: string, from?: number, limit = 10) =>
    runScript(redis, historyScript, { keys, object, from, limit })
  const step = (seq: number, prev: string) => [String(seq), prev, envelopeOf('acme/a')]

  async function threeEvents() {
    const p = testPartition()
    await p.flush(['acme/a', 'acme/b'], { nowUs: 100 })
    await p.flush(['acme/b', 'acme/a', 'acme/b'], { nowUs: 200 })
    await p.flush(['acme/a'], { nowUs: 300 })
    return p
  }

  test("walks from the object's head to its first event", async () => {
    const p = await threeEvents()
    expect(await walk(p, 'acme/a')).toEqual([...step(300, '201'), ...step(201, '100'), ...step(100, '')])
  })

  test('walks from a given seq, and no further than asked', async () => {
    const p = await threeEvents()
    expect(await walk(p, 'acme/a', 201)).toEqual([...step(201, '100'), ...step(100, '')])
    expect(await walk(p, 'acme/a', undefined, 2)).toEqual([...step(300, '201'), ...step(201, '100')])
    expect(await walk(p, 'acme/a', 201, 1)).toEqual(step(201, '100'))
  })

  test('is empty for an object without events and for a seq that is not there', async () => {
    const p = await threeEvents()
    expect(await walk(p, 'acme/none')).toEqual([])
    expect(await walk(p, 'acme/a', 150)).toEqual([])
  })

  test('ends where retention has cut, and finds a head of the generation before', async () => {
    const p = await threeEvents()
    await p.trim({ ageSeq: 101 })
    expect(await p.redis.exists(p.keys.heads)).toBe(0)
    expect(await walk(p, 'acme/a')).toEqual([...step(300, '201'), ...step(201, '100')])
  })
})

describe('hold.lua', () => {
  test('[P15] held: placed and moved forward; kept: never moved back', async () => {
    const { redis, keys } = testPartition()
    const hold = (name: string, seq: number, epoch = 0) => runScript(redis, holdScript, { keys, name, seq, epoch })
    const top = Number.MAX_SAFE_INTEGER
    expect(await hold('search', 0)).toBe('held')
    expect(await hold('search', 100)).toBe('held')
    expect(await hold('search', 100)).toBe('kept')
    expect(await hold('search', 99)).toBe('kept')
    expect(await hold('mail: {*}\n', top - 1)).toBe('held')
    expect(await hold('mail: {*}\n', top)).toBe('held')
    expect(await redis.hgetall(keys.holds)).toEqual({ search: '100', 'mail: {*}\n': String(top) })
  })

  test('a later owner may begin further back; an earlier one then moves nothing', async () => {
    const { redis, keys } = testPartition()
    const hold = (seq: number, epoch: number) => runScript(redis, holdScript, { keys, name: 'search', seq, epoch })
    expect(await hold(100, 7)).toBe('held')
    expect(await hold(50, 7)).toBe('kept')
    expect(await hold(50, 8)).toBe('held')
    expect(await hold(200, 7)).toBe('kept')
    expect(await redis.hget(keys.holds, 'search')).toBe('50 8')
  })
})

describe('lift.lua', () => {
  test('lifted: last is where a reader has been, and the next event comes after it; fine: left alone', async () => {
    const p = testPartition()
    const lift = (seen: number) => runScript(p.redis, liftScript, { keys: p.keys, seen })
    expect(await lift(0)).toBeUndefined()
    expect(await p.stored()).toEqual([])
    expect(await lift(40)).toBe(0)
    await p.flush(['acme/a'], { nowUs: 100 })
    expect(await lift(100)).toBeUndefined()
    expect(await lift(99)).toBeUndefined()
    expect(await lift(500)).toBe(100)
    expect(await p.meta()).toMatchObject({ last: '500', events: '1' })
    expect(await p.flush(['acme/a'], { nowUs: 200 })).toMatchObject({ last: 501, prevs: ['100'] })
  })
})

test('close.lua, closed: until the time that it was told', async () => {
  const { redis, keys } = await testPartition()
  expect(await runScript(redis, closeScript, { keys, untilMs: 5_000 })).toBe('closed')
  expect(await redis.hget(keys.meta, 'closedUntil')).toBe('5000')
})
