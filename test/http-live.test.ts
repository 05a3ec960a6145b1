import { describe, expect, onTestFinished, test } from 'vitest'
import type { Live } from '../src/bus-types.ts'
import type { Event } from '../src/event.ts'
import { writeCursor } from '../src/log/cursor.ts'
import type { TelemetryEvent } from '../src/runtime/telemetry.ts'
import { eventually } from './support/eventually.ts'
import { type SseClient, testDoor } from './support/http.ts'

const partitionOf = ({ id }: { id: string }) => id.split('-')[0]!

/** Every seq of each partition, in the order of delivery. */
function seqsByPartition(events: readonly { id: string; seq: number }[]): Map<string, number[]> {
  const found = new Map<string, number[]>()
  for (const event of events) found.set(partitionOf(event), [...(found.get(partitionOf(event)) ?? []), event.seq])
  return found
}

/** Exactly these, each once, in order per partition. */
function expectDelivered(
  delivered: readonly { id: string; seq: number }[],
  published: readonly { id: string; seq: number }[],
) {
  const wanted = seqsByPartition(published.toSorted((a, b) => a.seq - b.seq))
  expect(seqsByPartition(delivered)).toEqual(wanted)
}

describe('GET /v1/live', () => {
  test('delivers what any of the patterns matches, as it is, in order per partition', async () => {
    const { post, live, bus } = await testDoor()
    const sse = await live('match=acme:order.*&match=mail.>')
    expect(sse.response.statusCode).toBe(200)
    expect(sse.response.headers).toMatchObject({ 'content-type': 'text/event-stream', 'cache-control': 'no-store' })
    const { json } = await post(
      JSON.stringify([
        { type: 'order.paid', tenant: 'acme', key: 'order:1', data: { n: 1 } },
        { type: 'order.paid', tenant: 'other', key: 'order:1' },
        { type: 'order.line.added', tenant: 'acme', key: 'order:1' },
        { type: 'mail.sent.late', tenant: 'other', key: 'mail:1', time: 5, trace: 't' },
        { type: 'order.shipped', tenant: 'acme', key: 'order:1' },
      ]),
    )
    await eventually(() => sse.events.length === 3)
    expectDelivered(sse.events, [json[0], json[3], json[4]])
    for (const { data } of sse.frames.filter((frame) => frame.data)) {
      const { id } = JSON.parse(data!)
      expect(data).toBe((await bus.log.get(id))!.toText())
    }
  })

  test('since: the beginning, a time, a cursor, now', async () => {
    const { bus, live, post } = await testDoor()
    const before = await bus.publish('a.b', 1)
    await eventually(() => Date.now() * 1000 > before.seq + 2_000)
    const between = Date.now()
    const after = await bus.publish('a.b', 2)
    const reader = bus.live('a.b', { since: 'beginning' })
    await reader.next()
    const { cursor } = reader
    await reader.return!()

    const seqs = async (since: string) => {
      const sse = await live(`match=a.b&since=${since}`)
      const { json: last } = await post('{"type":"a.b"}')
      await eventually(() => sse.events.some(({ id }) => id === last.id))
      sse.close()
      return sse.events.map(({ seq }) => seq).filter((seq) => seq <= after.seq)
    }
    expect((await seqs('beginning')).sort()).toEqual([before.seq, after.seq])
    expect(await seqs(String(between))).toEqual([after.seq])
    expect(await seqs(cursor)).toHaveLength(1)
    expect(await seqs('now')).toEqual([])
    expect(await seqs('')).toEqual([])
  })

  const refused: [query: string, code: string, says: string][] = [
    ['', 'PARAMETER_INVALID', '"match" is missing'],
    ['since=now', 'PARAMETER_INVALID', '"match" is missing'],
    ['match=a.b&mach=c', 'PARAMETER_INVALID', '"mach" is unknown (did you mean "match"?)'],
    ['match=a.b&since=now&since=now', 'PARAMETER_INVALID', '"since"'],
    ['match=', 'PATTERN_INVALID', ''],
    ['match=a.>.b', 'PATTERN_INVALID', ''],
    ['match=/(/', 'PATTERN_INVALID', ''],
    ['match=a.b&match=a%00', 'PATTERN_INVALID', ''],
    [`match=${'a'.repeat(9_000)}`, 'PATTERN_INVALID', ''],
    ['match=a.b&since=yesterday', 'CURSOR_INVALID', '"yesterday"'],
    ['match=a.b&since=99999999999999999', 'CURSOR_INVALID', ''],
  ]
  test.each(refused.map(([query, ...rest]) => [query.slice(0, 40), query, ...rest] as const))(
    '"%s" is refused before the stream opens',
    async (_name, query, code, says) => {
      const { get, live } = await testDoor()
      const { status, json, headers } = await get(`/v1/live?${query}`)
      expect([status, json.code]).toEqual([400, code])
      expect(json.detail).toContain(says)
      expect(headers.get('content-type')).toBe('application/problem+json')
      expect((await live('match=>')).response.statusCode).toBe(200)
    },
  )

  test('a Last-Event-ID that is none is refused', async () => {
    const { get } = await testDoor()
    for (const id of ['x', '12', 'AAAA', 'é'.repeat(3)]) {
      const { status, json } = await get('/v1/live?match=a.b&since=now', { 'last-event-id': encodeURIComponent(id) })
      expect([status, json.code]).toEqual([400, 'CURSOR_INVALID'])
    }
  })

  test('an idle stream hears a comment and how far it has come', async () => {
    const { post, live } = await testDoor({ keepAliveMs: 20 })
    const sse = await live('match=a.b')
    await eventually(() => sse.frames.some(({ comment }) => comment === 'keep-alive'))
    expect(sse.frames[0]).toEqual({ id: expect.any(String), retry: '1000' })
    const opening = sse.frames[0]!.id
    await post('{"type":"other.type"}')
    await eventually(() => sse.lastEventId !== opening)
    expect(sse.events).toEqual([])
    const { json } = await post('{"type":"a.b"}')
    const resumed = await live('match=>', { 'last-event-id': sse.lastEventId })
    await eventually(() => resumed.events.length > 0)
    expect(resumed.events.map(({ id }) => id)).toEqual([json.id])
  })

  test('when the client goes away its reader ends', async () => {
    const { bus, live, telemetry } = await testDoor()
    const readers: Live<Event>[] = []
    const { live: original } = bus
    bus.live = ((...args: Parameters<typeof original>) => {
      const reader = original.apply(bus, args)
      readers.push(reader)
      return reader
    }) as typeof original
    const sse = await live('match=>')
    sse.close()
    expect(await readers[0]!.next()).toEqual({ done: true, value: undefined })
    await eventually(() => telemetry.some(({ name, fields }) => name === 'http.request' && fields.route === '/v1/live'))
  })

  test('what retention took is said with partition, from and to; then it goes on', async () => {
    const { bus, live, telemetry } = await testDoor({ bus: { partitions: 1, retention: { events: 3 } } })
    const first = await bus.publish('a.b', 0)
    const reader = bus.live('a.b', { since: 'beginning' })
    await reader.next()
    const { cursor } = reader
    await reader.return!()
    let last = first
    for (let i = 1; i <= 10; i += 1) last = await bus.publish('a.b', i)
    await bus.run()
    await eventually(() => telemetry.some(({ name }) => name === 'log.trimmed'))
    const sse = await live('match=a.b', { 'last-event-id': cursor })
    await eventually(() => sse.events.at(-1)?.seq === last.seq)
    const gaps = sse.frames.filter(({ event }) => event === 'gap').map(({ data }) => JSON.parse(data!))
    expect(gaps).toEqual([{ partition: 0, from: first.seq, to: expect.any(Number) }])
    expect(sse.events.map(({ data }) => data)).toEqual([8, 9, 10])
    expect(gaps[0].to).toBeLessThan(sse.events[0].seq)
    const firstFrame = sse.frames.findIndex(({ data }) => data !== undefined)
    expect(sse.frames[firstFrame]!.event).toBe('gap')
  })
})

describe('a client that comes back', () => {
  test('from before a rollback of Redis: what was lost is said first, what comes is delivered', async () => {
    const { bus, live } = await testDoor({ bus: { partitions: 1 } })
    const last = await bus.publish('a.b')
    const sse = await live('match=a.b', { 'last-event-id': writeCursor([last.seq + 1_000_000]) })
    await eventually(() => sse.frames.some(({ event }) => event === 'gap'))
    expect(sse.frames.filter(({ data }) => data)).toEqual([
      { event: 'gap', data: JSON.stringify({ partition: 0, from: last.seq, to: last.seq + 1_000_000 }) },
    ])
    const next = await bus.publish('a.b')
    await eventually(() => sse.events.length > 0)
    expect(sse.events.map(({ id }) => id)).toEqual([next.id])
  })

  test('[L02] with its Last-Event-ID, again and again under way: no gap, no repeat', async () => {
    const { bus, live } = await testDoor()
    const published: { id: string; seq: number }[] = []
    let sse: SseClient = await live('match=order.>&since=now')
    let lastEventId = await eventually(() => sse.lastEventId)
    const delivered: { id: string; seq: number }[] = []
    const publishing = (async () => {
      for (let round = 0; round < 40; round += 1) {
        const events = Array.from({ length: 50 }, (_, i) => ({
          type: i % 5 === 4 ? 'mail.sent' : 'order.paid',
          key: `order:${(round * 7 + i) % 97}`,
        }))
        const answers = await bus.publishAll(events)
        for (const [i, answer] of answers.entries()) if (!answer.error && i % 5 !== 4) published.push(answer)
      }
    })()
    for (let returns = 1; returns <= 15; returns += 1) {
      // Cut anywhere: before the first frame, in the middle, at the end.
      await eventually(() => sse.events.length >= (returns % 3) * 20 || delivered.length + sse.events.length >= 1_600)
      sse.close()
      delivered.push(...sse.events)
      lastEventId = sse.lastEventId || lastEventId
      // The address still says where the first one began; the header must win.
      sse = await live('match=order.>&since=beginning', { 'last-event-id': lastEventId })
    }
    await publishing
    await eventually(() => delivered.length + sse.events.length >= published.length)
    const last = await bus.publish('order.closed')
    published.push(last)
    await eventually(() => sse.events.some(({ id }) => id === last.id))
    expectDelivered([...delivered, ...sse.events], published)
  })

  test('[L02] that had seen no event yet: the opening frame holds its place', async () => {
    const { bus, live } = await testDoor()
    await bus.publish('a.b', 'before')
    const sse = await live('match=a.b')
    await eventually(() => sse.lastEventId !== '')
    sse.close()
    const meanwhile = await bus.publish('a.b', 'meanwhile')
    const resumed = await live('match=a.b', { 'last-event-id': sse.lastEventId })
    await eventually(() => resumed.events.length > 0)
    expect(resumed.events.map(({ id }) => id)).toEqual([meanwhile.id])
  })
})

describe('a reader that stops reading', () => {
  test('[L03] gets a gap frame and is cut; nothing piles up for it, others are unaffected, and it can go on', async () => {
    const stallMs = 1_000
    let cut: TelemetryEvent | undefined
    const onTelemetry = (event: TelemetryEvent) => {
      if (event.name !== 'live.cut') return
      cut = event
      // It reads again in the last moment: what it is told must still reach it.
      slow.response.resume()
    }
    const { bus, live } = await testDoor({ stallMs, bus: { onTelemetry } })
    const slow = await live('match=a.b')
    const quick = await live('match=a.b')
    slow.response.pause()
    // Beyond what the kernel takes for a connection (some 10 MB), so that the rest would have to be held here.
    const data = 'x'.repeat(200_000)
    const published: { id: string; seq: number }[] = []
    const publish = async (n: number) => {
      const events = Array.from({ length: n }, (_, i) => ({ type: 'a.b', key: `k${i}`, data }))
      for (const answer of await bus.publishAll(events)) if (!answer.error) published.push(answer)
    }
    for (let i = 0; i < 10; i += 1) await publish(12)
    await eventually(() => quick.events.length === published.length)
    expectDelivered(quick.events, published)

    await slow.ended
    expect(cut?.fields.stalledMs).toBe(stallMs)
    expect(cut?.fields.heldBytes).toBeLessThan(2 * 2 ** 20)
    const final = slow.frames.at(-1)!
    expect(final.event).toBe('gap')
    expect(JSON.parse(final.data!)).toEqual({ reason: 'slow-reader', cursor: slow.lastEventId })
    expect(slow.frames.filter(({ event }) => event === 'gap')).toHaveLength(1)
    expect(slow.events.length).toBeLessThan(published.length)

    const resumed = await live('match=a.b', { 'last-event-id': slow.lastEventId })
    await eventually(() => slow.events.length + resumed.events.length === published.length)
    expectDelivered([...slow.events, ...resumed.events], published)
    await publish(1)
    await eventually(() => quick.events.length === published.length)
  })

  test('[L03] and never again: its connection is taken away', async () => {
    const { bus, live, telemetry, door } = await testDoor({ stallMs: 200 })
    const stopped = await live('match=a.b')
    stopped.response.pause()
    const gone = new Promise((resolve) => stopped.response.socket.once('close', resolve))
    onTestFinished(() => void stopped.response.destroy())
    const data = 'x'.repeat(200_000)
    for (let i = 0; i < 10; i += 1)
      await bus.publishAll(Array.from({ length: 12 }, (_, k) => ({ type: 'a.b', key: `k${k}`, data })))
    await eventually(() => telemetry.some(({ name }) => name === 'live.cut'))
    await eventually(() => telemetry.some(({ name, fields }) => name === 'http.request' && fields.route === '/v1/live'))
    // Nothing of it is left: the door closes without waiting for it.
    await door.close({ timeoutMs: 60_000 })
    stopped.response.resume()
    await gone
    expect(stopped.frames.at(-1)?.event).not.toBe('gap')
  })
})
