/** Every reply of the scripts of operations, and what they keep for how long. */
import { describe, expect, test } from 'vitest'
import { acceptAct, claimAct, type Outcome, workScript } from '../../src/lanes/acts.ts'
import { forgetEnded, queuesWithEnded } from '../../src/lanes/forget.ts'
import { checkStore } from '../../src/lanes/fsck.ts'
import { routedItem } from '../../src/lanes/item.ts'
import type { Track } from '../../src/lanes/operation.ts'
import { dropScript, fsckScript, operationsScript, parkedScript, type ShownInput } from '../../src/lanes/scripts.ts'
import { statsOf } from '../../src/operations/stats.ts'
import { operationKeys } from '../../src/redis/keys.ts'
import { runScript } from '../../src/redis/script.ts'
import { clockedStore } from '../lanes/clocked.ts'
import { settleScript } from '../lanes/one-act.ts'
import { keysOf } from '../support/bus.ts'
import { collect } from '../support/log.ts'

const all: Track = { mode: 'all', hides: '0' }
const dayMs = 86_400_000
const envelope = '{"type":"mail","tenant":"a","key":"k"}\n{"n":1}'

async function trackedStore(track: Track = all, options: object = {}) {
  const store = await clockedStore({ track, ...options })
  const ops = operationKeys(store.namespace, 'mail')
  const counts = async () => (await store.redis.hget(ops.opCounts, 'total')) ?? '0 0 0'
  const kept = async () => (await keysOf(store.redis, store.namespace)).filter((key) => /:op/.test(key))
  /** How many stand in the index: among the last of their objects, and before them. */
  const indexed = async (): Promise<[last: number, earlier: number]> => {
    const entries = (await store.redis.hvals(ops.opsLast)).flatMap((text) => text.split('\n'))
    return [entries.length, await store.redis.zcard(ops.opsOf)]
  }
  return { ...store, ops, total: counts, kept, indexed }
}

describe('a whole lease that is done', () => {
  test('each operation has its own output, in whatever order they ended', async () => {
    const store = await trackedStore()
    const ids = await store.send('a', { times: 3 })
    const { token } = await store.take(3)
    const settlements = [2, 0, 1].map((at) => ({
      ...{ token, id: ids[at]!, of: 3, at, outcome: { kind: 'done', output: at === 1 ? '' : `"${at}"` } as const },
    }))
    const settle = () => runScript(store.redis, settleScript, { ...store.ground(), settlements })
    expect(await settle()).toEqual({ kind: 'settled', stale: [] })
    const outputs = async () => Promise.all(ids.map(async (id) => (await store.operation(id))!.detail!.result))
    expect(await outputs()).toEqual(['"0"', '', '"2"'])
    expect(await store.total()).toBe('3 0 0')
    expect(await settle()).toEqual({ kind: 'settled', stale: [0, 1, 2] })
    expect(await store.total()).toBe('3 0 0')
  })

  test('those that were tried, handed back or extended before have their own records', async () => {
    const store = await trackedStore()
    const [tried, back, first, extended] = await store.send('a', { times: 4 })
    const one = await store.take(1)
    await store.settle(one.token, [tried!], { kind: 'retry', afterMs: 0, reason: 'x' })
    const two = await store.take(1)
    expect(two.ids).toEqual([back])
    await store.settle(two.token, [back!], { kind: 'back' })
    const { token, ids } = await store.take(3)
    expect(ids).toEqual([back, first, extended])
    await store.extend(token, extended!, 5_000, 'own')
    const again = await store.take(1)
    expect(again.ids).toEqual([tried])
    store.pass(7)
    await store.settleAll(token, ids, 2)
    await store.settleAll(again.token, again.ids, 1)
    await store.settleAll('own', [extended!], 1)
    const rows = await Promise.all([tried, back, first, extended].map((id) => store.operation(id!)))
    expect(rows.map((row) => [row!.state, row!.attempts, row!.version, row!.endedMs - row!.beganMs])).toEqual([
      ['succeeded', 2, 5, 7],
      ['succeeded', 1, 5, 7],
      ['succeeded', 1, 3, 7],
      ['succeeded', 1, 3, 7],
    ])
  })

  test('one that holds less is stale as a whole', async () => {
    const store = await trackedStore()
    const [first] = await store.send('a', { times: 2 })
    const { token } = await store.take(2)
    await store.settle(token, [first!], { kind: 'done', output: '1' })
    const settlements = [0, 1].map((at) => ({
      ...{ token, id: 'not-named', of: 2, at, outcome: { kind: 'done', output: '2' } as const },
    }))
    const reply = await runScript(store.redis, settleScript, { ...store.ground(), settlements })
    expect(reply).toEqual({ kind: 'settled', stale: [0, 1] })
    expect((await store.operation(first!))!.detail!.result).toBe('1')
    expect(await store.total()).toBe('1 0 0')
  })
})

describe('cancel.lua', () => {
  test('gone, unknown, cancelled, ended', async () => {
    const store = await trackedStore()
    expect(await store.cancel('nothing')).toBe('unknown')
    const [id] = await store.send('a')
    expect(await store.cancel(id!)).toBe('cancelled')
    expect(await store.cancel(id!)).toBe('ended')
    expect((await store.take(1)).ids).toEqual([])
    while ((await store.remove()) === 'more');
    expect(await store.cancel(id!)).toBe('gone')
    expect(await store.kept()).toEqual([])
  })

  test('asked: who holds it hears of it, and hears it with each renewal', async () => {
    const store = await trackedStore()
    const [id] = await store.send('a')
    const { token } = await store.take(1)
    const heard = await store.listen()
    expect(await store.cancel(id!)).toBe('asked')
    expect(await heard()).toEqual([`cancel ${id}`])
    expect(await store.renew([token])).toEqual([`!${id}`])
    await store.settle(token, [id!], { kind: 'retry', afterMs: 0, reason: 'x' })
    expect(await store.operation(id!)).toMatchObject({ state: 'cancelled' })
    expect(await store.renew([token])).toEqual([token])
    expect(await store.redis.exists(store.ops.opCancels)).toBe(0)
    expect(await store.counts()).toEqual({ in: 1, discarded: 1 })
  })

  test('what is to be cancelled and lapses, or is released, is not given again', async () => {
    const store = await trackedStore()
    const ids = await store.send('a', { times: 2 })
    const { token } = await store.take(2)
    for (const id of ids) await store.cancel(id)
    expect(await store.extend(token, ids[0]!, 0, 'own')).toEqual({ kind: 'released' })
    store.pass(20_000)
    expect((await store.take(5)).ids).toEqual([])
    for (const id of ids) expect((await store.operation(id))!.state).toBe('cancelled')
    expect(await store.total()).toBe('0 0 2')
  })
})

test('one that is to be cancelled is handed back, throttled, or its worker starts anew: it ends as cancelled', async () => {
  const store = await trackedStore(all, { ordered: true })
  const ids = await store.send('a', { times: 3 })
  const { token } = await store.take(3)
  const [first, next] = [await store.send('b', { key: 'k' }), await store.send('b', { key: 'k' })]
  for (const id of ids) await store.cancel(id)
  await store.settle(token, [ids[0]!], { kind: 'back' })
  await store.settle(token, [ids[1]!], { kind: 'throttle', forMs: 1 })
  await store.take(1)
  await store.cancel(first[0]!)
  expect(await store.enter('w', 'anew')).toMatchObject({ handedBack: 0 })
  for (const id of [...ids, ...first])
    expect(await store.operation(id)).toMatchObject({ state: 'cancelled', isCancelAsked: false })
  expect((await store.take(5, { start: 'anew' })).ids).toEqual(next)
  expect(await store.counts()).toMatchObject({ held: 1, discarded: 4 })
})

test('one that is handed back, throttled or cancelled says what it last said: with no reason there is none to look through', async () => {
  const store = await trackedStore({ mode: 'all', hides: 'secrets0' }, { attempts: 5 })
  const [id] = await store.send('a', { envelope })
  const settle = async (outcome: Outcome) => {
    const { token } = await store.take(1)
    await store.settle(token, [id!], outcome)
    return (await store.operation(id!))!.detail!.result
  }
  expect(await settle({ kind: 'retry', afterMs: 0, reason: 'no such file', list: 'secrets0' })).toBe('no such file')
  expect(await settle({ kind: 'back' })).toBe('no such file')
  expect(await settle({ kind: 'throttle', forMs: 5 })).toBe('no such file')
  store.pass(5)
  expect(await settle({ kind: 'retry', afterMs: 0, reason: 'of an older list' })).toMatch(/^not kept/)
  const { token } = await store.take(1)
  await store.cancel(id!)
  await store.settle(token, [id!], { kind: 'back' })
  expect(await store.operation(id!)).toMatchObject({ state: 'cancelled', detail: { result: '' } })
})

test('one that was never begun after all says so; begun anew it has said nothing', async () => {
  const store = await trackedStore()
  const [id] = await store.send('a')
  const { token } = await store.take(1)
  await store.settle(token, [id!], { kind: 'back' })
  expect(await store.operation(id!)).toMatchObject({ state: 'queued', attempts: 0, beganMs: 0, worker: '-' })
  const again = await store.take(1)
  await store.note(again.token, id!, '1', 'line')
  await store.settle(again.token, [id!], { kind: 'dead', reason: 'x' })
  await store.redrive(id!)
  expect(await store.operation(id!)).toMatchObject({
    state: 'queued',
    worker: '-',
    detail: { progress: '', lines: [] },
  })
})

describe('note.lua', () => {
  test('noted: the last progress and the last lines; stale; gone', async () => {
    const store = await trackedStore()
    const [id] = await store.send('a')
    expect(await store.note('t', id!, '1')).toBe('stale')
    const { token } = await store.take(1)
    expect(await store.note(token, id!, '{"done":1}', 'one', '')).toBe('noted')
    expect(await store.note(token, id!, '', 'two')).toBe('noted')
    expect((await store.operation(id!))!.detail).toMatchObject({ progress: '{"done":1}', lines: ['one', '', 'two'] })
    expect(await store.note('other', id!, '2')).toBe('stale')
    for (let i = 0; i < 30; i += 1)
      await store.note(token, id!, '', ...Array.from({ length: 5 }, (_, n) => `${i}.${n}`))
    const { lines } = (await store.operation(id!))!.detail!
    expect([lines.length, lines[0], lines.at(-1)]).toEqual([100, '10.0', '29.4'])
    for (let i = 0; i < 30; i += 1) await store.note(token, id!, '', 'x'.repeat(1_000))
    expect((await store.operation(id!))!.detail!.lines.join('').length).toBeLessThanOrEqual(16_384)
    await store.settle(token, [id!], { kind: 'done', output: '"ok"' })
    expect(await store.note(token, id!, '3')).toBe('stale')
    while ((await store.remove()) === 'more');
    expect(await store.note(token, id!, '3')).toBe('gone')
  })

  test('an item with a lease of its own is noted under that', async () => {
    const store = await trackedStore()
    const [id] = await store.send('a')
    const { token } = await store.take(1)
    await store.extend(token, id!, 60_000, 'own')
    expect(await store.note(token, id!, '1')).toBe('stale')
    expect(await store.note('own', id!, '1')).toBe('noted')
  })
})

describe('operations.lua', () => {
  test('seen: what is there; of an object the newest first, page by page, and what is gone is taken out', async () => {
    const store = await trackedStore()
    const ids: string[] = []
    for (let i = 0; i < 6; i += 1) {
      ids.unshift(...(await store.send('a', { envelope })))
      if (i % 2 === 1) store.pass(5)
    }
    const inOrder = [...ids].sort((a, b) => (a > b ? -1 : 1))
    expect(await store.operationsOf('a/k')).toEqual(inOrder)
    const pages: string[] = []
    for (let before: { queuedMs: number; name: string } | undefined; ; ) {
      const page = await store.operationsOf('a/k', before, 1)
      if (page.length === 0) break
      pages.push(...page)
      before = { queuedMs: (await store.operation(page[0]!))!.queuedMs, name: page[0]! }
    }
    expect(pages).toEqual(inOrder)
    await store.redis.hdel(store.ops.opItems, inOrder[2]!)
    expect(await store.operationsOf('a/k')).toEqual(inOrder.filter((_, i) => i !== 2))
    expect(await store.indexed()).toEqual([5, 0])
    expect(await store.operationsOf('a/other')).toEqual([])
    expect(await store.operationsOf('b/k')).toEqual([])
  })

  test.each([
    // Of the past, or all of now; an event whose time is its seq stands in the index by its name alone.
    [
      'at any time',
      (round: number, i: number) => ({ seq: round * 1_000 + i, time: 500_000 - ((round * 37 + i) % 50) }),
    ],
    [
      'when they were published',
      (round: number, i: number, nowMs: number) => {
        const seq = nowMs * 1_000 + round * 40 + i
        return { seq, time: seq }
      },
    ],
  ])('[O05] of many of one object, queued %s, each is found once, the newest first, and goes', async (_, event) => {
    const store = await trackedStore()
    const all: { queuedMs: number; name: string }[] = []
    for (let round = 1; round <= 30; round += 1) {
      // Some at the same time, one or many in a call.
      const events = Array.from({ length: 1 + ((round * 7) % 40) }, (_, i) => event(round, i, store.now()))
      const items = events.map(({ seq, time }) => ({
        lane: 'a',
        item: routedItem(`0-${seq}`, time, 'a', '', envelope),
      }))
      const [first, last] = [events[0]!.seq, events.at(-1)!.seq]
      const accept = { revision: 1, born: 1, partition: 0, first, last, items, inputs: [] }
      await runScript(store.redis, workScript, { ...store.ground(), acts: [acceptAct(accept)] })
      const sent = await store.send('a', { envelope, times: 1 + (round % 3) })
      for (const name of [...items.map(({ item }) => item.split(' ')[0]!), ...sent])
        all.push({ queuedMs: (await store.operation(name))!.queuedMs, name })
      store.pass(round % 2)
    }
    const inOrder = () =>
      all
        .sort((a, b) => b.queuedMs - a.queuedMs || Buffer.compare(Buffer.from(b.name), Buffer.from(a.name)))
        .map(({ name }) => name)
    const paged = async (most: number) => {
      const pages: string[] = []
      for (let before: { queuedMs: number; name: string } | undefined; ; ) {
        const page = await store.operationsOf('a/k', before, most)
        if (page.length === 0) return pages
        pages.push(...page)
        before = all.find(({ name }) => name === page.at(-1))
      }
    }
    const [last, earlier] = await store.indexed()
    expect([last + earlier, last > 0, last < 60, earlier > 300]).toEqual([all.length, true, true, true])
    for (const most of [1, 7, 100]) expect(await paged(most)).toEqual(inOrder())
    const { token, ids } = await store.take(1_000)
    const ended = ids.slice(0, 400).filter((_, i) => i % 3 > 0)
    await store.settle(token, ended, { kind: 'ack' })
    expect(await store.forget(1_000)).toBe(ended.length)
    all.splice(0, all.length, ...all.filter(({ name }) => !ended.includes(name)))
    for (const most of [7, 100]) expect(await paged(most)).toEqual(inOrder())
    const [lastThen, earlierThen] = await store.indexed()
    expect(lastThen + earlierThen).toBe(all.length)
    await store.settle(
      token,
      ids.filter((id) => !ended.includes(id)),
      { kind: 'ack' },
    )
    await store.forget(1_000)
    expect(await store.indexed()).toEqual([0, 0])
  })

  test('[O05] whatever a key looks like, its operations are found, and only they, and go', async () => {
    const store = await trackedStore()
    const keys = ['k', 'k ', 'é🚌', 'a"b', 'a\\', 'a\nb', '3 a/k m1', 'x'.repeat(256)]
    const written = [...keys.map((key) => JSON.stringify(key)), '"\\u006b"']
    const routed = [...written.map((key) => `,"key":${key}`), '', ',"time":1', ',"key":"\\ud800"'].map((rest, i) => ({
      lane: 'a',
      item: routedItem(`0-${i + 1}`, i + 1, 'a', '', `{"type":"mail","tenant":"a"${rest}}\n{"in":"x","key":"k"}`),
    }))
    const last = routed.length
    const accept = { revision: 1, born: 1, partition: 0, first: 1, last, items: routed, inputs: [] }
    await runScript(store.redis, workScript, { ...store.ground(), acts: [acceptAct(accept)] })
    const sent: string[] = []
    for (const key of keys)
      sent.push(
        ...(await store.send('a', { envelope: `{"type":"mail","tenant":"a","key":${JSON.stringify(key)}}\n1` })),
      )
    const found = await Promise.all(keys.map((key) => store.operationsOf(`a/${key}`)))
    expect(found).toEqual(keys.map((_, i) => [sent[i], ...(i === 0 ? [`0-${keys.length + 1}`] : []), `0-${i + 1}`]))
    expect(await store.indexed()).toEqual([2 * keys.length + 1, 0])
    const { token, ids } = await store.take(100)
    await store.settle(token, ids, { kind: 'ack' })
    expect(await store.forget(100)).toBe(last + keys.length)
    expect(await store.kept()).toEqual([store.ops.opCounts])
  })

  test('a page has a megabyte at most, and says whether there are more', async () => {
    const store = await trackedStore()
    const large = `{"type":"mail","tenant":"a","key":"k"}\n"${'x'.repeat(16_000)}"`
    const ids = await store.send('a', { times: 100, envelope: large })
    const ask = { act: 'of' as const, object: 'a/k', before: undefined, most: 100 }
    const seen = await runScript(store.redis, operationsScript, { ...store.ground(), ask, detail: true })
    expect(seen!.isMore).toBe(true)
    expect(seen!.rows.length).toBeGreaterThan(60)
    expect(seen!.rows.length).toBeLessThan(70)
    expect(seen!.rows[0]!.name).toBe(ids.at(-1))
    const all = await runScript(store.redis, operationsScript, {
      ...store.ground(),
      ask: { ...ask, most: 101 },
      detail: false,
    })
    expect([all!.rows.length, all!.isMore]).toEqual([100, false])
  })

  test('[O06] one that runs under a lease that has lapsed reads as queued, before anybody has brought it back', async () => {
    const store = await trackedStore()
    const [id] = await store.send('a')
    const { token } = await store.take(1, { leaseMs: 1_000 })
    store.pass(999)
    expect((await store.operation(id!))!.state).toBe('running')
    store.pass(1)
    expect(await store.operation(id!)).toMatchObject({ state: 'queued', attempts: 1 })
    // Its holder may still be in time: nobody else has it.
    await store.renew([token], 1_000)
    expect((await store.operation(id!))!.state).toBe('running')
    store.pass(1_000)
    expect((await store.take(0)).ids).toEqual([])
    expect(await store.operation(id!)).toMatchObject({
      state: 'queued',
      detail: { result: expect.stringContaining('lapsed') },
    })
  })
})

describe('forget.lua', () => {
  test('forgotten: the oldest that have ended, whenever that was; their counts stay, and what has not ended', async () => {
    const store = await trackedStore()
    const ids = await store.send('a', { times: 5, envelope })
    const { token } = await store.take(4)
    for (const id of ids.slice(0, 3)) {
      await store.settle(token, [id], { kind: 'ack' })
      store.pass(1)
    }
    expect(await store.forget(2)).toBe(2)
    expect(await store.operationsOf('a/k')).toEqual(ids.slice(2).reverse())
    expect(await store.forget(2)).toBe(1)
    expect(await store.forget(2)).toBe(0)
    expect((await store.redis.hkeys(store.ops.opItems)).sort()).toEqual(ids.slice(3))
    expect(await store.total()).toBe('3 0 0')
  })

  test('a failure stays until whoever waits has looked, where only failures are kept', async () => {
    const store = await trackedStore({ mode: 'failures', hides: '0' })
    const [id] = await store.send('a')
    const { token } = await store.take(1)
    await store.settle(token, [id!], { kind: 'dead', reason: 'x' })
    store.pass(4_999)
    expect(await store.forget(2)).toBe(0)
    store.pass(1)
    expect(await store.forget(2)).toBe(1)
  })

  test('of several queues in turn, until it is enough', async () => {
    const stores = await Promise.all([trackedStore(), trackedStore(), clockedStore()])
    for (const { send, take, settle } of stores.slice(0, 2)) {
      await send('a', { times: 250 })
      const { token, ids } = await take(250)
      await settle(token, ids, { kind: 'ack' })
    }
    const { redis } = stores[0]!
    const queues = new Map(stores.map(({ keys }, i) => [`q${i}`, keys]))
    let looks = 0
    const some = await forgetEnded(redis, queues, async () => ++looks === 3)
    expect([...some.operations]).toEqual([
      ['q0', 100],
      ['q1', 100],
    ])
    const all = await forgetEnded(redis, queues, async () => false)
    expect(all.left.size).toBe(0)
    expect([...all.operations]).toEqual([
      ['q0', 150],
      ['q1', 150],
    ])
  })

  test('however many queues there are: each gets its turn, in one go or in several', async () => {
    const [idle, last] = await Promise.all([clockedStore(), trackedStore()])
    await last.send('a', { times: 3 })
    const { token, ids } = await last.take(3)
    await last.settle(token, ids.slice(0, 2), { kind: 'ack' })
    const { redis } = last
    const many = Array.from({ length: 1_100 }, (_, i) => [`idle${i}`, idle.keys] as const)
    let looks = 0
    const first = await forgetEnded(redis, new Map([...many, ['last', last.keys]]), async () => ++looks > 300)
    expect([...first.operations]).toEqual([])
    expect(first.left.size).toBe(801)
    const rest = await forgetEnded(redis, first.left, async () => false)
    expect([...rest.operations]).toEqual([['last', 2]])
    expect(rest.left.size).toBe(0)
  })

  test('only queues that keep what has ended need be asked', async () => {
    const { redis, namespace, keys, send, take, settle } = await trackedStore()
    const found = () => queuesWithEnded(redis, namespace, ['other', 'mail'])
    await send('a')
    expect([...(await found())]).toEqual([])
    const { token, ids } = await take(1)
    await settle(token, ids, { kind: 'ack' })
    expect([...(await found())]).toEqual([['mail', keys]])
  })
})

describe('what is kept', () => {
  test('of one that was dropped no input', async () => {
    const store = await trackedStore()
    const [id] = await store.send('a', { envelope })
    expect(await runScript(store.redis, dropScript, { ...store.ground(), name: 'a', bytes: 1, most: 1 })).toMatchObject(
      { items: 1 },
    )
    expect(await store.operation(id!)).toMatchObject({
      state: 'failed',
      header: envelope.split('\n')[0],
      detail: { input: '' },
    })
  })

  test('[O02] a record is there for 24 hours after its end, then gone together with its index entry', async () => {
    const store = await trackedStore()
    const [id] = await store.send('a', { envelope })
    const { token } = await store.take(1, { leaseMs: 10 * dayMs })
    await store.note(token, id!, '1', 'line')
    // However long it runs.
    store.pass(5 * dayMs)
    expect((await store.operation(id!))!.state).toBe('running')
    await store.settle(token, [id!], { kind: 'done', output: '1' })
    store.pass(dayMs - 1)
    expect((await store.operation(id!))!.state).toBe('succeeded')
    expect(await store.operationsOf('a/k')).toEqual([id])
    store.pass(1)
    // Nobody has looked after it yet, and it is gone.
    expect(await store.operation(id!)).toBeUndefined()
    expect(await store.cancel(id!)).toBe('unknown')
    expect(await store.indexed()).toEqual([1, 0])
    expect(await store.operationsOf('a/k')).toEqual([])
    // It is no fault that its record is still there, and its place in the index is not.
    const look = (most: number, asks: Parameters<typeof fsckScript.args>[0]['asks']) =>
      runScript(store.redis, fsckScript, { ...store.ground(), most, asks })
    expect(await collect(checkStore('mail', look))).toEqual([])
    await store.take(0)
    expect(await store.kept()).toEqual([store.ops.opCounts])
  })

  test('[O02] every script that writes takes some of what is over along; index and records go together', async () => {
    const store = await trackedStore()
    const ids = await store.send('a', { times: 300, envelope })
    for (let from = 0; from < 300; from += 100) {
      const { token, ids: taken } = await store.take(100)
      await store.settle(token, taken, { kind: 'ack' })
      store.pass(1)
    }
    store.pass(dayMs)
    const sizes: [number, number][] = []
    while (sizes.at(-1)?.[0] !== 0 && sizes.length < 50) {
      await store.send('b', { times: 20 })
      const there = (await store.redis.hkeys(store.ops.ops)).filter((name) => ids.includes(name)).length
      const [last, earlier] = await store.indexed()
      sizes.push([there, last + earlier])
    }
    expect(sizes.at(-1)).toEqual([0, 0])
    expect(sizes.every(([records, members]) => records === members)).toBe(true)
    expect(sizes.length).toBeGreaterThan(3)
  })

  test('[O02] thousands of an object that are over, and that nobody has swept, are looked at a thousand at a time', async () => {
    const store = await trackedStore()
    const old = await store.send('a', { times: 3_000, envelope })
    const { token, ids } = await store.take(1_000)
    await store.settle(token, ids, { kind: 'ack' })
    for (const _ of [1, 2]) {
      const taken = await store.take(1_000)
      await store.settle(taken.token, taken.ids, { kind: 'ack' })
    }
    const look = async () => {
      const ask = { act: 'of' as const, object: 'a/k', before: undefined, most: 1 }
      const { rows, isMore } = (await runScript(store.redis, operationsScript, {
        ...store.ground(),
        ask,
        detail: false,
      }))!
      const [last, earlier] = await store.indexed()
      return { rows: rows.length, isMore, indexed: last + earlier }
    }
    expect(await look()).toEqual({ rows: 1, isMore: true, indexed: old.length })
    store.pass(dayMs)
    const seen = [await look()]
    while (seen.at(-1)!.isMore) seen.push(await look())
    expect(seen.length).toBeGreaterThan(2)
    let before = old.length
    for (const { rows, indexed } of seen) {
      expect(rows).toBe(0)
      expect(before - indexed).toBeLessThanOrEqual(2_100)
      before = indexed
    }
    expect(seen.at(-1)).toEqual({ rows: 0, isMore: false, indexed: 0 })
  })

  test('[O02] in a paused queue what is over goes as fast as in any other', async () => {
    const store = await trackedStore()
    for (const _ of [1, 2]) {
      await store.send('a', { times: 600, envelope })
      const { token, ids } = await store.take(600)
      await store.settle(token, ids, { kind: 'ack' })
    }
    await store.pause('pause')
    store.pass(dayMs)
    const looks = []
    do looks.push(await store.claim(0))
    while (looks.length < 9 && (looks.at(-1) as { more: boolean }).more)
    expect(looks).toEqual([
      ...looks.slice(1).map(() => ({ kind: 'paused', more: true })),
      { kind: 'paused', more: false },
    ])
    expect(await store.kept()).toEqual([store.ops.opCounts])
  })

  test('of one that was cancelled and then dropped no input', async () => {
    const store = await trackedStore()
    const [id] = await store.send('a', { envelope })
    await store.cancel(id!)
    await runScript(store.redis, dropScript, { ...store.ground(), name: 'a', bytes: 1, most: 1 })
    expect(await store.operation(id!)).toMatchObject({ state: 'cancelled', detail: { input: '' } })
  })

  test('[O02] one that failed and was redriven is kept until 24 hours after its last end', async () => {
    const store = await trackedStore()
    const [id] = await store.send('a', { envelope })
    const first = await store.take(1)
    await store.settle(first.token, [id!], { kind: 'dead', reason: 'x' })
    store.pass(dayMs / 2)
    await store.redrive(id!)
    const again = await store.take(1, { leaseMs: dayMs })
    store.pass(1_000)
    await store.settle(again.token, [id!], { kind: 'ack' })
    store.pass(dayMs / 2)
    await store.take(0)
    expect((await store.operation(id!))!.state).toBe('succeeded')
    expect(await store.operationsOf('a/k')).toEqual([id])
    store.pass(dayMs / 2)
    await store.take(0)
    expect(await store.kept()).toEqual([store.ops.opCounts])
  })

  test('[O02] one that is redriven when its day is over is another, in the index too, whoever has looked meanwhile', async () => {
    const store = await trackedStore()
    const [id] = await store.send('a', { envelope })
    const { token } = await store.take(1)
    await store.settle(token, [id!], { kind: 'dead', reason: 'x' })
    store.pass(dayMs)
    expect(await store.operationsOf('a/k')).toEqual([])
    await store.redrive(id!)
    expect(await store.operation(id!)).toMatchObject({ state: 'queued', version: 1, attempts: 0 })
    expect(await store.operationsOf('a/k')).toEqual([id])
    const again = await store.take(1)
    await store.settle(again.token, [id!], { kind: 'ack' })
    store.pass(dayMs)
    await store.take(0)
    expect(await store.kept()).toEqual([store.ops.opCounts])
  })

  test('[O04] one that nobody knows any more is redriven and buried at once: it has failed, and that is counted', async () => {
    const store = await trackedStore(all, { ordered: true, parks: true, attempts: 1 })
    const [first] = await store.send('a', { envelope, key: 'k' })
    const { token } = await store.take(1)
    await store.settle(token, [first!], { kind: 'dead', reason: 'x' })
    await store.send('a', { envelope, key: 'k' })
    // So many are behind the parked one that no more are let in.
    const [object] = await store.redis.hkeys(store.keys.objects)
    await store.redis.hset(store.keys.objects, object!, Buffer.from('000000000000000000002711', 'hex'))
    const [dead] = await store.send('a', { envelope, key: 'k' })
    expect(await store.total()).toBe('0 2 0')
    await store.redis.del(store.ops.ops, store.ops.opItems, store.ops.opsLast, store.ops.opsEnded)
    await store.redrive(dead!)
    expect(await store.operation(dead!)).toMatchObject({ state: 'failed' })
    expect(await store.total()).toBe('0 3 0')
  })

  test('beyond a million ended ones the oldest give way', async () => {
    const store = await trackedStore()
    const [id] = await store.send('a', { envelope })
    const { token } = await store.take(1)
    await store.settle(token, [id!], { kind: 'ack' })
    const fill = `local some = {} for i = 1, 1000 do some[i] = ARGV[1] .. ' none' end for i = 1, 1000 do redis.call('RPUSH', KEYS[1], unpack(some)) end`
    await store.redis.eval(fill, 1, store.ops.opsEnded, String(store.now()))
    await store.redis.hincrby(store.ops.opCounts, 'kept', 1_000_000)
    await store.send('a')
    expect(await store.operation(id!)).toBeUndefined()
    expect(await store.redis.hget(store.ops.opCounts, 'kept')).toBe('1000000')
    expect(await store.redis.llen(store.ops.opsEnded)).toBe(1_000_000)
  })

  test('[O04] counts rise by one per end: through redelivery, lapsed leases, repeated and late settlements', async () => {
    const store = await trackedStore(all, { attempts: 3 })
    const [good, bad] = (await store.send('a', { times: 2 })) as [string, string]
    for (let attempt = 1; attempt <= 3; attempt += 1) {
      const { token, ids } = await store.take(2, { leaseMs: 100 })
      expect(await store.total()).toBe(attempt === 3 ? '1 0 0' : attempt === 2 ? '0 0 0' : '0 0 0')
      if (attempt === 2) {
        expect((await store.settle(token, [good], { kind: 'ack' })).kind).toBe('settled')
        // Sent again, and by one who has lost it.
        expect(await store.settle(token, [good], { kind: 'ack' })).toEqual({ kind: 'settled', stale: [0] })
      }
      store.pass(200)
      if (attempt < 3) expect(ids).toContain(bad)
      expect(await store.settle('t-zombie', [bad], { kind: 'ack' })).toEqual({ kind: 'settled', stale: [0] })
    }
    await store.take(0)
    expect(await store.operation(bad)).toMatchObject({ state: 'failed', attempts: 3 })
    expect(await store.total()).toBe('1 1 0')
    const minutes = Object.entries(await store.redis.hgetall(store.ops.opCounts)).filter(([name]) => Number(name) > 0)
    const sums = [0, 1, 2].map((i) => minutes.reduce((sum, [, text]) => sum + Number(text.split(' ')[i]), 0))
    expect(sums).toEqual([1, 1, 0])
  })

  test('[O04] how long they took is counted for each, also of those that take no time', async () => {
    const store = await trackedStore()
    const settleAfter = async (ms: number, times: number) => {
      for (let i = 0; i < times; i += 1) {
        await store.send('a')
        const { token, ids } = await store.take(1)
        store.pass(ms)
        await store.settle(token, ids, { kind: 'ack' })
      }
    }
    await settleAfter(0, 12)
    await settleAfter(1, 8)
    await settleAfter(100, 2)
    const stats = statsOf('mail', await store.redis.hgetall(store.ops.opCounts), store.now(), dayMs)
    expect(stats).toMatchObject({ succeeded: 22, p50Ms: 1 })
    expect(stats.p95Ms).toBeGreaterThan(90)
    expect(stats.p95Ms).toBeLessThan(110)
    await settleAfter(0, 100)
    expect(statsOf('mail', await store.redis.hgetall(store.ops.opCounts), store.now(), dayMs).p95Ms).toBe(1)
  })

  test.each([1, 2, 3, 8, 19, 27, 32, 33, 999, 5_000])('[O04] %i ms are told to a tenth', async (ms) => {
    const store = await trackedStore()
    await store.send('a')
    const { token, ids } = await store.take(1)
    store.pass(ms)
    await store.settle(token, ids, { kind: 'ack' })
    const { p50Ms } = statsOf('mail', await store.redis.hgetall(store.ops.opCounts), store.now(), dayMs)
    expect(Math.abs(p50Ms! - ms) / ms).toBeLessThanOrEqual(0.1)
  })

  test('[O04] all minutes that the last 24 hours touch are kept', async () => {
    const store = await trackedStore()
    const first = Math.floor(store.now() / 60_000)
    await store.redis.hset(
      store.ops.opCounts,
      ...Array.from({ length: 1_440 }, (_, i) => [String(first + i), '1 0 0 0:1']).flat(),
      // Of the day before.
      ...[String(first - 1), '1 0 0 0:1'],
    )
    await store.redis.hset(store.ops.opCounts, 'total', '1440 0 0', 'kept', 0)
    store.pass(dayMs)
    await store.send('a')
    const { token, ids } = await store.take(1)
    await store.settle(token, ids, { kind: 'ack' })
    expect(statsOf('mail', await store.redis.hgetall(store.ops.opCounts), store.now(), dayMs).succeeded).toBe(1_441)
    expect(await store.redis.hexists(store.ops.opCounts, String(first - 1))).toBe(0)
  })

  test('[O04] minutes are kept for 24 hours', async () => {
    const store = await trackedStore()
    for (let hour = 0; hour < 30; hour += 1) {
      await store.send('a')
      const { token, ids } = await store.take(1)
      await store.settle(token, ids, { kind: 'ack' })
      store.pass(3_600_000)
    }
    // Only as many as there can be are ever kept; those that are over are not shown, and go when there are too many.
    await store.redis.hset(store.ops.opCounts, ...Array.from({ length: 1_500 }, (_, i) => [String(i), '1 0 0']).flat())
    await store.send('a')
    const { token, ids } = await store.take(1)
    await store.settle(token, ids, { kind: 'ack' })
    expect(await store.redis.hlen(store.ops.opCounts)).toBeLessThanOrEqual(1_444)
    expect(await store.total()).toBe('31 0 0')
  })

  test('of failures only: success leaves nothing but its count', async () => {
    const store = await trackedStore({ mode: 'failures', hides: '0' })
    const ids = await store.send('a', { times: 2, envelope })
    const { token } = await store.take(2)
    await store.note(token, ids[0]!, '1')
    await store.settle(token, [ids[0]!], { kind: 'done', output: '1' })
    await store.settle(token, [ids[1]!], { kind: 'dead', reason: 'no' })
    expect(await store.operation(ids[0]!)).toBeUndefined()
    expect(await store.operationsOf('a/k')).toEqual([ids[1]])
    expect(await store.redis.exists(store.ops.opNotes)).toBe(0)
    expect(await store.total()).toBe('1 1 0')
  })

  test('tracked only later: what was there becomes an operation when it is claimed, until all of that is gone', async () => {
    const store = await clockedStore({})
    const [held, tried, waiting] = await store.send('a', { envelope, times: 3 })
    const first = await store.take(1)
    expect(first.ids).toEqual([held])
    const second = await store.take(1)
    await store.settle(second.token, [tried!], { kind: 'retry', afterMs: 60_000, reason: 'x' })
    await store.make(2, { track: all })
    const [entered] = await store.send('a', { envelope })
    const words = () => store.redis.hget(store.keys.store, 'track')
    expect(await words()).toBe('all 0 mixed')
    const states = () =>
      Promise.all([held, tried, waiting, entered].map(async (id) => (await store.operation(id!))?.state))
    expect(await states()).toEqual([undefined, undefined, undefined, 'queued'])
    await store.settle(first.token, first.ids, { kind: 'ack' })
    const third = await store.take(2)
    expect(await states()).toEqual([undefined, undefined, 'running', 'running'])
    expect((await store.operation(waiting!))!.detail!.input).toBe('{"n":1}')
    await store.settle(third.token, third.ids, { kind: 'ack' })
    // One waits for its time.
    expect(await words()).toBe('all 0 mixed')
    store.pass(60_000)
    const { token, ids } = await store.take(1)
    expect((await store.operation(tried!))!).toMatchObject({ state: 'running', attempts: 2 })
    await store.settle(token, ids, { kind: 'ack' })
    expect(await words()).toBe('all 0')
    expect(await states()).toEqual([undefined, 'succeeded', 'succeeded', 'succeeded'])
  })

  test('tracked only later: what becomes due meanwhile, and lies behind a parked object, is an operation when it is claimed', async () => {
    const store = await clockedStore({ ordered: true, parks: true, attempts: 1 })
    const [owner] = await store.send('a', { envelope, key: 'k' })
    const first = await store.take(1)
    await store.settle(first.token, [owner!], { kind: 'dead', reason: 'x' })
    const [behind] = await store.send('a', { envelope, key: 'k', delayMs: 1_000 })
    await store.make(2, { track: all })
    store.pass(1_000)
    expect((await store.take(0)).ids).toEqual([])
    expect(await store.redis.hget(store.keys.store, 'track')).toBe('all 0 mixed')
    await runScript(store.redis, parkedScript, { ...store.ground(), act: 'resume', objects: ['a k'] })
    const second = await store.take(2)
    expect(second.ids).toEqual([owner])
    await store.settle(second.token, second.ids, { kind: 'ack' })
    expect((await store.take(2)).ids).toEqual([behind])
    expect(await store.operation(behind!)).toMatchObject({
      state: 'running',
      attempts: 1,
      detail: { input: '{"n":1}' },
    })
  })

  test('tracked again: what entered in between is no operation before it is claimed', async () => {
    const store = await trackedStore()
    const [before] = await store.send('a', { envelope })
    await store.make(2, { track: null })
    const [between] = await store.send('a', { envelope })
    await store.make(3, { track: all })
    expect(await store.operationsOf('a/k')).toEqual([before])
    const { token, ids } = await store.take(2)
    expect(await store.operationsOf('a/k')).toEqual([between, before])
    await store.settle(token, ids, { kind: 'ack' })
    expect(await store.redis.hget(store.keys.store, 'track')).toBe('all 0')
    expect(await store.total()).toBe('2 0 0')
  })

  test('not tracked any more: what is an operation ends as one, and the last one takes the tracking along', async () => {
    const store = await trackedStore()
    const [id] = await store.send('a', { envelope })
    expect(await store.make(2, { track: null })).toBe('raised')
    const [untracked] = await store.send('a')
    const { token, ids } = await store.take(2)
    await store.settle(token, ids, { kind: 'ack' })
    expect((await store.operation(id!))!.state).toBe('succeeded')
    expect(await store.operation(untracked!)).toBeUndefined()
    store.pass(dayMs)
    await store.take(0)
    expect(await store.redis.hget(store.keys.store, 'track')).toBeNull()
    expect(await store.kept()).toEqual([store.ops.opCounts])
  })

  test('not tracked any more: with nothing to end, at once; while something is to be cancelled, still', async () => {
    const empty = await trackedStore()
    await empty.make(2, { track: null })
    expect(await empty.redis.hget(empty.keys.store, 'track')).toBeNull()
    const store = await trackedStore()
    const [id] = await store.send('a')
    await store.pause('pause')
    expect(await store.cancel(id!)).toBe('cancelled')
    await store.make(2, { track: null })
    store.pass(dayMs)
    await store.claim(0)
    await store.pause('resume')
    expect((await store.take(1)).ids).toEqual([])
    await store.take(0)
    expect(await store.redis.hget(store.keys.store, 'track')).toBeNull()
  })

  test('one that was handed back, or is redriven, goes on from its record; the store knows of such until it is empty', async () => {
    const store = await trackedStore()
    const [back, dead] = await store.send('a', { times: 2, envelope })
    const words = () => store.redis.hget(store.keys.store, 'track')
    const versions = () => Promise.all([back, dead].map(async (id) => (await store.operation(id!))!.version))
    const first = await store.take(2)
    expect(await words()).toBe('all 0')
    await store.settle(first.token, [back!], { kind: 'back' })
    expect(await words()).toBe('all 0 returned')
    await store.settle(first.token, [dead!], { kind: 'dead', reason: 'no' })
    expect(await versions()).toEqual([3, 3])
    const second = await store.take(2)
    expect(second.ids).toEqual([back])
    await store.settle(second.token, second.ids, { kind: 'ack' })
    expect([await versions(), await words()]).toEqual([[5, 3], 'all 0'])
    await store.redrive(dead!)
    expect([await versions(), await words()]).toEqual([[5, 4], 'all 0 returned'])
    await store.make(2)
    expect(await words()).toBe('all 0 returned')
    const third = await store.take(2)
    expect(await versions()).toEqual([5, 5])
    await store.settle(third.token, third.ids, { kind: 'ack' })
    expect([await versions(), await words()]).toEqual([[5, 6], 'all 0'])
    expect(await store.total()).toBe('2 1 0')
  })

  describe('events that come together', () => {
    const routed = (seq: number, data: string, key = 'k') => ({
      lane: 'a',
      item: routedItem(`0-${seq}`, seq, 'a', '', `{"type":"mail","tenant":"a","key":"${key}"}\n${data}`),
    })
    type Store = Awaited<ReturnType<typeof trackedStore>>
    const accept = async (store: Store, items: { lane: string; item: string }[], inputs: ShownInput[] = []) => {
      const [first, last] = [items[0]!, items.at(-1)!].map(({ item }) => Number(/^0-(\d+)/.exec(item)![1])) as [
        number,
        number,
      ]
      const act = acceptAct({ revision: 1, born: 1, partition: 0, first, last, items, inputs })
      const [raw] = await runScript(store.redis, workScript, { ...store.ground(), acts: [act] })
      return act.read(raw as never)
    }
    const inputOf = async (store: Store, seq: number) => (await store.operation(`0-${seq}`))!.detail!.input

    test('[O01] some of which were there before begin once each', async () => {
      const store = await trackedStore()
      await accept(
        store,
        [1, 2, 3].map((seq) => routed(seq, `${seq}`)),
      )
      expect(
        await accept(
          store,
          [2, 3, 4, 5].map((seq) => routed(seq, `${seq}`)),
        ),
      ).toEqual({ kind: 'accepted', items: 2 })
      expect(await store.operationsOf('a/k')).toEqual(['0-5', '0-4', '0-3', '0-2', '0-1'])
      expect(await store.indexed()).toEqual([5, 0])
    })

    test('[O01] what is held back for want of room has not begun', async () => {
      const store = await trackedStore(all, { limits: { backlog: 2, overflow: 'hold' } })
      const items = [1, 2, 3].map((seq) => routed(seq, `${seq}`))
      expect(await accept(store, items)).toEqual({ kind: 'full', items: 2 })
      expect(await store.operationsOf('a/k')).toEqual(['0-2', '0-1'])
      const { token, ids } = await store.take(2)
      await store.settle(token, ids, { kind: 'ack' })
      expect(await accept(store, items)).toEqual({ kind: 'accepted', items: 1 })
      expect(await store.operationsOf('a/k')).toEqual(['0-3', '0-2', '0-1'])
    })

    test('[O01] what has no room, and is a dead letter at once, has begun and failed', async () => {
      const store = await trackedStore(all, { limits: { backlog: 1, overflow: 'dead' } })
      await accept(
        store,
        [1, 2].map((seq) => routed(seq, `${seq}`)),
      )
      expect((await store.operation('0-1'))!.state).toBe('queued')
      expect(await store.operation('0-2')).toMatchObject({ state: 'failed', attempts: 0, detail: { input: '2' } })
      expect(await store.total()).toBe('0 1 0')
    })

    test('[O08] each has its own input: as it is, instead of which something else is shown, or none when it is too large', async () => {
      const store = await trackedStore({ mode: 'all', hides: 'secrets' })
      const large = `"${'x'.repeat(16_384)}"`
      await accept(
        store,
        [routed(1, '1'), routed(2, '{"token":"S3CRET"}'), routed(3, large)],
        [{ id: '0-2', shown: '{}' }],
      )
      await accept(store, [routed(4, '4'), routed(5, large)])
      await accept(store, [routed(6, '6')])
      const inputs = await Promise.all([1, 2, 3, 4, 5, 6].map((seq) => inputOf(store, seq)))
      expect(inputs).toEqual(['1', '{}', '', '4', '', '6'])
    })

    test('[O05] thousands, of one object and of many, are all found', async () => {
      const store = await trackedStore()
      const keyOf = (seq: number) => (seq % 2 ? 'k' : `k${seq}`)
      const seqs = Array.from({ length: 2_400 }, (_, i) => i + 1)
      await accept(
        store,
        seqs.map((seq) => routed(seq, `${seq}`, keyOf(seq))),
      )
      expect((await store.operationsOf('a/k', undefined, 2_000)).length).toBe(1_200)
      expect(await store.operationsOf('a/k2400')).toEqual(['0-2400'])
      expect(await inputOf(store, 2_399)).toBe('2399')
      const [last, earlier] = await store.indexed()
      expect(last + earlier).toBe(2_400)
    })
  })

  test('[O08] what was said of events is not said of what a claim behind them meets', async () => {
    const store = await clockedStore()
    const [old] = await store.send('a', { envelope: '{"type":"mail","tenant":"a"}\n{"token":"S3CRET"}' })
    await store.make(2, { track: { mode: 'all', hides: 'secrets' } })
    const items = [{ lane: 'a', item: routedItem('0-1', 1, 'a', '', '{"type":"mail","tenant":"a"}\n{"n":1}') }]
    const accept = { revision: 2, born: 1, partition: 0, first: 1, last: 1, items, inputs: [] }
    const claim = { token: 't', n: 2, leaseMs: 1_000, worker: 'w', start: 's' }
    await runScript(store.redis, workScript, { ...store.ground(), acts: [acceptAct(accept), claimAct(claim)] })
    expect(await store.operation('0-1')).toMatchObject({ state: 'running', detail: { input: '{"n":1}' } })
    expect(await store.operation(old!)).toMatchObject({ state: 'running', detail: { input: '' } })
  })

  test('of what nobody has looked through, no input is shown', async () => {
    const store = await trackedStore({ mode: 'all', hides: 'secrets' })
    const [id] = await store.send('a', { envelope })
    expect((await store.operation(id!))!.detail!.input).toBe('')
  })
})
