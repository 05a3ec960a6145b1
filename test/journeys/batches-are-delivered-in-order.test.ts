/** Webhooks: events gather in batches, which arrive signed, in order, and with the same bytes on every attempt. */
import { Webhook } from 'standardwebhooks'
import { describe, expect, test } from 'vitest'
import { type Bus, rawJson } from '../../src/bus.ts'
import type { WebhookOptions } from '../../src/sinks/webhook/options.ts'
import { keysOf, plainRedis, testBus } from '../support/bus.ts'
import { eventually } from '../support/eventually.ts'
import { type Receiver, startReceiver, toLoopback } from '../support/receiver.ts'

interface Hooked {
  bus: Bus
  receiver: Receiver
  publish(first: number, last: number, options?: { key?: string; tenant?: string; type?: string }): Promise<void>
}

async function hooked(options: Partial<WebhookOptions> = {}, from?: Receiver): Promise<Hooked> {
  const receiver = from ?? (await startReceiver())
  const bus = testBus({ partitions: 4, webhooks: toLoopback }) as Bus
  bus.webhook('erp', {
    url: `${receiver.url}/hook`,
    match: ['order.>', 'stock.>'],
    retry: { backoff: ['20ms', '100ms'] },
    ...options,
  })
  await bus.run({ signals: false })
  return {
    ...{ bus, receiver },
    async publish(first, last, { key = 'o', tenant = 'acme', type = 'order.paid' } = {}) {
      for (let n = first; n <= last; n += 1) await bus.publish(type, { n }, { key, tenant })
    },
  }
}

const numbers = (first: number, last: number) => Array.from({ length: last - first + 1 }, (_, i) => first + i)

describe('a batch', () => {
  test('[W01] that is full is delivered at once, with as many events as it may have', async () => {
    const { receiver, publish } = await hooked({ batch: { maxEvents: 5, maxWait: '1h' } })
    await publish(1, 10)
    await eventually(() => receiver.received.length === 2)
    expect(receiver.received.map((one) => one.numbers)).toEqual([numbers(1, 5), numbers(6, 10)])
  })

  test('[W01] that would be too big is delivered without what does not fit', async () => {
    const { bus, receiver } = await hooked({ batch: { maxEvents: 1_000, maxWait: '1h', maxBytes: 1_024 } })
    const text = 'x'.repeat(300)
    for (let n = 1; n <= 4; n += 1) await bus.publish('order.paid', { n, text }, { key: 'o' })
    await eventually(() => receiver.received.length === 1)
    expect(receiver.received[0]!.numbers).toEqual([1, 2])
    await eventually(async () =>
      expect(await bus.webhooks.batches('erp')).toMatchObject({ open: [{ events: 2 }], sealed: [] }),
    )
  })

  test('[W02] that waited as long as it may is delivered with what it has', async () => {
    const { receiver, publish } = await hooked({ batch: { maxEvents: 100, maxWait: '300ms' } })
    const startedAt = performance.now()
    await publish(1, 3)
    await eventually(() => receiver.received.length === 1)
    expect(receiver.received[0]!.numbers).toEqual([1, 2, 3])
    expect(receiver.received[0]!.at - startedAt).toBeGreaterThan(290)
  })

  test('[W03] has its events in the order in which they arrived, types mixed', async () => {
    const { receiver, bus } = await hooked({ batch: { maxEvents: 6, maxWait: '1h' } })
    const types = ['order.paid', 'stock.low', 'order.line.shipped', 'order.paid', 'stock.low', 'order.sent']
    const published = []
    for (const [n, type] of types.entries()) published.push(await bus.publish(type, { n }, { key: 'o' }))
    await eventually(() => receiver.received.length === 1)
    const { subscription, events } = JSON.parse(receiver.received[0]!.body)
    expect(subscription).toBe('erp')
    expect(events.map(({ type }: { type: string }) => type)).toEqual(types)
    expect(events.map(({ id }: { id: string }) => id)).toEqual(published.map(({ id }) => id))
  })

  test('[W04] is one at a time open; sealed it never changes: the same bytes on every attempt, whatever comes or changes', async () => {
    const { bus, receiver, publish } = await hooked({ batch: { maxEvents: 3, maxWait: '1h' } })
    receiver.next = [500, 302, 503]
    await publish(1, 3)
    await eventually(() => receiver.received.length >= 1)
    await publish(4, 5)
    await eventually(async () => expect((await bus.webhooks.batches('erp')).open).toMatchObject([{ events: 2 }]))
    await bus.webhooks.put('erp', {
      ...{ url: `${receiver.url}/hook`, match: ['order.>', 'stock.>'], format: 'cloudevents-batch' },
      ...{ batch: { maxEvents: 3, maxWait: '1h' }, retry: { backoff: ['20ms', '100ms'] } },
    })
    await eventually(() => receiver.delivered().length >= 3)
    const attempts = receiver.received.filter(({ numbers: sent }) => sent.includes(1))
    expect(attempts).toHaveLength(4)
    expect(new Set(attempts.map(({ body }) => body)).size).toBe(1)
    expect(new Set(attempts.map(({ id }) => id)).size).toBe(1)
    // What was open is sealed as it was begun; the new format counts for the batch behind it.
    await publish(6, 8)
    await eventually(() => receiver.delivered().length === 8)
    const formats = receiver.received.slice(4).map(({ headers, numbers: sent }) => [headers['content-type'], sent])
    expect(formats).toEqual([
      ['application/json', [4, 5]],
      ['application/cloudevents-batch+json', [6, 7, 8]],
    ])
  })
})

describe('a request', () => {
  test('[W05] verifies; its id is that of the batch on every attempt, its time that of the attempt; Basic as it is given', async () => {
    const { bus, receiver, publish } = await hooked({
      batch: { maxWait: 0 },
      basic: 'b7a8-uuid',
      retry: { backoff: ['2200ms', '2200ms'] },
    })
    const [secret] = await bus.webhooks.secrets('erp')
    receiver.next = [500]
    await publish(1, 1)
    await eventually(() => receiver.received.length === 2)
    const wrong = new Webhook(`whsec_${Buffer.alloc(32, 7).toString('base64')}`)
    for (const { headers, body } of receiver.received) {
      expect(new Webhook(secret!).verify(body, headers as Record<string, string>)).toEqual(JSON.parse(body))
      expect(() => wrong.verify(body, headers as Record<string, string>)).toThrow()
      expect(headers.authorization).toBe(`Basic ${Buffer.from('b7a8-uuid:x').toString('base64')}`)
    }
    const [first, second] = receiver.received.map(({ headers }) => headers)
    expect(second!['webhook-id']).toBe(first!['webhook-id'])
    expect(Number(second!['webhook-timestamp'])).toBeGreaterThan(Number(first!['webhook-timestamp']))
    expect(second!['webhook-signature']).not.toBe(first!['webhook-signature'])
  })

  test('[W05] without basic carries no Authorization', async () => {
    const { receiver, publish } = await hooked({ batch: { maxWait: 0 } })
    await publish(1, 1)
    await eventually(() => receiver.received.length === 1)
    expect(receiver.received[0]!.headers.authorization).toBeUndefined()
  })

  test('[W22] carries the headers of its webhook; those that are ours are refused when it is declared', async () => {
    const { bus, receiver, publish } = await hooked({ batch: { maxWait: 0 }, headers: { 'x-team': 'billing' } })
    await publish(1, 1)
    await eventually(() => receiver.received.length === 1)
    expect(receiver.received[0]!.headers['x-team']).toBe('billing')
    const refused: Record<string, string>[] = [{ host: 'a' }, { 'webhook-signature': 'v1,x' }, { 'x-a': 'b\r\nc: d' }]
    for (const headers of refused)
      expect(() => bus.webhook('other', { url: receiver.url, match: 'a.b', headers })).toThrow(/header/)
  })

  test.each([
    ['busbar', 'application/json'],
    ['cloudevents-batch', 'application/cloudevents-batch+json'],
    ['routemaster', 'application/json'],
  ] as const)('[W18] is written as %s', async (format, contentType) => {
    const { bus, receiver } = await hooked({ batch: { maxWait: 0 }, format })
    const { id, seq } = await bus.publish(
      'order.update',
      { url: 'https://a.example/1', data: { n: 7 } },
      { key: 'o', tenant: 'acme' },
    )
    await eventually(() => receiver.received.length === 1)
    const { headers, body } = receiver.received[0]!
    expect(headers['content-type']).toBe(contentType)
    const event = JSON.parse(body)
    const expected = {
      busbar: {
        subscription: 'erp',
        events: [
          {
            id,
            seq,
            prev: null,
            type: 'order.update',
            tenant: 'acme',
            key: 'o',
            data: { url: 'https://a.example/1', data: { n: 7 } },
          },
        ],
      },
      'cloudevents-batch': [
        {
          specversion: '1.0',
          id,
          type: 'order.update',
          subject: 'o',
          data: { url: 'https://a.example/1', data: { n: 7 } },
        },
      ],
      routemaster: [
        { topic: 'order', type: 'update', url: 'https://a.example/1', t: Math.floor(seq / 1000), data: { n: 7 } },
      ],
    }
    expect(event).toMatchObject(expected[format])
  })

  test.each([201, 204, 299])(
    '[W06] that is answered %i is done: its batch and every reference to it are gone',
    async (status) => {
      const { bus, receiver, publish } = await hooked({ batch: { maxEvents: 2, maxWait: '1h' } })
      const redis = plainRedis()
      const before = (await keysOf(redis, bus.namespace)).filter((key) => key.includes('{webhook.'))
      receiver.next = [status]
      await publish(1, 2)
      await eventually(async () => (await bus.webhooks.get('erp')).delivered === 2)
      const after = (await keysOf(redis, bus.namespace)).filter((key) => key.includes('{webhook.'))
      // Who waits for work, and the log of attempts, are no part of the batch.
      expect(after.filter((key) => !/:(idle|attempts:erp)$/.test(key))).toEqual(
        before.filter((key) => !/:idle$/.test(key)),
      )
      expect(await bus.webhooks.batches('erp')).toEqual({ open: [], sealed: [] })
    },
  )

  test('[W06] that is answered otherwise, or not at all, is sent again: the same batch', async () => {
    const { bus, receiver, publish } = await hooked({ batch: { maxEvents: 2, maxWait: '1h' }, timeout: '200ms' })
    receiver.next = [301, 404, 500, (response) => response.destroy(), () => undefined]
    await publish(1, 2)
    await eventually(() => receiver.delivered().length === 2)
    expect(new Set(receiver.received.map(({ body, id }) => `${id} ${body}`)).size).toBe(1)
    const attempts = await eventually(async () => {
      const found = await bus.webhooks.attempts('erp')
      return found.length === 6 && found
    })
    expect(attempts.map(({ attempt, status, problem, outcome }) => [attempt, status ?? problem, outcome])).toEqual([
      [6, 204, 'delivered'],
      [5, expect.stringMatching(/no answer within/), 'failed'],
      [4, expect.any(String), 'failed'],
      [3, 500, 'failed'],
      [2, 404, 'failed'],
      [1, 301, 'failed'],
    ])
  })
})

describe('a sequence', () => {
  test('[W10] has one batch in flight at a time, in order, also while they fail', async () => {
    const { receiver, publish } = await hooked({ batch: { maxEvents: 2, maxWait: 0 } })
    let calls = 0
    receiver.otherwise = (response, received) => {
      calls += 1
      const status = calls % 3 === 0 ? 500 : 200
      setTimeout(() => {
        received.status = status
        response.writeHead(status).end()
      }, 5)
    }
    await publish(1, 30)
    await eventually(() => receiver.delivered().length === 30)
    expect(receiver.delivered()).toEqual(numbers(1, 30))
    expect(receiver.most).toBe(1)
  })

  test('[W10] parallel: n of them side by side, each key in order; never more in flight than the dispatcher has slots', async () => {
    const receiver = await startReceiver()
    const bus = testBus({ partitions: 4, webhooks: { ...toLoopback, concurrency: 3 } }) as Bus
    bus.webhook('wide', { url: receiver.url, match: 'order.>', parallel: 8, batch: { maxEvents: 2, maxWait: 0 } })
    receiver.otherwise = (response, received) =>
      void setTimeout(() => {
        received.status = 200
        response.writeHead(200).end()
      }, 5)
    await bus.run({ signals: false })
    const keys = Array.from({ length: 16 }, (_, i) => `k${i}`)
    for (let n = 0; n < 160; n += 1) await bus.publish('order.paid', { n }, { key: keys[n % 16]! })
    await eventually(() => receiver.delivered().length === 160)
    expect(receiver.most).toBeGreaterThan(1)
    expect(receiver.most).toBeLessThanOrEqual(3)
    for (const [i] of keys.entries()) {
      const ofKey = receiver.delivered().filter((n) => n % 16 === i)
      expect(ofKey).toEqual([...ofKey].sort((a, b) => a - b))
    }
  })
})

test('[W11] a webhook that is removed: its batches are discarded, its keys are gone, the others of its shard are not touched', async () => {
  const { bus, receiver, publish } = await hooked({
    batch: { maxEvents: 2, maxWait: '1h' },
    retry: { backoff: ['1h', '1h'] },
  })
  const redis = plainRedis()
  await bus.webhooks.put('other', { url: `${receiver.url}/other`, match: 'other.*', batch: { maxWait: '1h' } })
  await bus.publish('other.one', { n: 1 })
  receiver.otherwise = 500
  await publish(1, 7)
  await eventually(async () => (await bus.webhooks.batches('erp')).sealed.some(({ state }) => state === 'retrying'))
  await bus.webhooks.remove('erp')
  await expect(bus.webhooks.get('erp')).rejects.toMatchObject({ code: 'WEBHOOK_NOT_FOUND' })
  const left = (await keysOf(redis, bus.namespace)).filter((key) => key.includes('erp'))
  expect(left).toEqual([])
  expect((await bus.webhooks.batches('other')).open).toMatchObject([{ events: 1 }])
  await bus.webhooks.remove('other')
  await bus.close()
  expect((await keysOf(redis, bus.namespace)).filter((key) => key.includes('{webhook.'))).toEqual([])
})

test('[W23] one publish: live, queue, processor and webhook all have it, byte-equal data, same id, seq and prev', async () => {
  const receiver = await startReceiver()
  const bus = testBus({ webhooks: toLoopback }) as Bus
  const seen: { id: string; seq: number; prev: number | null; json: string }[] = []
  const see = ({ id, seq, prev, json }: (typeof seen)[number]) => void seen.push({ id, seq, prev, json })
  bus.webhook('erp', { url: receiver.url, match: 'order.*', batch: { maxWait: 0 } })
  bus.queue('mail', { match: 'order.*' }).work(async (event) => see(event as never))
  bus.processor('search', { match: 'order.*', concurrency: 1 }, async (event) => see(event as never))
  await bus.run({ signals: false })
  const text = '{"b":12345678901234567890,"a":"é\\u0000 \\ud83d\\ude00",  "c":[1.0]}'
  const first = await bus.publish('order.placed', 1, { key: 'o' })
  const published = await bus.publish('order.paid', rawJson(text), { key: 'o' })
  for await (const event of bus.live('order.*', { since: 'beginning' })) {
    see(event as never)
    if (event.id === published.id) break
  }
  await eventually(() => seen.length === 6)
  await eventually(() =>
    receiver.received
      .map(({ body }) => body)
      .join('')
      .includes(text),
  )
  const facts = { id: published.id, seq: published.seq, prev: first.seq }
  expect(seen.filter(({ id }) => id === published.id)).toEqual(Array(3).fill({ ...facts, json: text }))
  const event = receiver.received.flatMap(({ body }) => JSON.parse(body).events).find(({ id }) => id === published.id)
  expect(event).toMatchObject(facts)
})
