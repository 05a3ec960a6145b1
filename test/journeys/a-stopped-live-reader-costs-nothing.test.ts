import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { describe, expect, test } from 'vitest'
import type { Bus } from '../../src/bus.ts'
import type { TelemetryEvent } from '../../src/runtime/telemetry.ts'
import type { Gap } from '../../src/sinks/live/reader.ts'
import { take, testBus } from '../support/bus.ts'
import { eventually } from '../support/eventually.ts'
import { retainerOf } from '../support/retainer.ts'

const mb = 1024 * 1024
const upTo = (from: number, to: number) => Array.from({ length: to - from }, (_, i) => from + i)

setFlagsFromString('--expose-gc')
const collectGarbage = runInNewContext('gc') as () => void

function usedBytes(): number {
  collectGarbage()
  const { heapUsed, external } = process.memoryUsage()
  return heapUsed + external
}

async function publishNumbers(bus: Bus, from: number, to: number, padding = ''): Promise<void> {
  for (let next = from; next < to; next += 100)
    await Promise.all(upTo(next, Math.min(to, next + 100)).map((n) => bus.publish('a.b', { n, padding }, { key: 'k' })))
}

const numbersOf = (events: readonly { data: unknown }[]) => events.map(({ data }) => (data as { n: number }).n)

describe('a reader that stops', () => {
  test('[L03] 50 MB go by and nothing of it is kept for it; it goes on from the log without a gap', async () => {
    const reports: TelemetryEvent[] = []
    const bus = testBus({ partitions: 2, onTelemetry: (event) => reports.push(event) })
    const stopped = bus.live('a.*')
    const active = bus.live('a.*')
    await Promise.all([stopped.ready(), active.ready()])
    await bus.publish('a.b', { n: -1 }, { key: 'k' })
    await Promise.all([stopped.next(), active.next()])

    const count = 500
    const padding = 'x'.repeat(100_000)
    const before = usedBytes()
    let seen = 0
    const others = (async () => {
      for (; seen < count; seen += 1) expect(numbersOf([(await active.next()).value!])).toEqual([seen])
    })()
    await publishNumbers(bus, 0, count, padding)
    // The others are not held up by it.
    await others
    expect(usedBytes() - before).toBeLessThan(24 * mb)

    for (let n = 0; n < count; n += 50) expect(numbersOf(await take(stopped, 50))).toEqual(upTo(n, n + 50))
    expect(reports.filter(({ name }) => name === 'live.gap')).toEqual([])
    // Having caught up it is served with the others again.
    await bus.publish('a.b', { n: count }, { key: 'k' })
    expect(numbersOf(await take(stopped, 1))).toEqual([count])
  })

  test('[L03] a backlog of large events behind many small ones is read in small bites', async () => {
    const bus = testBus({ partitions: 1 })
    // One by one: from them a reader learns to ask for many flushes at once.
    for (const n of upTo(0, 300)) await bus.publish('a.b', { n }, { key: 'k' })
    await publishNumbers(bus, 300, 500, 'x'.repeat(150_000))
    const before = usedBytes()
    const late = bus.live('a.*', { since: 'beginning' })
    for (const n of upTo(0, 500)) {
      expect(numbersOf(await take(late, 1))).toEqual([n])
      if (n % 50 === 49) expect(usedBytes() - before).toBeLessThan(15 * mb)
    }
  })

  test('[L03] many small events: the same, and 200 such readers cost next to nothing', async () => {
    const bus = testBus({ partitions: 2 })
    const readers = upTo(0, 200).map(() => bus.live('a.*'))
    await Promise.all(readers.map((reader) => reader.ready()))
    await publishNumbers(bus, 0, 6_000)
    for (const reader of [readers[0]!, readers[199]!]) {
      expect(numbersOf(await take(reader, 3_000))).toEqual(upTo(0, 3_000))
      await publishNumbers(bus, 6_000, 6_010)
      expect(numbersOf(await take(reader, 3_000))).toEqual(upTo(3_000, 6_000))
      await reader.return!()
    }
  })

  test('[L03] a gap only where retention has passed it: said once, exact, and by telemetry', async () => {
    const reports: TelemetryEvent[] = []
    const bus = testBus({ partitions: 1, retention: { events: 100 }, onTelemetry: (event) => reports.push(event) })
    const { trim } = await retainerOf(bus)
    const gaps = new Map<string, Gap[]>([
      ['stopped', []],
      ['active', []],
    ])
    const open = (name: string) => bus.live('a.*', { onGap: (gap) => gaps.get(name)!.push(gap) })
    const [stopped, active] = [open('stopped'), open('active')]
    await Promise.all([stopped.ready(), active.ready()])
    const seqs: number[] = []
    const reading = take(active, 3_000)
    for (const n of upTo(0, 30)) {
      const answers = await Promise.all(
        upTo(n * 100, n * 100 + 100).map((each) => bus.publish('a.b', { n: each }, { key: 'k' })),
      )
      seqs.push(...answers.map(({ seq }) => seq))
    }
    expect(numbersOf(await reading)).toEqual(upTo(0, 3_000))
    await trim()

    const first = await stopped.next()
    const got = [first.value!]
    while (gaps.get('stopped')!.length === 0) got.push((await stopped.next()).value!)
    got.push(...(await take(stopped, 100 - 1)))
    // What it had taken before, then the gap, then everything that is left.
    const taken = got.length - 100
    expect(numbersOf(got)).toEqual([...upTo(0, taken), ...upTo(2_900, 3_000)])
    expect(taken).toBeLessThanOrEqual(1_000)
    const gap = { partition: 0, from: seqs[taken - 1], to: seqs[2_899] }
    expect(gaps.get('stopped')).toEqual([gap])
    expect(gaps.get('active')).toEqual([])
    const told = reports.filter(({ name }) => name === 'live.gap')
    expect(told.map(({ level, fields }) => ({ level, ...fields }))).toEqual([{ level: 'warn', ...gap }])
    await bus.publish('a.b', { n: 3_000 }, { key: 'k' })
    expect(numbersOf(await take(stopped, 1))).toEqual([3_000])
  })

  test('[L03] what it had already taken is delivered, also when retention has passed it: no gap', async () => {
    const bus = testBus({ partitions: 1, retention: { events: 10 } })
    const { trim } = await retainerOf(bus)
    const gaps: Gap[] = []
    const [stopped, active] = [bus.live('a.*', { onGap: (gap) => gaps.push(gap) }), bus.live('a.*')]
    await Promise.all([stopped.ready(), active.ready()])
    await publishNumbers(bus, 0, 500)
    await take(active, 500)
    await trim()
    expect(numbersOf(await take(stopped, 500))).toEqual(upTo(0, 500))
    expect(gaps).toEqual([])
  })

  test('[L03] resumed with a cursor that retention has passed: a gap from it to where the log begins', async () => {
    const bus = testBus({ partitions: 1, retention: { events: 10 } })
    const { trim } = await retainerOf(bus)
    const reader = bus.live('a.*')
    await reader.ready()
    const first = await bus.publish('a.b', { n: 0 }, { key: 'k' })
    await reader.next()
    const { cursor } = reader
    await reader.return!()
    for (const n of upTo(1, 31)) await bus.publish('a.b', { n }, { key: 'k' })
    await trim()
    const gaps: Gap[] = []
    const resumed = bus.live('a.*', { since: cursor, onGap: (gap) => gaps.push(gap) })
    const got = await take(resumed, 10)
    expect(numbersOf(got)).toEqual(upTo(21, 31))
    expect(gaps).toEqual([{ partition: 0, from: first.seq, to: got[0]!.prev }])

    // From the beginning means from what there is: nothing is missing.
    const whole = bus.live('a.*', { since: 'beginning', onGap: (gap) => gaps.push(gap) })
    expect(numbersOf(await take(whole, 10))).toEqual(upTo(21, 31))
    expect(gaps).toHaveLength(1)
  })

  test('[L03] under constant trimming every event is either delivered or inside a gap that was said', async () => {
    const bus = testBus({ partitions: 1, retention: { events: 60 } })
    const { trim } = await retainerOf(bus)
    const lives = ['slow', 'slower', 'fast'].map((name) => {
      const gaps: Gap[] = []
      const live = bus.live('a.*', { onGap: (gap) => gaps.push(gap) })
      return { name, live, gaps, got: [] as number[] }
    })
    await Promise.all(lives.map(({ live }) => live.ready()))
    let publishing = true
    const trimming = (async () => {
      while (publishing) await trim()
    })()
    const reading = lives.map(async ({ name, live, got }) => {
      for await (const { seq, data } of live) {
        got.push(seq)
        if ((data as { last?: true }).last) return
        if (name !== 'fast' && got.length % (name === 'slow' ? 40 : 10) === 0)
          await new Promise((resolve) => setTimeout(resolve, 2))
      }
    })
    const seqs: number[] = []
    for (let i = 0; i < 120; i += 1) {
      const answers = await Promise.all(
        upTo(0, 50).map((n) => bus.publish('a.b', { n, padding: 'x'.repeat(200) }, { key: `k${n}` })),
      )
      seqs.push(...answers.map(({ seq }) => seq))
    }
    seqs.push((await bus.publish('a.b', { last: true })).seq)
    publishing = false
    await Promise.all([...reading, trimming])
    for (const { name, gaps, got } of lives) {
      const delivered = new Set(got)
      expect(delivered.size, name).toBe(got.length)
      expect(
        [...got].sort((a, b) => a - b),
        name,
      ).toEqual(got)
      const covered = (seq: number) => gaps.some(({ from, to }) => from < seq && seq <= to)
      expect(
        seqs.filter((seq) => !delivered.has(seq) && !covered(seq)),
        `${name}: missing, not said`,
      ).toEqual([])
      expect(got.filter(covered), `${name}: delivered, said to be missing`).toEqual([])
    }
  })

  test('[L03] one that has ended, or could not begin, is forgotten', async () => {
    const bus = testBus({ partitions: 1 })
    await bus.publish('a.b', { n: 0 })
    const { signal } = new AbortController()
    const ended: WeakRef<object>[] = []
    for (let i = 0; i < 60; i += 1) {
      const live = bus.live('a.*', { since: i % 3 === 0 ? 'no cursor' : 'beginning', signal })
      if (i % 3 === 2) for await (const _ of live) break
      else await live.next().catch(() => undefined)
      if (i % 3 === 1) await live.return!()
      ended.push(new WeakRef(live))
    }
    await eventually(() => {
      collectGarbage()
      return ended.filter((reader) => reader.deref()).length <= 1
    })
  })
})
