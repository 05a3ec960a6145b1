import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { type Bus, rawJson } from '../../src/bus.ts'
import type { Event } from '../../src/event.ts'
import { plainRedis, take, testBus } from '../support/bus.ts'
import { spacedJsonText } from '../support/json-texts.ts'
import { storedEvents } from '../support/stored.ts'

/** Publishes the data and gives back what every consumer gets of it, in the order of publishing. */
interface Consumers {
  bus: Bus
  deliver(data: readonly unknown[]): Promise<Record<string, string[]>>
}

async function consumers(): Promise<Consumers> {
  const bus = testBus({ partitions: 1, liveChannel: true })
  const live = bus.live('any.data')
  await live.ready()
  const channel = plainRedis()
  const heard: string[] = []
  channel.on('message', (_, message: string) => heard.push(message))
  await channel.subscribe(`${bus.namespace}:live:default:any.data`)
  let rounds = 0
  return {
    bus,
    async deliver(data) {
      const key = `round ${rounds++}`
      const half = Math.min(3, Math.floor(data.length / 2))
      const single = data.slice(half).map((each) => ['any.data', each] as const)
      const committed =
        half > 0
          ? await bus.commit(
              key,
              data.slice(0, half).map((each) => ['any.data', each]),
            )
          : []
      const published = await Promise.all(single.map(([type, each]) => bus.publish(type, each, { key })))
      const answers = [...committed, ...published]
      const jsons = (events: readonly (Event | undefined)[]) => events.map((event) => event!.json)
      const read: Event[] = []
      const since = Math.floor(answers[0]!.seq / 1000)
      for await (const event of bus.log.read({ since, match: 'any.data' })) if (event.key === key) read.push(event)
      return {
        get: jsons(await Promise.all(answers.map(({ id }) => bus.log.get(id)))),
        history: jsons(await bus.log.history(key, { limit: 1_000 })),
        read: jsons(read),
        live: jsons(await take(live, answers.length)),
        text: read.map((event) => event.toText().slice(event.toText().indexOf(',"data":') + 8, -1)),
        channel: heard.splice(0).map((message) => message.slice(message.indexOf(',"data":') + 8, -1)),
        log: (await storedEvents(plainRedis(), bus.namespace))
          .filter((event) => event.key === key)
          .map(({ json }) => json),
      }
    },
  }
}

async function expectBytes(
  { deliver }: Consumers,
  data: readonly unknown[],
  expected: readonly string[],
): Promise<void> {
  const delivered = await deliver(data)
  for (const [consumer, jsons] of Object.entries(delivered)) expect(jsons, consumer).toEqual(expected)
}

describe('every consumer gets the bytes that were published', () => {
  const runs = { numRuns: 25, endOnFailure: true }

  test('[P11] any JSON text, as it is written', async () => {
    const all = await consumers()
    const texts = fc.array(spacedJsonText, { minLength: 1, maxLength: 12 })
    await fc.assert(
      fc.asyncProperty(texts, (each) => expectBytes(all, each.map(rawJson), each)),
      runs,
    )
  })

  test('[P11] any JSON value, as JSON.stringify writes it', async () => {
    const all = await consumers()
    const values = fc.array(fc.jsonValue({ stringUnit: 'binary', maxDepth: 5 }), { minLength: 1, maxLength: 12 })
    await fc.assert(
      fc.asyncProperty(values, (each) =>
        expectBytes(
          all,
          each,
          each.map((value) => JSON.stringify(value)),
        ),
      ),
      runs,
    )
  })

  const odd: [string, string][] = [
    ['key order', '{"b":1,"a":2,"10":3,"2":4,"__proto__":5,"constructor":6}'],
    ['a name twice', '{"a":1,"a":2}'],
    ['big numbers', '[12345678901234567890,-0,1e308,4.9e-324,0.1e1,1E+2,123456789012345678901234567890.5]'],
    ['space', ' { "a" : [ 1 ,\n\t2 ] }\r\n'],
    [
      'every kind of Unicode',
      '"\u0001é\u0301日本𝕂👩‍👩‍👧\u202e\u2028\ufeff\uffff\u{10ffff}"'.replace('\u0001', '\\u0001'),
    ],
    ['escapes', '"\\ud800\\udfff\\u0000\\/\\b\\f\\n\\r\\t\\u00e9"'],
    ['its own envelope', JSON.stringify('{"type":"order.paid","tenant":"x"}\n1')],
    ['nested 20,000 deep', `${'['.repeat(20_000)}${']'.repeat(20_000)}`],
    ['objects 10,000 deep', `${'{"a":'.repeat(10_000)}1${'}'.repeat(10_000)}`],
    ['256 KiB', `"${'é'.repeat(131_071)}"`],
  ]
  test.each(odd)('[P11] %s', async (_, text) => {
    const all = await consumers()
    await expectBytes(all, [rawJson(text), rawJson(text)], [text, text])
  })

  test('[P11] every code point there is', async () => {
    const all = await consumers()
    const texts: string[] = []
    for (let from = 0; from < 0x110000; from += 0x4000) {
      const points = Array.from({ length: 0x4000 }, (_, i) => from + i).filter(
        (point) => point < 0xd800 || point > 0xdfff,
      )
      if (points.length > 0) texts.push(points.map((point) => String.fromCodePoint(point)).join(''))
    }
    await expectBytes(
      all,
      texts,
      texts.map((text) => JSON.stringify(text)),
    )
  })

  test('[P11] key, trace and state too', async () => {
    const bus = testBus()
    const values = fc.record({
      key: fc.string({ unit: 'binary', minLength: 1, maxLength: 60 }),
      trace: fc.string({ unit: 'binary', minLength: 1, maxLength: 60 }),
      state: fc.jsonValue({ stringUnit: 'binary', maxDepth: 3 }).filter((value) => value !== null),
    })
    const check = async ({ key, trace, state }: { key: string; trace: string; state: unknown }) => {
      const [answer] = await bus.commit(key, [['a.b', 1, { trace }]], { state })
      const event = (await bus.log.get(answer!.id))!
      expect([event.key, event.trace]).toEqual([key, trace])
      expect(await bus.state(key)).toEqual(JSON.parse(JSON.stringify(state)))
    }
    await fc.assert(fc.asyncProperty(values, check), { numRuns: 100, endOnFailure: true })
  })

  test('[P11] data is what JSON makes of the text, parsed once', async () => {
    const bus = testBus()
    const { id } = await bus.publish('a.b', rawJson('{"a":1,"a":2,"__proto__":{"x":1}}'))
    const event = (await bus.log.get(id))!
    expect(event.data).toBe(event.data)
    expect(Object.entries(event.data as object)).toEqual([
      ['a', 2],
      ['__proto__', { x: 1 }],
    ])
    expect(({} as { x?: unknown }).x).toBeUndefined()
  })
})
