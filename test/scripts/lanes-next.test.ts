/** next.lua: the next event of a partition straight from the log. What the queue itself says to it is in test/lanes/together.test.ts. */
import { describe, expect, test } from 'vitest'
import { nextScript } from '../../src/lanes/acts.ts'
import { runScript } from '../../src/redis/script.ts'
import { type ClockedStore, clockedStore } from '../lanes/clocked.ts'

const start = '{"type":"order.paid","tenant":"acme"'
const envelope = (n: number) => `${start},"key":"order:${n}"}\n{"n":${n}}`

async function storeWithLog() {
  const store = await clockedStore()
  const log = { log: `${store.namespace}:{p0}:log`, meta: `${store.namespace}:{p0}:meta` }
  const append = (seq: number, prevs: string, ...envelopes: string[]) =>
    store.redis.xadd(log.log, `${seq}-0`, prevs, envelopes.map((one) => `\x1e${one}`).join(''))
  const next = (after: number, { token = 't1', revision = 1, worker = 'w' } = {}) =>
    runScript(store.redis, nextScript, {
      ...{ ...store.ground(), accept: { revision, born: 1, partition: 0 }, lane: 'acme', after, start, log },
      claim: { token, n: 1, leaseMs: 100, worker, start: 's' },
    })
  return { store, log, append, next }
}

const nothingChanged = async (store: ClockedStore) => expect(await store.counts()).toEqual({})

test('taken: the event is an item like any other, held under the claim, and the partition is applied up to it', async () => {
  const { store, append, next } = await storeWithLog()
  await append(5_000_001, '', envelope(1))
  await append(7_000_002, '5000001', envelope(1))
  const taken = await next(5_000_001)
  const item = `0-7000002 0 acme 0 0 7000 0 5000001\n${envelope(1)}`
  expect(taken).toMatchObject({ seq: 7_000_002, claimed: { kind: 'claimed', items: [item] } })
  const { leases } = await store.stored()
  expect(Object.keys(leases)).toEqual(['t1'])
  expect(await store.redis.hget(store.keys.store, 'applied:0')).toBe('7000002')
  expect(await next(5_000_001, { token: 't2' })).toBeUndefined()
  await store.settle('t1', ['0-7000002'], { kind: 'ack' })
  expect(await store.counts()).toEqual({ in: 1, out: 1 })
})

describe('left to the router, and nothing changes:', () => {
  test('nothing has come', async () => {
    const { store, append, next } = await storeWithLog()
    await append(5_000_001, '', envelope(1))
    expect(await next(5_000_001)).toBeUndefined()
    await nothingChanged(store)
  })

  test('another kind has come before it', async () => {
    const { store, append, next } = await storeWithLog()
    await append(5_000_001, '', envelope(1).replace('paid', 'sent'))
    await append(5_000_002, '', envelope(1))
    expect(await next(4_000_000)).toBeUndefined()
    await nothingChanged(store)
  })

  test('several have come together', async () => {
    const { store, append, next } = await storeWithLog()
    await append(5_000_002, ' ', envelope(1), envelope(2))
    expect(await next(4_000_000)).toBeUndefined()
    await nothingChanged(store)
  })

  test('some were trimmed that nobody has seen', async () => {
    const { store, log, append, next } = await storeWithLog()
    await store.redis.hset(log.meta, 'trimmed', 4_500_000)
    await append(5_000_001, '', envelope(1))
    expect(await next(4_000_000)).toBeUndefined()
    await nothingChanged(store)
    expect(await next(4_500_000)).toMatchObject({ seq: 5_000_001 })
  })

  test('the subscription has changed', async () => {
    const { store, append, next } = await storeWithLog()
    await append(5_000_001, '', envelope(1))
    await store.make(2)
    expect(await next(4_000_000)).toBeUndefined()
    await nothingChanged(store)
  })
})
