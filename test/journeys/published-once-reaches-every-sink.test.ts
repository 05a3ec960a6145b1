/** One publish: every subscription that matches has it, exactly once, the same event. */
import { describe, expect, test } from 'vitest'
import type { Bus } from '../../src/bus.ts'
import type { Event } from '../../src/event.ts'
import { freshNamespace, keysOf, plainRedis, take, testBus } from '../support/bus.ts'
import { eventually } from '../support/eventually.ts'
import { quickGroup } from '../support/workers.ts'

const place = ({ id, seq, prev }: Pick<Event, 'id' | 'seq' | 'prev'>) => ({ id, seq, prev })

/** Everything a queue has, in the order in which it would be given. */
async function waitingIn(bus: Bus, queue: string): Promise<Event[]> {
  return bus.queues.peek(queue, { max: 1_000 })
}

const idsIn = async (bus: Bus, queue: string) => (await waitingIn(bus, queue)).map(({ id }) => id)

/** Put by another process, as it would be: a bus of its own that only declares. */
async function put(namespace: string, name: string, options: object): Promise<void> {
  const { items } = await (testBus({ namespace }) as Bus).queue(name, options).claim()
  for (const item of items) await item.handBack()
}

describe('one publish', () => {
  test('[Q01] reaches a live reader, a processor and two queues: same id, seq and prev', async () => {
    const bus = testBus()
    const handled: Event[] = []
    bus.processor('search', { match: 'order.*', concurrency: 1 }, (event) => void handled.push(event as Event))
    const worked: Event[] = []
    bus.queue('billing', { match: 'order.*' }).work((event) => void worked.push(event))
    bus.queue('audit', { match: '>' })
    const live = bus.live('order.*')[Symbol.asyncIterator]()
    const first = live.next()
    await bus.run({ signals: false })
    const published = [
      await bus.publish('order.placed', { n: 1 }, { tenant: 'acme', key: 'order:1' }),
      await bus.publish('order.paid', { n: 2 }, { tenant: 'acme', key: 'order:1' }),
    ]
    const seen = [(await first).value as Event, ...(await take(live, 1))] as Event[]
    await eventually(() => handled.length === 2 && worked.length === 2)
    await eventually(async () => (await idsIn(bus, 'audit')).length === 2)
    const expected = published.map(place)
    expect(seen.map(place)).toEqual(expected)
    expect(handled.map(place)).toEqual(expected)
    expect(worked.map(place)).toEqual(expected)
    expect((await waitingIn(bus, 'audit')).map(place)).toEqual(expected)
    expect(expected[1]!.prev).toBe(expected[0]!.seq)
    expect(worked.map(({ data }) => data)).toEqual([{ n: 1 }, { n: 2 }])
  })

  test('[Q02] enters only the queues whose pattern it matches; [Q03] each of them once', async () => {
    const bus = testBus()
    const patterns = {
      all: '>',
      orders: 'order.*',
      acme: 'acme:order.>',
      either: ['order.paid', 'mail.sent'],
      regex: '/^acme:.*paid$/',
      none: 'invoice.*',
    }
    for (const [name, match] of Object.entries(patterns)) bus.queue(name, { match })
    bus.queue('sent-only', {})
    await bus.run({ signals: false })
    const ids = new Map<string, string>()
    const kinds: [tenant: string, type: string][] = [
      ...(['acme', 'globex'] as const).flatMap((tenant) =>
        ['order.paid', 'order.line.shipped', 'mail.sent'].map((type): [string, string] => [tenant, type]),
      ),
    ]
    for (const [tenant, type] of kinds)
      ids.set(`${tenant}:${type}`, (await bus.publish(type, {}, { tenant, key: 'k' })).id)
    await eventually(async () => (await idsIn(bus, 'all')).length === kinds.length)
    const names = async (queue: string) => {
      const found = await idsIn(bus, queue)
      return [...ids].filter(([, id]) => found.includes(id)).map(([kind]) => kind)
    }
    const expected: Record<string, string[]> = {
      all: [...ids.keys()],
      orders: ['acme:order.paid', 'globex:order.paid'],
      acme: ['acme:order.paid', 'acme:order.line.shipped'],
      either: ['acme:order.paid', 'acme:mail.sent', 'globex:order.paid', 'globex:mail.sent'],
      regex: ['acme:order.paid'],
      none: [],
      'sent-only': [],
    }
    await eventually(async () => {
      for (const [queue, kindsOf] of Object.entries(expected)) expect(await names(queue)).toEqual(kindsOf)
    })
    for (const queue of Object.keys(expected)) {
      const found = await idsIn(bus, queue)
      expect(found).toHaveLength(new Set(found).size)
      expect((await bus.queues.get(queue)).in).toBe(expected[queue]!.length)
    }
  })
})

describe('a registration', () => {
  test('[Q05] with a new pattern takes the place of the old one: only the new one applies', async () => {
    const namespace = freshNamespace()
    const bus = testBus({ namespace, partitions: 1 }) as Bus
    bus.queue('all', { match: '>' })
    await bus.run({ signals: false })
    await put(namespace, 'mail', { match: 'mail.*' })
    const before = [await bus.publish('order.paid', 2), await bus.publish('mail.sent', 1)]
    // What was published before a change and not routed yet may be matched by either definition.
    await eventually(async () => (await bus.queues.get('mail')).in === 1)
    await eventually(async () => (await idsIn(bus, 'all')).length === 2)
    await put(namespace, 'mail', { match: 'order.*' })
    const after = [await bus.publish('mail.sent', 3), await bus.publish('order.paid', 4)]
    await eventually(async () => (await idsIn(bus, 'all')).length === 4)
    await eventually(async () => (await idsIn(bus, 'mail')).length === 2)
    expect((await idsIn(bus, 'mail')).sort()).toEqual([before[1]!.id, after[1]!.id].sort())
    expect((await bus.subscriptions.list()).filter(({ name }) => name === 'mail')).toHaveLength(1)
  })

  test('[Q05] that is removed lets nothing enter, leaves no key behind, and can be made again, empty', async () => {
    const namespace = freshNamespace()
    const bus = testBus({ namespace }) as Bus
    bus.queue('all', { match: '>' })
    await bus.run({ signals: false })
    await put(namespace, 'mail', { match: '>', weights: { a: 2 } })
    const queue = (testBus({ namespace }) as Bus).queue('mail', { match: '>', weights: { a: 2 } })
    for (let n = 0; n < 30; n += 1) await bus.publish('mail.sent', { n }, { tenant: `t${n % 7}` })
    await queue.send(1, { delay: '1h', idempotencyKey: 'x' })
    await queue.send(1, { priority: 5, tenant: 'a' })
    await eventually(async () => (await bus.queues.get('mail')).in === 32)
    const { items } = await queue.claim({ max: 5 })
    await items[0]!.dead('no use')
    const redis = plainRedis()
    const keysOfMail = async () => (await keysOf(redis, namespace)).filter((key) => key.includes('queue.mail'))
    expect((await keysOfMail()).length).toBeGreaterThan(10)
    await bus.queues.remove('mail')
    expect(await keysOfMail()).toEqual([])
    await bus.publish('mail.sent', { n: 'late' })
    await eventually(async () => (await idsIn(bus, 'all')).length === 31)
    expect(await keysOfMail()).toEqual([])
    await expect(bus.queues.get('mail')).rejects.toMatchObject({ code: 'QUEUE_NOT_FOUND' })
    await put(namespace, 'mail', { match: '>' })
    expect(await bus.queues.get('mail')).toMatchObject({ in: 0, waiting: 0, dead: 0, later: 0, held: 0 })
    const { id } = await bus.publish('mail.sent', { n: 'again' })
    await eventually(async () => expect(await idsIn(bus, 'mail')).toEqual([id]))
  })
})

describe('a subscription begins', () => {
  test('[Q06] at the beginning, at a time, or now: with exactly the events from there on', async () => {
    const namespace = freshNamespace()
    const bus = testBus({ namespace, group: quickGroup }) as Bus
    await bus.run({ signals: false })
    const publish = async (n: number) => (await bus.publish('mail.sent', { n }, { key: `k${n % 20}` })).id
    const old: string[] = []
    for (let n = 0; n < 40; n += 1) old.push(await publish(n))
    await new Promise((resolve) => setTimeout(resolve, 20))
    const since = Date.now()
    await new Promise((resolve) => setTimeout(resolve, 20))
    const recent: string[] = []
    for (let n = 0; n < 40; n += 1) recent.push(await publish(n))
    await put(namespace, 'beginning', { match: '>', from: 'beginning' })
    await put(namespace, 'time', { match: '>', from: since })
    await put(namespace, 'now', { match: '>' })
    const fresh: string[] = []
    for (let n = 0; n < 40; n += 1) fresh.push(await publish(n))
    const expected = { beginning: [...old, ...recent, ...fresh], time: [...recent, ...fresh], now: fresh }
    for (const [queue, ids] of Object.entries(expected)) {
      await eventually(async () => expect((await bus.queues.get(queue)).in).toBe(ids.length))
      expect((await idsIn(bus, queue)).sort()).toEqual([...ids].sort())
    }
  })
})
