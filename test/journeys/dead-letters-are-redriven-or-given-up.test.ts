import { expect, test } from 'vitest'
import { rawJson } from '../../src/bus.ts'
import type { Bus } from '../../src/index.ts'
import { processorKeys } from '../../src/redis/keys.ts'
import { keepLimits } from '../../src/sinks/stream/scripts.ts'
import { plainRedis } from '../support/bus.ts'
import { eventually } from '../support/eventually.ts'
import { type ThreeWays, threeWays } from '../support/streams.ts'

const big = '{"n": 12345678901234567890.10}'

/** A processor that buries what it cannot handle, for as long as it is broken, and notes the rest by key and data. */
function burying(bus: Bus) {
  const handler = { broken: true, seen: [] as string[] }
  bus.processor('mail', { match: '>', retry: { attempts: 2, backoff: [1, 1] }, onPoison: 'skip' }, async (events) => {
    for await (const event of events) {
      if (handler.broken && event.type === 'mail.bad') throw new Error('no \u001b[31mroom')
      handler.seen.push(`${event.key} ${event.json}`)
    }
  })
  return handler
}

/** Three dead letters of order:1 and one each of order:2 and of no key, in the order in which they became that. */
async function fiveLetters({ bus }: Pick<ThreeWays, 'bus'>) {
  const handler = burying(bus)
  await bus.run({ signals: false })
  const bad = (key: string | undefined, json: string) => bus.publish('mail.bad', rawJson(json), { key })
  const letters: string[] = []
  for (const [key, json] of [
    ['order:1', big],
    ['order:1', '2'],
    ['order:2', '1'],
    [undefined, '1'],
    ['order:1', '3'],
  ] as const) {
    letters.push((await bad(key, json)).id)
    await eventually(async () => (await bus.streams.dead.list('mail')).length === letters.length)
  }
  await bus.publish('mail.good', 4, { key: 'order:1' })
  await eventually(() => handler.seen.length === 1)
  handler.seen.length = 0
  return { handler, letters: letters as [string, string, string, string, string] }
}

test('[S13] dead letters of a processor can be listed, redriven, discarded', async () => {
  const ways = await threeWays()
  const { bus, get, streams, streamsJson } = ways
  const { handler, letters } = await fiveLetters(ways)
  const [first, , , keyless] = letters
  const { dead } = bus.streams
  const listed = await dead.list('mail')
  expect(listed.map(({ id }) => id)).toEqual(letters)
  expect(listed[0]).toMatchObject({ object: 'default/order:1', attempts: 2, error: 'Error: no \u001b[31mroom' })
  expect([listed[0]!.event.json, listed[0]!.event.type]).toEqual([big, 'mail.bad'])
  expect(listed[3]!.object).toBe(`#${keyless}`)
  expect((await dead.list('mail', { limit: 2, offset: 1 })).map(({ id }) => id)).toEqual(letters.slice(1, 3))
  expect(await bus.streams.get('mail')).toMatchObject({ dead: 5, lag: 0 })

  const page = await get('/v1/streams/mail/dead?limit=2&offset=0')
  expect(page.json.letters.map(({ id }: { id: string }) => id)).toEqual(letters.slice(0, 2))
  expect(page.text).toContain(`"data":${big}}`)
  const lines = (await streams(['dead', 'mail', '--limit', '1', '--json'])).stdout
  expect(`{"letters":[${lines.trim()}]}`).toBe((await get('/v1/streams/mail/dead?limit=1')).text)
  const table = (await streams(['dead', 'mail'])).stdout.split('\n')
  expect(table[0]).toMatch(/^id +tenant +type +key +attempts +since +error$/)
  expect(table[1]).toMatch(
    new RegExp(`^${first} +default +mail\\.bad +order:1 +2 +\\S+Z +Error: no \\\\u001b\\[31mroom$`),
  )
  expect(table).toHaveLength(7)
  expect((await streamsJson('dead', 'mail', '--offset', '4')).map(({ id }) => id)).toEqual([letters[4]])

  handler.broken = false
  expect(await dead.redrive('mail', [keyless, '0-1'])).toBe(1)
  await eventually(() => handler.seen.length === 1)
  expect(handler.seen).toEqual(['null 1'])
  expect(await dead.discard('mail', [first, '0-1'])).toBe(1)
  expect(await dead.redrive('mail', 'all')).toBe(3)
  await eventually(() => handler.seen.length === 4)
  expect(handler.seen.filter((one) => one.startsWith('order:1'))).toEqual(['order:1 2', 'order:1 3'])
  expect([await dead.list('mail'), await dead.redrive('mail', 'all'), await dead.discard('mail', 'all')]).toEqual([
    [],
    0,
    0,
  ])
  await eventually(async () => (await bus.streams.parked.list('mail')).length === 0)
})

test('[S13] redriven ones are handled in order whatever was redriven before, and before what is newer; those that fail again are dead letters again', async () => {
  const ways = await threeWays()
  const { bus } = ways
  const { handler, letters } = await fiveLetters(ways)
  expect(await bus.streams.dead.redrive('mail', [letters[0]])).toBe(1)
  await eventually(async () => (await bus.streams.dead.list('mail')).length === 5)
  expect((await bus.streams.dead.list('mail')).at(-1)).toMatchObject({ id: letters[0], attempts: 2 })
  await bus.close()

  // Put back while nobody runs: third, then first and second; a fifth event comes before anyone starts.
  const later = await threeWays({ namespace: bus.namespace })
  const { dead } = later.bus.streams
  for (const ids of [[letters[4]], [letters[1], letters[0]]]) expect(await dead.redrive('mail', ids)).toBe(ids.length)
  expect((await later.bus.streams.get('mail')).dead).toBe(2)
  await later.bus.publish('mail.good', 5, { key: 'order:1' })
  const next = burying(later.bus)
  next.broken = false
  await later.bus.run({ signals: false })
  await eventually(() => next.seen.length === 4)
  expect(next.seen).toEqual([`order:1 ${big}`, 'order:1 2', 'order:1 3', 'order:1 5'])
  expect(handler.seen).toEqual([])
})

test('[S13] on the command line and over HTTP: some or all; what is not there is said', async () => {
  const ways = await threeWays()
  const { bus, send, streams, streamsJson } = ways
  const { handler, letters } = await fiveLetters(ways)
  const [first, second, third, keyless, last] = letters
  handler.broken = false
  const redriven = await send('POST', '/v1/streams/mail/dead/redrive', { ids: [second] })
  expect([redriven.status, redriven.json]).toEqual([200, { redriven: 1 }])
  const left = await streams(['redrive', 'mail', third, '0-1'])
  expect(left).toEqual({ code: 1, stdout: '1 dead letter back in line.\n', stderr: '1 id named no dead letter.\n' })
  await eventually(() => handler.seen.length === 2)
  expect(handler.seen.sort()).toEqual(['order:1 2', 'order:2 1'])

  expect(await streams(['discard', 'mail', first, keyless])).toEqual({
    code: 0,
    stdout: '2 dead letters given up.\n',
    stderr: '',
  })
  expect((await send('POST', '/v1/streams/mail/dead/discard', { ids: [first] })).json).toEqual({ discarded: 0 })
  expect((await bus.streams.dead.list('mail')).map(({ id }) => id)).toEqual([last])
  expect(await streamsJson('redrive', 'mail', '--all')).toEqual([{ redriven: 1 }])
  await eventually(() => handler.seen.includes('order:1 3'))
  expect((await send('POST', '/v1/streams/mail/dead/discard', { ids: 'all' })).json).toEqual({ discarded: 0 })
  expect((await streams(['dead', 'mail'])).stderr).toBe('There are no dead letters here.\n')

  for (const args of [
    ['redrive', 'mail'],
    ['discard', 'mail'],
    ['redrive', 'mail', '0-1', '--all'],
    ['redrive', 'mail', 'banana'],
    ['discard', 'mail', '0-1', 'banana'],
  ])
    expect(await streams(args)).toMatchObject({ code: 2, stderr: expect.stringMatching(/PARAMETER_INVALID.*"ids"/) })
  expect((await streams(['discard', 'mail', '--all', '--object', 'a/b'])).code).toBe(2)
  expect((await streams(['resume', 'mail', '--partition', '1', '--object', 'a/b'])).code).toBe(2)
  expect((await streams(['dead', 'nail'])).code).toBe(1)
  const wrong: [string, string, unknown, number, string][] = [
    ['POST', 'mail/dead/redrive', {}, 400, 'BODY_INVALID'],
    ['POST', 'mail/dead/redrive', { ids: 'some' }, 400, 'BODY_INVALID'],
    ['POST', 'mail/dead/discard', { ids: [1] }, 400, 'BODY_INVALID'],
    ['POST', 'mail/resume', { partition: 0, object: 'a/b' }, 400, 'BODY_INVALID'],
    ['GET', 'mail/dead?limit=0', undefined, 400, 'PARAMETER_INVALID'],
    ['GET', 'mail/dead?offset=-1', undefined, 400, 'PARAMETER_INVALID'],
    ['GET', 'mail/dead?limt=1', undefined, 400, 'PARAMETER_INVALID'],
    ['DELETE', 'mail/parked', undefined, 400, 'PARAMETER_INVALID'],
    ['GET', 'nail/dead', undefined, 404, 'STREAM_NOT_FOUND'],
    ['DELETE', 'nail', undefined, 404, 'STREAM_NOT_FOUND'],
    ['DELETE', 'mail', undefined, 409, 'STREAM_IN_USE'],
  ]
  for (const [method, path, body, status, code] of wrong) {
    const { json } = await send(method, `/v1/streams/${path}`, body)
    expect([path, json]).toMatchObject([path, { status, code }])
  }
  const { json } = await send('POST', '/v1/streams/mail/dead/redrive', { ids: '1-17' })
  expect(json.detail).toContain('"ids" must be a list of at most 10,000 event ids, or "all"')
})

test('[S12] what is named and does not stand still is said, and ends with 1', async () => {
  const { bus, streams, streamsJson } = await threeWays()
  bus.processor('mail', { match: 'mail.*', retry: { attempts: 1 }, onPoison: 'park' }, async (events) => {
    for await (const event of events) throw new Error(`no ${event.key}`)
  })
  await bus.run({ signals: false })
  await bus.publish('mail.sent', 1, { tenant: 'acme', key: 'customer:bob' })
  await eventually(async () => (await bus.streams.get('mail')).parked === 1)
  const none = '0 partitions and 0 objects go on.\n'
  const cases: [string[], string, string][] = [
    [['resume', 'mail', '--partition', '99'], none, 'There is no partition 99: they are 0 to 1.\n'],
    [['resume', 'mail', '--partition', '1'], none, 'Partition 1 of mail is not blocked. Blocked: none.\n'],
    [
      ['resume', 'mail', '--object', 'foo'],
      none,
      expect.stringMatching(
        /^"foo" is not parked\. Objects are written tenant\/key\. `.* streams parked mail .*` lists those that are\.\n$/,
      ),
    ],
    [
      ['discard', 'mail', '--object', 'customer:bob'],
      '0 parked events given up.\n',
      '"customer:bob" is not parked. Objects are written tenant/key. Did you mean acme/customer:bob?\n',
    ],
  ]
  for (const [args, stdout, stderr] of cases) expect(await streams(args)).toEqual({ code: 1, stdout, stderr })
  expect(await streamsJson('resume', 'mail', '--object', 'foo')).toEqual([{ partitions: 0, objects: 0 }])
  expect((await streams(['discard', 'mail', '--object', 'acme/customer:bob'])).code).toBe(0)
  expect(await streams(['resume', 'mail'])).toEqual({ code: 0, stdout: none, stderr: '' })
})

test('[S13] no room to put them back: said, and they stay where they are', async () => {
  const ways = await threeWays()
  const { bus, send, streams } = ways
  const { letters } = await fiveLetters(ways)
  await plainRedis().hset(processorKeys(bus.namespace, 'mail').group, 'shelved', keepLimits.shelved)
  const { json } = await send('POST', '/v1/streams/mail/dead/redrive', { ids: 'all' })
  expect(json).toMatchObject({ status: 409, code: 'SHELVES_FULL', retryable: true })
  expect(await streams(['redrive', 'mail', '--all'])).toMatchObject({ code: 3 })
  expect((await bus.streams.dead.list('mail')).map(({ id }) => id)).toEqual(letters)
})

test('[S13] a processor that is removed leaves nothing behind', async () => {
  const ways = await threeWays()
  const { bus, streams } = ways
  await fiveLetters(ways)
  await bus.close()
  const other = await threeWays({ namespace: bus.namespace })
  expect(await streams(['remove', 'mail'])).toEqual({ code: 0, stdout: 'mail is removed.\n', stderr: '' })
  const redis = plainRedis()
  expect(await redis.keys(`${bus.namespace}:{group.stream.mail}*`)).toEqual([])
  expect(await other.bus.streams.list()).toEqual([])
  expect((await other.send('DELETE', '/v1/streams/mail')).status).toBe(404)
})
