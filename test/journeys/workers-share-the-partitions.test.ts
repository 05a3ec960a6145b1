/** Who has which partition when workers come, go, die, sleep and outnumber the partitions. Real processes. */
import { setTimeout as sleep } from 'node:timers/promises'
import { describe, expect, test } from 'vitest'
import { freshNamespace, redisUrl, testBus } from '../support/bus.ts'
import { eventually } from '../support/eventually.ts'
import {
  expiryMs,
  firstTimes,
  graceMs,
  quickGroup,
  startWorker,
  type WorkerProcess,
} from '../support/stream-workers.ts'

const all = (count: number) => Array.from({ length: count }, (_, i) => i)

/** A namespace with a publisher that goes on until it is stopped: numbers 0, 1, 2 … per key. It has its partitions before anybody else comes. */
async function busyPlace({ partitions = 16, keys = 64, everyMs = 4 } = {}) {
  const namespace = freshNamespace()
  const bus = testBus({ namespace, partitions })
  const published = new Map<string, number>()
  let going = true
  const publish = async (i: number) => {
    const key = `k${i % keys}`
    const n = Math.floor(i / keys)
    await bus.publish('in.put', { n }, { key })
    published.set(key, n + 1)
    await sleep(everyMs)
  }
  await publish(0)
  const publishing = (async () => {
    for (let i = 1; going; i += 1) await publish(i)
  })()
  return {
    place: { redis: redisUrl(), namespace },
    bus,
    async stop() {
      going = false
      await publishing
      return published
    },
  }
}

const heldBy = (workers: readonly WorkerProcess[]) => workers.map((worker) => worker.held())
const areEven = (workers: readonly WorkerProcess[], partitions: number) => {
  const held = heldBy(workers)
  const counts = held.map((mine) => mine.length)
  return (
    new Set(held.flat()).size === partitions &&
    held.flat().length === partitions &&
    Math.max(...counts) - Math.min(...counts) <= 1
  )
}

/** Every key's events were handled, by someone, and first in order. */
async function allHandledInOrder(workers: readonly WorkerProcess[], published: ReadonlyMap<string, number>) {
  const ends = () => workers.flatMap((worker) => worker.handled())
  await eventually(
    () => {
      const seen = new Map<string, Set<number>>()
      for (const { key, n } of ends()) seen.set(key, (seen.get(key) ?? new Set()).add(n))
      return [...published].every(([key, count]) => seen.get(key)?.size === count)
    },
    { timeoutMs: 15_000, everyMs: 50, what: 'Every event handled' },
  )
}

describe('[S02] a worker joins', () => {
  test('partitions are even (±1); those that stay never pause', async () => {
    const { place, stop } = await busyPlace()
    const a = await startWorker(place, { worker: 'a' })
    await eventually(() => a.held().length === 16)
    const gainedBefore = a.count('stream.gained')
    const b = await startWorker(place, { worker: 'b' })
    await eventually(() => areEven([a, b], 16))
    const c = await startWorker(place, { worker: 'c' })
    await eventually(() => areEven([a, b, c], 16))
    // Who keeps a partition is never told anew that it has it: its run goes on as if nothing had happened.
    expect(a.count('stream.gained')).toBe(gainedBefore)
    const lost = new Set(
      a
        .lines()
        .filter(([kind]) => kind === 'stream.lost')
        .map(([, fields]) => (fields as { partition: number }).partition),
    )
    expect(a.held()).toEqual(all(16).filter((partition) => !lost.has(partition)))
    const published = await stop()
    await allHandledInOrder([a, b, c], published)
    const [ofA, ofB, ofC] = [a, b, c].map((worker) => worker.handled())
    // Nothing was repeated: everyone let go after its commit.
    expect(new Set([...ofA!, ...ofB!, ...ofC!].map(({ id }) => id)).size).toBe([...ofA!, ...ofB!, ...ofC!].length)
  })
})

describe('[S03]', () => {
  test('a worker leaves: its partitions move at once', async () => {
    const { place, stop } = await busyPlace()
    const a = await startWorker(place, { worker: 'a' })
    // Far more than the test may take: whatever moves, moves because of the leave.
    const slow = { ...quickGroup, expiry: '20s' }
    const b = await startWorker(place, { worker: 'b', group: slow })
    await eventually(() => areEven([a, b], 16))
    const leftAt = performance.now()
    b.child.kill('SIGTERM')
    expect(await b.child.exited).toEqual({ code: 0, signal: null })
    await eventually(() => a.held().length === 16)
    expect(performance.now() - leftAt).toBeLessThan(expiryMs + 1_000)
    await allHandledInOrder([a, b], await stop())
    const ends = [...a.handled(), ...b.handled()].map(({ id }) => id)
    expect(new Set(ends).size).toBe(ends.length)
  })

  test('a worker is killed: they move within heartbeat expiry + 1 s', async () => {
    const { place, stop } = await busyPlace()
    const [a, b] = [await startWorker(place, { worker: 'a' }), await startWorker(place, { worker: 'b' })]
    await eventually(() => areEven([a!, b!], 16))
    const killedAt = performance.now()
    b!.child.kill('SIGKILL')
    await eventually(() => a!.held().length === 16, { everyMs: 5 })
    expect(performance.now() - killedAt).toBeLessThan(expiryMs + 1_000)
    await allHandledInOrder([a!, b!], await stop())
  })
})

describe('[S04] a worker paused past expiry, then resumed', () => {
  test('none of its commits is accepted, it rejoins', async () => {
    const { place, bus, stop } = await busyPlace({ partitions: 4 })
    const a = await startWorker(place, { worker: 'a', workMs: 2 })
    const b = await startWorker(place, { worker: 'b', workMs: 2 })
    await eventually(() => areEven([a, b], 4))
    await eventually(() => b.handled().length > 20)
    const lostByB = b.held()
    b.child.kill('SIGSTOP')
    await eventually(() => a.held().length === 4)
    // The new owner goes on; the cursors from here on are its own.
    const before = await cursorsOf(bus, lostByB)
    await eventually(async () => (await cursorsOf(bus, lostByB)).every((cursor, i) => cursor > before[i]!))
    const epochs = await epochsOf(bus)
    const said = b.lines().length
    b.child.kill('SIGCONT')
    await eventually(() => areEven([a, b], 4))
    // It was told that it had lost them, or that it was too late; and it came back under new epochs only.
    const words = b
      .lines()
      .slice(said)
      .filter(([kind]) => kind === 'stream.gained' || kind === 'stream.lost')
    for (const partition of lostByB) {
      const own = words.filter(([, fields]) => (fields as { partition: number }).partition === partition)
      expect(own[0]?.[0]).toBe('stream.lost')
      const later = own.slice(1).filter(([kind]) => kind === 'stream.gained')
      for (const [, fields] of later) expect((fields as { epoch: number }).epoch).toBeGreaterThan(epochs[partition]!)
    }
    const published = await stop()
    await allHandledInOrder([a, b], published)
    // Had one of its commits moved a cursor forward, events between would have been skipped.
    for (const [key, numbers] of firstTimes(a.handled()))
      expect(numbers, key).toEqual([...numbers].sort((x, y) => x - y))
  })
})

const cursorsOf = async (bus: ReturnType<typeof testBus>, partitions: readonly number[]) => {
  const facts = await bus.streams.get('search')
  return partitions.map((partition) => facts.partitions[partition]!.cursor)
}
const epochsOf = async (bus: ReturnType<typeof testBus>) =>
  (await bus.streams.get('search')).partitions.map(({ epoch }) => epoch)

describe('[S07] more workers than partitions', () => {
  test('the rest stand by and take over', async () => {
    const { place, stop } = await busyPlace({ partitions: 2 })
    const workers = await Promise.all(['a', 'b', 'c'].map((worker) => startWorker(place, { worker })))
    const counts = () => workers.map((worker) => worker.held().length).sort()
    await eventually(() => expect(counts()).toEqual([0, 1, 1]))
    const standby = workers.find((worker) => worker.held().length === 0)!
    const busy = workers.filter((worker) => worker !== standby)
    expect(standby.count('stream.gained')).toBe(0)
    busy[0]!.child.kill('SIGKILL')
    await eventually(() => standby.held().length === 1)
    await allHandledInOrder(workers, await stop())
  })
})

describe('[S08]', () => {
  test('k workers starting within the join delay: each partition is claimed at most twice', async () => {
    const { place, stop } = await busyPlace()
    // Long enough for five processes to start on a busy machine.
    const group = { ...quickGroup, joinDelay: '3s', expiry: '3s', grace: '3s' }
    const workers = await Promise.all(all(5).map((i) => startWorker(place, { worker: `w${i}`, group })))
    await eventually(() => areEven(workers, 16), { timeoutMs: 15_000 })
    const claims = new Map<number, number>()
    for (const worker of workers)
      for (const [kind, fields] of worker.lines()) {
        if (kind !== 'stream.gained') continue
        const { partition } = fields as { partition: number }
        claims.set(partition, (claims.get(partition) ?? 0) + 1)
      }
    expect(Math.max(...claims.values())).toBeLessThanOrEqual(2)
    await allHandledInOrder(workers, await stop())
  })
})

describe('[S25]', () => {
  test('a member that never releases loses the partition after grace', async () => {
    const { place, stop } = await busyPlace({ partitions: 2 })
    // Its handler never ends, and never listens to its signal.
    const a = await startWorker(place, { worker: 'a', workMs: 60_000 })
    await eventually(() => a.held().length === 2 && a.count('begin') === 2)
    const b = await startWorker(place, { worker: 'b' })
    const askedAt = performance.now()
    await eventually(() => b.held().length === 1)
    expect(performance.now() - askedAt).toBeLessThan(graceMs + 1_000)
    await eventually(() => b.handled().length > 10)
    await stop()
  })
})
