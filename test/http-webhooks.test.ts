/** /v1/webhooks: webhooks over HTTP, by name, whoever declared them. */
import { describe, expect, test } from 'vitest'
import { verify } from '../src/webhook-signature.ts'
import { eventually } from './support/eventually.ts'
import { testDoor } from './support/http.ts'
import { type Received, startReceiver, toLoopback } from './support/receiver.ts'

const secretOf = (byte: number): string => `whsec_${Buffer.alloc(32, byte).toString('base64')}`
const quick = { batch: { maxEvents: 2, maxWait: 0 }, retry: { backoff: ['10ms', '20ms'], attempts: 2 } }

/** A door whose bus may post to this machine, an endpoint there, and a webhook that was put through the door. */
async function erpDoor(definition: object = {}) {
  const server = await startReceiver()
  const door = await testDoor({ bus: { webhooks: { ...toLoopback, dispatch: true } } })
  const { send } = door
  const put = (more: object = {}) =>
    send('PUT', '/v1/webhooks/erp', { url: server.url, match: 'order.>', ...quick, ...definition, ...more })
  const created = await put()
  expect([created.status, created.json.change]).toEqual([201, 'created'])
  const post = (path: string, body?: unknown) => send('POST', `/v1/webhooks/erp${path}`, body)
  const get = async (path = '') => (await door.get(`/v1/webhooks/erp${path}`)).json
  return { ...door, server, put, created: created.json, post, get, getPath: door.get }
}

const signedBy = ({ headers, body }: Received, secret: string): boolean => {
  const header = (name: string) => headers[name] as string
  const request = {
    ...{ id: header('webhook-id'), timestamp: header('webhook-timestamp') },
    ...{ signature: header('webhook-signature'), body },
  }
  try {
    verify(request, { secrets: [secret], nowMs: Date.now() })
    return true
  } catch {
    return false
  }
}

describe('definitions', () => {
  test('a webhook is put, put again, changed, listed and taken away; nothing that is secret is answered', async () => {
    const hidden = { secret: secretOf(1), basic: 'the-user', headers: { 'X-Token': 'the-token' } }
    const { put, created, get, getPath, send, server } = await erpDoor({
      ...hidden,
      retry: { backoff: ['2s', '1m'], giveUpAfter: '1d' },
      ...{ timeout: '5s', disableAfter: '2d', keep: 500, format: 'routemaster' },
    })
    expect(created).toMatchObject({
      ...{ name: 'erp', match: 'order.>', url: server.url, state: 'active', maxEvents: 2, maxWaitMs: 0 },
      ...{ backoffMs: [2_000, 60_000], giveUpAfterMs: 86_400_000, timeoutMs: 5_000, disableAfterMs: 172_800_000 },
      ...{ keepEvents: 500, format: 'routemaster', parallel: 1, headers: ['x-token'], basic: true },
      ...{ backlog: 0, delivered: 0, dead: 0, letters: 0, deliveredAt: null },
    })
    const { change: _, ...facts } = created
    expect(await get()).toEqual(facts)
    const listed = await getPath('/v1/webhooks')
    expect(listed.json).toEqual({ webhooks: [facts] })
    expect(listed.text + JSON.stringify(created)).not.toMatch(/whsec_|the-(user|token)/)

    const same = await put()
    expect([same.status, same.json.change, same.json.revision]).toEqual([200, 'same', created.revision])
    const changed = await put({ match: ['order.paid', 'acme:mail.>'] })
    expect([changed.status, changed.json.change]).toEqual([200, 'changed'])
    const back = await put()
    expect([back.status, back.json.code]).toEqual([409, 'SUBSCRIPTION_CHANGED_ELSEWHERE'])
    expect((await put({ force: true })).json.change).toBe('changed')
    expect((await send('DELETE', '/v1/webhooks/erp')).json).toEqual({ removed: 'erp' })
    expect((await getPath('/v1/webhooks')).json).toEqual({ webhooks: [] })
    const gone = await send('DELETE', '/v1/webhooks/erp')
    expect([gone.status, gone.json.code]).toEqual([404, 'WEBHOOK_NOT_FOUND'])
  })

  test.each([
    [{ matsch: 'order.*' }, 'BODY_INVALID', '"matsch" is unknown (did you mean "match"?)'],
    [{ match: 'order..paid' }, 'PATTERN_INVALID', 'order..paid'],
    [{ match: undefined }, 'SETTING_INVALID', "match must be a pattern, as in 'order.>'"],
    [{ url: 7 }, 'SETTING_INVALID', "url must be a text, as in 'https://example.com/hook'; got 7"],
    [{ url: 'ftp://127.0.0.1/x' }, 'WEBHOOK_URL_REFUSED', 'its scheme is "ftp"'],
    [{ url: 'http://10.0.0.1/x' }, 'WEBHOOK_URL_REFUSED', '10.0.0.1 is a private address'],
    [{ batch: { maxEvent: 1 } }, 'SETTING_INVALID', 'batch.maxEvent is unknown (did you mean "maxEvents"?)'],
    [{ batch: 5 }, 'SETTING_INVALID', 'batch must be an object with maxEvents, maxWait, maxBytes; got 5'],
    [{ batch: { maxEvents: '5' }, keep: 0 }, 'SETTING_INVALID', '2 settings are not usable'],
    [{ batch: { maxWait: 'soon' } }, 'SETTING_INVALID', 'batch.maxWait must be a duration'],
    [{ batch: { maxBytes: '2MiB' } }, 'SETTING_INVALID', 'batch.maxBytes must be from 1KiB to 1MiB'],
    [{ retry: { backoff: 'ladder' } }, 'SETTING_INVALID', 'it needs parallel'],
    [{ retry: { backoff: ['5m', '1s'] } }, 'SETTING_INVALID', 'the first wait and then the longest'],
    [{ retry: [] }, 'SETTING_INVALID', 'retry must be an object'],
    [{ format: 'xml' }, 'SETTING_INVALID', 'format must be one of busbar, cloudevents-batch, routemaster'],
    [{ headers: { host: 'a.b' } }, 'WEBHOOK_HEADERS_INVALID', '"host" is set by Busbar'],
    [{ headers: [] }, 'WEBHOOK_HEADERS_INVALID', 'must be an object of names and texts'],
    [{ secret: 'whsec_short' }, 'PARAMETER_INVALID', 'base64 of 24 to 64 random bytes'],
    [{ secret: null }, 'PARAMETER_INVALID', '"secret" must be'],
    [{ from: 'yesterday' }, 'PARAMETER_INVALID', '"from" must be beginning, now, or a time'],
    [{ from: {} }, 'BODY_INVALID', '"from" must be beginning, now, or a time'],
    ['{"url":', 'BODY_INVALID', 'is not JSON'],
  ])('%j is refused and nothing is registered', async (body, code, said) => {
    const { send, get } = await testDoor({ bus: { webhooks: { allow: ['127.0.0.0/8'], allowHttp: true } } })
    const whole = typeof body === 'string' ? body : { url: 'http://127.0.0.1:9/', match: '>', ...body }
    const { status, json, headers } = await send('PUT', '/v1/webhooks/erp', whole)
    expect([status, json.code]).toEqual([400, code])
    expect(json.detail).toContain(said)
    expect(headers.get('content-type')).toBe('application/problem+json')
    expect((await get('/v1/webhooks')).json).toEqual({ webhooks: [] })
  })

  test('without leave nothing goes to this machine, nor by http', async () => {
    const { send } = await testDoor()
    const put = (url: string) => send('PUT', '/v1/webhooks/erp', { url, match: '>' })
    expect((await put('http://example.com/')).json.detail).toMatch(/it is not https.*allow http where this server/)
    expect((await put('https://127.0.0.1/')).json.detail).toMatch(/127\.0\.0\.1 is a loopback address/)
  })

  test('a name that cannot be is refused, one that is not there is 404 with the one that was meant', async () => {
    const { send, getPath, server } = await erpDoor()
    const wrong = await send('PUT', '/v1/webhooks/Erp', { url: server.url, match: '>' })
    expect([wrong.status, wrong.json.code]).toEqual([400, 'SETTING_INVALID'])
    const paths = ['', '/secrets', '/attempts', '/batches', '/dead']
    for (const path of paths) {
      const { status, json } = await getPath(`/v1/webhooks/erq${path}`)
      expect([path, status, json.code]).toEqual([path, 404, 'WEBHOOK_NOT_FOUND'])
      expect(json.detail).toContain('Did you mean erp?')
    }
    for (const path of ['pause', 'resume', 'test', 'rotate', 'replay', 'dead/redrive', 'dead/discard']) {
      const body = path === 'replay' ? { since: 0 } : path.startsWith('dead') ? { ids: 'all' } : undefined
      expect([path, (await send('POST', `/v1/webhooks/erq/${path}`, body)).status]).toEqual([path, 404])
    }
    await send('PUT', '/v1/queues/mail', {})
    expect((await getPath('/v1/webhooks/mail')).status).toBe(404)
    const taken = await send('PUT', '/v1/webhooks/mail', { url: server.url, match: '>' })
    expect(taken.json.detail).toContain('"mail" is the name of a queue: take another one')
    const [name] = (await getPath('/v1/webhooks')).json.webhooks.map((webhook: { name: string }) => webhook.name)
    for (const body of [{}, { match: 'order.*' }, { ordered: true }]) {
      const other = await send('PUT', `/v1/queues/${name}`, body)
      expect([other.status, other.json.detail]).toEqual([
        400,
        expect.stringContaining(`"${name}" is the name of a webhook`),
      ])
    }
    expect((await getPath(`/v1/webhooks/${name}`)).status).toBe(200)
  })

  test.each([
    ['POST', 'pause', { now: true }, '"now" is unknown'],
    ['POST', 'rotate', { overlapp: '1h' }, '"overlapp" is unknown (did you mean "overlap"?)'],
    ['POST', 'rotate', { overlap: 'soon' }, 'must be a duration'],
    ['POST', 'replay', {}, '"since" is missing'],
    ['POST', 'replay', { since: 'yesterday' }, '"since" must be ms since the epoch, or an ISO date'],
    ['POST', 'replay', { since: 0, until: true }, '"until" must be ms since the epoch'],
    ['GET', 'attempts?limit=101', undefined, '"limit" must be <= 100'],
    ['GET', 'batches?limit=0', undefined, '"limit" must be >= 1'],
    ['GET', 'batches?max=1', undefined, '"max" is unknown'],
    ['POST', 'dead/redrive', {}, 'must say which'],
  ])('%s %s %j is refused', async (method, path, body, said) => {
    const { send } = await erpDoor()
    const { status, json } = await send(method, `/v1/webhooks/erp/${path}`, body)
    expect([status, json.code]).toEqual([400, expect.stringMatching(/_INVALID$/)])
    expect(json.detail).toContain(said)
  })
})

describe('deliveries', () => {
  test('events arrive; batches, attempts and counts tell of it', async () => {
    const { bus, server, get, post } = await erpDoor()
    await post('/pause')
    expect(await get()).toMatchObject({ state: 'paused', since: expect.any(Number) })
    await bus.run({ signals: false })
    const ids: string[] = []
    for (let n = 0; n < 3; n++) ids.push((await bus.publish('order.paid', { n }, { key: 'order:1' })).id)
    await eventually(async () => (await get()).backlog === 3)
    const waiting = await get('/batches')
    expect(
      waiting.sealed.concat(waiting.open).reduce((sum: number, { events }: { events: number }) => sum + events, 0),
    ).toBe(3)
    expect(waiting.sealed[0]).toMatchObject({ sequence: 0, attempts: 0, state: 'waiting', id: expect.any(String) })
    expect(server.received).toEqual([])
    expect((await post('/resume')).json).toEqual({ name: 'erp', paused: false })
    await eventually(async () => (await get()).delivered === 3)
    const sent = server.received.flatMap(({ body }) => JSON.parse(body).events)
    expect(sent.map(({ id }: { id: string }) => id)).toEqual(ids)
    expect(await get()).toMatchObject({ state: 'active', backlog: 0, deliveredAt: expect.any(Number) })
    const { attempts } = await get('/attempts?limit=1')
    expect(attempts).toEqual([
      expect.objectContaining({ status: 204, outcome: 'delivered', attempt: 1, batch: expect.any(String) }),
    ])
    expect(await get('/batches')).toEqual({ open: [], sealed: [] })
  })

  test('a test event is posted at once, signed, whatever waits', async () => {
    const { bus, server, post, get } = await erpDoor()
    await post('/pause')
    await bus.publish('order.paid', 1)
    const tested = await post('/test')
    expect([tested.status, tested.json]).toEqual([200, { ok: true, status: 204, tookMs: expect.any(Number) }])
    const [request] = server.received
    expect(JSON.parse(request!.body)).toMatchObject({
      subscription: 'erp',
      events: [{ type: 'busbar.webhook.test', data: { webhook: 'erp' } }],
    })
    expect(signedBy(request!, (await get('/secrets')).secrets[0])).toBe(true)
    server.otherwise = 503
    expect((await post('/test')).json).toMatchObject({ ok: false, status: 503, excerpt: 'answer 503' })
    expect(await get()).toMatchObject({ state: 'paused', delivered: 0, attempts: 0 })
  })

  test('secrets are rotated: old and new both sign, or only the new one', async () => {
    const { server, post, get } = await erpDoor({ secret: secretOf(1) })
    expect(await get('/secrets')).toEqual({ secrets: [secretOf(1)] })
    const { secret } = (await post('/rotate')).json
    expect(secret).toMatch(/^whsec_/)
    expect(await get('/secrets')).toEqual({ secrets: [secret, secretOf(1)] })
    await post('/test')
    expect([secretOf(1), secret].map((each) => signedBy(server.received[0]!, each))).toEqual([true, true])
    expect((await post('/rotate', { secret: secretOf(3), overlap: 0 })).json).toEqual({ secret: secretOf(3) })
    await post('/test')
    expect([secret, secretOf(3)].map((each) => signedBy(server.received[1]!, each))).toEqual([false, true])
  })

  test('a time is replayed; what is given up is a dead letter, redriven or discarded', async () => {
    const { bus, server, post, get } = await erpDoor()
    server.otherwise = 500
    await bus.run({ signals: false })
    const begun = Date.now() - 60_000
    const { id } = await bus.publish('order.paid', { n: 1 })
    await eventually(async () => (await get()).letters === 1)
    const { letters } = await get('/dead')
    expect(letters).toMatchObject([
      { error: 'it answered 500', attempts: 2, events: 1, event: { type: 'busbar.batch', tenant: 'erp' } },
    ])
    expect(letters[0].event.data.events).toMatchObject([{ id, data: { n: 1 } }])
    expect((await get('/dead?by=reason')).reasons).toMatchObject([{ reason: 'it answered 500', letters: 1 }])
    server.otherwise = 200
    expect((await post('/dead/redrive', { ids: [letters[0].id] })).json).toEqual({ redriven: 1 })
    await eventually(async () => (await get()).delivered === 1)
    expect((await post('/dead/discard', { ids: 'all' })).json).toEqual({ discarded: 0 })

    const replayed = await post('/replay', { since: new Date(begun).toISOString(), until: Date.now() + 60_000 })
    expect([replayed.status, replayed.json]).toEqual([200, { events: 1 }])
    await eventually(async () => (await get()).delivered === 2)
    expect((await post('/replay', { since: Date.now() + 60_000 })).json).toEqual({ events: 0 })
    const bodies = server.received.filter(({ body }) => body.includes(id))
    expect(new Set(bodies.map(({ headers }) => headers['webhook-id'])).size).toBe(2)
  })
})
