/** What another publisher writes to the log, and is no event, reaches no queue and no webhook; everything else goes on. */
import { expect, test } from 'vitest'
import type { Bus } from '../../src/bus.ts'
import { partitionTags } from '../../src/log/partition.ts'
import { publishScript } from '../../src/publish/scripts.ts'
import { partitionKeys } from '../../src/redis/keys.ts'
import { runScript, writeArg } from '../../src/redis/script.ts'
import { plainRedis } from '../support/bus.ts'
import { eventually } from '../support/eventually.ts'
import { collect } from '../support/log.ts'
import { startReceiver, toLoopback } from '../support/receiver.ts'
import { type Watched, watchedBus } from '../support/workers.ts'

const broken = {
  'an empty tenant': '{"type":"order.paid","tenant":"","key":"k"}\n{"n":0}',
  'a tenant with a space': '{"type":"order.paid","tenant":"x y","key":"k"}\n{"n":0}',
  'a tenant with an escape': '{"type":"order.paid","tenant":"\\u0061","key":"k"}\n{"n":0}',
  'a tenant that is too long': `{"type":"order.paid","tenant":"${'x'.repeat(129)}","key":"k"}\n{"n":0}`,
  'a key with half of a surrogate pair': '{"type":"order.paid","tenant":"acme","key":"\\ud800"}\n{"n":0}',
  'a key that is no text': '{"type":"order.paid","tenant":"acme","key":{"toString":1}}\n{"n":0}',
  'a header that is not JSON': '{"type":"order.paid","tenant":"acme","key":k}\n{"n":0}',
  'a header that does not end': '{"type":"order.paid","tenant":"acme"',
  'a header that names two types': '{"type":"order.paid","tenant":"acme","type":5}\n{"n":0}',
}

/** Stores it as docs/wire.md says; answers its seq. */
async function publishForeign({ namespace }: Bus, envelope: string): Promise<number> {
  const reply = await runScript(plainRedis(), publishScript, {
    ...{ keys: partitionKeys(namespace, partitionTags(1)[0]!), process: '', n: 0, floor: 0, kinds: '', live: '' },
    ...{ options: '', records: `\x1e${envelope}`, objects: { text: writeArg(''), count: 1 } },
  })
  if (reply.kind !== 'stored') throw new Error(`answered ${reply.kind}`)
  return reply.last
}

const queueNames = ['plain', 'ordered', 'tracked']

async function everySink(): Promise<Watched & { delivered(): number[] }> {
  const receiver = await startReceiver()
  const watched = watchedBus({ partitions: 1, webhooks: toLoopback })
  const { bus } = watched
  bus.queue('plain', { match: '>' })
  bus.queue('ordered', { match: '>', ordered: true })
  bus.queue('tracked', { match: '>', track: true })
  // Each format reads another part of the header; sequences read the key.
  const formats = ['busbar', 'cloudevents-batch', 'routemaster'] as const
  for (const format of formats)
    bus.webhook(format, { url: receiver.url, match: '>', format, parallel: 2, batch: { maxWait: '20ms' } })
  await bus.run({ signals: false })
  return { ...watched, delivered: () => receiver.delivered().sort((a, b) => a - b) }
}

test.each(Object.entries(broken))('%s', async (_, envelope) => {
  const { bus, events, delivered } = await everySink()
  const good = [await bus.publish('order.paid', { n: 1 }, { tenant: 'acme', key: 'k' })]
  const seq = await publishForeign(bus, envelope)
  good.push(await bus.publish('order.paid', { n: 2 }, { tenant: 'acme', key: 'k' }))
  await publishForeign(bus, envelope)
  good.push(await bus.publish('order.paid', { n: 3 }, { tenant: 'other', key: 'k' }))
  const ids = good.map(({ id }) => id).sort()
  for (const name of queueNames) {
    await eventually(async () => expect((await bus.queues.get(name)).in).toBe(3))
    expect(await workedOff(bus, name)).toEqual(ids)
  }
  await eventually(() => expect(delivered()).toEqual([1, 1, 1, 2, 2, 2, 3, 3, 3]))
  const told = events.filter(({ level }) => level === 'warn' || level === 'error')
  expect(told).toMatchObject([{ name: 'route.unroutable', fields: { partition: 0, seq } }])
  expect((await collect(bus.fsck())).map(({ where }) => where)).toContainEqual(expect.stringContaining(String(seq)))
})

test.each([
  ['and seems to hold a secret', '{"token": oops'],
  ['and seems harmless', 'hello'],
])('data that is not JSON, %s: a tracked queue shows nothing of it', async (_, data) => {
  const { bus, count } = await everySink()
  const seq = await publishForeign(bus, `{"type":"order.paid","tenant":"acme","key":"k"}\n${data}`)
  const { id } = await bus.publish('order.paid', { n: 1 }, { tenant: 'acme', key: 'k' })
  await eventually(async () => expect((await bus.queues.get('tracked')).in).toBe(2))
  expect(await workedOff(bus, 'tracked')).toEqual([`0-${seq}`, id])
  expect(count('sink.behind')).toBe(0)
  const seen = await collect(bus.operations.of('k', { tenant: 'acme', detail: true }))
  expect(seen.map(({ event, input }) => [event, input])).toEqual([
    [id, { n: 1 }],
    [`0-${seq}`, { omitted: 'input that is not JSON' }],
  ])
})

test('what is unusual and yet readable is routed', async () => {
  const { bus, count } = await everySink()
  const start = '{"type":"order.paid","tenant":"acme"'
  const headers = [
    '}',
    ', "key": "k" }',
    ',"key":"\\ud83d\\ude00"}',
    ',"time":7,"key":"a b"}',
    ',"trace":"t","more":[]}',
  ]
  const ids: string[] = []
  for (const header of headers) ids.push(`0-${await publishForeign(bus, `${start}${header}\n1`)}`)
  for (const name of queueNames) {
    await eventually(async () => expect((await bus.queues.get(name)).in).toBe(headers.length))
    expect(await workedOff(bus, name)).toEqual(ids.sort())
  }
  expect(count('route.unroutable')).toBe(0)
})

/** Claims and acks until nothing is left; answers the ids. */
async function workedOff(bus: Bus, name: string): Promise<string[]> {
  const queue = await bus.queues.open(name)
  const ids: string[] = []
  for (;;) {
    const { items } = await queue.claim({ max: 2 })
    if (items.length === 0) return ids.sort()
    for (const item of items) {
      ids.push(item.id)
      await item.ack()
    }
  }
}
