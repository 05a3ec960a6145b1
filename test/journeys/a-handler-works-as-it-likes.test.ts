/** How handlers take their events: in batches, through middleware, several at once; and how they are stopped. */
import { setTimeout as sleep } from 'node:timers/promises'
import { describe, expect, test } from 'vitest'
import type { Bus } from '../../src/bus.ts'
import type { Middleware } from '../../src/sinks/stream/options.ts'
import { freshNamespace, testBus } from '../support/bus.ts'
import { eventually } from '../support/eventually.ts'

type Data = { n: number }
const numberOf = (event: { data: unknown }) => (event.data as Data).n
const all = (count: number) => Array.from({ length: count }, (_, i) => i)

const publishTo = (bus: Bus, key: string, count: number, from = 0) =>
  Promise.all(all(count).map((n) => bus.publish('job.run', { n: from + n }, { key })))

describe('[S11] take(n, within)', () => {
  test('at most n; after `within` whatever is there', async () => {
    const bus = testBus({ partitions: 1 })
    await publishTo(bus, 'k', 7)
    const batches: { numbers: number[]; afterMs: number }[] = []
    let began = performance.now()
    bus.processor('jobs', { match: 'job.>' }, async (events) => {
      for await (const batch of events.take(3, { within: '150ms' })) {
        batches.push({ numbers: batch.map(numberOf), afterMs: performance.now() - began })
        began = performance.now()
      }
    })
    await bus.run({ signals: false })
    await eventually(() => batches.length === 3)
    expect(batches.map(({ numbers }) => numbers)).toEqual([[0, 1, 2], [3, 4, 5], [6]])
    expect(batches[2]!.afterMs).toBeGreaterThan(140)
    // What comes within the time goes along.
    const [first] = await publishTo(bus, 'k', 1, 7)
    expect(first).toBeDefined()
    await publishTo(bus, 'k', 1, 8)
    await eventually(() => batches.length === 4)
    expect(batches[3]!.numbers).toEqual([7, 8])
  })

  test('is committed as a unit', async () => {
    const namespace = freshNamespace()
    const bus = testBus({ namespace, partitions: 1 })
    const published = await publishTo(bus, 'k', 6)
    const cursors: number[] = []
    let inSecond = false
    bus.processor('jobs', { match: 'job.>' }, async (events, { signal }) => {
      for await (const batch of events.take(3)) {
        cursors.push((await bus.streams.get('jobs')).partitions[0]!.cursor)
        if (numberOf(batch[0]!) !== 3) continue
        inSecond = true
        await new Promise((_, reject) => signal.addEventListener('abort', () => reject(new Error('aborted'))))
      }
    })
    await bus.run({ signals: false })
    await eventually(() => inSecond)
    await bus.close({ timeout: '200ms' })
    const again = testBus({ namespace })
    const seen: number[] = []
    again.processor('jobs', { match: 'job.>' }, async (events) => {
      for await (const event of events) seen.push(numberOf(event))
    })
    await again.run({ signals: false })
    await eventually(() => seen.length === 3)
    expect(seen).toEqual([3, 4, 5])
    expect(cursors[1]).toBeLessThan(published[3]!.seq)
  })

  test('bad numbers are refused', async () => {
    const bus = testBus({ partitions: 1 })
    await publishTo(bus, 'k', 1)
    const codes: string[] = []
    bus.processor('jobs', { match: 'job.>' }, async (events) => {
      for (const wrong of [
        () => events.take(0),
        () => events.take(1.5),
        () => events.take(3, { within: 'soon' as '1s' }),
      ])
        try {
          wrong()
        } catch (error) {
          codes.push((error as { code: string }).code)
        }
      for await (const _event of events);
    })
    await bus.run({ signals: false })
    await eventually(() => codes.length === 3)
    expect(new Set(codes)).toEqual(new Set(['SETTING_INVALID']))
  })
})

describe('[S14] middleware', () => {
  const noting = (name: string, notes: string[]): Middleware =>
    async function* (events) {
      for await (const given of events) {
        const what = Array.isArray(given) ? `[${given.map(numberOf)}]` : String(numberOf(given as { data: unknown }))
        notes.push(`${name} ${what}`)
        try {
          yield given
        } catch (error) {
          notes.push(`${name} failed ${(error as Error).message}`)
          throw error
        }
        notes.push(`${name} did ${what}`)
      }
    }

  test('runs in order, around single events', async () => {
    const bus = testBus({ partitions: 1 })
    await publishTo(bus, 'k', 2)
    const notes: string[] = []
    const use = [noting('outer', notes), noting('inner', notes)]
    bus.processor('jobs', { match: 'job.>', use }, async (events) => {
      for await (const event of events) notes.push(`handler ${numberOf(event)}`)
    })
    await bus.run({ signals: false })
    await eventually(() => notes.includes('outer did 1'))
    const once = (n: number) => [`outer ${n}`, `inner ${n}`, `handler ${n}`, `inner did ${n}`, `outer did ${n}`]
    expect(notes).toEqual([...once(0), ...once(1)])
  })

  test('around batches', async () => {
    const bus = testBus({ partitions: 1 })
    await publishTo(bus, 'k', 4)
    const notes: string[] = []
    bus.processor('jobs', { match: 'job.>', use: [noting('around', notes)] }, async (events) => {
      for await (const batch of events.take(2)) notes.push(`handler ${batch.length}`)
    })
    await bus.run({ signals: false })
    await eventually(() => notes.includes('around did [2,3]'))
    expect(notes).toEqual([
      'around [0,1]',
      'handler 2',
      'around did [0,1]',
      'around [2,3]',
      'handler 2',
      'around did [2,3]',
    ])
  })

  test.each([undefined, 2])('sees failures, with concurrency %s', async (concurrency) => {
    const bus = testBus({ partitions: 1 })
    await publishTo(bus, 'k', 1)
    const notes: string[] = []
    let failures = 1
    const options = { match: 'job.>', use: [noting('around', notes)], retry: { backoff: ['1ms', '1ms'] as const } }
    const handle = () => {
      if (failures-- > 0) throw new Error('no')
    }
    if (concurrency === undefined)
      bus.processor('jobs', options, async (events) => {
        for await (const _event of events) handle()
      })
    else bus.processor('jobs', { ...options, concurrency }, handle)
    await bus.run({ signals: false })
    await eventually(() => notes.includes('around did 0'))
    expect(notes).toEqual(['around 0', 'around failed no', 'around 0', 'around did 0'])
  })

  test('may leave events out or put them together: what it took is done with what it gave', async () => {
    const bus = testBus({ partitions: 1 })
    await publishTo(bus, 'k', 7)
    const seen: number[] = []
    const evenOnly: Middleware = async function* (events) {
      for await (const given of events) if (numberOf(given as { data: unknown }) % 2 === 0) yield given
    }
    bus.processor('jobs', { match: 'job.>', use: [evenOnly] }, async (events) => {
      for await (const event of events) seen.push(numberOf(event))
    })
    await bus.run({ signals: false })
    await eventually(async () => (await bus.streams.get('jobs')).lag === 0)
    expect(seen).toEqual([0, 2, 4, 6])
  })
})

describe('concurrency inside a partition', () => {
  test('keys go on beside each other, each in order; the cursor is the lowest unfinished one', async () => {
    const bus = testBus({ partitions: 1 })
    const published = await publishTo(bus, 'slow', 3)
    for (const key of ['a', 'b', 'c']) await publishTo(bus, key, 5)
    const done: string[] = []
    let running = 0
    let most = 0
    let release: () => void = () => undefined
    const gate = new Promise<void>((resolve) => {
      release = resolve
    })
    bus.processor('jobs', { match: 'job.>', concurrency: 3 }, async (event) => {
      running += 1
      most = Math.max(most, running)
      if (event.key === 'slow' && numberOf(event) === 1) await gate
      else await sleep(1)
      running -= 1
      done.push(`${event.key}${numberOf(event)}`)
    })
    await bus.run({ signals: false })
    await eventually(() => done.length === 16)
    expect(most).toBe(3)
    expect(done.filter((name) => name.startsWith('slow'))).toEqual(['slow0'])
    await eventually(async () => (await bus.streams.get('jobs')).partitions[0]!.cursor === published[0]!.seq)
    release()
    await eventually(async () => (await bus.streams.get('jobs')).lag === 0)
    for (const key of ['a', 'b', 'c', 'slow'])
      expect(done.filter((name) => name.startsWith(key)).map((name) => name.at(-1))).toEqual(
        all(key === 'slow' ? 3 : 5).map(String),
      )
  })
})

describe('[S15] one slow partition', () => {
  test('others are unaffected; memory is bounded by prefetch', async () => {
    const bus = testBus({ partitions: 2 })
    const byPartition = new Map<number, string>()
    for (let i = 0; byPartition.size < 2; i += 1) {
      const { id } = await bus.publish('job.other', {}, { key: `k${i}` })
      byPartition.set(Number(id.split('-')[0]), `k${i}`)
    }
    const [slow, fast] = [byPartition.get(0)!, byPartition.get(1)!]
    // Some 20 MB in the slow partition: only a few pages of it may be in memory.
    const big = 'x'.repeat(10_000)
    await Promise.all(all(2_000).map((n) => bus.publish('job.run', { n, big }, { key: slow, timeout: '30s' })))
    await publishTo(bus, fast, 500)
    globalThis.gc?.()
    const before = process.memoryUsage().heapUsed + process.memoryUsage().external
    const seen = { slow: 0, fast: 0 }
    let release: () => void = () => undefined
    const gate = new Promise<void>((resolve) => {
      release = resolve
    })
    bus.processor('jobs', { match: 'job.run', prefetch: 50 }, async (events, { partition }) => {
      for await (const _event of events) {
        if (partition === 0) {
          seen.slow += 1
          await gate
        } else seen.fast += 1
      }
    })
    await bus.run({ signals: false })
    await eventually(() => seen.fast === 500)
    expect(seen.slow).toBe(1)
    globalThis.gc?.()
    const grown = process.memoryUsage().heapUsed + process.memoryUsage().external - before
    expect(grown).toBeLessThan(12_000_000)
    release()
    await eventually(() => seen.slow === 2_000)
  })
})

describe('[S16] a partition released during work', () => {
  test("grace, then the handler's AbortSignal fires", async () => {
    const namespace = freshNamespace()
    const group = { heartbeat: '50ms', expiry: '2s', grace: '800ms', joinDelay: '20ms' } as const
    const make = () => testBus({ namespace, partitions: 2, group })
    const first = make()
    await first.publish('job.run', { n: 0 }, { key: 'a' })
    const began = new Map<number, number>()
    const aborted = new Map<number, number>()
    first.processor('jobs', { match: 'job.>' }, async (events, { partition, signal }) => {
      for await (const _event of events) {
        began.set(partition, performance.now())
        await new Promise<void>((_, reject) =>
          signal.addEventListener('abort', () => {
            aborted.set(partition, performance.now())
            reject(new Error('aborted'))
          }),
        )
      }
    })
    await first.run({ signals: false })
    for (let i = 0; began.size < 2; i += 1) {
      await first.publish('job.run', { n: i }, { key: `k${i}` })
      await sleep(5)
    }
    const second = make()
    const taken: number[] = []
    second.processor('jobs', { match: 'job.>' }, async (events, { partition }) => {
      for await (const _event of events) taken.push(partition)
    })
    const askedAt = performance.now()
    await second.run({ signals: false })
    await eventually(() => taken.length > 0)
    expect(aborted.size).toBe(1)
    const [[partition, at]] = [...aborted] as [[number, number]]
    expect(new Set(taken)).toEqual(new Set([partition]))
    // Not at once: it had most of the grace to come to an end by itself.
    expect(at - askedAt).toBeGreaterThan(400)
    expect(at - askedAt).toBeLessThan(1_500)
  })

  test('who ends in time commits what it did and is not aborted', async () => {
    const namespace = freshNamespace()
    const group = { heartbeat: '50ms', expiry: '2s', grace: '5s', joinDelay: '20ms' } as const
    const make = () => testBus({ namespace, partitions: 2, group })
    const first = make()
    const ids: string[] = []
    let aborts = 0
    const note = (bus: Bus) =>
      bus.processor('jobs', { match: 'job.>' }, async (events, { signal }) => {
        signal.addEventListener('abort', () => {
          aborts += 1
        })
        for await (const { id } of events) {
          await sleep(20)
          ids.push(id)
        }
      })
    note(first)
    await Promise.all(all(40).map((n) => first.publish('job.run', { n }, { key: `k${n}` })))
    await first.run({ signals: false })
    await eventually(() => ids.length > 4)
    const second = make()
    note(second)
    await second.run({ signals: false })
    await eventually(() => ids.length >= 40)
    expect(new Set(ids).size).toBe(40)
    expect(ids.length).toBe(40)
    expect(aborts).toBe(0)
  })
})
