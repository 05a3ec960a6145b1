import { once } from 'node:events'
import { gzipSync } from 'node:zlib'
import { describe, expect, onTestFinished, test } from 'vitest'
import { plainRedis } from './support/bus.ts'
import { eventually } from './support/eventually.ts'
import { type BareClient, postHead, rootToken, type TestDoor, testDoor } from './support/http.ts'
import { storedEvents } from './support/stored.ts'

const tenKilobytes = 'x'.repeat(10_000)
const quoted = (text: string) => JSON.stringify(text)
const event = (field: string, json: string) =>
  field === 'type'
    ? `{"type":${json}}`
    : `{"type":"bad.one","key":"k",${quoted(field)}:${json}}`.replace(/"key":"k",("key")/, '$1')

/** A client that publishes one event after the other, and minds every answer. */
function goodClient({ post }: TestDoor) {
  let stopped = false
  const sent: string[] = []
  const running = (async () => {
    while (!stopped) {
      const { status, json, text } = await post(`{"type":"good.one","key":"k","data":${sent.length}}`)
      if (status !== 201) throw new Error(`The good client got ${status}: ${text}`)
      sent.push(json.id)
    }
  })()
  const stop = async () => {
    stopped = true
    await running
    return sent
  }
  onTestFinished(() => {
    stopped = true
  })
  return stop
}

/** Runs the attack beside a good client; afterwards only that one's events are stored. */
async function underAttack(door: TestDoor, attack: () => Promise<void>): Promise<void> {
  await door.post('{"type":"good.zero"}')
  const stop = goodClient(door)
  await attack()
  const sent = await stop()
  expect(sent.length).toBeGreaterThan(0)
  const stored = await storedEvents(plainRedis(), door.bus.namespace)
  expect(stored.filter(({ type }) => type === 'good.one').map(({ id }) => id)).toEqual(sent)
  expect(stored).toHaveLength(sent.length + 1)
  expect(await door.bus.topics()).toEqual(new Map([['good', sent.length + 1]]))
}

const signs = [':', '{', '}', '*', '|', '\n', '\0', ' ', '/', '"', '\\', '\u2028', 'é', '😀']
const notText = ['5', 'true', '[]', '{}', '[[[[]]]]', '{"toString":1}']
const half = ['"\\ud800"', '"a\\udfffb"', '"\\ud83d"']

const cases = new Map<string, string[]>(
  Object.entries({
    type: [
      ...signs.map((sign) => quoted(`bad${sign}one`)),
      ...['""', '"."', '"bad."', '".bad"', '"bad..one"', 'null', quoted(tenKilobytes), quoted('x'.repeat(201))],
      ...[quoted(Array(17).fill('x').join('.')), ...notText, ...half],
    ],
    tenant: [
      ...signs.map((sign) => quoted(`bad${sign}one`)),
      ...['""', 'null', quoted(tenKilobytes), quoted('x'.repeat(129)), ...notText, ...half],
    ],
    key: ['""', quoted(tenKilobytes), quoted('x'.repeat(257)), quoted('é'.repeat(129)), ...notText, ...half],
    time: ['-1', '1.5', '1e400', '-1e400', '"now"', '8640000000000001', '12345678901234567890', 'true', '[]', '{}'],
    trace: ['""', 'null', quoted(tenKilobytes), ...notText, ...half],
    idempotencyKey: ['""', 'null', quoted(tenKilobytes), ...notText, ...half],
    expectPrev: [
      '0',
      '-1',
      '1.5',
      '"5"',
      '1e400',
      '9007199254740993',
      quoted(tenKilobytes),
      'true',
      '[]',
      '{"toString":1}',
    ],
  }),
)
// What is no field of an event.
for (const name of ['__proto__', 'constructor', 'typ', 'Type', '\0', '', tenKilobytes])
  cases.set(name, ['1', '{"type":"good.one"}'])

describe('a field that breaks a rule', () => {
  test.each([...cases].map(([field, values]) => [quoted(field).slice(0, 40), field, values] as const))(
    '[P09] %s: one coded error that names it; nothing stored, others undisturbed',
    async (_name, field, values) => {
      const door = await testDoor()
      await underAttack(door, async () => {
        const bodies = values.map((json) => event(field, json))
        for (const body of bodies) {
          const { status, json, text } = await door.post(body)
          expect([body.slice(0, 100), status, json.code]).toEqual([body.slice(0, 100), 400, 'EVENT_INVALID'])
          expect(json.detail).toContain(`"${json.field}"`)
          expect(json.field.slice(0, 60)).toBe(quoted(field).slice(1, -1).slice(0, 60))
          expect(text.length).toBeLessThan(1_000)
        }
        const { status, json } = await door.post(`[${bodies.join(',')}]`)
        expect(status).toBe(200)
        expect(json.map(({ code }: { code: string }) => code)).toEqual(bodies.map(() => 'EVENT_INVALID'))
      })
    },
  )

  test('[P09] expectPrev without a key, a missing type', async () => {
    const { post } = await testDoor()
    expect((await post('{"type":"a.b","expectPrev":1}')).json).toMatchObject({
      code: 'EVENT_INVALID',
      field: 'expectPrev',
    })
    expect((await post('{}')).json).toMatchObject({ code: 'EVENT_INVALID', field: 'type' })
  })

  test('[P09] the limits are those of the rules: exactly at each one it is stored', async () => {
    const { post } = await testDoor()
    const good = [
      `{"type":${quoted('x'.repeat(200))}}`,
      `{"type":${quoted(Array(16).fill('x').join('.'))}}`,
      `{"type":"__proto__.constructor"}`,
      `{"type":"a.b","tenant":${quoted('x'.repeat(128))}}`,
      `{"type":"a.b","key":${quoted('x'.repeat(256))}}`,
      `{"type":"a.b","key":": { } * | \\n \\u0000 __proto__ \\ud83d\\ude00"}`,
      `{"type":"a.b","time":8640000000000000}`,
      `{"type":"a.b","data":"${'x'.repeat(256 * 1024 - 2)}"}`,
    ]
    for (const body of good) expect([body.slice(0, 80), (await post(body)).status]).toEqual([body.slice(0, 80), 201])
  })

  test('all unknown fields are named, with what was probably meant', async () => {
    const { post } = await testDoor()
    const { json } = await post('{"type":"a.b","tennant":"acme","payload":1}')
    expect(json.detail).toContain('Event field "tennant" is unknown (did you mean "tenant"?)')
    expect(json.detail).toContain('"tennant", "payload"')
    expect(json.detail).toContain('type, data, tenant, key, time, trace, idempotencyKey, expectPrev')
  })
})

describe('data that cannot be stored', () => {
  const infinite: Record<string, string> = {
    '1e400': '1e400',
    within: '{"a":[1,{"b":-1E+400}]}',
    'many digits and a short exponent': `${'9'.repeat(250)}e99`,
    'after 130,000 others': `[${'0,'.repeat(130_000)}1e400]`,
  }
  test.each(Object.entries(infinite))('[P09] a number beyond what a number holds: %s', async (_name, data) => {
    const door = await testDoor()
    await underAttack(door, async () => {
      const { status, json } = await door.post(`{"type":"bad.one","data":${data}}`)
      expect([status, json.code, json.field]).toEqual([400, 'DATA_UNSERIALISABLE', 'data'])
    })
  })

  test('[P09] one byte too many, also in bytes of UTF-8 and in nested brackets', async () => {
    const door = await testDoor()
    await underAttack(door, async () => {
      const nested = 131_073
      for (const data of [
        `"${'x'.repeat(256 * 1024 - 1)}"`,
        `"${'é'.repeat(128 * 1024)}"`,
        '['.repeat(nested) + ']'.repeat(nested),
      ]) {
        const { status, json } = await door.post(`{"type":"bad.one","data":${data}}`)
        expect([status, json.code, json.field]).toEqual([413, 'EVENT_TOO_LARGE', 'data'])
        expect(json.detail).toContain('262144')
      }
    })
  })
})

describe('a body that is no event', () => {
  const bodies: Record<string, [body: string | Uint8Array, code: string, status: number]> = {
    'not JSON': ['hello', 'BODY_INVALID', 400],
    'broken in the last event': ['[{"type":"bad.one"},{"type":"bad.one",}]', 'BODY_INVALID', 400],
    'broken in the data of the last event': [
      '[{"type":"bad.one"},{"type":"bad.one","data":nope}]',
      'BODY_INVALID',
      400,
    ],
    'something after the event': ['{"type":"bad.one"}{"type":"bad.one"}', 'BODY_INVALID', 400],
    'cut off': ['{"type":"bad.one","data":"', 'BODY_INVALID', 400],
    empty: ['', 'BODY_INVALID', 400],
    space: [' \n', 'BODY_INVALID', 400],
    'a string': ['"bad.one"', 'BODY_INVALID', 400],
    'a number': ['1e400', 'BODY_INVALID', 400],
    null: ['null', 'BODY_INVALID', 400],
    'an empty array': ['[]', 'BODY_INVALID', 400],
    'not UTF-8': [Buffer.from('{"type":"bad.one","data":"\xff"}', 'latin1'), 'BODY_INVALID', 400],
    'half a surrogate pair in UTF-8': [Buffer.from('22eda08022', 'hex'), 'BODY_INVALID', 400],
    'an overlong UTF-8 sequence': [Buffer.from('22c08022', 'hex'), 'BODY_INVALID', 400],
    'UTF-16': [Buffer.from('{"type":"bad.one"}', 'utf16le'), 'BODY_INVALID', 400],
    'a megabyte of brackets': ['['.repeat(2 ** 20), 'BODY_INVALID', 400],
    'a megabyte of nested arrays': ['['.repeat(2 ** 19) + ']'.repeat(2 ** 19), 'BODY_INVALID', 400],
    'nested objects': [`${'{"data":'.repeat(100_000)}1${'}'.repeat(100_000)}`, 'EVENT_TOO_LARGE', 413],
    'a field of nested arrays': [`{"type":${'['.repeat(200_000)}${']'.repeat(200_000)}}`, 'EVENT_INVALID', 400],
    '1,001 events': [JSON.stringify(Array(1_001).fill({ type: 'bad.one' })), 'CALL_TOO_LARGE', 413],
    '500,000 numbers': [`[${Array(500_000).fill(1).join(',')}]`, 'CALL_TOO_LARGE', 413],
    '100,000 members': [`{${Array(100_000).fill('"a":1').join(',')}}`, 'EVENT_INVALID', 400],
    'a byte over the limit': [`"${'x'.repeat(2 ** 20 - 1)}"`, 'BODY_TOO_LARGE', 413],
  }
  test.each(Object.entries(bodies))(
    '%s: a coded error, nothing stored, others undisturbed',
    async (_name, [body, code, status]) => {
      const door = await testDoor()
      await underAttack(door, async () => {
        const answer = await door.post(body)
        expect([answer.status, answer.json.code]).toEqual([status, code])
        expect(answer.headers.get('content-type')).toBe('application/problem+json')
        expect(answer.text.length).toBeLessThan(1_000)
      })
    },
  )

  const types = [
    'text/plain',
    'application/x-www-form-urlencoded',
    'application/cloudevents+json',
    'application/jsonx',
    'garbage',
    'application/json-seq',
  ]
  test('other content types are answered 415 with what is accepted', async () => {
    const { post, bus, door } = await testDoor()
    for (const type of types) {
      const { status, json } = await post('{"type":"bad.one"}', { 'content-type': type })
      expect([type, status, json.code]).toEqual([type, 415, 'MEDIA_TYPE_UNSUPPORTED'])
      expect(json.detail).toContain('Send application/json')
      expect(json.detail).toContain(type)
    }
    const gzipped = await post(gzipSync('{"type":"bad.one"}'), { 'content-encoding': 'gzip' })
    expect([gzipped.status, gzipped.json.code]).toEqual([415, 'MEDIA_TYPE_UNSUPPORTED'])
    expect(await bus.topics()).toEqual(new Map())
    expect((await post('{"type":"a.b"}', { 'content-type': 'Application/JSON; charset=utf-8' })).status).toBe(201)
    const bare = await fetch(`${door.url}/v1/events`, {
      method: 'POST',
      body: Buffer.from('{}'),
      headers: { authorization: `Bearer ${rootToken}` },
    })
    expect(bare.status).toBe(415)
  })
})

describe('a body of 100 MB', () => {
  const size = 100 * 2 ** 20
  const chunk = Buffer.alloc(64 * 1024, '[')
  const http = { plain: chunk, chunked: Buffer.concat([Buffer.from('10000\r\n'), chunk, Buffer.from('\r\n')]) }

  /** Sends until all is sent or the connection ends; answers the most memory that was in use meanwhile. */
  async function pour(client: BareClient, piece: Buffer): Promise<number> {
    const { socket } = client
    let peak = 0
    for (let sent = 0; sent < size && !socket.destroyed; sent += chunk.length) {
      const { heapUsed, external } = process.memoryUsage()
      peak = Math.max(peak, heapUsed + external)
      if (!socket.write(piece)) await Promise.race([once(socket, 'drain'), client.ended]).catch(() => undefined)
    }
    return peak
  }

  const variants: [name: string, head: string, piece: Buffer][] = [
    ['with Content-Length', postHead(`content-length: ${size}`), http.plain],
    ['in chunks', postHead('transfer-encoding: chunked'), http.chunked],
  ]
  test.each(variants)('%s: 413, never held in memory, others undisturbed', async (_name, head, piece) => {
    const door = await testDoor()
    await underAttack(door, async () => {
      const client = await door.socket()
      client.socket.write(head)
      const before = process.memoryUsage()
      const peak = await pour(client, piece)
      expect(peak - before.heapUsed - before.external).toBeLessThan(64 * 2 ** 20)
      await eventually(() => client.received.includes('\r\n\r\n'))
      expect(client.received).toMatch(/^HTTP\/1\.1 413 /)
      expect(client.received).toContain('"code":"BODY_TOO_LARGE"')
    })
  })

  test('the refusal comes before the body: Content-Length alone is enough', async () => {
    const { socket } = await testDoor()
    const client = await socket()
    client.socket.write(postHead(`content-length: ${size}`))
    await eventually(() => client.received.includes('BODY_TOO_LARGE'))
  })

  test('without a token: 401, and the rest is not read', async () => {
    const { socket } = await testDoor()
    const client = await socket()
    client.socket.write(postHead(`content-length: ${size}`).replace(/authorization.*\r\n/, ''))
    await pour(client, http.plain)
    await eventually(() => client.received.includes('\r\n\r\n'))
    expect(client.received).toMatch(/^HTTP\/1\.1 401 /)
  })

  test('a client that never stops sending is cut', async () => {
    const { socket } = await testDoor()
    const client = await socket()
    client.socket.write(postHead('transfer-encoding: chunked'))
    const sending = setInterval(() => client.socket.write(http.chunked), 5)
    await client.ended
    clearInterval(sending)
    expect(client.received).toMatch(/^HTTP\/1\.1 413 /)
  })

  test('a connection whose body was refused goes on with the next request', async () => {
    const { socket } = await testDoor()
    const client = await socket()
    const body = Buffer.alloc(2 * 2 ** 20, '[')
    client.socket.write(postHead(`content-length: ${body.length}`))
    client.socket.write(body)
    const good = '{"type":"a.b"}'
    client.socket.write(postHead(`content-length: ${good.length}`) + good)
    await eventually(() => /HTTP\/1\.1 413 [\s\S]*HTTP\/1\.1 201 /.test(client.received))
  })
})
