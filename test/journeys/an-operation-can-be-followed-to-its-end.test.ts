/** Tracked queues: whoever has enqueued work can ask where it is, truthfully, until 24 hours after its end. */
import { describe, expect, test } from 'vitest'
import { type Bus, rawJson } from '../../src/bus.ts'
import { operationKeys } from '../../src/redis/keys.ts'
import { type Clock, systemClock } from '../../src/runtime/clock.ts'
import { keysOf, plainRedis, testBus } from '../support/bus.ts'
import { eventually } from '../support/eventually.ts'
import { collect } from '../support/log.ts'

const bound = (options: Parameters<typeof testBus>[0] = {}) => testBus({ partitions: 2, ...options }) as unknown as Bus
const at = expect.any(Number)

describe('an operation', () => {
  test('[O01] [O10] is queued, then running, then succeeded, with all that is known of it', async () => {
    const bus = bound({ worker: 'w1' })
    const sync = bus.queue('link-sync', { track: true })
    let go = () => {}
    const held = new Promise<void>((resolve) => {
      go = resolve
    })
    sync.work(async (event, ctx) => {
      expect(ctx).toMatchObject({ kind: 'manual', requestId: 'req-1', operationId: sent.id })
      await held
      return { synced: (event.data as { repo: string }).repo }
    })
    const sent = await sync.send({ repo: 'a/b' }, { key: 'link:456', kind: 'manual', requestId: 'req-1' })
    expect(sent.id).toMatch(/^link-sync\.[\w-]{20}$/)
    const known = {
      ...{ id: sent.id, queue: 'link-sync', kind: 'manual', requestId: 'req-1', trigger: null, tenant: 'default' },
      key: 'link:456',
      ...{ type: 'link-sync', event: null, input: { repo: 'a/b' }, queuedAt: at, error: null, log: [], progress: null },
      dueAt: null,
    }
    expect(await bus.operations.get(sent.id)).toEqual({
      ...{ ...known, status: 'queued', startedAt: null, finishedAt: null, attempts: 0, worker: null },
      ...{ output: null, cancelling: false },
    })
    await bus.run({ signals: false })
    await eventually(async () => expect((await bus.operations.get(sent.id)).status).toBe('running'))
    expect(await bus.operations.get(sent.id)).toMatchObject({
      startedAt: at,
      finishedAt: null,
      attempts: 1,
      worker: 'w1',
    })
    const waiting = bus.operations.wait(sent.id)
    go()
    const done = await waiting
    expect(done).toEqual({
      ...{ ...known, status: 'succeeded', startedAt: at, finishedAt: at, attempts: 1, worker: 'w1' },
      ...{ output: { synced: 'a/b' }, cancelling: false },
    })
    expect(done.queuedAt).toBeLessThanOrEqual(done.startedAt!)
    expect(done.startedAt).toBeLessThanOrEqual(done.finishedAt!)
  })

  test('[O01] that keeps failing is queued again with its error, then failed; its attempts are counted', async () => {
    const bus = bound()
    const queue = bus.queue('mail', { track: true, retry: { attempts: 2, backoff: [0, 0] } })
    const { id } = await queue.send(1)
    for (const attempt of [1, 2]) {
      const { items } = await queue.claim()
      expect(await bus.operations.get(id)).toMatchObject({ status: 'running', attempts: attempt })
      await items[0]!.retry(0, `no ${attempt}`)
      const status = attempt === 1 ? 'queued' : 'failed'
      expect(await bus.operations.get(id)).toMatchObject({
        status,
        attempts: attempt,
        error: `no ${attempt}`,
        output: null,
      })
    }
    expect((await bus.operations.get(id)).finishedAt).toEqual(at)
    expect((await bus.queues.dead.list('mail')).map((letter) => letter.id)).toEqual([id])
  })

  test('[O01] that waits for a time says for which: sent for later, or to be tried again', async () => {
    const bus = bound()
    const queue = bus.queue('mail', { track: true })
    const { id, due } = await queue.send(1, { delay: '1h' })
    expect(await bus.operations.get(id)).toMatchObject({ status: 'queued', dueAt: due, attempts: 0 })
    const second = await queue.send(2, { key: 'k' })
    expect((await bus.operations.get(second.id)).dueAt).toBeNull()
    const { items } = await queue.claim()
    expect((await bus.operations.get(second.id)).dueAt).toBeNull()
    await items[0]!.retry('1h', 'busy')
    const [again] = await collect(bus.operations.of('k', { detail: false }))
    expect(again).toMatchObject({ status: 'queued', attempts: 1 })
    expect(again!.dueAt! - again!.startedAt!).toBeGreaterThanOrEqual(3_600_000)
  })

  test('[O01] of a routed event is known by its queue and the event', async () => {
    const bus = bound()
    const orders = bus.queue('orders', { match: 'order.*', track: true })
    orders.work(() => 'ok')
    await bus.run({ signals: false })
    const { id } = await bus.publish('order.paid', { n: 1 }, { tenant: 'acme', key: 'order:1' })
    await eventually(async () => expect((await bus.operations.get(`orders.${id}`)).status).toBe('succeeded'))
    expect(await bus.operations.get(`orders.${id}`)).toMatchObject({
      ...{ event: id, type: 'order.paid', tenant: 'acme', key: 'order:1', kind: 'automatic', requestId: null },
      ...{ input: { n: 1 }, output: 'ok' },
    })
  })

  test('[O01] redriven from the dead letters begins anew, and its next end counts too', async () => {
    const bus = bound()
    const queue = bus.queue('mail', { track: true })
    const { id } = await queue.send(1)
    await (await queue.claim()).items[0]!.dead('broken')
    expect(await bus.operations.get(id)).toMatchObject({ status: 'failed', error: 'broken' })
    await bus.queues.dead.redrive('mail', 'all')
    expect(await bus.operations.get(id)).toMatchObject({ status: 'queued', error: null, finishedAt: null, attempts: 0 })
    await (await queue.claim()).items[0]!.ack('mended')
    expect(await bus.operations.get(id)).toMatchObject({ status: 'succeeded', output: 'mended' })
    expect((await bus.operations.stats('mail')).total).toEqual({ succeeded: 1, failed: 1, cancelled: 0 })
  })

  test('[O03] that nobody has started is not found at once, which is another answer than queued', async () => {
    const bus = bound()
    const queue = bus.queue('mail', { track: true })
    const { id } = await queue.send(1)
    const unknown = ['mail.aaaaaaaaaaaaaaaaaaaa', 'other.aaaaaaaaaaaaaaaaaaaa', 'mail.0-1', 'x', '', id.slice(0, -1)]
    for (const one of unknown)
      for (const ask of [bus.operations.get, bus.operations.wait, bus.operations.cancel])
        await expect(ask(one), one).rejects.toMatchObject({ code: 'OPERATION_NOT_FOUND', status: 404 })
    expect((await bus.operations.get(id)).status).toBe('queued')
  })

  test('[O03] that is not found says when that is its queue’s doing', async () => {
    const bus = bound()
    await bus.queues.put('plain', {})
    await bus.queues.put('failing', { track: 'failures' })
    const name = 'aaaaaaaaaaaaaaaaaaaa'
    for (const [queue, why] of [
      ['plain', 'queue plain is not tracked'],
      ['failing', 'queue failing keeps failures only: it has succeeded'],
      ['none', 'there is no queue none'],
    ] as const)
      for (const ask of [bus.operations.get, bus.operations.wait, bus.operations.cancel])
        await expect(ask(`${queue}.${name}`)).rejects.toThrow(why)
  })

  test('of a queue that is not tracked does not exist, and no key of it does', async () => {
    const bus = bound()
    const queue = bus.queue('mail', { retry: { attempts: 1 } })
    const { id } = await queue.send(1, { key: 'k', kind: 'manual', requestId: 'r' })
    await expect(bus.operations.get(id)).rejects.toMatchObject({ code: 'OPERATION_NOT_FOUND' })
    await (await queue.claim()).items[0]!.dead('x')
    const redis = plainRedis()
    expect((await keysOf(redis, bus.namespace)).filter((key) => /:op[sNC]/.test(key))).toEqual([])
    await expect(bus.operations.stats('mail')).rejects.toMatchObject({ code: 'QUEUE_NOT_FOUND' })
  })

  test('[O12] shows its progress and its log lines while it runs, and afterwards', async () => {
    const bus = bound()
    const queue = bus.queue('mail', { track: true })
    let go = () => {}
    const held = new Promise<void>((resolve) => {
      go = resolve
    })
    queue.work(async (_, ctx) => {
      ctx.progress({ done: 1, of: 3 })
      ctx.log('first')
      ctx.log('second token=abc')
      await held
      ctx.progress({ done: 3, of: 3 })
      ctx.log('last')
    })
    const { id } = await queue.send(1)
    await bus.run({ signals: false })
    await eventually(async () => expect((await bus.operations.get(id)).log).toHaveLength(2))
    expect(await bus.operations.get(id)).toMatchObject({
      ...{ status: 'running', progress: { done: 1, of: 3 }, log: ['first', 'second token=[redacted]'] },
    })
    go()
    expect(await bus.operations.wait(id)).toMatchObject({
      status: 'succeeded',
      progress: { done: 3, of: 3 },
      output: null,
    })
    expect((await bus.operations.get(id)).log).toEqual(['first', 'second token=[redacted]', 'last'])
  })

  test('[O12] keeps the last 100 lines, and nothing of who does not hold it any more', async () => {
    const bus = bound()
    const queue = bus.queue('mail', { track: true })
    queue.work((_, ctx) => {
      for (let i = 1; i <= 250; i += 1) ctx.log(`line ${i}`)
      ctx.log('x'.repeat(5_000))
    })
    const { id } = await queue.send(1)
    await bus.run({ signals: false })
    const { log } = await bus.operations.wait(id)
    expect(log).toHaveLength(100)
    expect(log[0]).toBe('line 152')
    expect(log.at(-1)).toBe('x'.repeat(1_000))
  })
})

describe('what is kept', () => {
  test('[O08] never has the fields that are named secret: neither input, output nor error', async () => {
    const bus = bound()
    const redact = ['accessToken', 'e-mail']
    const queue = bus.queue('mail', { match: 'user.*', track: true, redact, retry: { attempts: 1 } })
    const secret = 'S3CRET'
    const data = { user: { ACCESS_TOKEN: secret, name: 'n', eMail: [secret] }, body: `{"accessToken": "${secret}"}` }
    queue.work((event, ctx) => {
      ctx.log(`accessToken=${secret}`)
      ctx.progress({ accessToken: secret })
      if (event.type === 'user.failed') throw new Error(`401 for accessToken: ${secret}, "e-mail":"${secret}"`)
      return { ok: true, nested: [{ access_token: secret }] }
    })
    const { id } = await queue.send(data, { key: 'u' })
    await bus.run({ signals: false })
    const { id: routed } = await bus.publish('user.failed', data, { key: 'u' })
    const done = await bus.operations.wait(id)
    expect(done).toMatchObject({
      input: { user: { ACCESS_TOKEN: '[redacted]', name: 'n', eMail: '[redacted]' } },
      output: { ok: true, nested: [{ access_token: '[redacted]' }] },
    })
    await eventually(async () => expect((await bus.operations.get(`mail.${routed}`)).status).toBe('failed'))
    expect((await bus.operations.get(`mail.${routed}`)).error).toContain('[redacted]')
    const redis = plainRedis()
    const { ops, opNotes } = operationKeys(bus.namespace, 'mail')
    const stored = JSON.stringify([await redis.hgetall(ops), await redis.hgetall(opNotes)])
    expect(stored).toContain('redacted')
    expect(stored).not.toContain(secret)
  })

  test('[O08] of a sender that does not know that the queue is tracked shows no input', async () => {
    const bus = bound()
    const queue = bus.queue('mail')
    await queue.send({ token: 'S3CRET' })
    const other = testBus({ namespace: bus.namespace }) as unknown as Bus
    await other.queues.put('mail', { track: true })
    const { id } = await queue.send({ token: 'S3CRET' })
    expect((await other.operations.get(id)).input).toBeNull()
    // What was there before has a record from when it is claimed.
    const { items } = await other.queue('mail').claim({ max: 2 })
    expect(items).toHaveLength(2)
    for (const { id: each } of items)
      expect(await other.operations.get(each)).toMatchObject({ status: 'running', input: null })
  })

  test('[O08] of a sender that knows an older list of secrets shows no input', async () => {
    const bus = bound()
    const queue = bus.queue('mail', { track: true, redact: ['token'] })
    const before = await queue.send({ pin: 1, token: 'S3CRET' })
    expect((await bus.operations.get(before.id)).input).toEqual({ pin: 1, token: '[redacted]' })
    await bus.queues.put('mail', { track: true, redact: ['token', 'pin'] })
    const { id } = await queue.send({ pin: 'S3CRET' })
    expect((await bus.operations.get(id)).input).toBeNull()
    const opened = await (testBus({ namespace: bus.namespace }) as unknown as Bus).queues.open('mail')
    const told = await opened.send({ pin: 'S3CRET' })
    expect((await bus.operations.get(told.id)).input).toEqual({ pin: '[redacted]' })
  })

  test('[O08] of a holder that knows an older list of secrets shows nothing that it says', async () => {
    const bus = bound()
    const queue = bus.queue('mail', { track: true, redact: ['token'], retry: { attempts: 2, backoff: [0, 0] } })
    const sent = [await queue.send(1), await queue.send(2), await queue.send(3)]
    const [done, empty, failed] = (await queue.claim({ max: 3 })).items
    await bus.queues.put('mail', { track: true, redact: ['token', 'pin'] })
    await done!.ack({ pin: 'S3CRET' })
    await empty!.ack()
    await failed!.retry(0, 'pin: S3CRET')
    const unseen = 'not looked through for what this queue never shows'
    const [first, second, third] = await Promise.all(sent.map(({ id }) => bus.operations.get(id)))
    expect(first).toMatchObject({ status: 'succeeded', output: { omitted: expect.stringContaining(unseen) } })
    expect(second).toMatchObject({ status: 'succeeded', output: null })
    expect(third).toMatchObject({ status: 'queued', error: expect.stringContaining(unseen) })
    const opened = await (testBus({ namespace: bus.namespace }) as unknown as Bus).queues.open('mail')
    const [again] = (await opened.claim()).items
    await again!.dead('pin: S3CRET')
    expect(await bus.operations.get(third!.id)).toMatchObject({ status: 'failed', error: 'pin: [redacted]' })
  })

  test('[O08] of a worker that learns of a new list while it runs shows nothing that was looked through for the old one', async () => {
    const bus = bound()
    const queue = bus.queue('mail', { track: true, redact: ['token'] })
    let go = () => {}
    const held = new Promise<void>((resolve) => {
      go = resolve
    })
    queue.work(async (_, ctx) => {
      await held
      ctx.progress({ pin: 'S3CRET' })
      ctx.log('pin=S3CRET')
      return { pin: 'S3CRET' }
    })
    const { id } = await queue.send(1)
    await bus.run({ signals: false })
    await eventually(async () => expect((await bus.operations.get(id)).status).toBe('running'))
    const other = testBus({ namespace: bus.namespace }) as unknown as Bus
    await other.queues.put('mail', { track: true, redact: ['token', 'pin'], force: true })
    go()
    expect(JSON.stringify(await bus.operations.wait(id))).not.toContain('S3CRET')
  })

  test('[O08] of what is nested too deep to be looked through shows nothing of it, and is in nobody’s way', async () => {
    const bus = bound()
    const queue = bus.queue('mail', { match: 'mail.*', track: true })
    const deep = rawJson(`${'["]",'.repeat(2_700)}"token=S3CRET"${']'.repeat(2_700)}`)
    const omitted = { omitted: 'input that is nested more than 500 levels deep' }
    await bus.run({ signals: false })
    const { id: routed } = await bus.publish('mail.sent', deep)
    const { id: behind } = await bus.publish('mail.sent', 1)
    const { id: sent } = await queue.send(deep)
    for (const id of [`mail.${routed}`, sent])
      await eventually(async () => expect((await bus.operations.get(id)).input).toEqual(omitted))
    await eventually(async () => expect((await bus.operations.get(`mail.${behind}`)).input).toBe(1))
  })

  test('[O08] of an error is cut only after its secrets were taken out', async () => {
    const bus = bound()
    const queue = bus.queue('mail', { track: true, retry: { attempts: 1 } })
    const problem = `${'x'.repeat(950)} {"token":"${'S3CRET'.repeat(20)}"}`
    queue.work(() => {
      throw new Error(`${problem}\nCookie: a=1; b=S3CRET\nand this`)
    })
    const [thrown, said] = [await queue.send(1), await bus.queue('by-hand', { track: true }).send(1)]
    await (await (await bus.queues.open('by-hand')).claim()).items[0]!.dead(problem)
    await bus.run({ signals: false })
    for (const { id } of [thrown, said]) {
      const { error } = await bus.operations.wait(id)
      expect(error).not.toContain('S3C')
      expect(error).toContain('"token":[redacted]}')
      expect(error!.length).toBeLessThanOrEqual(1_000)
    }
  })

  test('without secret names is byte for byte; what is too large is not kept', async () => {
    const bus = bound()
    const queue = bus.queue('mail', { track: true })
    const [small, large] = [await queue.send({ a: 1 }), await queue.send('x'.repeat(20_000))]
    const { items } = await queue.claim({ max: 2 })
    await items[0]!.ack('y'.repeat(20_000))
    await items[1]!.ack({ big: 10n })
    expect(await bus.operations.get(small.id)).toMatchObject({
      input: { a: 1 },
      output: { omitted: expect.any(String) },
    })
    expect(await bus.operations.get(large.id)).toMatchObject({
      input: { omitted: 'input of 20002 bytes; at most 16384 are kept' },
      output: { omitted: 'output that cannot be written as JSON' },
    })
  })

  test("with 'failures' is only what failed; the others are counted, and waited for", async () => {
    const bus = bound()
    const queue = bus.queue('mail', { track: 'failures', retry: { attempts: 1 } })
    const [good, bad] = [await queue.send('good', { key: 'k' }), await queue.send('bad', { key: 'k' })]
    expect((await bus.operations.get(good.id)).status).toBe('queued')
    queue.work((event) => {
      if (event.data === 'bad') throw new Error('no')
    })
    const waiting = bus.operations.wait(good.id)
    await bus.run({ signals: false })
    expect((await waiting).status).toBe('succeeded')
    expect((await bus.operations.wait(bad.id)).status).toBe('failed')
    await expect(bus.operations.get(good.id)).rejects.toMatchObject({ code: 'OPERATION_NOT_FOUND' })
    expect((await collect(bus.operations.of('k'))).map(({ id }) => id)).toEqual([bad.id])
    expect((await bus.operations.stats('mail')).total).toEqual({ succeeded: 1, failed: 1, cancelled: 0 })
  })

  test("with 'failures' that is gone with its queue has not succeeded, whatever has its name now", async () => {
    const bus = bound()
    await bus.queues.put('mail', { track: 'failures' })
    const { id } = await (await bus.queues.open('mail')).send(1)
    const waiting = bus.operations.wait(id)
    waiting.catch(() => undefined)
    // It has seen it.
    expect((await bus.operations.wait(id, { timeout: '300ms' })).status).toBe('queued')
    await bus.queues.remove('mail')
    await bus.queues.put('mail', { track: 'failures' })
    await expect(waiting).rejects.toMatchObject({ code: 'OPERATION_NOT_FOUND' })
  })

  test('of a queue that is not tracked any more ends as it began', async () => {
    const bus = bound()
    const queue = bus.queue('mail', { track: true })
    const { id } = await queue.send(1, { key: 'k' })
    await bus.queues.put('mail', {})
    const untracked = await queue.send(2, { key: 'k' })
    for (const item of (await queue.claim({ max: 2 })).items) await item.ack()
    expect((await bus.operations.get(id)).status).toBe('succeeded')
    await expect(bus.operations.get(untracked.id)).rejects.toMatchObject({ code: 'OPERATION_NOT_FOUND' })
    expect((await collect(bus.operations.of('k'))).map((one) => one.id)).toEqual([id])
    expect((await bus.operations.stats('mail')).total).toEqual({ succeeded: 1, failed: 0, cancelled: 0 })
  })
})

test('[O05] the operations of a key come newest first, of all tracked queues, with or without detail, page by page', async () => {
  const bus = bound()
  const [a, b] = [bus.queue('a', { track: true }), bus.queue('b', { track: true })]
  bus.queue('untracked')
  const sent: string[] = []
  for (let i = 0; i < 25; i += 1) sent.unshift((await (i % 3 === 0 ? b : a).send({ i }, { key: 'link:1' })).id)
  await a.send('another', { key: 'link:2' })
  await a.send('of another tenant', { key: 'link:1', tenant: 'acme' })
  const all = await collect(bus.operations.of('link:1'))
  const times = all.map(({ queuedAt }) => queuedAt)
  expect(times).toEqual([...times].sort((x, y) => y - x))
  expect(all.map(({ id }) => id).sort()).toEqual([...sent].sort())
  expect(all.every(({ input }) => input !== undefined)).toBe(true)
  const paged: string[] = []
  for (let cursor: string | undefined; ; ) {
    const page = await bus.operations.page('link:1', { detail: false, limit: 4, ...(cursor ? { cursor } : {}) })
    expect(page.operations.length).toBeLessThanOrEqual(4)
    for (const one of page.operations) expect(one).not.toHaveProperty('input')
    paged.push(...page.operations.map(({ id }) => id))
    if (page.next === null) break
    cursor = page.next
  }
  expect(paged).toEqual(all.map(({ id }) => id))
  expect(await collect(bus.operations.of('link:1', { tenant: 'acme', detail: false }))).toMatchObject([
    { tenant: 'acme' },
  ])
  expect(await collect(bus.operations.of('nothing'))).toEqual([])
  for (const key of ['quote"d\\', 'ü/ 🦊', 'a b'])
    expect([(await a.send(1, { key })).id]).toEqual((await collect(bus.operations.of(key))).map(({ id }) => id))
})

test('[O05] one event in two queues is two operations of one name: a page may end between them', async () => {
  const bus = bound()
  for (const name of ['a', 'b']) bus.queue(name, { match: 'link.*', track: true })
  await bus.run({ signals: false })
  const ids: string[] = []
  for (let i = 0; i < 3; i += 1) ids.unshift((await bus.publish('link.synced', i, { key: 'link:1' })).id)
  const wanted = ids.flatMap((id) => [`a.${id}`, `b.${id}`])
  await eventually(async () => expect(await collect(bus.operations.of('link:1'))).toHaveLength(6))
  const found: string[] = []
  for (let cursor: string | undefined; ; ) {
    const page = await bus.operations.page('link:1', { limit: 1, ...(cursor ? { cursor } : {}) })
    // The last page is not empty.
    expect(page.operations).toHaveLength(1)
    found.push(...page.operations.map(({ id }) => id))
    if (page.next === null) break
    cursor = page.next
  }
  expect(found).toEqual(wanted)
})

test('[O05] large ones come in smaller pages, none twice and none left out', async () => {
  const bus = bound()
  const [a, b] = [bus.queue('a', { track: true }), bus.queue('b', { track: true })]
  const sent = await Promise.all(
    Array.from({ length: 180 }, (_, i) =>
      i % 3 === 0 ? b.send(i, { key: 'k' }) : a.send('x'.repeat(16_000), { key: 'k' }),
    ),
  )
  const first = await bus.operations.page('k', { limit: 1_000 })
  expect(first.operations.length).toBeLessThan(180)
  expect(first.next).not.toBeNull()
  const all = (await collect(bus.operations.of('k'))).map(({ id }) => id)
  expect(new Set(all).size).toBe(all.length)
  expect([...all].sort()).toEqual(sent.map(({ id }) => id).sort())
})

test('[O04] stats of a short time begin with a minute, and say which', async () => {
  const bus = bound()
  const queue = bus.queue('mail', { track: true })
  await queue.send(1)
  await (await queue.claim()).items[0]!.ack()
  const stats = await bus.operations.stats('mail', { last: '10s' })
  expect(stats.succeeded).toBe(1)
  expect(stats.from % 60_000).toBe(0)
  expect(stats.until - stats.from).toBeGreaterThanOrEqual(10_000)
  expect(stats.until - stats.from).toBeLessThan(70_000)
})

test('what is asked wrongly is a wrong parameter: nothing is published', async () => {
  const { operations } = bound()
  for (const asking of [
    operations.stats('mail', { last: 'soon' as never }),
    operations.wait('mail.aaaaaaaaaaaaaaaaaaaa', { timeout: 'soon' as never }),
    operations.page(''),
    operations.page('k', { tenant: 'a b' }),
  ])
    await expect(asking).rejects.toMatchObject({ code: 'PARAMETER_INVALID' })
})

describe('[O11]', () => {
  test('wait resolves on the end, also in another process, or with what it is at the timeout', async () => {
    const bus = bound()
    const queue = bus.queue('mail', { track: true })
    const { id } = await queue.send(1)
    expect((await bus.operations.wait(id, { timeout: 50 })).status).toBe('queued')
    // It would look by itself every minute, and not every second.
    const after: Clock['after'] = (ms, fn) => systemClock.after(60 * ms, fn)
    const other = bound({ namespace: bus.namespace, clock: { ...systemClock, after } })
    const waiting = other.operations.wait(id, { timeout: '30s' })
    const stopped = new AbortController()
    const cut = other.operations.wait(id, { signal: stopped.signal })
    stopped.abort()
    expect((await cut).status).toBe('queued')
    await (await queue.claim()).items[0]!.ack('done')
    expect(await waiting).toMatchObject({ status: 'succeeded', output: 'done' })
    expect((await other.operations.wait(id)).status).toBe('succeeded')
  })

  test('cancel of a queued one: nobody gets it, and its place in line is gone', async () => {
    const bus = bound()
    const queue = bus.queue('mail', { track: true, ordered: true })
    const ids: string[] = []
    for (const [key, delay] of [
      ['a', 0],
      ['a', 0],
      ['b', 0],
      ['c', '1h'],
    ] as const)
      ids.push((await queue.send(key, { key, delay })).id)
    for (const id of [ids[0]!, ids[3]!]) {
      expect(await bus.operations.cancel(id)).toMatchObject({ status: 'cancelled', finishedAt: at, attempts: 0 })
      expect((await bus.operations.cancel(id)).status).toBe('cancelled')
    }
    expect((await bus.queues.get('mail')).later).toBe(0)
    const { items } = await queue.claim({ max: 5 })
    const next = await queue.claim({ max: 5 })
    expect([...items, ...next.items].map(({ id }) => id).sort()).toEqual([ids[1], ids[2]].sort())
    for (const item of [...items, ...next.items]) await item.ack()
    expect(await bus.queues.get('mail')).toMatchObject({ waiting: 0, held: 0, behind: 0, in: 4, out: 2, discarded: 2 })
    expect((await bus.operations.stats('mail')).total).toEqual({ succeeded: 2, failed: 0, cancelled: 2 })
    expect((await bus.operations.cancel(ids[1]!)).status).toBe('succeeded')
    expect(await collect(bus.fsck())).toEqual([])
  })

  test('cancel of a running one fires its signal in whichever process; it is not tried again', async () => {
    const bus = bound()
    const queue = bus.queue('mail', { track: true, retry: { attempts: 5, backoff: [0, 0] } })
    let runs = 0
    queue.work(async (_, ctx) => {
      runs += 1
      await new Promise((_resolve, reject) => ctx.signal.addEventListener('abort', () => reject(ctx.signal.reason)))
    })
    const { id } = await queue.send(1)
    await bus.run({ signals: false })
    await eventually(async () => expect((await bus.operations.get(id)).status).toBe('running'))
    const other = testBus({ namespace: bus.namespace }) as unknown as Bus
    expect(await other.operations.cancel(id)).toMatchObject({ status: 'running', cancelling: true })
    expect(await other.operations.wait(id)).toMatchObject({ status: 'cancelled', cancelling: false, attempts: 1 })
    expect(runs).toBe(1)
    expect(await bus.queues.get('mail')).toMatchObject({ held: 0, waiting: 0, later: 0, dead: 0, discarded: 1 })
    expect(await collect(bus.fsck())).toEqual([])
  })

  test('one that succeeds although it was to be cancelled has succeeded', async () => {
    const bus = bound()
    const queue = bus.queue('mail', { track: true })
    const { id } = await queue.send(1)
    const { items } = await queue.claim()
    await bus.operations.cancel(id)
    await items[0]!.ack()
    expect((await bus.operations.get(id)).status).toBe('succeeded')
    expect(await plainRedis().exists(operationKeys(bus.namespace, 'mail').opCancels)).toBe(0)
  })

  test('a hint of a cancellation that was lost is made up for when the lease is renewed', async () => {
    const bus = bound()
    const queue = bus.queue('mail', { track: true, lease: '300ms' })
    queue.work(async (_, ctx) => {
      await new Promise((_resolve, reject) => ctx.signal.addEventListener('abort', () => reject(ctx.signal.reason)))
    })
    const { id } = await queue.send(1)
    await bus.run({ signals: false })
    await eventually(async () => expect((await bus.operations.get(id)).status).toBe('running'))
    // As cancel.lua does it, without the hint.
    await plainRedis().hset(operationKeys(bus.namespace, 'mail').opCancels, id.split('.')[1]!, Date.now())
    expect((await bus.operations.wait(id)).status).toBe('cancelled')
  })
})
