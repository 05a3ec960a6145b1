/** What publish/publish.lua stores and tells. Seqs are small because the tests set the clock. */
import { describe, expect, onTestFinished, test } from 'vitest'
import { holdScript } from '../../src/log/holds.ts'
import { openNamespace } from '../../src/log/namespace.ts'
import { historyScript } from '../../src/log/read.ts'
import { liftScript } from '../../src/log/rollback.ts'
import { answersChannel, liveChannelPrefix, topicWakeChannel } from '../../src/redis/keys.ts'
import { runScript } from '../../src/redis/script.ts'
import { plainRedis } from '../support/bus.ts'
import { eventually } from '../support/eventually.ts'
import { envelopeOf, objects, type Stored, stored, testPartition } from '../support/partition.ts'
import { startRedis } from '../support/redis.ts'

describe('stored', () => {
  test('[P01] one entry per flush: its id is the seq of its last event, its fields are the prevs and the envelopes', async () => {
    const p = testPartition()
    const events = ['acme/a', 'acme/b'].map((object) => [object, envelopeOf(object, 'order.paid', { n: 1 })] as const)
    expect(await p.flush(events, { nowUs: 1_000 })).toEqual(stored(1_001, ['', '']))
    expect(await p.entries()).toEqual([['1001-0', [' ', `\x1e${events[0]![1]}\x1e${events[1]![1]}`]]])
    expect(await p.redis.hgetall(p.keys.heads)).toEqual({ 'acme/a': '1000', 'acme/b': '1001' })
    const bytes = events.reduce((sum, [, envelope]) => sum + Buffer.byteLength(envelope), 0)
    expect(await p.meta()).toEqual({ last: '1001', events: '2', bytes: String(bytes) })
  })

  test("seq is the server's µs clock when no time is given", async () => {
    const p = testPartition()
    const timeUs = async () =>
      Number((await p.redis.time()).reduce((sum, part, i) => sum + Number(part) * [1e6, 1][i]!, 0))
    const before = await timeUs()
    const { last } = (await p.flush(['acme/a'])) as Stored
    expect(last).toBeGreaterThanOrEqual(before)
    expect(last).toBeLessThanOrEqual(await timeUs())
  })

  test('seq is above the last one when the clock stands still or goes back, and above the floor', async () => {
    const p = testPartition()
    await p.flush(['acme/a'], { nowUs: 1_000 })
    expect(await p.flush(['acme/a'], { nowUs: 1_000 })).toEqual(stored(1_001, ['1000']))
    expect(await p.flush(['acme/a'], { nowUs: 10 })).toEqual(stored(1_002, ['1001']))
    expect(await p.flush(['acme/a'], { nowUs: 10, floor: 5_000 })).toEqual(stored(5_001, ['1002']))
    expect(await p.flush(['acme/a'], { nowUs: 9_000, floor: 5_000 })).toEqual(stored(9_000, ['5001']))
  })

  test('seqs just below 2^53 keep every digit', async () => {
    const p = testPartition()
    const nowUs = Number.MAX_SAFE_INTEGER - 10
    expect(await p.flush(['acme/a', 'acme/a'], { nowUs })).toEqual(stored(nowUs + 1, ['', String(nowUs)]))
    expect(await p.flush(['acme/a'])).toEqual(stored(nowUs + 2, [String(nowUs + 1)]))
    expect(await p.redis.hgetall(p.keys.heads)).toEqual({ 'acme/a': String(nowUs + 2) })
  })

  test('[P30] prevs follow each object on its own, within a flush and over flushes; events without key have none', async () => {
    const p = testPartition()
    const first = await p.flush(['acme/a', '', 'globex/a', 'acme/a', ''], { nowUs: 100 })
    expect(first).toEqual(stored(104, ['', '', '', '100', '']))
    expect(await p.flush(['globex/a', '', 'acme/a'], { nowUs: 200 })).toEqual(stored(202, ['102', '', '103']))
    expect(await p.redis.hgetall(p.keys.heads)).toEqual({ 'globex/a': '200', 'acme/a': '202' })
  })

  test('[P04] 1,000 events are split into entries of at most 256 with seqs that follow each other', async () => {
    const p = testPartition()
    const reply = (await p.flush(objects(1_000), { nowUs: 10_000 })) as Stored
    expect(reply.last).toBe(10_999)
    expect(reply.prevs).toEqual(Array(1_000).fill(''))
    const entries = await p.entries()
    expect(entries.map(([id, [, records]]) => [id, records!.split('\x1e').length - 1])).toEqual([
      ['10255-0', 256],
      ['10511-0', 256],
      ['10767-0', 256],
      ['10999-0', 232],
    ])
    expect(await p.redis.hlen(p.keys.heads)).toBe(1_000)
    expect(await p.redis.hget(p.keys.heads, 'acme/o:999')).toBe('10999')
    expect(await p.meta()).toMatchObject({ last: '10999', events: '1000' })
    expect(await p.flush(['acme/o:255'], { nowUs: 20_000 })).toEqual(stored(20_000, ['10255']))
  })

  test('bytes count what lies there, not characters', async () => {
    const p = testPartition()
    const envelope = envelopeOf('acme/ä', 'order.paid', '😀')
    await p.flush([['acme/ä', envelope]])
    await p.flush([['acme/ä', envelope]])
    expect((await p.meta()).bytes).toBe(String(2 * Buffer.byteLength(envelope)))
  })

  test('[P17] topics count each type by its first segment, also where they alternate', async () => {
    const p = testPartition()
    const types = ['order.paid', 'order.line.shipped', 'mail', 'order', 'orders.paid', 'mail.sent', 'order-x.y']
    await p.flush(types.map((type) => ['', envelopeOf('', type)] as const))
    await p.flush([['', envelopeOf('', 'mail')]])
    expect(await p.topics()).toEqual({ order: '3', mail: '3', orders: '1', 'order-x': '1' })
  })

  test('[P16] a head of the generation before counts while meta says that there is one, the current one wins', async () => {
    const p = testPartition()
    await p.redis.hset(p.keys.heads, 'acme/b', '90')
    await p.redis.hset(p.keys.headsOld, { 'acme/a': '70', 'acme/b': '60' })
    expect(await p.flush(['acme/a', 'acme/b'], { nowUs: 100 })).toEqual(stored(101, ['', '90']))
    await p.redis.hset(p.keys.meta, 'headsClosed', '80')
    await p.redis.hset(p.keys.headsOld, 'acme/c', '80')
    expect(await p.flush(['acme/c', 'acme/a', 'acme/c'], { nowUs: 200 })).toEqual(stored(202, ['80', '100', '200']))
    expect(await p.redis.hget(p.keys.heads, 'acme/c')).toBe('202')
  })

  test('a log whose last id is above last refuses, and nothing else has changed', async () => {
    const p = testPartition()
    await p.flush(['acme/a'], { nowUs: 100 })
    await p.redis.xadd(p.keys.log, '500-0', '', `\x1e${envelopeOf('acme/a')}`)
    const before = await Promise.all([p.meta(), p.redis.hgetall(p.keys.heads), p.topics(), p.stored()])
    const flush = p.flush(['acme/a'], { nowUs: 200, process: 'x', calls: [[1, 1, { state: '{}' }]] })
    await expect(flush).rejects.toThrow(/equal or smaller/)
    const after = await Promise.all([p.meta(), p.redis.hgetall(p.keys.heads), p.topics(), p.stored()])
    expect(after).toEqual(before)
  })
})

describe('state', () => {
  test('[P05] is written with the events, replaced, and deleted by null', async () => {
    const p = testPartition()
    const commit = (state: string) => p.flush(['acme/a', 'acme/a'], { calls: [[1, 2, { state }]] })
    await commit('{"total":1}')
    expect(await p.redis.hgetall(p.keys.states)).toEqual({ 'acme/a': '{"total":1}' })
    await commit('{"total":2}')
    await p.flush(['acme/b'], { calls: [[1, 1, { state: '[]' }]] })
    expect(await p.redis.hgetall(p.keys.states)).toEqual({ 'acme/a': '{"total":2}', 'acme/b': '[]' })
    await commit('null')
    expect(await p.redis.hgetall(p.keys.states)).toEqual({ 'acme/b': '[]' })
    expect(await p.count()).toBe(7)
  })

  test('[P05] of a call that stores nothing is not written; of two calls in one flush the later stands', async () => {
    const p = testPartition()
    await p.flush(['acme/a', 'acme/a', 'acme/a'], {
      calls: [
        [1, 1, { state: '1' }],
        [2, 1, { state: '2' }],
        [3, 1, { state: '3', expectPrev: '1' }],
      ],
    })
    expect(await p.redis.hgetall(p.keys.states)).toEqual({ 'acme/a': '2' })
  })
})

/** Messages of channels, in order of arrival. */
async function subscribed(...channels: string[]): Promise<string[][]> {
  const redis = plainRedis()
  const messages: string[][] = []
  redis.on('message', (channel: string, message: string) => messages.push([channel, message]))
  await redis.subscribe(...channels)
  return messages
}

describe('messages', () => {
  test('the hint says from where to where the log grew and what came', async () => {
    const p = testPartition()
    const messages = await subscribed(p.keys.wake)
    await p.flush(['acme/a'], { nowUs: 100, kinds: 'acme:order.paid' })
    await p.flush(['acme/a'], { calls: [[1, 1, { expectPrev: '1' }]], kinds: 'acme:not.stored' })
    await p.flush(['acme/a', 'acme/b'], { nowUs: 200, floor: 300, kinds: 'acme:a.b\nglobex:c' })
    await p.flush(['acme/a'], { nowUs: 400 })
    await eventually(() => messages.length >= 3)
    expect(messages.map(([, message]) => message)).toEqual([
      '0 100\nacme:order.paid',
      '100 302\nacme:a.b\nglobex:c',
      '302 400\n',
    ])
  })

  test('a lone event of the only one who listens, and who hears of it by the answer, is told to nobody else', async () => {
    const p = testPartition()
    const { wake } = p.keys
    const answers = answersChannel(p.namespace, 'p')
    const flush = (n: number, events = ['']) => p.flush(events, { process: 'p', n })
    const lone = async (n: number) => String(((await flush(n)) as Stored).last)
    const own = await subscribed(wake, answers)
    const lastOf = (messages: string[][]) => messages.map(([, message]) => /^\d+ (\d+)/.exec(message!)![1])
    await flush(1)
    const unheard = [await lone(2), await lone(3)]
    const { last: several } = (await flush(4, ['', ''])) as Stored
    const others = await subscribed(wake)
    const told = [await lone(5)]
    await eventually(() => own.length === 3 && others.length === 1)
    expect(lastOf(others)).toEqual(told)
    expect(lastOf(own).slice(1)).toEqual([String(several), ...told])
    expect(lastOf(own)).not.toEqual(expect.arrayContaining(unheard))
  })

  test('the only one who listens is told when it is another process', async () => {
    const p = testPartition()
    const listening = await subscribed(p.keys.wake)
    await subscribed(answersChannel(p.namespace, 'other'))
    for (const n of [1, 2, 3]) await p.flush([''], { process: 'p', n })
    await eventually(() => listening.length === 3)
  })

  test('each topic of a flush has its own hint for all partitions: which one, and where the topic was before', async () => {
    const p = testPartition()
    const channel = (topic: string) => topicWakeChannel(p.namespace, topic)
    const messages = await subscribed(channel('order'), channel('stock'))
    const of = (type: string): [string, string] => ['', envelopeOf('', type)]
    await p.flush([of('order.paid')], { nowUs: 100, kinds: 'default:order.paid' })
    await p.flush([of('mail.sent')], { nowUs: 200 })
    await p.flush([of('stock.moved'), of('order.sent'), of('stock.moved'), of('order')], { nowUs: 300 })
    const lone = of('order.paid')
    const { last: before } = (await p.flush([lone], { process: 'p', n: 1 })) as Stored
    const { last } = (await p.flush([lone], { process: 'p', n: 2, kinds: 'default:order.paid' })) as Stored
    await eventually(() => messages.length >= 5)
    const said = (topic: string, text: string) => [channel(topic), `${p.keys.wake} ${text}`]
    expect(messages).toEqual([
      said('order', 'order:0 0 100\ndefault:order.paid'),
      said('stock', 'stock:0,order:100 200 303\n'),
      said('order', 'stock:0,order:100 200 303\n'),
      said('order', `order:303 303 ${before}\n`),
      said('order', `order:${before} ${before} ${last}\ndefault:order.paid\n\n\n\x1e${lone[1]}`),
    ])
    expect(await p.topicLasts()).toEqual({ order: `${last}`, stock: '303', mail: '200' })
  })

  test('[P22] the live channel carries each stored event whole, its data byte for byte', async () => {
    const p = testPartition()
    const prefix = liveChannelPrefix(p.namespace)
    const messages = await subscribed(`${prefix}acme:order.paid`, `${prefix}default:mail`)
    const data = '{"big":12345678901234567890, "a":1}'
    const timed = `{"type":"order.paid","tenant":"acme","key":"a,\\"time\\":1","time":5,"trace":"t"}\n${data}`
    const calls = [[3, 1, { expectPrev: '1' }]] as const
    const live = `7 ${prefix}`
    await p.flush([['acme/a', timed], ['acme/a', envelopeOf('acme/a')], 'acme/a'], { nowUs: 5_000_000, live, calls })
    // Stored though its data is missing: the channel passes it over, and the flush is still answered.
    const broken = '{"type":"mail","tenant":"default"}'
    expect(
      await p.flush(
        [
          ['', envelopeOf('', 'mail', [1])],
          ['', broken],
          ['', envelopeOf('', 'mail', [2])],
        ],
        { nowUs: 6_000_000, live },
      ),
    ).toEqual(stored(6_000_002, ['', '', '']))
    await p.flush(['acme/quiet'], { nowUs: 7_000_000 })
    await p.flush([['', envelopeOf('', 'mail', 'end')]], { nowUs: 8_000_000, live })
    await eventually(() => messages.length >= 5)
    expect(messages).toEqual([
      [
        `${prefix}acme:order.paid`,
        `{"id":"7-5000000","seq":5000000,"prev":null,"type":"order.paid","tenant":"acme","key":"a,\\"time\\":1","time":5,"trace":"t","data":${data}}`,
      ],
      [
        `${prefix}acme:order.paid`,
        '{"id":"7-5000001","seq":5000001,"prev":5000000,"type":"order.paid","tenant":"acme","key":"a","time":5000,"data":null}',
      ],
      [
        `${prefix}default:mail`,
        '{"id":"7-6000000","seq":6000000,"prev":null,"type":"mail","tenant":"default","key":null,"time":6000,"data":[1]}',
      ],
      [
        `${prefix}default:mail`,
        '{"id":"7-6000002","seq":6000002,"prev":null,"type":"mail","tenant":"default","key":null,"time":6000,"data":[2]}',
      ],
      [
        `${prefix}default:mail`,
        '{"id":"7-8000000","seq":8000000,"prev":null,"type":"mail","tenant":"default","key":null,"time":8000,"data":"end"}',
      ],
    ])
  })
})

describe('a Redis without memory left', () => {
  async function fullRedis(): Promise<ReturnType<typeof plainRedis>> {
    const server = await startRedis()
    onTestFinished(() => server.stop())
    return plainRedis(server.url)
  }

  test('refuses a flush before anything is written; whatever opens, reads and drains goes on', async () => {
    const redis = await fullRedis()
    const p = testPartition(redis)
    await p.flush(objects(300), { nowUs: 100 })
    await redis.config('SET', 'maxmemory', '1')
    const before = [await p.stored(), await p.meta(), await redis.xlen(p.keys.log)]
    const flush = p.flush(['acme/new'], { process: 'me', n: 1, calls: [[1, 1, { state: '1' }]] })
    await expect(flush).rejects.toThrow(/^OOM/)
    expect([await p.stored(), await p.meta(), await redis.xlen(p.keys.log)]).toEqual(before)
    const wish = { name: p.namespace, partitions: 1, retention: undefined }
    expect((await openNamespace(redis, wish)).partitions).toHaveLength(1)
    expect(await runScript(redis, holdScript, { keys: p.keys, name: 'h', seq: 1_000, epoch: 0 })).toBe('held')
    expect(await runScript(redis, liftScript, { keys: p.keys, seen: 500 })).toBe(399)
    expect(await runScript(redis, historyScript, { keys: p.keys, object: '', from: 100, limit: 1 })).toHaveLength(3)
    const walk = { keys: p.keys, object: 'acme/o:0', from: undefined, limit: 1 }
    expect(await runScript(redis, historyScript, walk)).toHaveLength(3)
    expect(await p.trim({ maxEvents: 0 })).toMatchObject({ removed: 300 })
    await redis.config('SET', 'maxmemory', '0')
    expect(await p.flush(['acme/new'], { process: 'me', n: 1, nowUs: 1_000 })).toEqual(stored(1_000, ['']))
  })
})
