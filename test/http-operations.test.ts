/** /v1/operations, traces, counts and triggers over HTTP. */
import { describe, expect, onTestFinished, test } from 'vitest'
import type { Bus } from '../src/bus.ts'
import { triggerKeys } from '../src/redis/keys.ts'
import { plainRedis, redisUrl, testBus } from './support/bus.ts'
import { eventually } from './support/eventually.ts'
import { type TestDoor, testDoor } from './support/http.ts'
import { startProxy } from './support/proxy.ts'
import { startReceiver, toLoopback } from './support/receiver.ts'

async function trackedDoor(definition: object = { track: true }) {
  const door = await testDoor()
  expect((await door.send('PUT', '/v1/queues/sync', definition)).status).toBe(201)
  const start = async (data: unknown, more: object = {}): Promise<string> =>
    (await door.send('POST', '/v1/queues/sync/items', { data, ...more })).json.id
  const finish = async (output?: unknown): Promise<void> => {
    const { token, items } = (await door.send('POST', '/v1/queues/sync/claim', {})).json
    await door.send('POST', '/v1/queues/sync/ack', { token, ids: items.map(({ id }: { id: string }) => id), output })
  }
  return { ...door, start, finish }
}

describe('an operation', () => {
  test('[O01] [O03] [O10] by its id: queued, then what became of it; an unknown one is 404 at once', async () => {
    const { get, start, finish } = await trackedDoor()
    const id = await start({ a: 1, token: 'S3CRET' }, { key: 'link:1', kind: 'manual', requestId: 'req-9' })
    const { status, json, text } = await get(`/v1/operations/${id}`)
    expect(status).toBe(200)
    expect(json).toMatchObject({ id, status: 'queued', kind: 'manual', requestId: 'req-9', key: 'link:1', attempts: 0 })
    expect(json.input).toEqual({ a: 1, token: '[redacted]' })
    expect(text).not.toContain('S3CRET')
    await finish({ done: true })
    expect((await get(`/v1/operations/${id}`)).json).toMatchObject({ status: 'succeeded', output: { done: true } })
    for (const unknown of ['sync.aaaaaaaaaaaaaaaaaaaa', 'nothing', 'sync.0-1']) {
      const answer = await get(`/v1/operations/${unknown}`)
      expect([answer.status, answer.json.code]).toEqual([404, 'OPERATION_NOT_FOUND'])
    }
  })

  test('[O11] waits for its end, or answers what it is when the time is over; cancel', async () => {
    const { get, send, start, finish } = await trackedDoor()
    const id = await start(1)
    expect((await get(`/v1/operations/${id}?wait=30ms`)).json.status).toBe('queued')
    const waiting = get(`/v1/operations/${id}?wait=30s`)
    await finish('ok')
    expect((await waiting).json).toMatchObject({ status: 'succeeded', output: 'ok' })
    for (const wait of ['31s', 'x', '-1']) {
      const answer = await get(`/v1/operations/${id}?wait=${wait}`)
      expect([answer.status, answer.json.code]).toEqual([400, 'PARAMETER_INVALID'])
    }
    const other = await start(2)
    expect((await send('POST', `/v1/operations/${other}/cancel`)).json).toMatchObject({ status: 'cancelled' })
    expect((await send('POST', `/v1/operations/${id}/cancel`)).json).toMatchObject({ status: 'succeeded' })
    expect((await send('POST', '/v1/operations/sync.aaaaaaaaaaaaaaaaaaaa/cancel')).status).toBe(404)
  })

  test('[O05] those of a key come newest first, with or without detail, in pages', async () => {
    const { get, start } = await trackedDoor()
    const ids: string[] = []
    for (let i = 0; i < 5; i += 1) ids.push(await start(i, { key: 'link:1' }))
    const whole = (await get('/v1/operations?key=link:1')).json
    expect(whole.operations.map(({ id }: { id: string }) => id).sort()).toEqual([...ids].sort())
    expect(whole.next).toBeNull()
    const seen: string[] = []
    for (let path = '/v1/operations?key=link:1&detail=false&limit=2'; ; ) {
      const { operations, next } = (await get(path)).json
      for (const one of operations) expect(one).not.toHaveProperty('input')
      seen.push(...operations.map(({ id }: { id: string }) => id))
      if (next === null) break
      path = `/v1/operations?key=link:1&detail=false&limit=2&cursor=${next}`
    }
    expect(seen).toEqual(whole.operations.map(({ id }: { id: string }) => id))
    expect((await get('/v1/operations?key=link:1&tenant=acme')).json).toEqual({ operations: [], next: null })
    for (const query of ['', '?key=a&limit=0', '?key=a&cursor=x', '?key=a&what=b'])
      expect((await get(`/v1/operations${query}`)).status).toBe(400)
  })

  test('[O04] counts per minute, and in total', async () => {
    const { get, start, finish } = await trackedDoor()
    for (let i = 0; i < 3; i += 1) {
      await start(i)
      await finish()
    }
    const { json } = await get('/v1/queues/sync/stats?last=1h')
    expect(json).toMatchObject({
      queue: 'sync',
      succeeded: 3,
      failed: 0,
      total: { succeeded: 3, failed: 0, cancelled: 0 },
    })
    const sum = json.minutes.reduce((all: number, { succeeded }: { succeeded: number }) => all + succeeded, 0)
    expect(sum).toBe(3)
    expect((await get('/v1/queues/nothing/stats')).json.code).toBe('QUEUE_NOT_FOUND')
    expect((await get('/v1/queues/sync/stats?last=25h')).status).toBe(400)
  })

  test('needs the token', async () => {
    const { door, start } = await trackedDoor()
    const id = await start(1)
    for (const path of [`/v1/operations/${id}`, '/v1/operations?key=a', '/v1/triggers', '/v1/queues/sync/stats'])
      expect((await fetch(door.url + path)).status).toBe(401)
  })
})

/** As whoever has nothing but the URL. */
const open = async ({ door }: TestDoor, path: string, init: RequestInit = {}) => {
  const response = await fetch(path.startsWith('http') ? path : door.url + path, init)
  const text = await response.text()
  return { status: response.status, headers: response.headers, text, json: text === '' ? undefined : JSON.parse(text) }
}

describe('a trigger', () => {
  async function triggered() {
    const door = await trackedDoor()
    const made = await door.send('POST', '/v1/triggers', {
      name: 'resync',
      queue: 'sync',
      key: 'link:7',
      data: { link: 7 },
    })
    expect(made.status).toBe(201)
    return { ...door, trigger: made.json as { secret: string; path: string } }
  }

  test('[O09] [O10] its URL starts an operation, by GET and POST: 201 with id and status URL', async () => {
    const door = await triggered()
    const { get, trigger } = door
    expect(trigger.path).toBe(`/_${trigger.secret}`)
    expect(trigger.secret).toMatch(/^[\w-]{20}$/)
    const posts: RequestInit[] = [
      { method: 'GET', headers: { 'x-request-id': 'from-outside' } },
      { method: 'POST' },
      { method: 'POST', body: '{"ignored":true}', headers: { 'content-type': 'application/json' } },
      { method: 'POST', body: 'a=b', headers: { 'content-type': 'application/x-www-form-urlencoded' } },
    ]
    for (const [i, init] of posts.entries()) {
      const { status, json } = await open(door, trigger.path, init)
      expect(status).toBe(201)
      expect(json).toEqual({ id: expect.stringMatching(/^sync\.[\w-]{20}$/), statusUrl: expect.any(String) })
      expect((await get(`/v1/operations/${json.id}`)).json).toMatchObject({
        ...{ status: 'queued', kind: 'manual', key: 'link:7', input: { link: 7 }, trigger: 'resync' },
        requestId: i === 0 ? 'from-outside' : null,
      })
    }
    expect((await get('/v1/queues/sync')).json.in).toBe(posts.length)
    const head = await fetch(door.door.url + trigger.path, { method: 'HEAD' })
    expect(head.status).toBe(404)
    expect((await get('/v1/queues/sync')).json.in).toBe(posts.length)
  })

  test('[O09] disabled is 400, unknown 404; enabled again, rotated, removed', async () => {
    const door = await triggered()
    const { send, get, trigger } = door
    expect((await send('POST', '/v1/triggers/resync/disable')).json.enabled).toBe(false)
    const disabled = await open(door, trigger.path)
    expect([disabled.status, disabled.json.code]).toEqual([400, 'TRIGGER_DISABLED'])
    await send('POST', '/v1/triggers/resync/enable')
    expect((await open(door, trigger.path)).status).toBe(201)
    const rotated = (await send('POST', '/v1/triggers/resync/rotate')).json
    expect(rotated.secret).not.toBe(trigger.secret)
    const old = await open(door, trigger.path)
    expect([old.status, old.json.code]).toEqual([404, 'TRIGGER_NOT_FOUND'])
    expect(old.text).not.toContain(trigger.secret)
    expect((await open(door, rotated.path)).status).toBe(201)
    for (const path of ['/_', '/_short', `/_${'a'.repeat(20)}`, `/_${'a'.repeat(80)}`])
      expect((await open(door, path)).status).toBe(404)
    expect((await send('DELETE', '/v1/triggers/resync')).json).toEqual({ removed: 'resync' })
    expect((await open(door, rotated.path)).status).toBe(404)
    expect((await get('/v1/triggers')).json).toEqual({ triggers: [] })
    for (const act of ['rotate', 'enable', 'disable'])
      expect((await send('POST', `/v1/triggers/resync/${act}`)).json.code).toBe('TRIGGER_NOT_FOUND')
  })

  test('[O09] its secret is stored as a hash, and neither listed nor logged', async () => {
    const door = await triggered()
    const { bus, get, send, telemetry, trigger } = door
    await open(door, trigger.path)
    const redis = plainRedis()
    const keys = triggerKeys(bus.namespace)
    const stored = JSON.stringify([await redis.hgetall(keys.triggers), await redis.hgetall(keys.triggerSecrets)])
    const listed = [(await get('/v1/triggers')).text, (await get('/v1/triggers/resync')).text].join()
    expect(listed).toContain('resync')
    for (const text of [stored, listed, JSON.stringify(telemetry)]) expect(text).not.toContain(trigger.secret)
    const again = await send('POST', '/v1/triggers', { name: 'resync', queue: 'sync' })
    expect([again.status, again.json.code]).toEqual([409, 'TRIGGER_EXISTS'])
    const untracked = await send('POST', '/v1/triggers', { name: 'other', queue: 'nothing' })
    expect([untracked.status, untracked.json.code]).toEqual([400, 'PARAMETER_INVALID'])
  })

  test('[O08] its data is listed without what operations never show; the handler gets it whole', async () => {
    const door = await trackedDoor()
    const { get, send, bus } = door
    const made = await send('POST', '/v1/triggers', { name: 'resync', queue: 'sync', data: { token: 'S3', n: 1 } })
    const shown = [made.text, (await get('/v1/triggers')).text, (await get('/v1/triggers/resync')).text]
    for (const text of shown) expect(text).toContain('{"token":"[redacted]","n":1}')
    await open(door, made.json.path)
    expect((await (await bus.queues.open('sync')).pop())[0]!.data).toEqual({ token: 'S3', n: 1 })
  })

  test('[O09] needs a queue that keeps all of its operations', async () => {
    const { send, bus } = await trackedDoor()
    await bus.queues.put('failing', { track: 'failures' })
    const refused = await send('POST', '/v1/triggers', { name: 'resync', queue: 'failing' })
    expect([refused.status, refused.json.code]).toEqual([400, 'PARAMETER_INVALID'])
    expect(refused.text).toContain('all of it and not failures alone')
  })

  test('[O09] whose queue is gone, or not followed any more, starts nothing: it says so, and names nothing', async () => {
    const door = await triggered()
    const { bus, trigger } = door
    const problem = async () => (await door.get('/v1/triggers/resync')).json.problem
    expect(await problem()).toBeNull()
    for (const [change, expected] of [
      [() => bus.queues.put('sync', { track: 'failures' }), 'queue "sync" does not keep all of its operations'],
      [() => bus.queues.put('sync', {}), 'queue "sync" does not keep all of its operations'],
      [() => bus.queues.remove('sync'), 'there is no queue "sync"'],
    ] as const) {
      await change()
      expect(await problem()).toBe(expected)
      const refused = await open(door, trigger.path)
      expect([refused.status, refused.json.code]).toEqual([409, 'TRIGGER_BROKEN'])
      expect(refused.text).not.toMatch(new RegExp(`"?(sync|${bus.namespace})"?[^\\w-]`))
    }
    await bus.queues.put('sync', { track: true })
    expect((await open(door, trigger.path)).status).toBe(201)
  })

  test('[O14] its status URL opens without a token, and shows that operation and nothing else', async () => {
    const door = await triggered()
    const { start, finish, trigger } = door
    const { json } = await open(door, trigger.path)
    expect(json.statusUrl).toBe(`${door.door.url}/_status/${json.id}`)
    expect(json.id.split('.')[1]).toMatch(/^[\w-]{20}$/)
    const queued = await open(door, json.statusUrl)
    expect(queued.status).toBe(200)
    const shown = [
      'id',
      'status',
      'requestId',
      'queuedAt',
      'startedAt',
      'finishedAt',
      'dueAt',
      'attempts',
      'progress',
      'output',
      'error',
    ]
    expect(Object.keys(queued.json)).toEqual(shown)
    expect(queued.json.status).toBe('queued')
    const waiting = open(door, `${json.statusUrl}?wait=20s`)
    await finish({ ok: 1 })
    expect((await waiting).json).toMatchObject({ status: 'succeeded', output: { ok: 1 } })
    // Those that no trigger has started are for who has the token.
    const other = await start('private')
    for (const id of [other, 'sync.0-1', 'sync.aaaaaaaaaaaaaaaaaaaa', 'mail.aaaaaaaaaaaaaaaaaaaa', 'x']) {
      const { status, json } = await open(door, `/_status/${id}`)
      expect([status, json.detail.replace(`"${id}"`, 'ID')]).toEqual([404, expect.stringMatching(/ID.*: it was never/)])
    }
    const { id } = (await open(door, trigger.path)).json
    const removed = open(door, `/_status/${id}?wait=20s`)
    await door.bus.queues.remove('sync')
    expect((await removed).json.detail).toContain('it was never started')
  })
})

test('[O13] trace: every queue and processor an event went to, with its state', async () => {
  const door = await trackedDoor({ match: 'order.*', track: true })
  const { bus, get, finish } = door
  await bus.queues.put('plain', { match: 'order.*' })
  await bus.queues.put('other', { match: 'mail.*' })
  bus.processor('search', { match: 'order.>', concurrency: 1, from: 'beginning' }, () => undefined)
  await bus.run({ signals: false })
  const { id } = await bus.publish('order.paid', { n: 1 }, { key: 'order:1' })
  const placesOf = async () =>
    Object.fromEntries(
      (await get(`/v1/events/${id}/trace`)).json.places.map((one: { name: string }) => [one.name, one]),
    )
  await eventually(async () => {
    expect(await placesOf()).toMatchObject({
      sync: { state: 'waiting' },
      plain: { state: 'waiting' },
      search: { state: 'done' },
    })
  })
  const { json } = await get(`/v1/events/${id}/trace`)
  expect(json).toMatchObject({ id, event: { id, type: 'order.paid', data: { n: 1 } } })
  expect(json.places).toHaveLength(3)
  expect((await placesOf()).sync).toEqual({
    ...{ kind: 'queue', name: 'sync', state: 'waiting', attempts: 0 },
    operation: { id: `sync.${id}`, status: 'queued' },
  })
  await finish()
  const plain = await bus.queues.open('plain')
  const lease = await plain.claim()
  expect(await placesOf()).toMatchObject({ sync: { state: 'done' }, plain: { state: 'held', attempts: 1 } })
  await lease.items[0]!.retry('1h', 'busy')
  expect(await placesOf()).toMatchObject({ plain: { state: 'later', attempts: 1 } })
  const again = await bus.publish('order.paid', 2)
  await eventually(async () => expect((await plain.claim()).items).toHaveLength(1))
  await eventually(async () => expect((await bus.queues.get('plain')).held).toBe(1))
  expect((await bus.trace(again.id)).places).toContainEqual({
    kind: 'queue',
    name: 'plain',
    state: 'held',
    attempts: 1,
  })
  expect((await get('/v1/events/x/trace')).status).toBe(400)
})

test('[O13] trace: of what was there before its consumer nobody knows whether it was wanted; nor, without the event, whether it waits', async () => {
  const receiver = await startReceiver()
  const { bus, get } = await testDoor({ bus: { webhooks: toLoopback } })
  expect((await get('/v1/events/0-1/trace')).json).toEqual({ id: '0-1', event: null, places: [] })
  const before = await bus.publish('order.paid', 1)
  bus.webhook('erp', { url: receiver.url, match: 'order.*', batch: { maxEvents: 1 } })
  await bus.queues.put('plain', { match: 'order.*' })
  bus.processor('search', { match: 'order.*', concurrency: 1, from: 'now' }, () => undefined)
  await bus.run({ signals: false })
  const after = await bus.publish('order.paid', 2)
  const statesOf = async (id: string) =>
    Object.fromEntries((await bus.trace(id)).places.map(({ name, state }) => [name, state]))
  await eventually(async () =>
    expect(await statesOf(after.id)).toEqual({ erp: 'done', plain: 'waiting', search: 'done' }),
  )
  expect(await statesOf(before.id)).toEqual({ erp: 'unknown', plain: 'unknown', search: 'unknown' })
  // As if retention had passed it.
  expect((await get('/v1/events/0-1/trace')).json).toEqual({
    ...{ id: '0-1', event: null },
    places: [{ kind: 'queue', name: 'plain', state: 'unknown' }],
  })
  await bus.streams.reset('search', 'now')
  expect(await statesOf(after.id)).toMatchObject({ search: 'unknown' })
})

test('[O13] trace: a batch that is sealed while it is looked at is not done', async () => {
  const receiver = await startReceiver()
  receiver.otherwise = () => undefined
  const bus = testBus({ webhooks: toLoopback, partitions: 1 }) as Bus
  bus.webhook('erp', { url: receiver.url, match: 'order.*', batch: { maxEvents: 2, maxWait: '1h' } })
  await bus.run({ signals: false })
  const { id } = await bus.publish('order.paid', 1)
  await eventually(async () => expect((await bus.trace(id)).places).toMatchObject([{ state: 'waiting' }]))
  const proxy = await startProxy({ target: { port: Number(new URL(redisUrl()).port) } })
  onTestFinished(() => proxy.stop())
  const other = testBus({ namespace: bus.namespace, redis: proxy.url }) as Bus
  await other.trace(id)
  proxy.next('LRANGE', 'hold')
  const tracing = other.trace(id)
  await eventually(() => proxy.held.length === 1)
  await bus.publish('order.paid', 2)
  await eventually(() => receiver.received.length === 1)
  proxy.release()
  expect((await tracing).places).toMatchObject([{ kind: 'webhook', state: 'held' }])
})

test('[O13] trace: one that is queued may wait for a time, or for another of its object', async () => {
  const { bus } = await trackedDoor({ match: 'order.*', track: true, ordered: true })
  await bus.run({ signals: false })
  const queue = await bus.queues.open('sync')
  const [first, second] = [
    await bus.publish('order.paid', 1, { key: 'o' }),
    await bus.publish('order.paid', 2, { key: 'o' }),
  ]
  const place = async (id: string) => (await bus.trace(id)).places[0]
  const [item] = await eventually(async () => {
    const { items } = await queue.claim()
    return items.length > 0 && items
  })
  await eventually(async () => expect(await place(second.id)).toMatchObject({ state: 'behind' }))
  await item!.retry('1h', 'busy')
  expect(await place(first.id)).toMatchObject({ state: 'later', attempts: 1, operation: { status: 'queued' } })
})

test('[O13] trace: one that lies behind more than may be looked at is unknown, and never said to wait in line', async () => {
  const { bus } = await trackedDoor({ match: 'order.*', track: true, ordered: true })
  await bus.run({ signals: false })
  const ids: string[] = []
  const publish = async () => (await bus.publish('order.paid', 1, { key: 'o' })).id
  while (ids.length < 13_000) ids.push(...(await Promise.all(Array.from({ length: 1_000 }, publish))))
  await eventually(async () => expect((await bus.queues.get('sync')).behind).toBe(12_999), { timeoutMs: 20_000 })
  const places = await Promise.all(ids.slice(1, 41).map(async (id) => (await bus.trace(id)).places[0]!))
  expect(new Set(places.map(({ state }) => state))).toEqual(new Set(['behind', 'unknown']))
  for (const { operation } of places) expect(operation!.status).toBe('queued')
})

test('[O13] trace: a dead letter says why, one that was acked is done; in a long lane it is unknown', async () => {
  const { bus, get } = await trackedDoor()
  await bus.queues.put('plain', { match: 'order.*' })
  await bus.run({ signals: false })
  const plain = await bus.queues.open('plain')
  const [dead, done] = [await bus.publish('order.paid', 1), await bus.publish('order.paid', 2)]
  await eventually(async () => expect((await bus.queues.get('plain')).waiting).toBe(2))
  for (const item of (await plain.claim({ max: 2 })).items)
    await (item.id === dead.id ? item.dead('poison') : item.ack())
  expect((await bus.trace(dead.id)).places).toEqual([
    { kind: 'queue', name: 'plain', state: 'dead', attempts: 1, error: 'poison' },
  ])
  expect((await bus.trace(done.id)).places).toEqual([{ kind: 'queue', name: 'plain', state: 'done' }])
  for (let i = 0; i < 11; i += 1) await Promise.all(Array.from({ length: 1_000 }, () => plain.send(1)))
  expect((await get(`/v1/events/${done.id}/trace`)).json.places).toEqual([
    { kind: 'queue', name: 'plain', state: 'unknown' },
  ])
  expect((await bus.trace(dead.id)).places[0]!.state).toBe('dead')
})

test('[O13] trace: a processor that stands still at an event is blocked, with attempts and error; what is behind it waits', async () => {
  const { bus, get } = await testDoor({ bus: { partitions: 1 } })
  const [broken, seen] = [{ is: true }, [] as unknown[]]
  const retry = { attempts: 2, backoff: ['1ms', '1ms'] } as const
  bus.processor('search', { match: 'order.*', retry, onPoison: 'block' }, async (events) => {
    for await (const { data } of events) {
      if (data === 2 && broken.is) throw new Error('no room')
      seen.push(data)
    }
  })
  await bus.run({ signals: false })
  const ids: string[] = []
  for (const n of [1, 2, 3]) ids.push((await bus.publish('order.paid', n, { key: 'order:1' })).id)
  const placesOf = async (id: string) => (await get(`/v1/events/${id}/trace`)).json.places
  const search = { kind: 'processor', name: 'search' }
  await eventually(async () =>
    expect(await placesOf(ids[1]!)).toEqual([{ ...search, state: 'blocked', attempts: 2, error: 'Error: no room' }]),
  )
  expect(await placesOf(ids[0]!)).toEqual([{ ...search, state: 'done' }])
  expect(await placesOf(ids[2]!)).toEqual([{ ...search, state: 'waiting' }])
  broken.is = false
  await bus.streams.resume('search')
  for (const id of ids) await eventually(async () => expect(await placesOf(id)).toEqual([{ ...search, state: 'done' }]))
})

test('[O13] trace: of a parked object the event that failed says why; released it is in line again; a dead letter says why', async () => {
  const { bus } = await testDoor({ bus: { partitions: 1 } })
  const gate = new AbortController()
  let broken = true
  const handler = async () => {
    if (broken) throw new Error('no room')
    if (gate.signal.aborted) return
    await new Promise((resolve) => gate.signal.addEventListener('abort', resolve))
  }
  const retry = { attempts: 1 }
  bus.processor('parks', { match: 'order.*', retry, onPoison: 'park', concurrency: 1 }, handler)
  bus.processor('skips', { match: 'mail.*', retry, onPoison: 'skip', concurrency: 1 }, handler)
  await bus.run({ signals: false })
  const placeOf = async (id: string) => (await bus.trace(id)).places[0]
  const [failed, next] = [
    await bus.publish('order.paid', 1, { key: 'order:1' }),
    await bus.publish('order.paid', 2, { key: 'order:1' }),
  ]
  const mail = await bus.publish('mail.sent', 3)
  const why = { attempts: 1, error: 'Error: no room' }
  await eventually(async () =>
    expect(await placeOf(failed.id)).toEqual({ kind: 'processor', name: 'parks', state: 'parked', ...why }),
  )
  await eventually(async () =>
    expect(await placeOf(next.id)).toEqual({ kind: 'processor', name: 'parks', state: 'parked' }),
  )
  await eventually(async () =>
    expect(await placeOf(mail.id)).toEqual({ kind: 'processor', name: 'skips', state: 'dead', ...why }),
  )
  broken = false
  await bus.streams.resume('parks')
  expect(await placeOf(next.id)).toEqual({ kind: 'processor', name: 'parks', state: 'waiting' })
  gate.abort()
  await eventually(async () => expect(await placeOf(next.id)).toMatchObject({ state: 'done' }))
})
