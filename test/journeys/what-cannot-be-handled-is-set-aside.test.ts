/** An event that fails its last attempt: the partition stops, or the event or its object is set aside; nobody else suffers. */
import { describe, expect, test } from 'vitest'
import type { Bus } from '../../src/bus.ts'
import type { IteratingHandler } from '../../src/sinks/stream/iterate.ts'
import type { OnPoison, ProcessorOptions } from '../../src/sinks/stream/options.ts'
import { freshNamespace, testBus } from '../support/bus.ts'
import { eventually } from '../support/eventually.ts'

type Data = { n: number }
interface Seen {
  key: string
  n: number
  attempt: number
}

const quickRetry = { attempts: 3, backoff: ['5ms', '20ms'] } as const
const numbers = (seen: readonly Seen[], key: string) => seen.filter((one) => one.key === key).map(({ n }) => n)

/** Publishes n = 0 … count-1 for each key, in turns. */
async function publishTo(bus: Bus, keys: readonly string[], count: number, from = 0) {
  for (let n = from; n < from + count; n += 1)
    await Promise.all(keys.map((key) => bus.publish('job.run', { n }, { key })))
}

/** A processor whose handler throws for whatever `fails` says; `seen` are all calls, `done` those that ended well. */
function worker(bus: Bus, options: Partial<ProcessorOptions>, fails: (key: string, n: number) => boolean) {
  const seen: Seen[] = []
  const done: Seen[] = []
  const handle = (key: string, n: number, attempt: number) => {
    seen.push({ key, n, attempt })
    if (fails(key, n)) throw new Error(`cannot do ${key} ${n}`)
    done.push({ key, n, attempt })
  }
  const { concurrency, ...rest } = { match: 'job.>', retry: quickRetry, ...options }
  if (concurrency === undefined)
    bus.processor('jobs', rest, async (events, ctx) => {
      for await (const { key, data } of events) handle(key!, (data as Data).n, ctx.attempt)
    })
  else
    bus.processor('jobs', { ...rest, concurrency }, ({ key, data }, ctx) => {
      handle(key!, (data as Data).n, ctx.attempt)
    })
  return { seen, done }
}

// Both forms of handlers share the policies.
describe.each([undefined, 8])('[S12] with concurrency %s', (concurrency) => {
  const setUp = (onPoison: OnPoison, broken = { is: true }) => {
    const bus = testBus({ partitions: 1 })
    const { seen, done } = worker(bus, { onPoison, concurrency }, (key, n) => broken.is && key === 'bad' && n === 1)
    return { bus, seen, done, broken }
  }
  const keys = ['a', 'bad', 'b']

  test('retries with backoff, then skip: it is buried, everything else goes on in order', async () => {
    const { bus, seen, done } = setUp('skip')
    await publishTo(bus, keys, 5)
    await bus.run({ signals: false })
    await eventually(() => done.length === 14)
    expect(seen.filter(({ key, n }) => key === 'bad' && n === 1).map(({ attempt }) => attempt)).toEqual([1, 2, 3])
    expect(numbers(done, 'a')).toEqual([0, 1, 2, 3, 4])
    expect(numbers(done, 'b')).toEqual([0, 1, 2, 3, 4])
    expect(numbers(done, 'bad')).toEqual([0, 2, 3, 4])
    const [letter, ...more] = await bus.streams.dead.list('jobs')
    expect(more).toEqual([])
    expect(letter).toMatchObject({ object: 'default/bad', attempts: 3, error: 'Error: cannot do bad 1' })
    expect(letter!.event.data).toEqual({ n: 1 })
    await eventually(async () => (await bus.streams.get('jobs')).lag === 0)
  })

  test('park: the object is set aside with its later events, in order; the partition goes on', async () => {
    const { bus, seen, done, broken } = setUp('park')
    await publishTo(bus, keys, 5)
    await bus.run({ signals: false })
    await eventually(() => done.length === 11)
    await publishTo(bus, keys, 2, 5)
    await eventually(() => done.length === 15)
    expect(numbers(done, 'a')).toEqual([0, 1, 2, 3, 4, 5, 6])
    expect(numbers(done, 'bad')).toEqual([0])
    const parked = await eventually(async () => {
      const [one] = await bus.streams.parked.list('jobs')
      return one?.events === 6 && one
    })
    expect(parked).toMatchObject({ object: 'default/bad', state: 'parked', reason: { attempts: 3 } })
    await eventually(async () => (await bus.streams.get('jobs')).lag === 0)
    broken.is = false
    expect(await bus.streams.parked.resume('jobs', 'default/bad')).toBe(true)
    await publishTo(bus, ['bad'], 3, 7)
    await eventually(() => numbers(done, 'bad').length === 10)
    expect(numbers(done, 'bad')).toEqual([0, 1, 2, 3, 4, 5, 6, 7, 8, 9])
    await eventually(async () => (await bus.streams.parked.list('jobs')).length === 0)
    expect(seen.filter(({ key }) => key === 'bad').length).toBe(13)
  })

  test('park, resumed too early: parked again, nothing lost, then in order', async () => {
    const { bus, done, broken } = setUp('park')
    await publishTo(bus, keys, 4)
    await bus.run({ signals: false })
    await eventually(async () => (await bus.streams.parked.list('jobs'))[0]?.events === 3)
    const since = (await bus.streams.parked.list('jobs'))[0]!.reason.at!
    await bus.streams.parked.resume('jobs', 'default/bad')
    await eventually(async () => {
      const [one] = await bus.streams.parked.list('jobs')
      return one?.state === 'parked' && one.reason.at! > since
    })
    broken.is = false
    await bus.streams.resume('jobs')
    await eventually(() => numbers(done, 'bad').length === 4)
    expect(numbers(done, 'bad')).toEqual([0, 1, 2, 3])
  })

  test('a parked object can be discarded; what comes later is handled', async () => {
    const { bus, done } = setUp('park')
    await publishTo(bus, keys, 4)
    await bus.run({ signals: false })
    await eventually(async () => (await bus.streams.parked.list('jobs'))[0]?.events === 3)
    expect(await bus.streams.parked.discard('jobs', 'default/bad')).toBe(3)
    await eventually(async () => (await bus.streams.parked.list('jobs')).length === 0)
    await publishTo(bus, ['bad'], 1, 9)
    await eventually(() => numbers(done, 'bad').includes(9))
    expect(numbers(done, 'bad')).toEqual([0, 9])
  })

  test('a parked object stays parked for the next owner, and is worked off there', async () => {
    const namespace = freshNamespace()
    const first = testBus({ namespace, partitions: 1 })
    const before = worker(first, { onPoison: 'park', concurrency }, (key, n) => key === 'bad' && n === 1)
    await publishTo(first, keys, 3)
    await first.run({ signals: false })
    await eventually(async () => (await first.streams.parked.list('jobs'))[0]?.events === 2)
    await first.close()
    const second = testBus({ namespace })
    const after = worker(second, { onPoison: 'park', concurrency }, () => false)
    await publishTo(second, keys, 1, 3)
    await second.run({ signals: false })
    await eventually(async () => (await second.streams.parked.list('jobs'))[0]?.events === 3)
    expect(numbers(after.done, 'bad')).toEqual([])
    await second.streams.resume('jobs')
    await eventually(() => numbers(after.done, 'bad').length === 3)
    expect([...numbers(before.done, 'bad'), ...numbers(after.done, 'bad')]).toEqual([0, 1, 2, 3])
  })
})

describe('[S12] batches', () => {
  test('a batch that failed its last attempt is tried event by event: only what fails alone is buried', async () => {
    const bus = testBus({ partitions: 1 })
    await publishTo(bus, ['a', 'bad', 'b'], 5)
    const done: string[] = []
    const sizes: number[] = []
    bus.processor('jobs', { match: 'job.>', retry: quickRetry, onPoison: 'skip' }, async (events) => {
      for await (const batch of events.take(6)) {
        sizes.push(batch.length)
        const names = batch.map(({ key, data }) => `${key}${(data as Data).n}`)
        if (names.includes('bad1')) throw new Error('one of them')
        done.push(...names)
      }
    })
    await bus.run({ signals: false })
    await eventually(() => done.length === 14)
    expect(done).not.toContain('bad1')
    expect(done.filter((name) => name.startsWith('a'))).toEqual(['a0', 'a1', 'a2', 'a3', 'a4'])
    expect(done.filter((name) => name.startsWith('bad'))).toEqual(['bad0', 'bad2', 'bad3', 'bad4'])
    expect(sizes.slice(0, 3)).toEqual([6, 6, 6])
    expect((await bus.streams.dead.list('jobs')).map(({ event }) => event.data)).toEqual([{ n: 1 }])
  })
})

describe('[S24] block', () => {
  test('that partition stops on every worker, survives restarts, is shown with the error, goes on after resume', async () => {
    const namespace = freshNamespace()
    const group = { heartbeat: '50ms', expiry: '300ms', grace: '500ms', joinDelay: '20ms' } as const
    const make = () => testBus({ namespace, partitions: 4, group })
    const broken = { is: true }
    const fails = (key: string, n: number) => broken.is && key === 'bad' && n === 1
    const first = make()
    const one = worker(first, {}, fails)
    const all = Array.from({ length: 12 }, (_, i) => `k${i}`)
    await publishTo(first, [...all, 'bad'], 3)
    await first.run({ signals: false })
    await eventually(async () => (await first.streams.get('jobs')).partitions.some(({ blocked }) => blocked !== null))
    const facts = await first.streams.get('jobs')
    const stopped = facts.partitions.find(({ blocked }) => blocked !== null)!
    expect(stopped.blocked).toMatchObject({ error: 'Error: cannot do bad 1', attempts: 3 })
    expect(stopped.lag).toBeGreaterThan(0)
    // The others go on.
    await eventually(async () => {
      const now = await first.streams.get('jobs')
      return now.partitions.every(({ partition, lag }) => partition === stopped.partition || lag === 0)
    })
    const tries = one.seen.length
    const second = make()
    const two = worker(second, {}, fails)
    await second.run({ signals: false })
    await first.close()
    await eventually(async () => (await second.streams.get('jobs')).partitions.every(({ owner }) => owner !== null))
    await publishTo(second, all, 1, 3)
    await eventually(async () => {
      const now = await second.streams.get('jobs')
      return now.partitions.every(({ partition, lag }) => partition === stopped.partition || lag === 0)
    })
    expect(one.seen.length).toBe(tries)
    expect(two.seen.some(({ key }) => key === 'bad')).toBe(false)
    expect((await second.streams.get('jobs')).partitions[stopped.partition]).toMatchObject({ blocked: stopped.blocked })
    broken.is = false
    expect(await second.streams.resume('jobs', { partition: stopped.partition })).toEqual({ partitions: 1, objects: 0 })
    await eventually(async () => (await second.streams.get('jobs')).lag === 0)
    expect([...numbers(one.done, 'bad'), ...numbers(two.done, 'bad')]).toEqual([0, 1, 2])
    expect((await second.streams.get('jobs')).partitions.every(({ blocked }) => blocked === null)).toBe(true)
  })
})

test.each(['block', 'skip', 'park'] as const)(
  '[S12] a handler that fails before it takes anything, %s: no event is given up, the partition is blocked until resumed',
  async (onPoison) => {
    const bus = testBus({ partitions: 1 })
    const broken = { is: true }
    const attempts: number[] = []
    const done: unknown[] = []
    bus.processor('jobs', { match: 'job.>', retry: quickRetry, onPoison }, async (events, ctx) => {
      attempts.push(ctx.attempt)
      if (broken.is) throw new Error('no database')
      for await (const { data } of events) done.push((data as Data).n)
    })
    await publishTo(bus, ['a'], 3)
    await bus.run({ signals: false })
    const [blocked] = await eventually(async () => {
      const { partitions } = await bus.streams.get('jobs')
      const found = partitions.filter((partition) => partition.blocked)
      return found.length > 0 && found
    })
    expect(attempts).toEqual([1, 2, 3])
    expect(blocked!.blocked).toMatchObject({ error: 'Error: no database', attempts: 3 })
    expect([await bus.streams.dead.list('jobs'), await bus.streams.parked.list('jobs')]).toEqual([[], []])
    broken.is = false
    await bus.streams.resume('jobs')
    await eventually(() => done.length === 3)
    expect(done).toEqual([0, 1, 2])
  },
)

describe('[S12] a handler that fails now and then before it takes anything', () => {
  const setUp = (handler: IteratingHandler) => {
    const bus = testBus({ partitions: 1 })
    const quick = { attempts: 3, backoff: ['1ms', '1ms'] } as const
    bus.processor('jobs', { match: 'job.>', onPoison: 'skip', retry: quick }, handler)
    return bus
  }
  const isBlocked = async (bus: Bus) => (await bus.streams.get('jobs')).partitions[0]!.blocked !== null

  test('with events handled in between it is not broken: nothing is blocked', async () => {
    const seen: number[] = []
    let calls = 0
    const bus = setUp(async (events) => {
      calls += 1
      if (calls % 2 === 1) throw new Error('hiccup')
      for await (const { seq } of events) {
        seen.push(seq)
        break
      }
    })
    await bus.run({ signals: false })
    for (let n = 0; n < 6; n += 1) {
      await bus.publish('job.run', { n }, { key: 'k' })
      await eventually(() => seen.length === n + 1)
    }
    expect(await isBlocked(bus)).toBe(false)
  })

  test('in turn with an event that cannot be handled: both have their attempts, and it is blocked', async () => {
    let calls = 0
    const bus = setUp(async (events) => {
      calls += 1
      if (calls % 2 === 1) throw new Error('no database')
      for await (const _event of events) throw new Error('poison')
    })
    await bus.publish('job.run', { n: 1 })
    await bus.run({ signals: false })
    await eventually(() => isBlocked(bus))
    expect(calls).toBeLessThanOrEqual(5)
  })
})
