import { describe, expect, test } from 'vitest'
import type { Bus, Event } from '../../src/index.ts'
import { processorKeys } from '../../src/redis/keys.ts'
import { plainRedis, testBus } from '../support/bus.ts'
import { eventually } from '../support/eventually.ts'
import { retainerOf } from '../support/retainer.ts'
import { threeWays } from '../support/streams.ts'
import { quickGroup } from '../support/workers.ts'

const many = (count: number, from = 0) => Array.from({ length: count }, (_, i) => ['order.paid', from + i] as const)

/** Everything that is stored of a processor, but what its members write by themselves. */
async function storedOf({ namespace }: Pick<Bus, 'namespace'>, name: string) {
  const redis = plainRedis()
  const { cursors, owners, blocked, group } = processorKeys(namespace, name)
  const [a, b, c, revision] = await Promise.all([
    ...[cursors, owners, blocked].map((key) => redis.hgetall(key)),
    redis.hget(group, 'revision'),
  ])
  return { cursors: a, owners: b, blocked: c, revision }
}

/** A processor that notes what it handles; with `stopAt` it stays in that event until it is let go. */
function noting(bus: Pick<Bus, 'processor'>, { stopAt = -1 } = {}) {
  const seen: number[] = []
  const gate = new AbortController()
  bus.processor('search', { match: 'order.>' }, async (events, { signal }) => {
    for await (const { data } of events as AsyncIterable<Event<number>>) {
      if (data === stopAt && !gate.signal.aborted)
        await new Promise((resolve) => AbortSignal.any([gate.signal, signal]).addEventListener('abort', resolve))
      if (!signal.aborted) seen.push(data)
    }
  })
  return { seen, gate }
}

describe('a running processor', () => {
  test('[S10] reset a processor to a position, with preview of how many events that means', async () => {
    const { bus } = await threeWays()
    const { seen } = noting(bus)
    // A thousand events in one entry: a thousand µs, so exactly one full millisecond begins in the middle of it.
    const first = await bus.commit('order:1', many(1_000))
    await bus.run({ signals: false })
    await eventually(async () => seen.length === 1_000 && (await bus.streams.get('search')).lag === 0)
    const before = await storedOf(bus, 'search')
    const partition = Number(first[0]!.id.split('-')[0])

    const ms = Math.ceil(first[0]!.seq / 1000)
    const again = first.filter(({ seq }) => seq >= ms * 1000).length
    expect(again).toBeGreaterThan(0)
    const previews = [
      [0, 1_000],
      ['beginning', 1_000],
      [ms, again],
      [new Date(ms), again],
      [Date.now() + 60_000, 0],
      ['now', 0],
    ] as const
    for (const [to, count] of previews)
      expect([to, await bus.streams.reset('search', to, { preview: true })]).toMatchObject([
        to,
        { again: count, skipped: 0 },
      ])
    expect(await storedOf(bus, 'search')).toEqual(before)
    expect(seen).toHaveLength(1_000)

    seen.length = 0
    const done = await bus.streams.reset('search', ms)
    expect(done).toMatchObject({ again, skipped: 0 })
    expect(done.partitions[partition]).toEqual({
      partition,
      from: first[999]!.seq,
      to: ms * 1000 - 1,
      again,
      skipped: 0,
    })
    await eventually(() => seen.length === again)
    await bus.publish('order.paid', 1_000, { key: 'order:1' })
    await eventually(() => seen.at(-1) === 1_000)
    expect(seen).toEqual(Array.from({ length: again + 1 }, (_, i) => 1_000 - again + i))
    const epochs = async () => (await bus.streams.get('search')).partitions.map(({ epoch }) => epoch)
    const [old] = [before.owners as Record<string, string>]
    for (const [i, epoch] of (await epochs()).entries()) expect(epoch).toBeGreaterThan(Number(old[i]!.split(' ')[1]))
  })

  test('[S10] forwards from the middle of an entry: what is left of it is skipped, and what was in hand is not committed', async () => {
    const { bus, telemetry } = await threeWays()
    const { seen, gate } = noting(bus, { stopAt: 4 })
    const first = await bus.commit('order:1', many(1_000))
    await bus.run({ signals: false })
    await eventually(async () => seen.length === 4 && (await bus.streams.get('search')).lag === 996)
    const ms = Math.ceil(first[10]!.seq / 1000)
    const skipped = first.filter(({ seq }) => seq > first[3]!.seq && seq < ms * 1000).length
    expect(await bus.streams.reset('search', ms, { preview: true })).toMatchObject({ again: 0, skipped })
    expect(await bus.streams.reset('search', 'now')).toMatchObject({ again: 0, skipped: 996 })
    await eventually(() => telemetry.filter(({ name }) => name === 'stream.gained').length === 4)
    gate.abort()
    await bus.publish('order.paid', 1_000, { key: 'order:1' })
    await eventually(() => seen.includes(1_000))
    expect(seen).toEqual([0, 1, 2, 3, 1_000])
    expect((await bus.streams.get('search')).lag).toBe(0)
  })
})

test('[S10] while nobody runs it: retention keeps what will come again, and the next start goes on from there', async () => {
  const viewer = testBus({ group: quickGroup, partitions: 1 })
  const { namespace } = viewer
  const run = async () => {
    const bus = testBus({ namespace, group: quickGroup })
    const { seen } = noting(bus)
    await bus.run({ signals: false })
    await eventually(async () => (await viewer.streams.get('search')).lag === 0)
    return { bus, seen }
  }
  for (let i = 0; i < 5; i += 1) await viewer.publish('order.paid', i, { key: 'order:1' })
  const first = await run()
  await first.bus.close()
  // Its next owner says that it needs nothing any more.
  const second = await run()
  await second.bus.close()
  expect([first.seen, second.seen]).toEqual([[0, 1, 2, 3, 4], []])

  const { trim } = await retainerOf(testBus({ namespace, retention: { events: 4 } }))
  expect(await viewer.streams.reset('search', 'beginning')).toMatchObject({ again: 5, skipped: 0 })
  expect(await trim()).toBe(0)
  const third = await run()
  expect(third.seen).toEqual([0, 1, 2, 3, 4])
  await third.bus.close()
  expect(await viewer.streams.reset('search', 'now')).toMatchObject({ again: 0, skipped: 0 })
  expect(await trim()).toBe(1)
})

test('[S10] on the command line: shown, asked, then done; over HTTP: shown or done', async () => {
  const { bus, send, streams, streamsJson } = await threeWays()
  const { seen } = noting(bus)
  await bus.commit('order:1', many(5))
  await bus.run({ signals: false })
  await eventually(async () => seen.length === 5 && (await bus.streams.get('search')).lag === 0)
  const before = await storedOf(bus, 'search')
  const meant = '5 events to be handled again, 0 events to be skipped.\n'

  const preview = await streams(['reset', 'search', '--to', 'beginning', '--preview'])
  expect(preview).toMatchObject({ code: 0, stdout: expect.stringContaining(meant), stderr: '' })
  expect(preview.stdout).toMatch(/^partition +from +to +again +skipped\n +\d +\d{16} +0 +5 +0\n/)
  expect(await streams(['reset', 'search', '--to', 'beginning'])).toMatchObject({
    code: 2,
    stdout: expect.stringContaining(meant),
    stderr: 'Nothing was changed. Add --yes to do it.\n',
  })
  for (const answer of ['\n', 'n\n', 'nay\n', ''])
    expect(await streams(['reset', 'search', '--to', 'beginning'], { answer })).toMatchObject({
      code: 1,
      stderr: 'Reset search? [y/N] Nothing was changed.\n',
    })
  expect(await streamsJson('reset', 'search', '--to', 'beginning')).toMatchObject([{ done: false, again: 5 }])
  const asked = await send('POST', '/v1/streams/search/reset', { to: 'beginning', preview: true })
  expect([asked.status, asked.json]).toMatchObject([200, { done: false, again: 5, skipped: 0 }])
  expect(await storedOf(bus, 'search')).toEqual(before)
  expect(seen).toHaveLength(5)

  const handledAgain = async () => {
    await eventually(async () => seen.length === 5 && (await bus.streams.get('search')).lag === 0)
    expect(seen.splice(0)).toEqual([0, 1, 2, 3, 4])
  }
  await handledAgain()
  expect(await streams(['reset', 'search', '--to', 'beginning'], { answer: 'y\n' })).toMatchObject({ code: 0 })
  await handledAgain()
  expect(await streamsJson('reset', 'search', '--to', '1970-01-02', '--yes')).toMatchObject([{ done: true, again: 5 }])
  await handledAgain()
  const done = await send('POST', '/v1/streams/search/reset', { to: '1970-01-02T00:00:00Z' })
  expect(done.json).toMatchObject({ done: true, again: 5, skipped: 0 })
  await handledAgain()
  await send('POST', '/v1/streams/search/reset', { to: 86_400_000 })
  await handledAgain()
})

test('[S10] what is wrong is said, and nothing is changed', async () => {
  const { bus, send, streams } = await threeWays()
  noting(bus)
  await bus.run({ signals: false })
  const before = await storedOf(bus, 'search')
  for (const to of ['yesterday', '-5', '2026-99-99', ''])
    expect(await streams(['reset', 'search', '--to', to, '--yes'])).toMatchObject({
      code: 2,
      stderr: expect.stringMatching(/^error PARAMETER_INVALID: Parameter "to" must be beginning, now, or a time/),
    })
  expect((await streams(['reset', 'search', '--yes'])).code).toBe(2)
  await expect(bus.streams.reset('search', 'yesterday' as 'now')).rejects.toMatchObject({
    code: 'PARAMETER_INVALID',
    message: `Parameter "to" must be 'beginning', 'now', a Date, or a time in ms; got "yesterday".`,
  })
  const unknown = await streams(['reset', 'seach\u001b', '--to', 'now', '--yes'])
  expect([unknown.code, unknown.stderr]).toEqual([
    1,
    expect.stringMatching(/^error STREAM_NOT_FOUND: .*"seach\\u001b" in namespace ".*"\. Did you mean search\?/),
  ])
  const wrong: [unknown, number, string, RegExp][] = [
    [{ to: 'yesterday' }, 400, 'PARAMETER_INVALID', /"to" must be beginning/],
    [{ to: -5 }, 400, 'PARAMETER_INVALID', /"to" must be beginning/],
    [{ to: true }, 400, 'BODY_INVALID', /"to" must be beginning, now, or a time/],
    [{}, 400, 'BODY_INVALID', /"to" is missing/],
    [{ to: 'now', perview: true }, 400, 'BODY_INVALID', /"perview" is unknown \(did you mean "preview"\?\)/],
    ['[1]', 400, 'BODY_INVALID', /must be object/],
    ['{', 400, 'BODY_INVALID', /is not JSON/],
  ]
  for (const [body, status, code, detail] of wrong) {
    const { json } = await send('POST', '/v1/streams/search/reset', body)
    expect([body, json]).toMatchObject([body, { status, code, detail: expect.stringMatching(detail) }])
  }
  const missing = await send('POST', '/v1/streams/seach/reset', { to: 'now' })
  expect(missing.json).toMatchObject({ status: 404, code: 'STREAM_NOT_FOUND' })
  expect(await storedOf(bus, 'search')).toEqual(before)
})
