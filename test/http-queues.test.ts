/** /v1/queues: queues over HTTP, by name, whoever declared them. */
import { once } from 'node:events'
import { request } from 'node:http'
import { describe, expect, test } from 'vitest'
import { queueKeys } from '../src/redis/keys.ts'
import { storedIn } from './lanes/store.ts'
import { plainRedis } from './support/bus.ts'
import { eventually } from './support/eventually.ts'
import { rootToken, type TestDoor, testDoor } from './support/http.ts'

const big = '{"n": 12345678901234567890.10,  "b":"\\u00e9"}'
const quick = { retry: { attempts: 2, backoff: ['10ms', '10ms'] }, lease: '20s' }

/** A door, and a queue that was put through it. */
async function mailDoor(definition: object = quick) {
  const door = await testDoor()
  const { send } = door
  expect((await send('PUT', '/v1/queues/mail', definition)).status).toBe(201)
  const post = async (path: string, body?: unknown) => {
    const { status, json, text } = await send('POST', `/v1/queues/mail${path}`, body)
    return { status, json, text }
  }
  const item = async (data: unknown, more: object = {}): Promise<string> =>
    (await post('/items', { data, ...more })).json.id
  const facts = async () => (await door.get('/v1/queues/mail')).json
  return { ...door, post, item, facts }
}

/** What lies in the store of the queue, read past all doors. */
const storeOf = ({ bus }: Pick<TestDoor, 'bus'>) =>
  storedIn({ redis: plainRedis(), keys: queueKeys(bus.namespace, 'mail') })

describe('definitions', () => {
  test('a queue is put, put again, changed, listed and taken away', async () => {
    const { send, get } = await testDoor()
    const definition = { match: ['order.*', 'acme:mail.>'], weights: { acme: 3 }, ...quick }
    const created = await send('PUT', '/v1/queues/mail', definition)
    expect([created.status, created.json.change]).toEqual([201, 'created'])
    expect(created.json).toMatchObject({
      ...{ name: 'mail', match: definition.match, weights: { acme: 3 }, attempts: 2, backoffMs: [10, 10] },
      ...{ leaseMs: 20_000, paused: false, waiting: 0, later: 0, held: 0, dead: 0, oldestMs: null },
    })
    const same = await send('PUT', '/v1/queues/mail', definition)
    expect([same.status, same.json.change, same.json.revision]).toEqual([200, 'same', created.json.revision])
    const forever = { ...definition, retry: { attempts: 'Infinity' } }
    const changed = await send('PUT', '/v1/queues/mail', forever)
    expect([changed.status, changed.json.change, changed.json.attempts]).toEqual([200, 'changed', 0])
    const { change: _, ...facts } = changed.json
    expect((await get('/v1/queues')).json).toEqual({ queues: [facts] })
    expect((await get('/v1/queues/mail')).json).toEqual(facts)
    const back = await send('PUT', '/v1/queues/mail', definition)
    expect([back.status, back.json.code]).toEqual([409, 'SUBSCRIPTION_CHANGED_ELSEWHERE'])
    expect(back.json.detail).toMatch(/had this definition before.*`force: true`.*`busbar queue put --force`/)
    expect((await send('PUT', '/v1/queues/mail', { ...definition, force: true })).json.change).toBe('changed')
    expect((await send('DELETE', '/v1/queues/mail')).json).toEqual({ removed: 'mail' })
    expect((await get('/v1/queues')).json).toEqual({ queues: [] })
    expect((await send('DELETE', '/v1/queues/mail')).json.code).toBe('QUEUE_NOT_FOUND')
  })

  test('what matches enters it, from where it was told to begin', async () => {
    const { bus, post, facts, send } = await mailDoor()
    const published = await bus.publish('order.paid', 1, { tenant: 'acme' })
    await bus.run({ signals: false })
    await send('PUT', '/v1/queues/late', { match: 'order.*' })
    await send('PUT', '/v1/queues/early', { match: 'order.*', from: 'beginning' })
    const second = await bus.publish('order.paid', 2)
    const popped = async (name: string) => (await send('POST', `/v1/queues/${name}/pop`, { max: 10 })).json.events
    await eventually(async () => (await bus.queues.get('early')).waiting === 2)
    await eventually(async () => (await bus.queues.get('late')).waiting === 1)
    expect((await popped('early')).map(({ id }: { id: string }) => id).sort()).toEqual([published.id, second.id].sort())
    expect(await popped('late')).toMatchObject([{ id: second.id, seq: second.seq, data: 2 }])
    expect([(await facts()).waiting, (await post('/pop')).json.events]).toEqual([0, []])
  })

  test.each([
    [{ matsch: 'order.*' }, 'BODY_INVALID', '"matsch" is unknown (did you mean "match"?)'],
    [{ match: 'order..paid' }, 'PATTERN_INVALID', 'order..paid'],
    [{ lease: '1ms' }, 'SETTING_INVALID', 'lease must be from 100ms to 1d; got "1ms"'],
    [{ lease: 'soon' }, 'SETTING_INVALID', 'lease must be a duration'],
    [{ retry: { attempts: 0 } }, 'SETTING_INVALID', 'retry.attempts must be a whole number from 1'],
    [{ retry: { backoff: ['5m', '1s'] } }, 'SETTING_INVALID', 'the first wait and then the longest'],
    [{ retry: { attempt: 1 } }, 'BODY_INVALID', '"attempt" is unknown'],
    [{ onPoison: 'block' }, 'SETTING_INVALID', `onPoison must be 'skip' or 'park'; got "block"`],
    [{ limits: { inflight: 1 } }, 'SETTING_INVALID', 'limits.inflight is unknown (did you mean "inFlight"?)'],
    [
      { limits: { rate: '9/s' } },
      'SETTING_INVALID',
      'A setting is not usable:\n  - limits.rate must be an object with max, per;',
    ],
    [
      { limits: { rate: { max: 1, per: '2d' } } },
      'SETTING_INVALID',
      'limits.rate.per must be from 1ms to 1d; got "2d"',
    ],
    [{ limits: { rate: null } }, 'SETTING_INVALID', 'limits.rate must be an object with max, per; got null'],
    [{ limits: null }, 'SETTING_INVALID', 'limits must be an object with inFlight, '],
    [{ limits: { inFlight: '5', maxShare: '1' } }, 'SETTING_INVALID', '2 settings are not usable'],
    [{ weights: { acme: -1 } }, 'SETTING_INVALID', 'weights.acme must be a whole number from 0'],
    [{ from: 'yesterday' }, 'PARAMETER_INVALID', '"from" must be beginning, now, or a time'],
    ['{"match":', 'BODY_INVALID', 'is not JSON: unexpected end at character 10.'],
    ['[]', 'BODY_INVALID', ''],
  ])('%j is refused and nothing is registered', async (body, code, said) => {
    const { send, get } = await testDoor()
    const { status, json } = await send('PUT', '/v1/queues/mail', body)
    expect([status, json.code]).toEqual([400, code])
    expect(json.detail).toContain(said)
    expect((await get('/v1/queues')).json).toEqual({ queues: [] })
  })

  test('a name that cannot be is refused, one that is not there is 404 with the one that was meant', async () => {
    const { send, get } = await mailDoor()
    expect((await send('PUT', '/v1/queues/Mail', {})).json).toMatchObject({ status: 400, code: 'SETTING_INVALID' })
    const routes = [
      ['GET', ''],
      ['DELETE', ''],
      ['GET', '/tenants'],
      ['GET', '/peek'],
      ['GET', '/dead'],
      ['POST', '/items', { data: 1 }],
      ['POST', '/claim', {}],
      ['POST', '/pop', {}],
      ['POST', '/ack', { token: 'x'.repeat(20), ids: ['a'] }],
      ['POST', '/nack', { token: 'x'.repeat(20), id: 'a' }],
      ['POST', '/extend', { token: 'x'.repeat(20), id: 'a', time: 1 }],
      ['POST', '/pause'],
      ['POST', '/resume'],
      ['POST', '/dead/redrive', { ids: 'all' }],
      ['POST', '/dead/discard', { ids: 'all' }],
    ] as const
    for (const [method, path, body] of routes) {
      const { status, json } = await send(method, `/v1/queues/mial${path}`, body)
      expect([path, status, json.code]).toEqual([path, 404, 'QUEUE_NOT_FOUND'])
      expect(json.detail).toContain('Did you mean mail?')
    }
    const bare = await get('/v1/queues', { authorization: 'Bearer nobody' })
    expect([bare.status, bare.json.code]).toEqual([401, 'UNAUTHENTICATED'])
  })
})

describe('items', () => {
  test('what is sent is claimed byte for byte, with its times and attempt', async () => {
    const { bus, post, send } = await mailDoor()
    const { status, json } = await post('/items', `{"data":${big},"tenant":"acme","key":"mail:7","trace":"t-1"}`)
    expect([status, json]).toEqual([201, { id: expect.stringMatching(/^mail\.[\w-]{20}$/), duplicate: false }])
    const { text, json: lease } = await post('/claim')
    expect(text).toContain(`"data":${big}}`)
    const [claimed] = lease.items
    expect(claimed).toMatchObject({
      ...{ id: json.id, attempt: 1, enqueuedAt: expect.any(Number), firstClaimedAt: expect.any(Number) },
      event: { id: json.id, type: 'mail', tenant: 'acme', key: 'mail:7', trace: 't-1' },
    })
    const again = { token: lease.token, id: json.id, after: 0, reason: 'busy' }
    expect((await post('/nack', again)).json).toEqual({ settled: [json.id], stale: [] })
    const second = (await post('/claim', { lease: '5s' })).json.items[0]
    expect(second).toMatchObject({ attempt: 2, enqueuedAt: claimed.enqueuedAt, firstClaimedAt: claimed.firstClaimedAt })
    expect((await bus.queues.get('mail')).held).toBe(1)
    expect((await send('POST', '/v1/queues/mail/claim', '')).json.items).toEqual([])
  })

  test('delay, ttl, priority and idempotency key as with send()', async () => {
    const { post, item, facts } = await mailDoor()
    const first = await post('/items', { data: 1, idempotencyKey: 'once' })
    expect((await post('/items', { data: 1, idempotencyKey: 'once' })).json).toEqual({ ...first.json, duplicate: true })
    expect((await post('/items', { data: 2, idempotencyKey: 'once' })).json).toMatchObject({
      ...{ status: 409, code: 'IDEMPOTENCY_KEY_REUSED' },
    })
    await item('urgent', { priority: 9 })
    await item('tomorrow', { delay: '1d' })
    await item('never', { ttl: 1 })
    await eventually(async () => (await post('/claim', { max: 1_000 })).json.items.length === 0, { everyMs: 5 })
    expect(await facts()).toMatchObject({ held: 2, later: 1, expired: 1 })
  })

  test('[Q11] a claim on an empty queue is empty, without error, and says when something is due', async () => {
    const { post, item } = await mailDoor()
    expect(await post('/claim', { max: 5 })).toMatchObject({
      ...{ status: 200, json: { token: null, items: [], dueInMs: null } },
    })
    await item(1, { delay: '1m' })
    const { dueInMs } = (await post('/claim', { max: 5 })).json
    expect(dueInMs).toBeGreaterThan(50_000)
    expect(dueInMs).toBeLessThanOrEqual(60_000)
  })

  test('a claim that waits is answered when something comes, and empty when its time is over', async () => {
    const { post, item } = await mailDoor()
    const began = performance.now()
    expect((await post('/claim', { wait: '300ms' })).json.items).toEqual([])
    expect(performance.now() - began).toBeGreaterThan(290)
    const waiting = post('/claim', { wait: '20s' })
    const id = await item(1)
    expect((await waiting).json.items).toMatchObject([{ id }])
    expect(performance.now() - began).toBeLessThan(5_000)
  })

  test('a claim that waits ends with its client, and takes nothing away', async () => {
    const { bus, door, item, facts, telemetry } = await mailDoor()
    const redis = plainRedis()
    const keys = queueKeys(bus.namespace, 'mail')
    const headers = { authorization: `Bearer ${rootToken}`, 'content-type': 'application/json' }
    const sent = request(`${door.url}/v1/queues/mail/claim`, { method: 'POST', headers, agent: false })
    sent.on('error', () => undefined)
    sent.end('{"wait":"30s"}')
    await once(sent, 'finish')
    await eventually(async () => (await redis.zcard(keys.idle)) === 1)
    sent.destroy()
    await eventually(async () => (await redis.zcard(keys.idle)) === 0)
    await item(1)
    await eventually(() => telemetry.some(({ name, fields }) => name === 'http.request' && fields.status === 499))
    expect(await facts()).toMatchObject({ waiting: 1, held: 0 })
  })

  test('a claim that waits ends with the door', async () => {
    const { door, post } = await mailDoor()
    const waiting = post('/claim', { wait: '30s' })
    const began = performance.now()
    await new Promise((resolve) => setTimeout(resolve, 100))
    await door.close({ timeoutMs: 10_000 })
    expect((await waiting).json.items).toEqual([])
    expect(performance.now() - began).toBeLessThan(5_000)
  })

  test('[Q16] peek: the next items in the order of their turns, and nothing has changed', async () => {
    const { post, item, get, bus } = await mailDoor()
    for (const data of [1, 2, 3]) await item(data, { tenant: 'acme' })
    await item(4, { tenant: 'zebra' })
    await post('/items', `{"data":${big},"tenant":"acme"}`)
    const before = await storeOf({ bus })
    const { text, json } = await get('/v1/queues/mail/peek?max=10')
    expect(text).toContain(`"data":${big}}`)
    expect(json.events.map(({ data }: { data: unknown }) => data)).toEqual([1, 4, 2, 3, JSON.parse(big)])
    expect((await get('/v1/queues/mail/peek?max=2')).json.events).toHaveLength(2)
    expect(await storeOf({ bus })).toEqual(before)
    const claimed = (await post('/claim', { max: 10 })).json.items
    expect(claimed.map(({ event }: { event: { data: unknown } }) => event.data)).toEqual([1, 4, 2, 3, JSON.parse(big)])
  })

  test('[Q18] extend postpones redelivery, 0 makes it available now, and asking again answers the same', async () => {
    const { post, item } = await mailDoor()
    const id = await item(1)
    const { token } = (await post('/claim', { lease: '400ms' })).json
    const extended = (await post('/extend', { token, id, time: '30s' })).json
    expect(extended).toEqual({
      ...{ settled: [id], stale: [], token: expect.stringMatching(/^[\w-]{20}$/), until: expect.any(Number) },
    })
    expect(extended.token).not.toBe(token)
    expect(extended.until).toBeGreaterThan(Date.now() + 20_000)
    expect((await post('/extend', { token, id, time: '30s' })).json.token).toBe(extended.token)
    // The lease of the claim would have ended by now.
    expect((await post('/claim', { wait: '700ms' })).json.items).toEqual([])
    expect((await post('/extend', { token: extended.token, id, time: 0 })).json).toEqual({
      ...{ settled: [id], stale: [], token: null, until: null },
    })
    expect((await post('/claim')).json.items).toMatchObject([{ id, attempt: 2 }])
  })

  test('[Q19] ack, nack and extend after the lease moved on are stale, and nothing changes', async () => {
    const { bus, post, item } = await mailDoor({ ...quick, retry: { attempts: 5 } })
    const id = await item(1)
    const { token } = (await post('/claim', { lease: '50ms' })).json
    const { token: holder } = await eventually(async () => {
      const { json } = await post('/claim')
      return json.items.length === 1 && json
    })
    const before = await storeOf({ bus })
    const stale = { settled: [], stale: [id] }
    expect((await post('/ack', { token, ids: [id] })).json).toEqual(stale)
    expect((await post('/nack', { token, id })).json).toEqual(stale)
    expect((await post('/nack', { token, id, dead: true })).json).toEqual(stale)
    expect((await post('/extend', { token, id, time: '1m' })).json).toEqual({ ...stale, token: null, until: null })
    expect((await post('/extend', { token, id, time: 0 })).json).toEqual({ ...stale, token: null, until: null })
    expect(await storeOf({ bus })).toEqual(before)
    expect((await post('/ack', { token: holder, ids: [id, 'mail.another', id] })).json).toEqual({
      ...{ settled: [id], stale: ['mail.another'] },
    })
    expect((await post('/ack', { token: holder, ids: [id] })).json).toEqual(stale)
  })

  test('nack without a time follows the retry policy, and ends in the dead letters', async () => {
    const { post, item, facts, get } = await mailDoor({ retry: { attempts: 2, backoff: ['1h', '1h'] } })
    const id = await item(1)
    const first = (await post('/claim')).json
    expect((await post('/nack', { token: first.token, id })).json.settled).toEqual([id])
    expect(await facts()).toMatchObject({ waiting: 0, later: 1 })
    const { dueInMs } = (await post('/claim')).json
    expect(dueInMs).toBeGreaterThan(1_000_000)
    await item(2)
    const second = (await post('/claim')).json
    await post('/nack', { token: second.token, id: second.items[0].id, dead: true, reason: 'no such address' })
    const { letters } = (await get('/v1/queues/mail/dead')).json
    expect(letters).toMatchObject([{ id: second.items[0].id, error: 'no such address', attempts: 1 }])
  })

  test('[Q38] pop: taken for good, never given again, also when nobody got the answer', async () => {
    const { bus, door, post, item, facts } = await mailDoor()
    const ids = [await item(1), await item(2)]
    expect((await post('/pop')).json.events).toMatchObject([{ id: ids[0], data: 1 }])
    // This client dies before it can read the answer.
    const headers = { authorization: `Bearer ${rootToken}`, 'content-type': 'application/json' }
    const sent = request(`${door.url}/v1/queues/mail/pop`, { method: 'POST', headers, agent: false })
    sent.on('error', () => undefined)
    sent.end('{}')
    await once(sent, 'finish')
    await eventually(async () => (await facts()).out === 2)
    sent.destroy()
    expect(await facts()).toMatchObject({ waiting: 0, held: 0, later: 0, dead: 0, in: 2, out: 2 })
    expect((await post('/claim', { wait: '300ms' })).json.items).toEqual([])
    expect((await storeOf({ bus })).leases).toEqual({})
  })

  test.each([
    ['/items', { data: 1, dely: '5m' }, 'EVENT_INVALID', '"dely" is unknown (did you mean "delay"?)'],
    ['/items', { data: 1, tenant: 'a b' }, 'EVENT_INVALID', '"tenant" must be of'],
    ['/items', { data: 1, delay: 'soon' }, 'PARAMETER_INVALID', '"delay" must be a duration'],
    ['/items', { data: 1, delay: '2s', ttl: '1s' }, 'PARAMETER_INVALID', '"ttl" must be longer than the delay'],
    ['/items', { data: 1, priority: 101 }, 'PARAMETER_INVALID', '"priority" must be a whole number from -100'],
    ['/items', '{"data":1,"data":2}', 'EVENT_INVALID', '"data" must be given once'],
    ['/items', '[1]', 'BODY_INVALID', 'must be a JSON object'],
    ['/items', '', 'BODY_INVALID', 'must be a JSON object'],
    ['/items', '{"data":', 'BODY_INVALID', 'is not JSON: unexpected end at character 9.'],
    ['/items', 'hello', 'BODY_INVALID', 'is not JSON: unexpected "h" at character 1.'],
    ['/claim', { max: 0 }, 'BODY_INVALID', '"max" must be a whole number from 1 to 1000'],
    ['/claim', { max: 1_001 }, 'BODY_INVALID', '"max" must be a whole number from 1 to 1000'],
    ['/claim', { wait: '31s' }, 'PARAMETER_INVALID', '"wait" must be at most 30s'],
    ['/claim', { wait: 'long' }, 'PARAMETER_INVALID', '"wait" must be a duration'],
    ['/claim', { lease: 0 }, 'PARAMETER_INVALID', '"lease" must be at least 1ms'],
    ['/claim', { wiat: 1 }, 'BODY_INVALID', '"wiat" is unknown (did you mean "wait"?)'],
    ['/ack', { token: 'x', ids: ['a'] }, 'PARAMETER_INVALID', '"token" must be the token of a claim'],
    ['/ack', { token: 'x'.repeat(20), ids: [] }, 'BODY_INVALID', '"ids" must be a list of 1 to 1000 ids'],
    ['/ack', { ids: ['a'] }, 'BODY_INVALID', '"token" is missing'],
    ['/nack', { token: 'x'.repeat(20), id: 'a', after: 1, dead: true }, 'BODY_INVALID', '"after" or "dead", not both'],
    ['/nack', { token: 'x'.repeat(20), id: '' }, 'PARAMETER_INVALID', '"id" must be the id of a claimed item'],
    ['/extend', { token: 'x'.repeat(20), id: 'a' }, 'BODY_INVALID', '"time" is missing'],
    ['/extend', { token: 'x'.repeat(20), id: 'a', time: '-1s' }, 'PARAMETER_INVALID', '"time" must be a duration'],
    ['/pop', { max: 'all' }, 'BODY_INVALID', '"max" must be a whole number from 1 to 1000'],
    ['/pause', { until: 1 }, 'BODY_INVALID', '"until" is unknown'],
    ['/dead/redrive', {}, 'BODY_INVALID', 'must say which'],
    ['/dead/redrive', { ids: 'all', tenant: 'a' }, 'BODY_INVALID', 'not both'],
    ['/dead/discard', { before: 'tomorrow' }, 'PARAMETER_INVALID', '"before" must be ms since the epoch'],
    ['/dead/discard', { tennant: 'a' }, 'BODY_INVALID', '"tennant" is unknown (did you mean "tenant"?)'],
  ])('%s %j is refused', async (path, body, code, said) => {
    const { post, facts } = await mailDoor()
    const { status, json } = await post(path, body)
    expect([status, json.code]).toEqual([400, code])
    expect(json.detail).toContain(said)
    expect(await facts()).toMatchObject({ in: 0, paused: false })
  })

  test('a body over the limit of its route is refused before it is read', async () => {
    const { post } = await mailDoor()
    const { status, json } = await post('/ack', `{"token":"${'x'.repeat(200_000)}`)
    expect([status, json.code, json.detail]).toEqual([413, 'BODY_TOO_LARGE', expect.stringContaining('131072 bytes')])
    const large = await post('/items', `{"data":"${'x'.repeat(300_000)}"}`)
    expect([large.status, large.json.code]).toEqual([413, 'EVENT_TOO_LARGE'])
  })
})

describe('facts', () => {
  test('[Q12] which tenants wait: with counts and oldest age, the most first', async () => {
    const { item, get, post } = await mailDoor({ ...quick, weights: { acme: 3 } })
    for (const data of [1, 2, 3]) await item(data, { tenant: 'acme' })
    await item(4, { tenant: 'zebra' })
    await item(5, { tenant: 'zebra', delay: '1h' })
    await new Promise((resolve) => setTimeout(resolve, 30))
    const { tenants } = (await get('/v1/queues/mail/tenants')).json
    expect(tenants).toMatchObject([
      { tenant: 'acme', weight: 3, waiting: 3, later: 0, held: 0 },
      { tenant: 'zebra', weight: 1, waiting: 1, later: 1, held: 0 },
    ])
    for (const { oldestMs } of tenants) expect(oldestMs).toBeGreaterThanOrEqual(30)
    expect((await get('/v1/queues/mail/tenants?limit=1')).json.tenants).toHaveLength(1)
    await post('/claim', { max: 10 })
    expect((await get('/v1/queues/mail/tenants')).json.tenants).toMatchObject([
      { tenant: 'acme', waiting: 0, held: 3, oldestMs: null },
      { tenant: 'zebra', waiting: 0, held: 1, later: 1, oldestMs: null },
    ])
    expect((await get('/v1/queues/mail/tenants?limit=0')).json.code).toBe('PARAMETER_INVALID')
  })

  test('[Q41] info: waiting, later, held, dead, in, out, oldest, per tenant and in all, equal to the store', async () => {
    const door = await mailDoor({ ...quick, retry: { attempts: 1 } })
    const { post, item, facts, get } = door
    for (const tenant of ['acme', 'zebra'])
      for (const data of [1, 2, 3, 4, 5, 6]) await item(data, { tenant, ...(data === 6 ? { delay: '1h' } : {}) })
    await item(7, { tenant: 'acme', delay: '1h' })
    const first = (await post('/claim', { max: 4 })).json
    await post('/ack', { token: first.token, ids: [first.items[0].id, first.items[1].id] })
    await post('/nack', { token: first.token, id: first.items[2].id })
    const [stored, said] = [await storeOf(door), await facts()]
    const count = <T>(groups: Record<string, readonly T[]>) => Object.values(groups).flat().length
    const heldIn = Object.values(stored.leases).flatMap(({ items }) => items)
    expect(said).toMatchObject({
      waiting: count(stored.waiting),
      later: stored.laterItems.length,
      held: heldIn.length,
      dead: stored.dead.length,
      ...{ in: 13, out: 2, tenants: 2 },
    })
    expect([said.waiting, said.later, said.held, said.dead]).toEqual([6, 3, 1, 1])
    expect(said.in).toBe(said.waiting + said.later + said.held + said.dead + said.out)
    expect(said.oldestMs).toBeGreaterThan(0)
    const { tenants } = (await get('/v1/queues/mail/tenants')).json
    for (const one of tenants) {
      const { tenant } = one
      expect(one.waiting).toBe(stored.waiting[tenant]?.length ?? 0)
      expect([one.later, one.held, one.dead]).toEqual([
        ...[stored.records[tenant]!.later, stored.records[tenant]!.held, stored.records[tenant]!.dead],
      ])
    }
    const sum = (name: string) => tenants.reduce((all: number, one: Record<string, number>) => all + one[name]!, 0)
    for (const name of ['waiting', 'later', 'held', 'dead', 'in', 'out', 'bytes'])
      expect([name, sum(name)]).toEqual([name, said[name]])
  })

  test('pause and resume', async () => {
    const { post, item, facts } = await mailDoor()
    expect((await post('/pause')).json).toEqual({ name: 'mail', paused: true })
    await item(1)
    expect(await facts()).toMatchObject({ paused: true, waiting: 1 })
    expect((await post('/claim')).json.items).toEqual([])
    const waiting = post('/claim', { wait: '10s' })
    expect((await post('/resume', {})).json).toEqual({ name: 'mail', paused: false })
    expect((await waiting).json.items).toHaveLength(1)
  })

  test('[Q29] pause and resume of one tenant', async () => {
    const { post, item, facts } = await mailDoor()
    await item(1, { tenant: 'acme' })
    expect((await post('/pause', { tenant: 'acme' })).json).toEqual({ name: 'mail', tenant: 'acme', paused: true })
    expect(await facts()).toMatchObject({ paused: false, waiting: 1 })
    expect((await post('/claim')).json.items).toEqual([])
    expect((await post('/resume', { tenant: 'acme' })).json).toEqual({ name: 'mail', tenant: 'acme', paused: false })
    expect((await post('/claim')).json.items).toHaveLength(1)
  })

  test('[Q22] parked objects: listed, resumed, given up; limits are part of the definition', async () => {
    const { send } = await testDoor()
    const limits = { inFlight: 10, rate: { max: 100, per: '1s' }, backlog: 2 }
    const body = { ordered: true, onPoison: 'park', retry: { attempts: 1 }, limits }
    expect((await send('PUT', '/v1/queues/orders', body)).json).toMatchObject({ ordered: true, limits: { backlog: 2 } })
    const item = (n: number) => send('POST', '/v1/queues/orders/items', { data: n, tenant: 'acme', key: 'order:1' })
    const resume = (body: object) => send('POST', '/v1/queues/orders/resume', body)
    const fail = async () => {
      const { token, items } = (await send('POST', '/v1/queues/orders/claim', {})).json
      await send('POST', '/v1/queues/orders/nack', { token, id: items[0].id, reason: 'broken' })
    }
    await item(1)
    await item(2)
    expect(await item(3)).toMatchObject({ status: 429, json: { code: 'BACKLOG_FULL' } })
    await fail()
    expect((await send('GET', '/v1/queues/orders/parked')).json).toMatchObject({
      parked: [{ object: 'acme/order:1', error: 'broken', behind: 1, event: { data: 1 } }],
    })
    const ofTenant = async (tenant: string) => (await send('GET', `/v1/queues/orders/parked?tenant=${tenant}`)).json
    expect([(await ofTenant('acme')).parked.length, await ofTenant('zebra')]).toEqual([1, { parked: [] }])
    expect((await send('GET', '/v1/queues/orders/parked?tenat=a')).json).toMatchObject({ code: 'PARAMETER_INVALID' })
    for (const object of ['order:1', 'acme', '/order:1', 'acme/\ud800', ''])
      expect((await resume({ object })).json).toEqual({ name: 'orders', objects: 0 })
    expect(await resume({ object: 'acme/order:1', tenant: 'acme' })).toMatchObject({ json: { code: 'BODY_INVALID' } })
    expect((await resume({ object: 'acme/order:1' })).json.objects).toBe(1)
    await fail()
    const path = '/v1/queues/orders/parked?object=acme/order:1'
    expect((await send('DELETE', path)).json).toEqual({ discarded: 2 })
    await send('POST', '/v1/queues/orders/items', '{"data":12345678901234567890.10,"key":"order:2"}')
    await fail()
    expect((await send('GET', '/v1/queues/orders/parked')).text).toContain('"data":12345678901234567890.10}')
  })

  test('[Q36] match: who would get it, and why one would not', async () => {
    const { get, send } = await testDoor()
    await send('PUT', '/v1/queues/orders', { match: 'order.*' })
    await send('PUT', '/v1/queues/acme', { match: 'acme:>' })
    await send('PUT', '/v1/queues/jobs', {})
    await send('POST', '/v1/queues/orders/pause')
    const match = async (query: string) => (await get(`/v1/match?${query}`)).json
    const since = expect.any(Number)
    expect((await match('tenant=acme&type=order.paid')).matches).toEqual([
      { name: 'acme', kind: 'queue', match: 'acme:>', matches: true, why: 'matches', since },
      { name: 'jobs', kind: 'queue', match: null, matches: false, why: 'pattern', since },
      {
        ...{ name: 'orders', kind: 'queue', match: 'order.*', matches: true, why: 'matches', since },
        pausedSince: expect.any(Number),
      },
    ])
    const why = await match('tenant=zebra&type=mail.sent&name=orders')
    expect(why.matches).toMatchObject([
      { name: 'orders', matches: false, why: 'pattern', pausedSince: expect.any(Number) },
    ])
    expect(await match('tenant=acme&type=order.paid&name=order')).toMatchObject({
      ...{ code: 'SUBSCRIPTION_NOT_FOUND', detail: expect.stringContaining('Did you mean orders?') },
    })
    expect((await match('tenant=acme')).detail).toContain('"type" is missing: add it to the query, as in ?type=….')
    expect((await match('tenant=acme&type=a..b')).code).toBe('PARAMETER_INVALID')
    expect((await match('tenant=a%20b&type=a')).code).toBe('PARAMETER_INVALID')
    expect((await match('tenant=acme&type=a&tpye=b')).code).toBe('PARAMETER_INVALID')
  })
})
