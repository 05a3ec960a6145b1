/** Groups when Redis is away, when many partitions meet many members, and what an idle process costs. */
import { setTimeout as sleep } from 'node:timers/promises'
import { describe, expect, inject, onTestFinished, test } from 'vitest'
import type { Bus } from '../../src/bus.ts'
import { randomFrom } from '../faults/storm.ts'
import { freshNamespace, redisUrl, testBus } from '../support/bus.ts'
import { eventually } from '../support/eventually.ts'
import { startProxy } from '../support/proxy.ts'
import { startRedis } from '../support/redis.ts'
import { firstTimes, quickGroup, startWorker } from '../support/stream-workers.ts'

const group = { heartbeat: '100ms', expiry: '600ms', grace: '900ms', joinDelay: '60ms' } as const
const all = (count: number) => Array.from({ length: count }, (_, i) => i)

/** Notes what each of its events was, and in which partition. */
function follow(bus: Bus, name = 'search') {
  const seen: { key: string; n: number; id: string }[] = []
  bus.processor(name, { match: 'in.>' }, async (events) => {
    for await (const { key, data, id } of events) seen.push({ key: key!, n: (data as { n: number }).n, id })
  })
  return seen
}

const owners = async (bus: Bus) =>
  (await bus.streams.get('search')).partitions.map(({ owner, epoch }) => ({ owner, epoch }))
const isSettled = async (bus: Bus, members: number) => {
  const held = await owners(bus)
  const counts = new Map<string, number>()
  for (const { owner } of held) if (owner !== null) counts.set(owner, (counts.get(owner) ?? 0) + 1)
  const each = [...counts.values()]
  return (
    held.every(({ owner }) => owner !== null) &&
    counts.size === Math.min(members, held.length) &&
    Math.max(...each) - Math.min(...each) <= 1
  )
}

describe('[S08] [S25] Redis away for much longer than the expiry under 8 members', () => {
  test('no partition moves: the same members keep theirs, under the same epochs, and go on', async () => {
    const server = await startRedis()
    onTestFinished(() => server.stop())
    const namespace = freshNamespace()
    const make = (worker: string) => testBus({ redis: server.url, namespace, group, worker })
    const buses = all(8).map((i) => make(`w${i}`))
    const seen = buses.map((bus) => follow(bus))
    for (const bus of buses) await bus.run({ signals: false })
    await eventually(() => isSettled(buses[0]!, 8))
    await Promise.all(all(64).map((i) => buses[0]!.publish('in.put', { n: 0 }, { key: `k${i}` })))
    await eventually(() => seen.flat().length === 64)
    const before = await owners(buses[0]!)
    server.pause()
    await sleep(6 * 600)
    server.resume()
    await Promise.all(all(64).map((i) => buses[1]!.publish('in.put', { n: 1 }, { key: `k${i}`, timeout: '20s' })))
    await eventually(() => new Set(seen.flat().map(({ id }) => id)).size === 128)
    await eventually(() => isSettled(buses[0]!, 8))
    // Past every calm period too: nobody is taken for dead afterwards.
    await sleep(2 * 600)
    expect(await owners(buses[0]!)).toEqual(before)
    for (const numbers of firstTimes(seen.flat()).values()) expect(numbers).toEqual([0, 1])
  })
})

describe('[S25] reset while the owner commits', () => {
  test('the reset holds', async () => {
    const bus = testBus({ partitions: 2, group })
    const seen = follow(bus)
    await bus.run({ signals: false })
    let published = 0
    let going = true
    const load = (async () => {
      while (going) {
        await Promise.all(
          all(20).map((i) => bus.publish('in.put', { n: Math.floor((published + i) / 4) }, { key: `k${i % 4}` })),
        )
        published += 20
      }
    })()
    for (const _round of all(10)) {
      await eventually(() => seen.length > 50)
      const at = seen.length
      await bus.streams.reset('search', 'beginning')
      // Everything comes once more, from the first event on, although the owner was committing all the time.
      await eventually(() => {
        const since = seen.slice(at)
        return all(4).every((k) => since.some(({ key, n }) => key === `k${k}` && n === 0))
      })
      seen.length = 0
    }
    going = false
    await load
    await bus.streams.reset('search', 'now')
    await eventually(async () => (await bus.streams.get('search')).lag === 0)
  })
})

describe('[S20] processor output published to the log', () => {
  test('keeps per-key order, also when a worker is killed in the middle', async () => {
    const namespace = freshNamespace()
    const place = { redis: redisUrl(), namespace }
    const publisher = testBus({ namespace, partitions: 4 })
    const outputs = publisher.live('out.>')
    await outputs.ready()
    const seen: { key: string; n: number }[] = []
    const collecting = (async () => {
      for await (const { key, data } of outputs) seen.push({ key: key!, n: (data as { n: number }).n })
    })()
    const workers = await Promise.all(
      ['a', 'b'].map((worker) => startWorker(place, { worker, output: 'out.put', group: quickGroup })),
    )
    const keys = all(8).map((k) => `k${k}`)
    for (const n of all(60)) {
      await Promise.all(keys.map((key) => publisher.publish('in.put', { n }, { key })))
      if (n === 30) workers[0]!.child.kill('SIGKILL')
    }
    await eventually(() => keys.every((key) => seen.some((one) => one.key === key && one.n === 59)))
    for (const [key, numbers] of firstTimes(seen)) expect(numbers, key).toEqual(all(60))
    await outputs.return?.()
    await collecting
  })
})

describe('[S21] 256 partitions × 16 members', () => {
  test('with churn settle and lose nothing', async () => {
    const namespace = freshNamespace()
    const random = randomFrom(21)
    const timing = { heartbeat: '200ms', expiry: '3s', grace: '3s', joinDelay: '100ms' } as const
    const make = () => testBus({ namespace, partitions: 256, group: timing })
    const publisher = make()
    const seen: { key: string; n: number; id: string }[][] = []
    const start = async () => {
      const bus = make()
      seen.push(follow(bus))
      await bus.run({ signals: false })
      return bus
    }
    const members = await Promise.all(all(16).map(start))
    let n = 0
    for (const _round of all(6)) {
      await Promise.all(all(512).map((k) => publisher.publish('in.put', { n }, { key: `k${k}` })))
      n += 1
      const [gone] = members.splice(random.below(members.length), 1)
      await gone!.close()
      members.push(await start())
    }
    await eventually(() => isSettled(publisher, 16), { timeoutMs: 20_000, everyMs: 100 })
    await eventually(() => new Set(seen.flat().map(({ id }) => id)).size === n * 512, {
      timeoutMs: 20_000,
      everyMs: 50,
    })
    const numbers = firstTimes(seen.flat())
    expect(numbers.size).toBe(512)
    await Promise.all(members.map((bus) => bus.close()))
  }, 60_000)
})

describe('[S22] an idle process', () => {
  test('first event within 50 ms; at most two Redis commands per second for each thing it runs', async () => {
    const proxy = await startProxy({ target: { socketPath: inject('redisSocket') } })
    onTestFinished(() => proxy.stop())
    const bus = testBus({ redis: proxy.url })
    const seenAt: number[] = []
    const running = ['search', 'audit', 'mail']
    for (const name of running)
      bus.processor(name, { match: 'in.>' }, async (events) => {
        for await (const _event of events) seenAt.push(performance.now())
      })
    await bus.run({ signals: false })
    // So many keys are in every partition: once all are handled, each processor has read each of them.
    await Promise.all(all(200).map((k) => bus.publish('in.put', { n: 0 }, { key: `k${k}` })))
    await eventually(() => seenAt.length === 200 * running.length)
    const sent: string[] = []
    proxy.onCommand(({ name, args }) => {
      sent.push(`${name} ${args[0]}`)
      return 'forward'
    })
    await sleep(4_000)
    // Three processors, retention, and what all workers share: who leads, and what is due.
    const things = running.length + 2
    expect(sent.length / 4, sent.join('\n')).toBeLessThanOrEqual(2 * things)
    const delays: number[] = []
    for (const n of all(5)) {
      seenAt.length = 0
      const at = performance.now()
      await bus.publish('in.put', { n: n + 1 }, { key: `k${n}` })
      await eventually(() => seenAt.length === 3, { everyMs: 1 })
      delays.push(Math.max(...seenAt) - at)
      await sleep(300)
    }
    expect(delays.sort((a, b) => a - b)[2]).toBeLessThan(50)
  })
})
