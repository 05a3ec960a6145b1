/** Every reply of delay.lua, due.lua and cancel.lua, and what publish.lua does with a delayed event. */
import { describe, expect, onTestFinished, test } from 'vitest'
import { cancelScript, type DelayInput, delayScript, dueScript, publishScript } from '../../src/publish/scripts.ts'
import { runScript } from '../../src/redis/script.ts'
import { envelopeOf, nothingStored, type Partition, testPartition } from '../support/partition.ts'

const now = 1_767_225_600_000_001
const nowMs = 1_767_225_600_001

function delayed(partition: Partition) {
  const { redis, keys } = partition
  let calls = 0
  return {
    delay(wish: Partial<DelayInput> = {}) {
      calls += 1
      const once = { key: `${keys.oncePrefix}${calls}`, forMs: 1_000 }
      const due = { delayMs: 10 }
      const call = `call-${calls}`
      const envelope = envelopeOf('acme/k')
      const limits = { furthestMs: 1_000, most: 10 }
      const input = {
        keys,
        nowUs: now,
        partition: 3,
        due,
        once,
        call,
        body: 'b',
        channel: keys.wake,
        envelope,
        ...limits,
        ...wish,
      }
      return runScript(redis, delayScript, input)
    },
    due: (nowUs?: number, maxEvents = 10, maxBytes = 10_000) =>
      runScript(redis, dueScript, { keys, nowUs, maxEvents, maxBytes }),
    cancel: (number: string) => runScript(redis, cancelScript, { keys, number }),
    left: async () => [await redis.zcard(keys.delayed), await redis.hlen(keys.delayedEvents)],
  }
}

const numberOf = (reply: object) => (reply as { id: string }).id.split('-')[1]!

describe('delay.lua', () => {
  test('kept: due in whole ms, rounded up; numbers grow, also when the clock does not', async () => {
    const partition = testPartition()
    const { delay } = delayed(partition)
    expect(await delay()).toEqual({ kind: 'kept', id: `d3-${now}`, dueMs: nowMs + 10 })
    expect(await delay({ due: { atMs: nowMs + 5 } })).toEqual({ kind: 'kept', id: `d3-${now + 1}`, dueMs: nowMs + 5 })
    expect(await delay({ nowUs: now - 500, due: { atMs: 7 } })).toEqual({ kind: 'kept', id: `d3-${now + 2}`, dueMs: 7 })
    const { redis, keys } = partition
    expect(await redis.zrange(keys.delayed, '0', '-1')).toEqual([`${now + 2}`, `${now + 1}`, `${now}`])
    expect(await redis.hget(keys.delayedEvents, String(now))).toBe(envelopeOf('acme/k'))
    expect(await redis.pttl(`${keys.oncePrefix}1`)).toBeLessThanOrEqual(1_000)
    expect(await redis.exists(keys.log)).toBe(0)
  })

  test('the server’s clock, unless told otherwise', async () => {
    const partition = testPartition()
    const [seconds] = await partition.redis.time()
    const reply = await delayed(partition).delay({ nowUs: undefined })
    expect((reply as { dueMs: number }).dueMs).toBeGreaterThanOrEqual(Number(seconds) * 1000 + 10)
  })

  test('a hint with the partition, only when it is the earliest', async () => {
    const partition = testPartition()
    const { delay } = delayed(partition)
    const listener = partition.redis.duplicate()
    onTestFinished(() => listener.disconnect())
    const hints: string[] = []
    listener.on('message', (_, message) => hints.push(message))
    await listener.subscribe(partition.keys.wake)
    for (const delayMs of [20, 30, 20, 10]) await delay({ due: { delayMs } })
    await listener.ping()
    expect(hints).toEqual(['3', '3'])
  })

  test('the same call again: the first answer; another one under its key: duplicate; another body, or a plain publish before: reused', async () => {
    const partition = testPartition()
    const { delay, left } = delayed(partition)
    const once = { key: `${partition.keys.oncePrefix}x`, forMs: 1_000 }
    const first = await delay({ once })
    expect(await delay({ once, due: { delayMs: 99 } })).toEqual({ ...first, kind: 'duplicate' })
    expect(await delay({ once, due: { delayMs: 99 }, call: 'call-1' })).toEqual(first)
    expect(await delay({ once, body: 'other' })).toEqual({ kind: 'reused' })
    await partition.redis.set(`${partition.keys.oncePrefix}y`, '12 1  b')
    expect(await delay({ once: { key: `${partition.keys.oncePrefix}y`, forMs: 1 } })).toEqual({ kind: 'reused' })
    expect(await left()).toEqual([1, 1])
  })

  test('full and far: nothing written', async () => {
    const partition = testPartition()
    const { delay } = delayed(partition)
    expect(await delay({ due: { delayMs: 1_001 } })).toEqual({ kind: 'far', furthestMs: nowMs + 1_000 })
    expect(await delay({ due: { atMs: nowMs + 1_001 } })).toEqual({ kind: 'far', furthestMs: nowMs + 1_000 })
    expect(await partition.stored()).toEqual([])
    await delay()
    const before = await partition.stored()
    expect(await delay({ most: 1 })).toEqual({ kind: 'full', waiting: 1 })
    expect(await partition.stored()).toEqual(before)
  })
})

describe('due.lua', () => {
  test('what is due, in order; how long until there is more', async () => {
    const { delay, due, left } = delayed(testPartition())
    expect(await due(now)).toEqual({ moreInMs: undefined, events: [] })
    for (const delayMs of [30, 10, 20, 10]) await delay({ due: { delayMs }, envelope: `e${delayMs}` })
    expect(await due(nowMs * 1000 + 9_999)).toEqual({ moreInMs: 1, events: [] })
    const { events, moreInMs } = await due(nowMs * 1000 + 20_000)
    expect(events.map(({ number, envelope }) => [Number(number) - now, envelope])).toEqual([
      [1, 'e10'],
      [3, 'e10'],
      [2, 'e20'],
    ])
    expect(moreInMs).toBe(10)
    expect(await left()).toEqual([4, 4])
    expect((await due()).moreInMs).toBeUndefined()
  })

  test('no more events or bytes than asked for: there are more at once', async () => {
    const { delay, due } = delayed(testPartition())
    for (let i = 0; i < 3; i += 1) await delay({ envelope: 'x'.repeat(100) })
    expect(await due(undefined, 2)).toMatchObject({ moreInMs: 0, events: [{}, {}] })
    expect(await due(undefined, 10, 100)).toMatchObject({ moreInMs: 0, events: [{}] })
    expect((await due(undefined, 3)).moreInMs).toBeUndefined()
  })
})

test('cancel.lua: cancelled, then gone', async () => {
  const { delay, cancel, left } = delayed(testPartition())
  const number = numberOf(await delay())
  await delay()
  expect(await cancel(number)).toBe('cancelled')
  expect(await cancel(number)).toBe('gone')
  expect(await left()).toEqual([1, 1])
})

describe('publish.lua', () => {
  test('appends and removes it together; one that is gone is stored by nobody, and the rest of the flush is', async () => {
    const partition = testPartition()
    const { delay, left } = delayed(partition)
    const [one, two] = [numberOf(await delay()), numberOf(await delay())]
    const appending = (number: string, at = 1) => [at, 1, { delayed: number }] as const
    const first = await partition.flush(['acme/k'], { calls: [appending(one)] })
    expect(first).toMatchObject({ kind: 'stored', prevs: [''], exceptions: [] })
    expect(await left()).toEqual([1, 1])
    expect(await partition.flush(['acme/k'], { calls: [appending(one)] })).toEqual(nothingStored([1, 'gone']))
    // Twice in one flush, between plain events.
    const calls = [appending(two, 2), appending(two, 3)]
    expect(await partition.flush(['acme/k', 'acme/k', 'acme/k', 'acme/k'], { calls })).toMatchObject({
      exceptions: [[3, 'gone']],
      prevs: { length: 3 },
    })
    expect(await partition.count()).toBe(4)
    expect(await left()).toEqual([0, 0])
  })

  test('a flush that stores nothing removes nothing', async () => {
    const partition = testPartition()
    const { delay, left } = delayed(partition)
    const number = numberOf(await delay())
    const calls = [[1, 1, { delayed: number, expectPrev: '5' }]] as const
    expect(await partition.flush(['acme/k'], { calls })).toEqual(nothingStored([1, 'conflict', '']))
    const malformed = [
      [1, 1, { delayed: number }],
      [2, 1, { delayed: 7 }],
    ] as const
    expect(await partition.flush(['acme/k', 'acme/k'], { calls: malformed })).toEqual({ kind: 'malformed' })
    expect(await left()).toEqual([1, 1])
  })

  test('malformed without the keys of delayed events', async () => {
    const { redis, keys } = testPartition()
    const five = [keys.log, keys.meta, keys.heads, keys.headsOld, keys.states]
    const args = [
      '',
      0,
      0,
      '',
      keys.oncePrefix,
      keys.wake,
      '',
      '',
      '[[1,1,{"delayed":"1"}]]',
      `\x1e${envelopeOf('acme/k')}`,
      'acme/k',
    ]
    expect(await redis.eval(publishScript.source, 5, ...five, ...args)).toEqual(['malformed'])
  })
})
