/** What is secret of a webhook, its secret, its credentials and the values of its headers, is shown nowhere but where it is asked for. */
import { expect, test } from 'vitest'
import { routeKeys } from '../../src/redis/keys.ts'
import { signatures } from '../../src/webhook-signature.ts'
import { plainRedis, testBus } from '../support/bus.ts'
import { startReceiver, toLoopback } from '../support/receiver.ts'

const secret = `whsec_${Buffer.alloc(24, 7).toString('base64')}`
const options = {
  ...{ match: 'order.>', secret, basic: 'the-user', headers: { 'X-Token': 'the-token', 'x-shop': 'the-shop' } },
  ...{ parallel: 2, batch: { maxEvents: 7 } },
} as const

async function place() {
  const server = await startReceiver()
  const bus = testBus({ webhooks: toLoopback })
  const put = await bus.webhooks.put('erp', { url: server.url, ...options })
  return { bus, server, put }
}

test('subscriptions and webhooks show what a webhook was told, without what is secret', async () => {
  const { bus, put } = await place()
  const facts = await bus.webhooks.get('erp')
  const views = {
    put,
    facts,
    listed: await bus.webhooks.list(),
    subscription: await bus.subscriptions.get('erp'),
    subscriptions: await bus.subscriptions.list(),
    match: await bus.subscriptions.match('acme', 'order.paid'),
  }
  expect(JSON.stringify(views)).not.toMatch(/the-(user|token|shop)|whsec_/)
  const shown = { maxEvents: 7, parallel: 2, headers: ['x-shop', 'x-token'], basic: true }
  expect(facts).toMatchObject({ name: 'erp', match: 'order.>', ...shown })
  expect(put).toEqual({ change: 'created', ...facts })
  expect(views.listed).toEqual([facts])
  expect(views.subscription.options).toMatchObject(shown)
  expect(views.subscriptions).toEqual([views.subscription])
  expect(await bus.webhooks.secrets('erp')).toEqual([secret])
})

test('what is stored is whole: requests have it all, and an equal definition is no change', async () => {
  const { bus, server } = await place()
  const [stored] = await plainRedis().hvals(routeKeys(bus.namespace).subscriptions)
  for (const each of [secret, 'the-user', 'the-token']) expect(stored).toContain(each)
  expect(await bus.webhooks.test('erp')).toMatchObject({ ok: true, status: 204 })
  expect(server.received[0]!.headers).toMatchObject({
    ...{ 'x-token': 'the-token', 'x-shop': 'the-shop' },
    authorization: `Basic ${Buffer.from('the-user:x').toString('base64')}`,
  })
  expect((await bus.webhooks.put('erp', { url: server.url, ...options })).change).toBe('same')
  const other = bus.webhooks.put('erp', { url: server.url, ...options, parallel: 3 })
  await expect(other).rejects.toThrow(/has parallel: 2, and keeps it/)
})

test('[W16] a receiver that repeats the request puts none of them into its answer as it is shown', async () => {
  const { bus, server } = await place()
  server.next = [(response, { headers }) => response.writeHead(500).end(JSON.stringify(headers))]
  const { excerpt } = await bus.webhooks.test('erp')
  expect(excerpt).toContain('"x-token":"[redacted]"')
  expect(excerpt).not.toContain(Buffer.from('the-user:x').toString('base64'))
  expect(excerpt).not.toMatch(/the-(user|token|shop)|v1,/)
})

test('an error never shows them', async () => {
  const { bus, server } = await place()
  const refused = async (more: object) => {
    const error = await bus.webhooks.put('erp', { url: server.url, match: '>', ...more }).catch((each) => each)
    expect(error.code).toMatch(/INVALID/)
    return String(error.message)
  }
  expect(await refused({ basic: 'the user' })).not.toContain('the user')
  expect(await refused({ headers: { 'x-token': 'the\ntoken' } })).not.toContain('the\ntoken')
  expect(await refused({ secret: 'whsec_the-secret' })).not.toContain('the-secret')
  expect(await refused({ basic: 'the-user', headers: { Authorization: 'Bearer the-token' } })).not.toContain('the-')
})

test('secrets that were replaced go on being used for as long as was said, also when they are replaced twice', async () => {
  const { bus, server } = await place()
  const signed = async () => {
    await bus.webhooks.test('erp')
    const { headers, body } = server.received.at(-1)!
    const [id, timestamp] = [headers['webhook-id'] as string, Number(headers['webhook-timestamp'])]
    const given = String(headers['webhook-signature']).split(' ')
    return (one: string) => given.includes(signatures({ id, timestamp, body }, [one]))
  }
  const second = await bus.webhooks.rotate('erp', { overlap: '1h' })
  const third = await bus.webhooks.rotate('erp')
  const isSigned = await signed()
  expect([secret, second, third].map(isSigned)).toEqual([true, true, true])
  expect(await bus.webhooks.secrets('erp')).toEqual([third, second, secret])
  const fourth = await bus.webhooks.rotate('erp', { secret, overlap: 0 })
  expect(fourth).toBe(secret)
  expect(await bus.webhooks.secrets('erp')).toEqual([secret, second])
  for (let i = 0; i < 10; i++) await bus.webhooks.rotate('erp')
  expect(await bus.webhooks.secrets('erp')).toHaveLength(5)
})
