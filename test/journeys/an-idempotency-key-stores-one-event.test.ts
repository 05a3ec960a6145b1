import { createHash } from 'node:crypto'
import { describe, expect, test } from 'vitest'
import { rawJson } from '../../src/bus.ts'
import { partitionOf } from '../../src/log/partition.ts'
import { keysOf, plainRedis, testBus } from '../support/bus.ts'
import { contentsOf, storedEvents } from '../support/stored.ts'

const hourMs = 3_600_000

describe('the same idempotency key again', () => {
  test('[P07] same body: the first answer, marked duplicate; one event in the log', async () => {
    const bus = testBus()
    const before = await bus.publish('order.placed', 1, { tenant: 'acme', key: 'order:42' })
    const pay = () => bus.publish('order.paid', { eur: 12 }, { tenant: 'acme', key: 'order:42', idempotencyKey: 'pay' })
    const first = await pay()
    expect(first).toMatchObject({ duplicate: false, prev: before.seq })
    await bus.publish('order.shipped', 3, { tenant: 'acme', key: 'order:42' })
    for (let i = 0; i < 3; i += 1) expect(await pay()).toEqual({ ...first, duplicate: true })
    const other = testBus({ namespace: bus.namespace })
    const fromElsewhere = await other.publish('order.paid', rawJson('{"eur":12}'), {
      tenant: 'acme',
      key: 'order:42',
      idempotencyKey: 'pay',
      time: 5,
      trace: 'second try',
    })
    expect(fromElsewhere).toEqual({ ...first, duplicate: true })
    expect(await storedEvents(plainRedis(), bus.namespace)).toHaveLength(3)
    expect((await bus.log.get(first.id))!.trace).toBeUndefined()
  })

  test('[P07] many at once, in one tick and from several buses: one event, one answer', async () => {
    const one = testBus()
    const two = testBus({ namespace: one.namespace })
    const answers = await Promise.all(
      Array.from({ length: 100 }, (_, i) => (i % 2 ? one : two).publish('a.b', 1, { idempotencyKey: 'same' })),
    )
    expect(new Set(answers.map(({ id }) => id)).size).toBe(1)
    expect(answers.filter(({ duplicate }) => !duplicate)).toHaveLength(1)
    expect(await storedEvents(plainRedis(), one.namespace)).toHaveLength(1)
  })

  test('[P07] a commit: all of its first answers; its state is not written again', async () => {
    const bus = testBus()
    const commit = () =>
      bus.commit(
        'k',
        [
          ['a.b', 1],
          ['a.c', 2],
          ['a.d', 3],
        ],
        { idempotencyKey: 'c', state: { v: 1 } },
      )
    await bus.publish('a.b', 0, { key: 'k' })
    const first = await commit()
    await bus.commit('k', [['a.e', 4]], { state: { v: 2 } })
    expect(await commit()).toEqual(first.map((answer) => ({ ...answer, duplicate: true })))
    expect(await bus.state('k')).toEqual({ v: 2 })
    expect(await storedEvents(plainRedis(), bus.namespace)).toHaveLength(5)
  })

  const others: [string, string, unknown][] = [
    ['other data', 'order.paid', { eur: 13 }],
    ['data that only parses alike', 'order.paid', rawJson('{"eur": 12}')],
    ['another type', 'order.refunded', { eur: 12 }],
  ]
  test.each(others)('[P07] another body (%s): refused, nothing stored', async (_, type, data) => {
    const bus = testBus()
    const redis = plainRedis()
    await bus.publish('order.paid', { eur: 12 }, { key: 'order:42', idempotencyKey: 'pay' })
    const before = await contentsOf(redis, bus.namespace)
    await expect(bus.publish(type, data, { key: 'order:42', idempotencyKey: 'pay' })).rejects.toMatchObject({
      code: 'IDEMPOTENCY_KEY_REUSED',
      status: 409,
      retryable: false,
      message: expect.stringContaining('"pay"'),
    })
    expect(await contentsOf(redis, bus.namespace)).toEqual(before)
  })

  test('[P07] another number of events, or another state, is another body', async () => {
    const bus = testBus()
    await bus.commit(
      'k',
      [
        ['a.b', 1],
        ['a.b', 2],
      ],
      { idempotencyKey: 'c', state: 1 },
    )
    const refused = { code: 'IDEMPOTENCY_KEY_REUSED' }
    await expect(bus.commit('k', [['a.b', 1]], { idempotencyKey: 'c', state: 1 })).rejects.toMatchObject(refused)
    const reordered = bus.commit(
      'k',
      [
        ['a.b', 2],
        ['a.b', 1],
      ],
      { idempotencyKey: 'c', state: 1 },
    )
    await expect(reordered).rejects.toMatchObject(refused)
    const otherState = bus.commit(
      'k',
      [
        ['a.b', 1],
        ['a.b', 2],
      ],
      { idempotencyKey: 'c', state: 2 },
    )
    await expect(otherState).rejects.toMatchObject(refused)
    await expect(bus.publish('a.b', 1, { key: 'k', idempotencyKey: 'c' })).rejects.toMatchObject(refused)
  })
})

describe('scope', () => {
  test('[P07] is tenant and key: elsewhere the same idempotency key is another one', async () => {
    const bus = testBus({ partitions: 1 })
    const places = [
      { tenant: 'acme', key: 'order:42' },
      { tenant: 'acme', key: 'order:43' },
      { tenant: 'zeta', key: 'order:42' },
      { tenant: 'acme' },
      { tenant: 'zeta' },
      { key: 'order:42' },
      {},
    ]
    const publish = () =>
      Promise.all(places.map((place) => bus.publish('a.b', 1, { ...place, idempotencyKey: 'same' })))
    const first = await publish()
    expect(first.map(({ duplicate }) => duplicate)).toEqual(places.map(() => false))
    expect(new Set(first.map(({ id }) => id)).size).toBe(places.length)
    expect(await publish()).toEqual(first.map((answer) => ({ ...answer, duplicate: true })))
  })

  test('[P07] key and idempotency key that look alike when joined stay apart', async () => {
    const bus = testBus({ partitions: 1 })
    const first = await bus.publish('a.b', 1, { key: 'ab', idempotencyKey: 'c' })
    const second = await bus.publish('a.b', 1, { key: 'a', idempotencyKey: 'bc' })
    const third = await bus.publish('a.b', 1, { idempotencyKey: 'abc' })
    expect([first, second, third].map(({ duplicate }) => duplicate)).toEqual([false, false, false])
  })

  test('[P07] without a key the idempotency key chooses the partition, from any process', async () => {
    const bus = testBus({ partitions: 16 })
    const names = Array.from({ length: 40 }, (_, i) => `import-${i}`)
    const first = await Promise.all(
      names.map((idempotencyKey) => bus.publish('a.b', 1, { tenant: 'acme', idempotencyKey })),
    )
    expect(first.map(({ id }) => Number(id.split('-')[0]))).toEqual(
      names.map((name) => partitionOf(`acme/${name}`, 16)),
    )
    expect(new Set(first.map(({ id }) => id.split('-')[0])).size).toBeGreaterThan(8)
    const other = testBus({ namespace: bus.namespace })
    const again = await Promise.all(
      names.map((idempotencyKey) => other.publish('a.b', 1, { tenant: 'acme', idempotencyKey })),
    )
    expect(again).toEqual(first.map((answer) => ({ ...answer, duplicate: true })))
  })
})

test('[P07] the window is 24 h; after it the same call is a new event', async () => {
  const bus = testBus()
  const redis = plainRedis()
  const publish = () => bus.publish('a.b', 1, { tenant: 'acme', key: 'k', idempotencyKey: 'once' })
  const first = await publish()
  const onces = (await keysOf(redis, bus.namespace)).filter((key) => key.includes(':once:'))
  const scope = 'acme/k'
  const hash = createHash('sha1').update(`${scope.length}:${scope}once`).digest('hex')
  expect(onces).toEqual([expect.stringMatching(new RegExp(`:once:${hash}$`))])
  const windowMs = await redis.pttl(onces[0]!)
  expect(windowMs).toBeLessThanOrEqual(24 * hourMs)
  expect(windowMs).toBeGreaterThan(24 * hourMs - 60_000)

  // A duplicate does not prolong it.
  await redis.pexpire(onces[0]!, hourMs)
  expect(await publish()).toMatchObject({ id: first.id, duplicate: true })
  expect(await redis.pttl(onces[0]!)).toBeLessThanOrEqual(hourMs)

  await redis.pexpire(onces[0]!, 0)
  const second = await publish()
  expect(second).toMatchObject({ duplicate: false, prev: first.seq })
  expect(await publish()).toEqual({ ...second, duplicate: true })
  expect(await storedEvents(redis, bus.namespace)).toHaveLength(2)
})
