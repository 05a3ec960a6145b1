/**
 * One event, through every system that Busbar unites: published once in order, followed live, worked on fairly from a queue and in order from another, handled by
 * a processor, posted to a webhook, and in the end everyone can see what became of it.
 *
 * Each way to consume is one step of a table: what it declares, what must have happened, and where the trace must have the event.
 */
import { Webhook } from 'standardwebhooks'
import { expect, test } from 'vitest'
import type { Bus } from '../../src/bus.ts'
import type { Event, TracedPlace } from '../../src/index.ts'
import { take } from '../support/bus.ts'
import { eventually } from '../support/eventually.ts'
import { testDoor } from '../support/http.ts'
import { collect } from '../support/log.ts'
import { type Receiver, startReceiver, toLoopback } from '../support/receiver.ts'

interface Walked {
  bus: Bus
  event: Event<{ total: number }>
}

interface Way {
  /** Before anything is published. */
  declare(bus: Bus): void | Promise<void>
  /** What its consumer has seen. */
  happened(walked: Walked): Promise<void> | void
  /** Where the event is in the end; undefined for ways that leave no place. */
  place?: Partial<TracedPlace>
}

const seen = {
  ...{ live: [] as Event[], mails: [] as unknown[], search: [] as unknown[], booked: [] as string[] },
  receiver: undefined as Receiver | undefined,
}

const ways: Record<string, Way> = {
  'live: the publisher’s event, in order, as it happens': {
    declare(bus) {
      const live = bus.live('order.*', { since: 'beginning' })
      void take(live, 1).then((events) => seen.live.push(...events))
    },
    async happened({ event }) {
      await eventually(() => seen.live.length === 1)
      expect(seen.live[0]!.toText()).toBe(event.toText())
    },
  },
  'queue: one worker’s at a time, tried again after a failure': {
    declare(bus) {
      const mails = bus.queue('mails', { match: 'order.*', weights: { acme: 3 }, retry: { backoff: [0, 0] } })
      mails.work((event, { attempt }) => {
        if (attempt === 1) throw new Error('the mail server is busy')
        seen.mails.push(event.data)
      })
    },
    async happened({ event }) {
      await eventually(() => seen.mails.length === 1)
      expect(seen.mails).toEqual([event.data])
    },
    place: { kind: 'queue', name: 'mails', state: 'done' },
  },
  'ordered queue, tracked: its object’s items in order, and what became of each': {
    declare(bus) {
      const books = bus.queue('books', { match: 'order.*', ordered: true, track: true })
      books.work((event, ctx) => {
        ctx.log('booked')
        seen.booked.push(ctx.operationId)
        return { balance: (event.data as { total: number }).total }
      })
    },
    async happened({ bus, event }) {
      await eventually(() => seen.booked.length === 1)
      const operation = await bus.operations.wait(`books.${event.id}`)
      expect(operation).toMatchObject({
        status: 'succeeded',
        output: { balance: 42 },
        log: ['booked'],
        event: event.id,
      })
      const [newest] = await collect(bus.operations.of('order:42', { tenant: 'acme' }))
      expect(newest!.id).toBe(seen.booked[0])
      expect((await bus.operations.stats('books')).total).toEqual({ succeeded: 1, failed: 0, cancelled: 0 })
    },
    place: { kind: 'queue', name: 'books', state: 'done', attempts: 1 },
  },
  'webhook: posted, signed, in a batch of its own bytes': {
    async declare(bus) {
      seen.receiver = await startReceiver()
      bus.webhook('erp', { url: seen.receiver.url, match: 'acme:order.>', batch: { maxWait: 0 } })
    },
    async happened({ bus, event }) {
      await eventually(async () => (await bus.webhooks.get('erp')).delivered === 1)
      const { body, headers } = seen.receiver!.received[0]!
      expect(body).toBe(`{"subscription":"erp","events":[${event.toText()}]}`)
      const [secret] = await bus.webhooks.secrets('erp')
      expect(() => new Webhook(secret!).verify(body, headers as Record<string, string>)).not.toThrow()
    },
    place: { kind: 'webhook', name: 'erp', state: 'done' },
  },
  'processor: every event of a partition, with its cursor': {
    declare(bus) {
      bus.processor('search', { match: 'order.>', from: 'beginning', concurrency: 1 }, (event) => {
        seen.search.push(event.data)
      })
    },
    async happened({ event }) {
      await eventually(() => seen.search.length === 1)
      expect(seen.search).toEqual([event.data])
    },
    place: { kind: 'processor', name: 'search', state: 'done' },
  },
}

test('[O13] one event is published once, consumed in every way, and traced to every end', async () => {
  const { bus, get, post } = await testDoor({ bus: { partitions: 4, worker: 'w1', webhooks: toLoopback } })
  for (const { declare } of Object.values(ways)) await declare(bus)
  await bus.run({ signals: false })
  const body = JSON.stringify({ type: 'order.paid', tenant: 'acme', key: 'order:42', data: { total: 42 } })
  const published = await post(body, {})
  expect(published.status).toBe(201)
  const { id, prev } = published.json as { id: string; prev: number | null }
  expect(prev).toBeNull()
  const event = (await bus.log.get(id)) as Walked['event']
  for (const { happened } of Object.values(ways)) await happened({ bus, event })
  const expected = Object.values(ways).flatMap(({ place }) => place ?? [])
  await eventually(async () => {
    const { json } = await get(`/v1/events/${id}/trace`)
    expect(json.places).toHaveLength(expected.length)
    for (const place of expected) expect(json.places).toContainEqual(expect.objectContaining(place))
  })
  // The chain goes on where it stood.
  const next = await bus.publish('order.sent', { total: 42 }, { tenant: 'acme', key: 'order:42' })
  expect(next.prev).toBe(event.seq)
  await eventually(() => seen.booked.length === 2)
  expect(await collect(bus.fsck())).toEqual([])
})
