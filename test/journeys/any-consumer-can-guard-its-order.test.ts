/** orderGuard: what to do with an event, whoever brought it, in whatever order and however often. */
import { describe, expect, test } from 'vitest'
import type { Bus } from '../../src/bus.ts'
import { type OrderedEvent, type OrderStore, orderGuard } from '../../src/order-guard.ts'
import { testBus } from '../support/bus.ts'

const event = (seq: number, prev: number | null, key: string | null = 'order:1'): OrderedEvent => ({
  ...{ id: `3-${seq}`, seq, prev, tenant: 'acme', key },
})

function memory(): OrderStore & { saved: Map<string, number> } {
  const saved = new Map<string, number>()
  return { saved, last: (object) => saved.get(object), save: (object, seq) => void saved.set(object, seq) }
}

function guarded(options: Partial<Parameters<typeof orderGuard>[0]> = {}) {
  const store = memory()
  const guard = orderGuard({ store, maxWait: 0, ...options })
  const effects: string[] = []
  const take = (one: OrderedEvent) => guard.take(one, ({ seq }, verdict) => void effects.push(`${verdict} ${seq}`))
  return { store, effects, take }
}

describe('[Q28] monotone', () => {
  test('applies what is newer, whatever lies between, and knows what it has applied', async () => {
    const { take, effects, store } = guarded()
    expect(await take(event(10, null))).toBe('apply')
    expect(await take(event(30, 20))).toBe('apply')
    expect(await take(event(30, 20))).toBe('duplicate')
    expect(await take(event(20, 10))).toBe('duplicate')
    expect(effects).toEqual(['apply 10', 'apply 30'])
    expect(store.saved).toEqual(new Map([['acme/order:1', 30]]))
  })
})

describe('[Q28] strict', () => {
  test('applies exactly the next one; one that comes too early waits, and nothing of it is remembered', async () => {
    const { take, effects } = guarded({ mode: 'strict' })
    expect(await take(event(10, null))).toBe('apply')
    expect(await take(event(30, 20))).toBe('wait')
    expect(await take(event(20, 10))).toBe('apply')
    expect(await take(event(30, 20))).toBe('apply')
    expect(await take(event(20, 10))).toBe('duplicate')
    expect(effects).toEqual(['apply 10', 'apply 20', 'apply 30'])
  })

  test('one of an object that it has never seen waits for those before it', async () => {
    const { take } = guarded({ mode: 'strict' })
    expect(await take(event(20, 10))).toBe('wait')
    expect(await take(event(10, null))).toBe('apply')
    expect(await take(event(20, 10))).toBe('apply')
  })

  test('a fork after a rollback is no gap: it is applied and said', async () => {
    const { take, effects } = guarded({ mode: 'strict' })
    for (const one of [event(10, null), event(20, 10), event(30, 20)]) await take(one)
    expect(await take(event(40, 10))).toBe('fork')
    expect(await take(event(50, 40))).toBe('apply')
    expect(effects.slice(-2)).toEqual(['fork 40', 'apply 50'])
  })

  test('a trimmed chain is no gap: what is gone for good is not waited for', async () => {
    const asked: string[] = []
    const isKept = (id: string) => {
      asked.push(id)
      return id === '3-60'
    }
    const { take } = guarded({ mode: 'strict', isKept })
    expect(await take(event(10, null))).toBe('apply')
    expect(await take(event(50, 40))).toBe('apply')
    expect(await take(event(70, 60))).toBe('wait')
    expect(asked).toEqual(['3-40', '3-60'])
    // Its head was trimmed too: it begins anew.
    expect(await take(event(90, null))).toBe('apply')
  })

  test('waits for the one before it while that is on its way, so many and so long at most', async () => {
    const { take, effects } = guarded({ mode: 'strict', maxWait: '10s', maxWaiting: 2 })
    await take(event(10, null))
    const late = [take(event(40, 30)), take(event(30, 20))]
    // There is no room for a third: it is told at once.
    expect(await take(event(50, 40))).toBe('wait')
    expect(await take(event(20, 10))).toBe('apply')
    expect(await Promise.all(late)).toEqual(['apply', 'apply'])
    expect(effects).toEqual(['apply 10', 'apply 20', 'apply 30', 'apply 40'])
    const short = guarded({ mode: 'strict', maxWait: '20ms' })
    expect(await short.take(event(30, 20))).toBe('wait')
  })

  test('waits for a month without asking all the time', async () => {
    const store = memory()
    let asked = 0
    const last = (object: string) => {
      asked += 1
      return store.last(object)
    }
    const guard = orderGuard({ mode: 'strict', store: { ...store, last }, maxWait: '30d' })
    const early = guard.take(event(20, 10), () => undefined)
    await new Promise((resolve) => setTimeout(resolve, 50))
    expect(asked).toBe(1)
    expect(await guard.take(event(10, null), () => undefined)).toBe('apply')
    expect(await early).toBe('apply')
  })

  test('many that come in the wrong order ask twice each, not each time that one of them is applied', async () => {
    const store = memory()
    let asked = 0
    const last = (object: string) => {
      asked += 1
      return store.last(object)
    }
    const guard = orderGuard({ mode: 'strict', store: { ...store, last }, maxWait: '10s' })
    const seqs = Array.from({ length: 500 }, (_, n) => 500 - n)
    const taken = seqs.map((seq) => guard.take(event(seq, seq === 1 ? null : seq - 1), () => undefined))
    expect(new Set(await Promise.all(taken))).toEqual(new Set(['apply']))
    expect(asked).toBeLessThanOrEqual(2 * seqs.length)
  })

  test('an effect that fails is no effect', async () => {
    const store = memory()
    const guard = orderGuard({ mode: 'strict', store, maxWait: 0 })
    const failing = guard.take(event(10, null), () => Promise.reject(new Error('no connection')))
    await expect(failing).rejects.toThrow('no connection')
    expect(store.saved.size).toBe(0)
    expect(await guard.take(event(10, null), () => undefined)).toBe('apply')
  })

  test('of one object one at a time, of several at once', async () => {
    let [running, most] = [0, 0]
    const guard = orderGuard({ store: memory() })
    const apply = async () => {
      running += 1
      most = Math.max(most, running)
      await new Promise((resolve) => setTimeout(resolve, 5))
      running -= 1
    }
    await Promise.all([1, 2, 3].map((seq) => guard.take(event(seq, null), apply)))
    expect(most).toBe(1)
    await Promise.all(['a', 'b'].map((key) => guard.take(event(9, null, key), apply)))
    expect(most).toBe(2)
  })
})

test('[Q28] events of the log are taken as they are, also after their chain was trimmed', async () => {
  const bus = testBus() as Bus
  const { take, effects } = guarded({ mode: 'strict', isKept: async (id) => (await bus.log.get(id)) !== undefined })
  for (const n of [1, 2, 3]) await bus.publish('order.paid', n, { key: 'order:1' })
  const events = await bus.log.history('order:1')
  for (const one of [events[1]!, events[0]!, events[1]!, events[2]!, events[2]!]) await take(one)
  expect(effects.map((text) => text.split(' ')[0])).toEqual(['apply', 'apply', 'apply'])
})

test('[Q28] what was sent straight into a queue has no place in the order: it is refused, and passes for no duplicate', async () => {
  const bus = testBus() as Bus
  const { take, effects, store } = guarded()
  await bus.queues.put('mail')
  const mail = await bus.queues.open('mail')
  for (const n of [1, 2]) await mail.send(n, { tenant: 'acme', key: 'order:1' })
  for (const sent of await mail.pop({ max: 2 }))
    await expect(take(sent)).rejects.toMatchObject({
      code: 'PARAMETER_INVALID',
      message: expect.stringMatching(/"event" has no place in the log.*sent straight into a queue.*"mail\./),
    })
  await expect(take({ key: 'k' } as never)).rejects.toThrow('must be an event, with id, seq and prev')
  expect([effects, store.saved.size]).toEqual([[], 0])
})

test('[Q28] options are checked', () => {
  expect(() => orderGuard(undefined as never)).toThrow('store must have last(object) and save(object, seq)')
  const bad = { mode: 'loose', store: {}, maxWait: 'soon', maxWaiting: -1, strict: true }
  expect(() => orderGuard(bad as never)).toThrow(/strict.*mode must be.*store must have.*maxWaiting must be.*maxWait/s)
})
