/** Calls that publish/publish.lua does not store, and flushes that come again: every such reply. */
import { describe, expect, test } from 'vitest'
import { timeToLiveMs } from '../../src/redis/keys.ts'
import { nothingStored, objects, type Stored, stored, testPartition } from '../support/partition.ts'

describe('exceptions', () => {
  test('[P06] conflict: the head that is there is answered, nothing of the call is stored', async () => {
    const p = testPartition()
    expect(await p.flush(['acme/a'], { nowUs: 100, calls: [[1, 1, { expectPrev: '7' }]] })).toEqual(
      nothingStored([1, 'conflict', '']),
    )
    expect(await p.stored()).toEqual([])
    expect(await p.flush(['acme/a'], { nowUs: 100, calls: [[1, 1, { expectPrev: '' }]] })).toEqual(stored(100, ['']))
    const conflict = nothingStored([1, 'conflict', '100'])
    expect(await p.flush(['acme/a'], { calls: [[1, 1, { expectPrev: '', state: '1' }]] })).toEqual(conflict)
    expect(await p.flush(['acme/a', 'acme/a'], { calls: [[1, 2, { expectPrev: '99' }]] })).toEqual(conflict)
    expect(await p.count()).toBe(1)
    expect(await p.redis.exists(p.keys.states)).toBe(0)
    const fits = await p.flush(['acme/a', 'acme/a'], { nowUs: 200, calls: [[1, 2, { expectPrev: '100' }]] })
    expect(fits).toEqual(stored(201, ['100', '200']))
  })

  test('[P06] expectPrev is held against the head as earlier calls of the same flush left it', async () => {
    const p = testPartition()
    await p.flush(['acme/a'], { nowUs: 100 })
    const reply = await p.flush(['acme/a', 'acme/a', 'acme/a', 'acme/a'], {
      nowUs: 200,
      calls: [
        [2, 1, { expectPrev: '100' }],
        [3, 1, { expectPrev: '200' }],
        [4, 1, { expectPrev: '200' }],
      ],
    })
    expect(reply).toEqual(
      stored(
        201,
        ['100', '200'],
        [
          [2, 'conflict', '200'],
          [4, 'conflict', '201'],
        ],
      ),
    )
  })

  test('[P23] what is not stored leaves no hole, and everything around it is stored', async () => {
    const p = testPartition()
    const once = { once: 'k', scope: 'acme/b', body: 'x' }
    await p.flush(['acme/b'], { nowUs: 10, calls: [[1, 1, once]] })
    const reply = await p.flush(['acme/a', 'acme/b', 'acme/b', 'acme/a', 'acme/a', 'acme/c'], {
      nowUs: 100,
      calls: [
        [2, 1, once],
        [3, 1, { ...once, body: 'y' }],
        [4, 2, { expectPrev: '1' }],
      ],
    })
    const exceptions = [
      [2, 'duplicate', '10', '1', ''],
      [3, 'reused'],
      [4, 'conflict', '100'],
    ]
    expect(reply).toEqual(stored(101, ['', ''], exceptions))
    expect((await p.entries()).map(([id, [, records]]) => [id, records!.split('\x1e').length - 1])).toEqual([
      ['10-0', 1],
      ['101-0', 2],
    ])
    expect(await p.topics()).toEqual({ order: '3' })
    expect(await p.meta()).toMatchObject({ events: '3', last: '101' })
  })

  test('[P07] same idempotency key and body: the first answer, also for several events; another body: reused', async () => {
    const p = testPartition()
    await p.flush(['acme/a'], { nowUs: 50 })
    const once = { once: 'pay', scope: 'acme/a', body: 'b1' }
    const twice = { calls: [[1, 2, once]] as const }
    expect(await p.flush(['acme/a', 'acme/a'], { nowUs: 100, ...twice })).toEqual(stored(101, ['50', '100']))
    await p.flush(['acme/a'], { nowUs: 200 })
    const duplicate = nothingStored([1, 'duplicate', '101', '2', '50'])
    expect(await p.flush(['acme/a', 'acme/a'], { nowUs: 300, ...twice })).toEqual(duplicate)
    // Whoever repeats a publish repeats its expectPrev, which no longer holds: the first answer counts.
    const repeat = { calls: [[1, 2, { ...once, expectPrev: '50' }]] as const }
    expect(await p.flush(['acme/a', 'acme/a'], repeat)).toEqual(duplicate)
    const reused = await p.flush(['acme/a'], { calls: [[1, 1, { ...once, body: 'b2' }]] })
    expect(reused).toEqual(nothingStored([1, 'reused']))
    expect(await p.count()).toBe(4)
  })

  test('[P07] the key is remembered for 24 hours under a hash, per scope; afterwards it is a new event', async () => {
    const p = testPartition()
    const call = (scope: string, once = 'pay: {*}\n') => ({ calls: [[1, 1, { once, scope, body: 'b' }]] as const })
    await p.flush(['acme/a'], { nowUs: 100, ...call('acme/a') })
    expect(await p.flush(['acme/b'], { nowUs: 200, ...call('acme/b') })).toEqual(stored(200, ['']))
    // Scope and key are told apart: 'acme/a' + 'x' is not 'acme/' + 'ax'.
    await p.flush(['acme/a'], { nowUs: 300, ...call('acme/a', 'x') })
    expect(await p.flush([''], { nowUs: 400, ...call('acme/', 'ax') })).toEqual(stored(400, ['']))
    const keys = (await p.stored()).filter((key) => key.startsWith(p.keys.oncePrefix))
    expect(keys).toHaveLength(4)
    for (const key of keys) {
      expect(key.slice(p.keys.oncePrefix.length)).toMatch(/^[0-9a-f]{40}$/)
      const ttlMs = await p.redis.pttl(key)
      expect(ttlMs).toBeGreaterThan(timeToLiveMs.once! - 60_000)
      expect(ttlMs).toBeLessThanOrEqual(timeToLiveMs.once!)
    }
    for (const key of keys) await p.redis.pexpire(key, 0)
    expect(await p.flush(['acme/a'], { nowUs: 500, ...call('acme/a') })).toEqual(stored(500, ['300']))
  })

  test('[P07] two calls with the same key in one flush: the second is the duplicate of the first, or reused', async () => {
    const p = testPartition()
    const once = { once: 'pay', scope: 'acme/a', body: 'b' }
    const reply = await p.flush(['acme/a', 'acme/a', 'acme/a'], {
      nowUs: 100,
      calls: [
        [1, 1, once],
        [2, 1, once],
        [3, 1, { ...once, body: 'c' }],
      ],
    })
    expect(reply).toEqual(
      stored(
        100,
        [''],
        [
          [2, 'duplicate', '100', '1', ''],
          [3, 'reused'],
        ],
      ),
    )
    expect(await p.count()).toBe(1)
  })

  test('[P07] a call that met a conflict leaves its key free', async () => {
    const p = testPartition()
    const once = { once: 'pay', scope: 'acme/a', body: 'b' }
    await p.flush(['acme/a'], { calls: [[1, 1, { ...once, expectPrev: '9' }]] })
    expect(await p.flush(['acme/a'], { nowUs: 100, calls: [[1, 1, once]] })).toEqual(stored(100, ['']))
  })
})

describe('repeated flushes', () => {
  const once = { once: 'k', scope: 'acme/a', body: 'b' }
  const mixed = {
    process: 'me',
    n: 3,
    nowUs: 100,
    calls: [
      [2, 1, { expectPrev: '5' }],
      [3, 1, once],
      [4, 1, once],
      [5, 1, { ...once, body: 'other' }],
    ] as const,
  }
  const events = ['acme/a', 'acme/a', 'acme/a', 'acme/a', 'acme/a', '']
  const answer = stored(
    102,
    ['50', '100', ''],
    [
      [2, 'conflict', '100'],
      [4, 'duplicate', '101', '1', '100'],
      [5, 'reused'],
    ],
  )

  test('[P29] the same n answers the same, prevs and exceptions included, and writes nothing', async () => {
    const p = testPartition()
    await p.flush(['acme/a'], { nowUs: 50 })
    expect(await p.flush(events, mixed)).toEqual(answer)
    const before = [await p.entries(), await p.meta(), await p.topics()]
    expect(await p.flush(events, mixed)).toEqual(answer)
    await p.flush(['acme/a'], { nowUs: 500 })
    expect(await p.flush(events, { ...mixed, nowUs: 600 })).toEqual(answer)
    expect(before[0]).toEqual((await p.entries()).slice(0, 2))
    expect(await p.meta()).toMatchObject({ last: '500', events: '5' })
    expect(await p.topics()).toEqual({ order: '5' })
  })

  test('[P29] also a flush of 1,000 events, and one that stored nothing', async () => {
    const p = testPartition()
    const many = { process: 'me', n: 1, nowUs: 10_000 }
    await p.flush(objects(500), { nowUs: 1 })
    const first = await p.flush(objects(1_000), many)
    expect(await p.flush(objects(1_000), many)).toEqual(first)
    const none = { process: 'me', n: 2, calls: [[1, 1, { expectPrev: '9' }]] as const }
    const conflict = nothingStored([1, 'conflict', '10000'])
    expect(await p.flush(['acme/o:0'], none)).toEqual(conflict)
    await p.flush(['acme/o:0'], { nowUs: 20_000 })
    expect(await p.flush(['acme/o:0'], none)).toEqual(conflict)
    expect(await p.count()).toBe(1_501)
  })

  test('[P29] after retention took the entries prevs are null, each still at its own event', async () => {
    const p = testPartition()
    const commit = { process: 'me', n: 1, nowUs: 10_000, calls: [[1, 600, {}]] as const }
    const events = Array<string>(600).fill('acme/a')
    const first = (await p.flush(events, commit)) as Stored
    await p.trim({ ageSeq: 10_255 })
    expect(await p.count()).toBe(344)
    const again = (await p.flush(events, commit)) as Stored
    expect(again.last).toBe(10_599)
    expect(again.prevs).toEqual([...Array<string>(256).fill(''), ...first.prevs.slice(256)])
    await p.trim({ ageSeq: 20_000 })
    expect(await p.flush(events, commit)).toEqual(stored(10_599, Array<string>(600).fill('')))
    expect(await p.count()).toBe(0)
  })

  test('[P29] a smaller n is late and writes nothing; a larger one goes on', async () => {
    const p = testPartition()
    await p.flush(['acme/a'], { process: 'me', n: 9, nowUs: 100 })
    expect(await p.flush(['acme/a'], { process: 'me', n: 8 })).toEqual({ kind: 'late' })
    expect(await p.count()).toBe(1)
    expect(await p.flush(['acme/a'], { process: 'me', n: 10, nowUs: 200 })).toEqual(stored(200, ['100']))
    expect(await p.flush(['acme/a'], { process: 'me', n: 9 })).toEqual({ kind: 'late' })
  })

  test('[P29] each process has its own numbers, none without a name', async () => {
    const p = testPartition()
    await p.flush(['acme/a'], { process: 'me', n: 5, nowUs: 100 })
    await p.flush(['acme/a'], { process: 'you: {*}', n: 1, nowUs: 200 })
    await p.flush(['acme/a'], { process: '', n: 1, nowUs: 250 })
    await p.flush(['acme/a'], { process: '', n: 1, nowUs: 250 })
    expect(await p.count()).toBe(4)
    expect(await p.calls()).toEqual({ me: '5 100 1 []', 'you: {*}': '1 200 1 []' })
    await p.flush(['acme/a'], { process: 'me', n: 6, nowUs: 300, floor: 1e15 })
    expect(await p.calls()).toMatchObject({ me: `6 ${1e15 + 1} 1 []` })
  })

  test('[P29] what a process said last is kept for an hour, then forgotten once there are many', async () => {
    const p = testPartition()
    const hourUs = 3_600_000_000
    const said = async (from: number, to: number) => {
      for (let i = from; i < to; i += 1) await p.redis.hset(p.keys.meta, `call:p${i}`, `7 ${1_000 + i} 1 []`)
    }
    const remembered = async () => Object.keys(await p.calls()).length
    await said(0, 100)
    await p.flush(['acme/a'], { process: 'first', n: 1, nowUs: 1_050 + hourUs })
    expect(await remembered()).toBe(101)
    await said(100, 140)
    await p.flush(['acme/a'], { process: 'known', n: 2 })
    expect(await remembered()).toBe(142)
    await p.flush(['acme/a'], { process: 'new', n: 1, nowUs: 1_050 + hourUs })
    const kept = Array.from({ length: 90 }, (_, i) => `p${50 + i}`)
    expect(Object.keys(await p.calls()).sort()).toEqual(['first', 'known', 'new', ...kept].sort())
    expect(await p.topics()).toEqual({ order: '3' })
    expect(await p.flush(['acme/a'], { process: 'p50', n: 6 })).toEqual({ kind: 'late' })
  })
})
