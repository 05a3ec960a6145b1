/** Webhooks never lead inside, whichever way they are asked to: put, changed, tested, delivered, replayed. Nothing here is ever dialled. */
import { expect, test } from 'vitest'
import type { Bus } from '../../src/bus.ts'
import type { TelemetryEvent } from '../../src/runtime/telemetry.ts'
import { testBus } from '../support/bus.ts'
import { eventually } from '../support/eventually.ts'
import { startReceiver } from '../support/receiver.ts'
import { recordingDial, resolverOf } from './receivers.ts'
import { notationsOf, refusedIPv4, refusedIPv6, samples } from './targets.ts'

const isPublic = (address: string) => address === '93.184.216.34'

/** A bus whose names have these addresses, and what it would have dialled. */
function recordedBus(addresses: () => string[]) {
  const { dialled, dial } = recordingDial()
  const { resolve } = resolverOf(addresses)
  const bus = testBus({ webhooks: { dispatch: true, resolve, dial } }) as Bus
  return { bus, dialled }
}

const batch = { maxWait: 0 }

test('[W15] on create and update: over 1,000 targets are refused, none is stored, nothing is dialled', async () => {
  const { bus, dialled } = recordedBus(() => ['93.184.216.34', '10.0.0.1'])
  const hosts = [...refusedIPv4.flatMap(samples).flatMap(notationsOf), ...refusedIPv6.map((address) => `[${address}]`)]
  const urls = [
    ...hosts.map((host) => `https://${host}/`),
    'https://localhost/',
    'https://a.internal/',
    'https://two.example/',
  ]
  expect(urls.length).toBeGreaterThan(1_000)
  await bus.webhooks.put('there', { url: 'https://93.184.216.34/', match: 'a.*' })
  for (const [i, url] of urls.entries()) {
    const put = bus.webhooks.put(i % 2 === 0 ? 'there' : 'new', { url, match: 'a.*' })
    await expect(put, url).rejects.toMatchObject({ code: 'WEBHOOK_URL_REFUSED' })
  }
  expect((await bus.webhooks.list()).map(({ name, url }) => [name, url])).toEqual([['there', 'https://93.184.216.34/']])
  expect(dialled).toEqual([])
})

test('[W15] on test, deliver and replay: a name that became private is not dialled; 1,000 rebindings', async () => {
  let inside = false
  const { bus, dialled } = recordedBus(() => (inside ? ['169.254.169.254'] : ['93.184.216.34']))
  await bus.webhooks.put('rebound', {
    ...{ url: 'https://rebound.example/', match: 'order.*', batch },
    retry: { backoff: ['1ms', '1ms'], attempts: 3 },
  })
  await bus.run({ signals: false })
  inside = true
  await bus.publish('order.paid', { n: 1 })
  await eventually(async () => (await bus.webhooks.get('rebound')).dead === 1)
  expect((await bus.webhooks.attempts('rebound'))[0]).toMatchObject({
    problem: expect.stringMatching(/^refused: .*link-local/),
  })
  await expect(bus.webhooks.replay('rebound', { since: 0 })).rejects.toMatchObject({ code: 'WEBHOOK_URL_REFUSED' })
  for (let i = 0; i < 1_000; i += 1) {
    inside = i % 2 === 0
    const { ok, problem } = await bus.webhooks.test('rebound')
    expect(ok).toBe(false)
    if (inside) expect(problem).toMatch(/^refused/)
  }
  expect(dialled.every(({ address }) => isPublic(address))).toBe(true)
  expect(dialled).toHaveLength(500)
})

test('[W15] the canary: with the allow-list the same doors reach loopback', async () => {
  const receiver = await startReceiver()
  const bus = testBus({ webhooks: { dispatch: true, allow: ['127.0.0.0/8'], allowHttp: true } }) as Bus
  await bus.run({ signals: false })
  await bus.webhooks.put('canary', { url: receiver.url, match: 'order.*', batch })
  expect(await bus.webhooks.test('canary')).toMatchObject({ ok: true })
  await bus.publish('order.paid', { n: 1 })
  await eventually(() => receiver.delivered().includes(1))
  await bus.webhooks.replay('canary', { since: 0 })
  await eventually(() => receiver.delivered().filter((n) => n === 1).length === 2)
})

test('[W15] a process that may reach more than public addresses by https says so when it begins to post; any other says nothing', async () => {
  const said = async (webhooks: object) => {
    const events: TelemetryEvent[] = []
    const bus = testBus({ webhooks: { dispatch: true, ...webhooks }, onTelemetry: (event) => events.push(event) })
    await bus.run({ signals: false })
    return events.flatMap(({ name, fields }) => (name === 'webhook.opened' ? [fields] : []))
  }
  expect(await said({})).toEqual([])
  expect(await said({ development: true })).toEqual([{ allow: '127.0.0.0/8 ::1/128', allowHttp: true }])
  expect(await said({ allow: ['10.0.0.0/8'] })).toEqual([{ allow: '10.0.0.0/8', allowHttp: false }])
})

test('a replay to a name that has no address now goes in line, as a put does', async () => {
  let isKnown = true
  const { bus } = recordedBus(() => (isKnown ? ['93.184.216.34'] : []))
  await bus.webhooks.put('away', { url: 'https://away.example/', match: 'order.*', batch })
  await bus.publish('order.paid', { n: 1 })
  isKnown = false
  expect(await bus.webhooks.replay('away', { since: 0 })).toMatchObject({ events: 1 })
})

test('[W16] an answer without end is cut at the cap; the log of attempts has its status, time and beginning', async () => {
  const receiver = await startReceiver()
  const bus = testBus({ webhooks: { dispatch: true, allow: ['127.0.0.0/8'], allowHttp: true } }) as Bus
  await bus.run({ signals: false })
  await bus.webhooks.put('talker', { url: receiver.url, match: 'order.*', batch, retry: { attempts: 1 } })
  receiver.otherwise = (response) => {
    response.writeHead(500)
    const talk = () => {
      while (response.writable && response.write('na '.repeat(1_000)));
    }
    response.on('drain', talk)
    talk()
  }
  await bus.publish('order.paid', { n: 1 })
  const [attempt] = await eventually(async () => {
    const found = await bus.webhooks.attempts('talker')
    return found.length > 0 && found
  })
  expect(attempt).toMatchObject({ status: 500, tookMs: expect.any(Number), excerpt: expect.stringMatching(/^na na /) })
  expect(attempt!.excerpt!.length).toBeLessThanOrEqual(1_000)
})
