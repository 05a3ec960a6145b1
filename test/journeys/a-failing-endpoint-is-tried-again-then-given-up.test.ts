/** Webhooks that fail: how they are tried again, slowed down, given up, disabled and brought back; and who else notices: nobody. */
import { Webhook } from 'standardwebhooks'
import { describe, expect, test } from 'vitest'
import type { Bus } from '../../src/bus.ts'
import { receiver as receiverOf } from '../../src/client.ts'
import type { WebhookOptions } from '../../src/sinks/webhook/options.ts'
import { testBus } from '../support/bus.ts'
import { eventually } from '../support/eventually.ts'
import { type Received, type Receiver, startReceiver, toLoopback } from '../support/receiver.ts'

interface Hooked {
  bus: Bus
  receiver: Receiver
  publish(first: number, last: number): Promise<void>
}

async function hooked(options: Partial<WebhookOptions> = {}, concurrency = 64): Promise<Hooked> {
  const receiver = await startReceiver()
  const bus = testBus({ partitions: 2, webhooks: { ...toLoopback, concurrency } }) as Bus
  bus.webhook('erp', {
    ...{ url: `${receiver.url}/hook`, match: 'order.>', batch: { maxEvents: 2, maxWait: 0 } },
    ...{ retry: { backoff: ['20ms', '100ms'] } },
    ...options,
  })
  await bus.run({ signals: false })
  return {
    ...{ bus, receiver },
    async publish(first, last) {
      for (let n = first; n <= last; n += 1) await bus.publish('order.paid', { n }, { key: 'o' })
    },
  }
}

const numbers = (first: number, last: number) => Array.from({ length: last - first + 1 }, (_, i) => first + i)
const waitsBetween = (received: readonly Received[]) => received.slice(1).map(({ at }, i) => at - received[i]!.at)

describe('[W07] a batch that fails', () => {
  test('waits longer each time, up to the cap, at random; a success heals', async () => {
    const { bus, receiver, publish } = await hooked({ retry: { backoff: ['100ms', '400ms'] } })
    receiver.next = [500, 500, 500, 500, 500]
    await publish(1, 1)
    await eventually(() => receiver.delivered().length === 1)
    const attempts = await eventually(async () => {
      const found = (await bus.webhooks.attempts('erp')).reverse()
      return found.length === 6 && found
    })
    const said = attempts.slice(0, 5).map(({ againInMs }) => againInMs!)
    for (const [i, full] of [100, 200, 400, 400, 400].entries()) {
      expect(said[i]).toBeGreaterThanOrEqual(full / 2)
      expect(said[i]).toBeLessThanOrEqual(full)
    }
    // The wait that was said is kept.
    for (const [i, waited] of waitsBetween(receiver.received).entries()) expect(waited).toBeGreaterThan(said[i]! - 2)
    expect(attempts.map(({ attempt }) => attempt)).toEqual(numbers(1, 6))
    expect(await bus.webhooks.get('erp')).toMatchObject({ state: 'active', failures: 0, attempts: 6, delivered: 1 })
  })

  test('is shown with its attempts, its webhook as failing', async () => {
    const { bus, receiver, publish } = await hooked({ retry: { backoff: ['10m', '10m'] } })
    receiver.otherwise = 500
    await publish(1, 2)
    await eventually(async () =>
      expect(await bus.webhooks.get('erp')).toMatchObject({ state: 'failing', failures: 1, since: expect.any(Number) }),
    )
    const { sealed } = await bus.webhooks.batches('erp')
    expect(sealed[0]).toMatchObject({ state: 'retrying', attempts: 1, dueAt: expect.any(Number) })
  })

  test.each([429, 503])('with %i and Retry-After waits as long as it is asked to', async (status) => {
    const { bus, receiver, publish } = await hooked()
    receiver.next = [
      (response, received) => {
        received.status = status
        response.writeHead(status, { 'retry-after': '1' }).end()
      },
    ]
    await publish(1, 1)
    await eventually(() => receiver.delivered().length === 1)
    expect(waitsBetween(receiver.received)[0]).toBeGreaterThan(990)
    expect((await bus.webhooks.attempts('erp')).at(-1)).toMatchObject({ status, againInMs: 1_000 })
  })

  test('with 410 disables its webhook, which is announced once; the batch stays', async () => {
    const { bus, receiver, publish } = await hooked()
    receiver.next = [410]
    await publish(1, 2)
    await eventually(async () =>
      expect(await bus.webhooks.get('erp')).toMatchObject({ state: 'disabled', why: expect.stringContaining('410') }),
    )
    const announced = bus.live('busbar.>', { since: 'beginning' })[Symbol.asyncIterator]()
    const { value: event } = await announced.next()
    expect(event).toMatchObject({
      type: 'busbar.webhook.disabled',
      data: { webhook: 'erp', why: 'it answered 410 Gone' },
    })
    expect((await bus.webhooks.batches('erp')).sealed).toMatchObject([{ events: expect.any(Number) }])
    expect(receiver.received).toHaveLength(1)
  })

  test('for too long disables its webhook', async () => {
    const { bus, receiver, publish } = await hooked({ disableAfter: '300ms' })
    receiver.otherwise = 500
    await publish(1, 1)
    await eventually(async () => (await bus.webhooks.get('erp')).state === 'disabled')
    expect((await bus.webhooks.get('erp')).why).toMatch(/no attempt was good/)
  })
})

describe('[W12] a batch that is given up', () => {
  test.each([
    ['after its attempts', { attempts: 3, backoff: ['5ms', '5ms'] }],
    ['after its time', { giveUpAfter: '150ms', backoff: ['20ms', '20ms'] }],
  ] as const)('%s is a dead letter, the next one goes on; redriven it is delivered', async (_, retry) => {
    const { bus, receiver, publish } = await hooked({ retry, batch: { maxEvents: 2, maxWait: '1h' } })
    receiver.otherwise = (response, received) => {
      received.status = received.numbers.includes(1) ? 500 : 200
      response.writeHead(received.status).end()
    }
    await publish(1, 4)
    await eventually(() => receiver.delivered().length === 2)
    expect(receiver.delivered()).toEqual([3, 4])
    expect(receiver.received.filter(({ status }) => status === 500).length).toBeGreaterThan(1)
    const [letter] = await bus.webhooks.dead.list('erp')
    expect(letter).toMatchObject({ events: 2, error: 'it answered 500' })
    expect(letter!.event.json).toBe(receiver.received[0]!.body)
    expect(await bus.webhooks.dead.reasons('erp')).toMatchObject([{ reason: 'it answered 500', letters: 1 }])
    await eventually(async () =>
      expect(await bus.webhooks.get('erp')).toMatchObject({ dead: 2, letters: 1, backlog: 0 }),
    )
    receiver.otherwise = 204
    expect(await bus.webhooks.dead.redrive('erp', 'all')).toBe(1)
    await eventually(() => receiver.delivered().length === 4)
    expect(receiver.received.at(-1)!.id).toBe(letter!.id)
    expect(receiver.received.at(-1)!.body).toBe(receiver.received[0]!.body)
  })

  test('for its age, is tried again as often as any when it is redriven', async () => {
    const { bus, receiver, publish } = await hooked({ retry: { giveUpAfter: '150ms', backoff: ['60ms', '60ms'] } })
    receiver.otherwise = 500
    await publish(1, 1)
    await eventually(async () => (await bus.webhooks.get('erp')).letters === 1)
    receiver.next = [500]
    receiver.otherwise = 204
    expect(await bus.webhooks.dead.redrive('erp', 'all')).toBe(1)
    await eventually(() => receiver.delivered().length === 1)
    expect(await bus.webhooks.get('erp')).toMatchObject({ letters: 0 })
  })

  test('or discarded, is gone', async () => {
    const { bus, receiver, publish } = await hooked({ retry: { attempts: 1 } })
    receiver.otherwise = 500
    await publish(1, 1)
    await eventually(async () => (await bus.webhooks.get('erp')).letters === 1)
    expect(await bus.webhooks.dead.discard('erp', { reason: 'answered 500' })).toBe(1)
    expect(await bus.webhooks.dead.list('erp')).toEqual([])
    for await (const finding of bus.fsck()) expect(finding).toBeUndefined()
  })

  test('a time can be replayed to one endpoint: those events once more, nobody else hears of it', async () => {
    const { bus, receiver, publish } = await hooked({ batch: { maxEvents: 3, maxWait: '20ms' } })
    await bus.webhooks.put('other', { url: `${receiver.url}/other`, match: 'order.>', batch: { maxWait: 0 } })
    await publish(1, 3)
    await eventually(() => receiver.delivered().length === 6)
    const event = async (n: number) => {
      for await (const found of bus.log.read()) if ((found.data as { n: number }).n === n) return found
      throw new Error('not there')
    }
    const [since, until] = [(await event(2)).time, (await event(3)).time + 1]
    await bus.publish('stock.low', { n: 99 }, { key: 'o' })
    receiver.received.length = 0
    const progress: number[] = []
    const replayed = await bus.webhooks.replay('erp', { since, until, onProgress: (events) => progress.push(events) })
    expect(replayed.events).toBe(progress.at(-1))
    await eventually(() => receiver.delivered().includes(3))
    expect(receiver.received.every(({ path }) => path === '/hook')).toBe(true)
    expect(receiver.delivered().slice(-2)).toEqual([2, 3])
    expect(receiver.delivered()).not.toContain(99)
  })
})

test('a replay of more than a webhook keeps pushes nothing out: it waits for room, or says that there is none', async () => {
  const { bus, receiver, publish } = await hooked()
  await publish(1, 30)
  await eventually(async () => (await bus.webhooks.get('erp')).delivered === 30)
  const { url, match } = await bus.webhooks.get('erp')
  await bus.webhooks.put('erp', { url, match, keep: 8, batch: { maxEvents: 2, maxWait: 0 } })
  receiver.received.length = 0
  expect(await bus.webhooks.replay('erp', { since: 0 })).toEqual({ events: 30 })
  await eventually(() => receiver.delivered().length === 30)
  expect(await bus.webhooks.get('erp')).toMatchObject({ dropped: 0 })
  await bus.webhooks.pause('erp')
  await expect(bus.webhooks.replay('erp', { since: 0 })).rejects.toMatchObject({ code: 'WEBHOOK_FULL' })
  expect(await bus.webhooks.get('erp')).toMatchObject({ dropped: 0, backlog: expect.any(Number) })
})

test('[W13] a webhook that is disabled keeps its events up to its bound; resumed, they are delivered in order', async () => {
  const { bus, receiver, publish } = await hooked({ keep: 10, batch: { maxEvents: 2, maxWait: '1h' } })
  receiver.next = [410]
  await publish(1, 2)
  await eventually(async () => (await bus.webhooks.get('erp')).state === 'disabled')
  await publish(3, 16)
  await eventually(async () => expect(await bus.webhooks.get('erp')).toMatchObject({ backlog: 10, dropped: 6, in: 16 }))
  expect(receiver.received).toHaveLength(1)
  // At once; those that follow are told together, later.
  expect(bus.telemetry.counts().get('webhook.dropped')).toBe(1)
  await bus.webhooks.resume('erp')
  await eventually(() => receiver.delivered().length === 10)
  expect(receiver.delivered()).toEqual(numbers(7, 16))
  await eventually(async () =>
    expect(await bus.webhooks.get('erp')).toMatchObject({ state: 'active', backlog: 0, dropped: 6 }),
  )
  for await (const finding of bus.fsck()) expect(finding).toBeUndefined()
})

test('[W13] a webhook that a person pauses keeps its events as well', async () => {
  const { bus, receiver, publish } = await hooked({ batch: { maxEvents: 2, maxWait: 0 } })
  await bus.webhooks.pause('erp')
  await publish(1, 6)
  await eventually(async () => (await bus.webhooks.get('erp')).backlog === 6)
  expect(await bus.webhooks.get('erp')).toMatchObject({ state: 'paused' })
  expect(receiver.received).toEqual([])
  await bus.webhooks.resume('erp')
  await eventually(() => receiver.delivered().length === 6)
  expect(receiver.delivered()).toEqual(numbers(1, 6))
})

test('[W14] a secret that is rotated: both verify during the overlap, then only the new one', async () => {
  const { bus, receiver, publish } = await hooked()
  const verifies = ({ body, headers }: Received, secret: string) => {
    try {
      return Boolean(new Webhook(secret).verify(body, headers as Record<string, string>))
    } catch {
      return false
    }
  }
  const [old] = await bus.webhooks.secrets('erp')
  const fresh = await bus.webhooks.rotate('erp', { overlap: '1s' })
  expect(await bus.webhooks.secrets('erp')).toEqual([fresh, old])
  await publish(1, 1)
  await eventually(() => receiver.received.length === 1)
  expect([fresh, old!].map((secret) => verifies(receiver.received[0]!, secret))).toEqual([true, true])
  await eventually(async () => (await bus.webhooks.secrets('erp')).length === 1)
  await publish(2, 2)
  await eventually(() => receiver.received.length === 2)
  expect([fresh, old!].map((secret) => verifies(receiver.received[1]!, secret))).toEqual([true, false])
})

test('[W19] a test event goes out at once, signed, whatever waits; its answer is told, nothing is stored', async () => {
  const { bus, receiver, publish } = await hooked()
  await bus.webhooks.pause('erp')
  await publish(1, 1)
  const [secret] = await bus.webhooks.secrets('erp')
  expect(await bus.webhooks.test('erp')).toEqual({ ok: true, status: 204, tookMs: expect.any(Number) })
  const { body, headers } = receiver.received[0]!
  expect(new Webhook(secret!).verify(body, headers as Record<string, string>)).toMatchObject({
    events: [{ type: 'busbar.webhook.test', data: { webhook: 'erp' } }],
  })
  // It has no place in the log: neither a seq nor an id that may be another's.
  const { id, events } = await receiverOf({ secret: secret! }).verify(headers, body)
  expect(events.map((event) => [event.id, event.seq])).toEqual([[`${id}.0`, 0]])
  receiver.next = [500]
  expect(await bus.webhooks.test('erp')).toMatchObject({ ok: false, status: 500, excerpt: 'answer 500' })
  await eventually(async () =>
    expect(await bus.webhooks.get('erp')).toMatchObject({ attempts: 0, delivered: 0, in: 1 }),
  )
})

test('[W21] of many that fail a quarter of the slots is taken, one each: the others are postponed, and counted as throttled', async () => {
  const { bus, receiver } = await hooked({}, 4)
  receiver.otherwise = (response, received) => {
    received.status = received.path.startsWith('/bad') ? 500 : 200
    // Those that fail take their time: at most one of them may be under way.
    setTimeout(() => response.writeHead(received.status!).end(), received.status === 500 ? 40 : 0)
  }
  const bad = Array.from({ length: 6 }, (_, i) => `bad${i}`)
  for (const name of bad)
    await bus.webhooks.put(name, {
      ...{ url: `${receiver.url}/${name}`, match: 'bad.*', batch: { maxWait: 0 } },
      retry: { backoff: ['5ms', '5ms'] },
    })
  await bus.publish('bad.one', { n: 1 })
  let most = 0
  await eventually(async () => {
    const again = receiver.received.filter(({ path }) => path.startsWith('/bad')).length > bad.length
    if (again) most = Math.max(most, receiver.open)
    const facts = await Promise.all(bad.map((name) => bus.webhooks.get(name)))
    return again && facts.reduce((sum, { throttled }) => sum + throttled, 0) >= 3
  })
  const { attempts, throttled } = await bus.webhooks.get('bad0')
  expect(attempts + throttled).toBeGreaterThan(0)
})

test('[W08] one endpoint hangs and one is dead: the others have their batches meanwhile', async () => {
  const { bus, receiver } = await hooked({}, 8)
  const names = Array.from({ length: 12 }, (_, i) => `good${i}`)
  const put = (name: string, url: string) =>
    bus.webhooks.put(name, {
      url,
      match: 'to.all',
      batch: { maxEvents: 1, maxWait: 0 },
      retry: { backoff: ['5ms', '20ms'] },
    })
  receiver.otherwise = (response, received) => {
    // Never answered: it holds its slot until its time is over.
    if (received.path === '/hung') return
    received.status = 200
    response.writeHead(200).end()
  }
  await put('hung', `${receiver.url}/hung`)
  await put('dead', 'http://127.0.0.1:1025/')
  for (const name of names) await put(name, `${receiver.url}/${name}`)
  for (let n = 0; n < 20; n += 1) await bus.publish('to.all', { n }, { key: 'o' })
  await eventually(() => receiver.delivered().length === 20 * names.length)
  for (const name of names)
    expect(receiver.received.filter(({ path }) => path === `/${name}`).flatMap((one) => one.numbers)).toEqual(
      numbers(0, 19),
    )
  expect((await bus.webhooks.batches('hung')).sealed).toHaveLength(20)
  expect((await bus.webhooks.get('dead')).state).toBe('failing')
})
