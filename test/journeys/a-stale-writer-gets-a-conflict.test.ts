import { expect, test } from 'vitest'
import { plainRedis, testBus } from '../support/bus.ts'
import { contentsOf, storedEvents } from '../support/stored.ts'

test('[P06] another head than expected: CONFLICT with the real head, nothing stored', async () => {
  const bus = testBus()
  const redis = plainRedis()
  const first = await bus.publish('order.placed', 1, { tenant: 'acme', key: 'order:42' })
  const second = await bus.publish('order.paid', 2, { tenant: 'acme', key: 'order:42', expectPrev: first.seq })
  expect(second.prev).toBe(first.seq)

  const before = await contentsOf(redis, bus.namespace)
  for (const expectPrev of [first.seq, second.seq + 1, second.seq - 1, 1, null]) {
    const stale = { tenant: 'acme', key: 'order:42', expectPrev }
    await expect(bus.publish('order.paid', 3, stale)).rejects.toMatchObject({
      code: 'CONFLICT',
      status: 409,
      retryable: false,
      details: { key: '"order:42"', expectPrev, head: second.seq },
      message: expect.stringContaining(`its head is ${second.seq}`),
    })
    const commit = bus.commit(
      'order:42',
      [
        ['order.paid', 3],
        ['order.line', 4],
      ],
      { ...stale, state: 'no' },
    )
    await expect(commit).rejects.toMatchObject({ code: 'CONFLICT', details: { head: second.seq } })
  }
  expect(await contentsOf(redis, bus.namespace)).toEqual(before)
  expect(await storedEvents(redis, bus.namespace)).toHaveLength(2)
})

test('[P06] null means "there is none yet": once it holds, then it is a conflict', async () => {
  const bus = testBus()
  const { seq } = await bus.publish('order.placed', 1, { key: 'order:42', expectPrev: null })
  const again = bus.publish('order.placed', 1, { key: 'order:42', expectPrev: null })
  await expect(again).rejects.toMatchObject({ code: 'CONFLICT', details: { expectPrev: null, head: seq } })
  const other = bus.publish('order.placed', 1, { key: 'order:43', expectPrev: seq })
  await expect(other).rejects.toMatchObject({ code: 'CONFLICT', details: { expectPrev: seq, head: null } })
  const elsewhere = await bus.publish('order.placed', 1, { tenant: 'acme', key: 'order:42', expectPrev: null })
  expect(elsewhere.prev).toBeNull()
})

test('[P06] of many that read the same head exactly one gets through, also from two buses at once', async () => {
  const one = testBus()
  const two = testBus({ namespace: one.namespace })
  let { seq } = await one.publish('counter.set', 0, { key: 'c' })
  for (let round = 1; round <= 10; round += 1) {
    const tries = Array.from({ length: 20 }, (_, i) =>
      (i % 2 ? one : two).publish('counter.set', `${round}.${i}`, { key: 'c', expectPrev: seq }),
    )
    const settled = await Promise.allSettled(tries)
    const through = settled.filter((each) => each.status === 'fulfilled')
    expect(through).toHaveLength(1)
    const head = through[0]!.value.seq
    for (const each of settled)
      if (each.status === 'rejected')
        expect(each.reason).toMatchObject({ code: 'CONFLICT', details: { expectPrev: seq, head } })
    seq = head
  }
  expect(await one.log.history('c')).toHaveLength(11)
})

test('[P06] a conflict does not use up the idempotency key', async () => {
  const bus = testBus()
  const { seq } = await bus.publish('order.placed', 1, { key: 'order:42' })
  const paid = { key: 'order:42', idempotencyKey: 'pay-42' }
  await expect(bus.publish('order.paid', 2, { ...paid, expectPrev: null })).rejects.toMatchObject({ code: 'CONFLICT' })
  const stored = await bus.publish('order.paid', 2, { ...paid, expectPrev: seq })
  expect(stored).toMatchObject({ duplicate: false, prev: seq })
  // Its head has moved on by its own doing: the answer is the first one, not a conflict.
  expect(await bus.publish('order.paid', 2, { ...paid, expectPrev: seq })).toEqual({ ...stored, duplicate: true })
})
