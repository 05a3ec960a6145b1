import { once } from 'node:events'
import { chmod, mkdtemp, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises'
import { createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, expect, onTestFinished, test } from 'vitest'
import { openDoor } from '../src/http/server.ts'
import { loadRootToken } from '../src/http/token.ts'
import { plainRedis, testBus } from './support/bus.ts'
import { eventually } from './support/eventually.ts'
import { postHead, rootToken, testDoor } from './support/http.ts'
import { startRedis } from './support/redis.ts'
import { tagsOf } from './support/stored.ts'

const problem = (code: string, status: number) => ({
  type: `urn:busbar:error:${code}`,
  title: expect.stringMatching(/^[A-Z][a-z ]+$/),
  status,
  code,
  detail: expect.any(String),
  retryable: expect.any(Boolean),
})

describe('the token', () => {
  const wrong: Record<string, Record<string, string>> = {
    'no header': { authorization: '' },
    'another token': { authorization: 'Bearer another' },
    'a longer one': { authorization: `Bearer ${rootToken}x` },
    'a part of it': { authorization: `Bearer ${rootToken.slice(0, -1)}` },
    'no scheme': { authorization: rootToken },
    'another scheme': { authorization: `Basic ${Buffer.from(`root:${rootToken}`).toString('base64')}` },
    'an empty one': { authorization: 'Bearer ' },
  }
  test.each(Object.entries(wrong))('%s: 401 on every /v1 route, and nothing happens', async (_name, headers) => {
    const { post, get, bus } = await testDoor()
    const answers = [
      await post('{"type":"a.b"}', headers),
      await get('/v1/events/0-1', headers),
      await get('/v1/live?match=>', headers),
      await get('/v1/topics', headers),
      await get(`/v1/topics?token=${rootToken}`, headers),
      await get('/v1/workers', headers),
      await get('/v1/streams', headers),
      await get('/v1/streams/search', headers),
      await get('/v1/streams/search/dead', headers),
    ]
    for (const answer of answers) {
      expect(answer.json).toEqual(problem('UNAUTHENTICATED', 401))
      expect(answer.status).toBe(401)
      expect(answer.headers.get('www-authenticate')).toBe('Bearer realm="busbar"')
      expect(answer.headers.get('content-type')).toBe('application/problem+json')
      expect(answer.text).not.toContain(rootToken)
    }
    expect(await bus.topics()).toEqual(new Map())
  })

  test('a wrong token is told from none, and says nothing of the right one', async () => {
    const { get } = await testDoor()
    const said = async (authorization: string) => (await get('/v1/topics', { authorization })).json.detail
    const where = 'The root token is in the data folder, file root-token.'
    expect(await said('')).toBe(`This route needs a token: send "Authorization: Bearer <token>". ${where}`)
    expect(await said('Bearer another')).toBe(`This token is not known. ${where}`)
    expect(await said(`Bearer ${rootToken.slice(0, -1)}`)).toBe(`This token is not known. ${where}`)
  })

  test('the scheme is not case-sensitive, and health needs no token', async () => {
    const { get } = await testDoor()
    expect((await get('/v1/topics', { authorization: `bearer ${rootToken}` })).status).toBe(200)
    for (const path of ['/livez', '/readyz']) {
      const { status, json } = await get(path, { authorization: '' })
      expect([status, json]).toEqual([200, { status: 'ok' }])
    }
  })
})

describe('the root token in the data folder', () => {
  async function folder(): Promise<string> {
    const dir = await mkdtemp(join(tmpdir(), 'busbar-token-'))
    onTestFinished(() => rm(dir, { recursive: true, force: true }))
    return dir
  }

  test('is made once, 120 random bits, for the owner only, and used again', async () => {
    const dataDir = join(await folder(), 'new', 'folder')
    const token = await loadRootToken(dataDir)
    expect(token).toMatch(/^[A-Za-z0-9_-]{20,}$/)
    expect((await readFile(join(dataDir, 'root-token'), 'utf8')).trim()).toBe(token)
    expect((await stat(join(dataDir, 'root-token'))).mode & 0o777).toBe(0o600)
    expect(await loadRootToken(dataDir)).toBe(token)
    expect(await loadRootToken(await folder())).not.toBe(token)
  })

  test('many that start at once agree on one and leave nothing behind', async () => {
    const dataDir = await folder()
    const tokens = await Promise.all(Array.from({ length: 20 }, () => loadRootToken(dataDir)))
    expect(new Set(tokens).size).toBe(1)
    expect(await readdir(dataDir)).toEqual(['root-token'])
  })

  test('one that others could read is closed to them', async () => {
    const dataDir = await folder()
    const token = await loadRootToken(dataDir)
    await chmod(join(dataDir, 'root-token'), 0o644)
    expect(await loadRootToken(dataDir)).toBe(token)
    expect((await stat(join(dataDir, 'root-token'))).mode & 0o777).toBe(0o600)
  })

  test.each(['', 'short', 'has spaces within it, many'])('a file that holds no token (%j) is said so', async (text) => {
    const dataDir = await folder()
    await writeFile(join(dataDir, 'root-token'), text)
    await expect(loadRootToken(dataDir)).rejects.toMatchObject({ code: 'SETTING_INVALID' })
  })

  test('a folder that cannot be made is said so', async () => {
    const file = join(await folder(), 'file')
    await writeFile(file, '')
    await expect(loadRootToken(join(file, 'below'))).rejects.toMatchObject({ code: 'SETTING_INVALID' })
  })
})

describe('answers', () => {
  test('no route: a problem that says so, whatever the method', async () => {
    const { door, get } = await testDoor()
    for (const [method, path] of [
      ['GET', '/'],
      ['GET', '/v2/events?token=secret'],
      ['GET', '/v1/events'],
      ['PUT', '/v1/events'],
      ['DELETE', '/v1/events/0-1'],
      ['OPTIONS', '/v1/live'],
      ['POST', '/livez'],
    ] as const) {
      const response = await fetch(door.url + path, { method })
      const body = (await response.json()) as { detail: string }
      expect([method, path, response.status]).toEqual([method, path, 404])
      expect(body).toEqual(problem('ROUTE_NOT_FOUND', 404))
      expect(body.detail).toBe(`There is no route ${method} ${path.split('?')[0]}.`)
      expect(response.headers.get('content-type')).toBe('application/problem+json')
    }
    expect((await fetch(`${door.url}/v1/live?match=>`, { method: 'HEAD' })).status).toBe(404)
    expect((await fetch(`${door.url}/livez`, { method: 'HEAD' })).status).toBe(200)
    expect((await get(`/${'x'.repeat(5_000)}`)).text.length).toBeLessThan(1_000)
  })

  test('no route: answered without reading what is sent to it', async () => {
    const { socket } = await testDoor()
    const client = await socket()
    client.socket.write(postHead('content-length: 1000').replace('/v1/events', '/v2/events'))
    await eventually(() => client.received.includes('ROUTE_NOT_FOUND'))
  })

  test('name neither the server nor its parts, and are not kept by anyone', async () => {
    const { get } = await testDoor()
    for (const path of ['/livez', '/v1/topics', '/v1/nothing']) {
      const { headers } = await get(path)
      expect(headers.get('server')).toBeNull()
      expect(headers.get('x-powered-by')).toBeNull()
      expect(headers.get('cache-control')).toBe('no-store')
      expect(headers.get('x-content-type-options')).toBe('nosniff')
    }
  })

  test('what nobody expected: INTERNAL outside, the reason in telemetry', async () => {
    const { post, get, bus, telemetry } = await testDoor()
    const { json } = await post('{"type":"a.b","key":"k"}')
    const redis = plainRedis()
    const [partition] = json.id.split('-')
    const log = `${bus.namespace}:{${(await tagsOf(redis, bus.namespace))[partition]}}:log`
    await redis.del(log)
    await redis.set(log, 'not a stream')
    const answer = await get(`/v1/events/${json.id}`)
    expect(answer.status).toBe(500)
    expect(answer.json).toEqual({ ...problem('INTERNAL', 500), retryable: false })
    expect(answer.text).not.toMatch(/WRONGTYPE|:log|\.ts|\.lua|at /)
    const failed = telemetry.find(({ name }) => name === 'http.failed')
    expect(failed?.fields).toMatchObject({
      method: 'GET',
      route: '/v1/events/:id',
      problem: expect.stringContaining('WRONGTYPE'),
    })
  })

  test('every request is one telemetry event with its route, without token, path or body', async () => {
    const { post, get, telemetry } = await testDoor()
    const { json } = await post('{"type":"a.b","data":"a-secret"}')
    await get(`/v1/events/${json.id}`)
    await get('/secret/path')
    await get('/v1/topics', { authorization: 'Bearer a-secret' })
    const requests = () => telemetry.filter(({ name }) => name === 'http.request').map(({ fields }) => fields)
    await eventually(() => requests().length === 4)
    expect(requests()).toEqual([
      { method: 'POST', route: '/v1/events', status: 201, ms: expect.any(Number) },
      { method: 'GET', route: '/v1/events/:id', status: 200, ms: expect.any(Number) },
      { method: 'GET', route: '(none)', status: 404, ms: expect.any(Number) },
      { method: 'GET', route: '/v1/topics', status: 401, ms: expect.any(Number) },
    ])
    const all = JSON.stringify(telemetry)
    expect(all).not.toContain('secret')
    expect(all).not.toContain(rootToken)
  })

  test('the door says where it listens', async () => {
    const { door, telemetry } = await testDoor()
    expect(door.url).toMatch(/^http:\/\/127\.0\.0\.1:\d+$/)
    expect(telemetry.find(({ name }) => name === 'http.started')?.fields).toEqual({ url: door.url })
  })
})

describe('what is no request', () => {
  const broken: [name: string, bytes: string, status: number][] = [
    ['garbage', 'hello\r\n\r\n', 400],
    ['two lengths', postHead('content-length: 1', 'content-length: 2'), 400],
    ['length and chunks', postHead('content-length: 5', 'transfer-encoding: chunked'), 400],
    ['a chunk without a size', `${postHead('transfer-encoding: chunked')}zz\r\n`, 400],
    ['headers of 100 kB', postHead(`x: ${'x'.repeat(100_000)}`), 431],
  ]
  test.each(broken)('%s: answered with a problem and cut', async (_name, bytes, status) => {
    const { socket, get } = await testDoor()
    const client = await socket()
    client.socket.write(bytes)
    await client.ended
    expect(client.received).toMatch(new RegExp(`^HTTP/1\\.1 ${status} `))
    expect(client.received).toContain('content-type: application/problem+json')
    expect(JSON.parse(client.received.split('\r\n\r\n')[1]!)).toEqual(problem('BODY_INVALID', status))
    expect((await get('/livez')).status).toBe(200)
  })

  test.each([
    ['headers', 'GET /livez HTTP/1.1\r\nhost: x\r\nx: '],
    ['a body', `${postHead('content-length: 1000')}{"type":`],
  ])('%s that take too long to arrive: 408 and cut, others undisturbed', async (_name, start) => {
    const { socket, post } = await testDoor({ requestMs: 300 })
    const slow = await socket()
    slow.socket.write(start)
    const trickle = setInterval(() => slow.socket.write('x'), 20)
    onTestFinished(() => clearInterval(trickle))
    expect((await post('{"type":"a.b"}')).status).toBe(201)
    await slow.ended
    expect(slow.received).toMatch(/^HTTP\/1\.1 408 /)
    expect(slow.received).toContain('"code":"BODY_INVALID"')
  })

  test('a client that goes away while it sends disturbs nobody', async () => {
    const { socket, get, telemetry, bus } = await testDoor()
    const client = await socket()
    client.socket.write(`${postHead('content-length: 1000')}{"type":"a.b"`)
    client.socket.destroy()
    await eventually(() => telemetry.some(({ name, fields }) => name === 'http.request' && fields.status === 499))
    expect(telemetry.filter(({ name }) => name === 'http.failed')).toEqual([])
    expect((await get('/readyz')).status).toBe(200)
    expect(await bus.topics()).toEqual(new Map())
  })
})

describe('Redis away', () => {
  test('/livez stays 200, /readyz says why not, publishing says whether it may be tried again; later all goes on', async () => {
    const redis = await startRedis()
    onTestFinished(() => redis.stop())
    const { get, post } = await testDoor({ bus: { redis: redis.url, publish: { timeout: 300 } } })
    expect((await get('/readyz')).status).toBe(200)
    await redis.kill()
    const [away, unfollowed] = await Promise.all([get('/readyz', { authorization: '' }), get('/v1/live?match=>')])
    expect(away.status).toBe(503)
    expect(away.json).toEqual({ ...problem('REDIS_UNAVAILABLE', 503), retryable: true })
    expect(away.headers.get('retry-after')).toBe('1')
    expect(unfollowed.json).toEqual({ ...problem('REDIS_UNAVAILABLE', 503), retryable: true })
    expect((await get('/livez')).status).toBe(200)
    const refused = await post('{"type":"a.b"}')
    expect(refused.json).toEqual({ ...problem('NOT_STORED', 503), retryable: true })
    expect(refused.headers.get('retry-after')).toBe('1')
    const [item] = (await post('[{"type":"a.b"}]')).json
    expect(item).toMatchObject({ code: 'NOT_STORED', index: 0 })
    const unread = await get('/v1/events/0-1')
    expect([unread.status, unread.json.code, unread.headers.get('retry-after')]).toEqual([
      503,
      'REDIS_UNAVAILABLE',
      '1',
    ])
    await redis.restart()
    await eventually(async () => (await get('/readyz')).status === 200)
    // The connection that writes may be a moment behind the one that reads.
    await eventually(async () => (await post('{"type":"a.b"}')).status === 201)
    expect((await get('/v1/topics')).json).toEqual({ topics: [{ topic: 'a', events: 1 }] })
  })

  test('a bus that can never open: /readyz says why with 503, without a promise that it passes', async () => {
    const first = testBus({ partitions: 4 })
    await first.publish('a.b')
    const { get } = await testDoor({ bus: { namespace: first.namespace, partitions: 8 } })
    const { status, json, headers } = await get('/readyz')
    expect([status, json.code, headers.get('retry-after')]).toEqual([503, 'PARTITIONS_MISMATCH', null])
    expect((await get('/v1/topics')).status).toBe(409)
  })

  test('the bus closed under a request: not an unexpected error', async () => {
    const redis = await startRedis()
    onTestFinished(() => redis.stop())
    const { get, bus, telemetry } = await testDoor({ bus: { redis: redis.url } })
    await get('/v1/topics')
    redis.pause()
    const reading = get('/v1/topics')
    await get('/livez')
    await bus.close({ timeout: 0 })
    const answer = await reading
    redis.resume()
    expect(answer.json).toEqual({ ...problem('REDIS_UNAVAILABLE', 503), retryable: true })
    expect(telemetry.filter(({ name }) => name === 'http.failed')).toEqual([])
  })

  test('a publish whose outcome is unknown says so', async () => {
    const redis = await startRedis()
    onTestFinished(() => redis.stop())
    const { post } = await testDoor({ bus: { redis: redis.url, publish: { timeout: 300 } } })
    await post('{"type":"a.b"}')
    redis.pause()
    const { status, json } = await post('{"type":"a.b"}')
    redis.resume()
    expect(status).toBe(504)
    expect(json).toEqual({ ...problem('OUTCOME_UNKNOWN', 504), retryable: true })
  })
})

describe('closing', () => {
  test('live streams end, what is in flight is answered, then nobody is let in', async () => {
    const redis = await startRedis()
    onTestFinished(() => redis.stop())
    const { door, live, post } = await testDoor({ bus: { redis: redis.url } })
    const sse = await live('match=>')
    await post('{"type":"a.b"}')
    await eventually(() => sse.events.length === 1)
    redis.pause()
    const inFlight = post('{"type":"a.b","data":2}')
    // It has been read when a later request has been answered.
    await fetch(`${door.url}/livez`)
    const closed = door.close({ timeoutMs: 60_000 })
    await sse.ended
    expect(sse.response.complete).toBe(true)
    redis.resume()
    expect((await inFlight).status).toBe(201)
    await closed
    await expect(fetch(`${door.url}/livez`)).rejects.toThrow()
    await door.close({ timeoutMs: 0 })
  })

  test('what does not end by the timeout is cut', async () => {
    const { door, socket } = await testDoor()
    const hanging = await socket()
    hanging.socket.write(`${postHead('content-length: 1000')}{"type":`)
    const idle = await socket()
    const before = performance.now()
    await door.close({ timeoutMs: 200 })
    expect(performance.now() - before).toBeLessThan(10_000)
    await Promise.all([hanging.ended, idle.ended])
  })

  test('a port that is taken, a host that is not here: said as a setting', async () => {
    const other = createServer().listen(0, '127.0.0.1')
    await once(other, 'listening')
    onTestFinished(() => void other.close())
    const { port } = other.address() as { port: number }
    const bus = testBus()
    const open = (host: string, at: number) => openDoor({ bus, host, port: at, bodyMaxBytes: 1_024, rootToken })
    await expect(open('127.0.0.1', port)).rejects.toMatchObject({
      code: 'SETTING_INVALID',
      message: expect.stringContaining(
        `http.port ${port} is already in use on 127.0.0.1: choose another with --http-port`,
      ),
    })
    await expect(open('192.0.2.1', 0)).rejects.toMatchObject({ code: 'SETTING_INVALID' })
    const door = await open('localhost', 0)
    onTestFinished(() => door.close({ timeoutMs: 0 }))
    expect((await fetch(`${door.url.replace('127.0.0.1', 'localhost')}/livez`)).status).toBe(200)
  })
})
