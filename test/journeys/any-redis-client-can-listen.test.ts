import { expect, test } from 'vitest'
import { type Bus, rawJson } from '../../src/bus.ts'
import { plainRedis, testBus } from '../support/bus.ts'
import { eventually } from '../support/eventually.ts'

interface Heard {
  channel: string
  message: string
}

async function listen(bus: Bus, pattern: string): Promise<Heard[]> {
  const client = plainRedis()
  const heard: Heard[] = []
  client.on('pmessage', (_, channel: string, message: string) => heard.push({ channel, message }))
  await client.psubscribe(`${bus.namespace}:live:${pattern}`)
  return heard
}

test('[P22] PSUBSCRIBE hears one notification per matching event, in order, and the payload is the event', async () => {
  const bus = testBus({ liveChannel: true, partitions: 1 })
  const orders = await listen(bus, '*:order.*')
  const acme = await listen(bus, 'acme:*')
  const everything = await listen(bus, '*')

  const answers = [
    await bus.publish('order.placed', { total: 12 }, { tenant: 'acme', key: 'order:42', trace: 'req-1', time: 5 }),
    await bus.publish('stock.moved', rawJson('{ "b":1,\n"a":12345678901234567890 }'), { tenant: 'zeta', key: 'k' }),
    ...(await bus.commit(
      'order:42',
      [
        ['order.paid', 'ü😀'],
        ['order.line.shipped', null],
      ],
      { tenant: 'acme' },
    )),
    await bus.publish('order', 'no key'),
    await bus.publish('order.x', { text: ',"time":1' }, { key: ',"time":2', trace: '"}\n{' }),
  ]
  const last = await bus.publish('order.last', 1, { tenant: 'acme' })
  await eventually(() => everything.length >= answers.length + 1)

  const events = await Promise.all([...answers, last].map(({ id }) => bus.log.get(id)))
  expect(everything.map(({ channel }) => channel)).toEqual(
    events.map((event) => `${bus.namespace}:live:${event!.tenant}:${event!.type}`),
  )
  for (const [i, { message }] of everything.entries()) {
    expect(JSON.parse(message)).toEqual(events[i]!.toJSON())
    expect(message.endsWith(`,"data":${events[i]!.json}}`)).toBe(true)
  }
  await eventually(() => orders.length >= 5 && acme.length >= 4)
  const types = (heard: Heard[]) => heard.map(({ message }) => JSON.parse(message).type)
  expect(types(orders)).toEqual(['order.placed', 'order.paid', 'order.line.shipped', 'order.x', 'order.last'])
  expect(types(acme)).toEqual(['order.placed', 'order.paid', 'order.line.shipped', 'order.last'])
})

test('[P22] under load exactly one per event, whoever publishes; a duplicate or a refused one makes none', async () => {
  const bus = testBus({ liveChannel: true })
  const second = testBus({ liveChannel: true, namespace: bus.namespace })
  const heard = await listen(bus, '*:load.*')
  const answers = await Promise.all(
    Array.from({ length: 1_000 }, (_, i) =>
      (i % 2 ? bus : second).publish('load.test', i, { key: `k${i % 30}`, idempotencyKey: `${i}` }),
    ),
  )
  const again = await Promise.all(
    Array.from({ length: 50 }, (_, i) => bus.publish('load.test', i, { key: `k${i % 30}`, idempotencyKey: `${i}` })),
  )
  expect(again.every(({ duplicate }) => duplicate)).toBe(true)
  await expect(bus.publish('load.test', 'x', { key: 'k0', expectPrev: 1 })).rejects.toThrow()
  const last = await bus.publish('load.last', 1)
  await eventually(() => heard.some(({ message }) => JSON.parse(message).id === last.id))
  // The last one went out on one connection, the others' on two: all are there when their publishes were answered.
  await eventually(() => heard.length >= 1_001)
  expect(heard.map(({ message }) => JSON.parse(message).id).sort()).toEqual(
    [...answers.map(({ id }) => id), last.id].sort(),
  )
})

test('[P22] without the option nothing is published there', async () => {
  const quiet = testBus()
  const loud = testBus({ namespace: quiet.namespace, liveChannel: true })
  const heard = await listen(quiet, '*')
  await quiet.publish('order.placed', 1, { key: 'k' })
  await quiet.commit('k', [['order.paid', 2]])
  const { id } = await loud.publish('order.shipped', 3, { key: 'k' })
  await eventually(() => heard.length > 0)
  expect(heard.map(({ message }) => JSON.parse(message).id)).toEqual([id])
})
