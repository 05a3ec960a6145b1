/** next.lua: an event into the log and straight into a queue. What the queue itself says to it is in test/lanes/together.test.ts. */
import { describe, expect, test } from 'vitest'
import { partitionKeys } from '../../src/redis/keys.ts'
import { runScript, writeArg } from '../../src/redis/script.ts'
import { nextScript } from '../../src/sinks/queue/next.ts'
import { type ClockedStore, clockedStore } from '../lanes/clocked.ts'

const object = 'acme/order:1'
const envelope = (n: number) => `{"type":"order.paid","tenant":"acme","key":"order:1"}\n{"n":${n}}`

async function storeWithLog() {
  const store = await clockedStore()
  const { redis } = store
  const keys = partitionKeys(store.namespace, '0.0')
  let n = 1
  // The first flush of a process is for publish.lua.
  await redis.hset(keys.meta, 'call:p', '1 0 0 []')
  const next = (after: number, { token = 't1', revision = 1, floor = 0, said = ++n, text = envelope(said) } = {}) =>
    runScript(redis, nextScript, {
      ...{ store: store.ground(), accept: { revision, born: 1, partition: 0 }, lane: 'acme', after },
      claim: { token, n: 1, leaseMs: 100, worker: 'w', start: 's' },
      flush: {
        ...{ keys, process: 'p', n: said, floor, kinds: '', live: '', options: '', records: `\x1e${text}` },
        objects: { text: writeArg(object), count: 1 },
      },
    })
  const lastOf = async () => Number(await redis.hget(keys.meta, 'last'))
  const inLog = () => redis.xlen(keys.log)
  return { store, keys, next, lastOf, inLog }
}

const nothingTaken = async (store: ClockedStore) => expect(await store.counts()).toEqual({})

test('taken: it is in the log and an item like any other, held under the claim, and the partition is applied up to it', async () => {
  const { store, next, lastOf, inLog } = await storeWithLog()
  const first = await next(0)
  const seq = await lastOf()
  const item = `0-${seq} 0 acme 0 0 ${Math.floor(seq / 1000)} 0 \n${envelope(2)}`
  expect(first).toMatchObject({
    stored: { kind: 'stored', last: seq, prevs: '', before: 0 },
    claimed: { kind: 'claimed', revision: 1, more: false, items: [item] },
  })
  const { leases } = await store.stored()
  expect(Object.keys(leases)).toEqual(['t1'])
  expect(await store.redis.hget(store.keys.store, 'applied:0')).toBe(String(seq))
  await store.settle('t1', [`0-${seq}`], { kind: 'ack' })
  expect(await store.counts()).toEqual({ in: 1, out: 1 })

  const second = await next(seq, { token: 't2' })
  expect(second).toMatchObject({ stored: { prevs: String(seq), before: seq } })
  expect(second.claimed).toMatchObject({ items: [expect.stringContaining(` 0 ${seq}\n${envelope(3)}`)] })
  expect(await inLog()).toBe(2)
})

describe('stored, and left to the router:', () => {
  test('there is one before it that is not routed', async () => {
    const { store, next, inLog } = await storeWithLog()
    const { stored } = await next(7)
    expect(stored).toMatchObject({ kind: 'stored', before: 0 })
    expect((await next(7)).claimed).toBeUndefined()
    expect(await inLog()).toBe(2)
    await nothingTaken(store)
  })

  test('the subscription has changed', async () => {
    const { store, next, inLog } = await storeWithLog()
    await store.make(2)
    expect(await next(0)).toMatchObject({ stored: { kind: 'stored' }, claimed: undefined })
    expect(await inLog()).toBe(1)
    await nothingTaken(store)
  })

  test('something waits in the queue', async () => {
    const { store, next } = await storeWithLog()
    await store.send('acme')
    expect(await next(0)).toMatchObject({ stored: { kind: 'stored' }, claimed: undefined })
    expect(await store.counts()).toMatchObject({ in: 1, waiting: 1 })
  })
})

describe('nothing is written:', () => {
  test('late: a flush with a higher number was here before', async () => {
    const { store, next, inLog } = await storeWithLog()
    await next(7, { said: 9 })
    expect(await next(7, { said: 8 })).toEqual({ stored: { kind: 'late' }, claimed: undefined })
    expect(await inLog()).toBe(1)
    await nothingTaken(store)
  })

  test('whole: it was sent before, or is more than a plain event', async () => {
    const { store, next, inLog } = await storeWithLog()
    await next(7, { said: 9 })
    expect(await next(7, { said: 9 })).toEqual({ stored: undefined, claimed: undefined })
    expect(await next(7, { text: '{"tenant":"acme"}\n1' })).toEqual({ stored: undefined, claimed: undefined })
    expect(await inLog()).toBe(1)
    await nothingTaken(store)
  })
})
