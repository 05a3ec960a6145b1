/** drop.lua, drop-letters.lua: the oldest of what waits in a lane, or of the dead letters, is given up for memory. */
import { expect, test } from 'vitest'
import { dropLettersScript, dropScript } from '../../src/lanes/scripts.ts'
import { runScript } from '../../src/redis/script.ts'
import { clockedStore } from '../lanes/clocked.ts'

test('so many bytes or items, the oldest first, counted; other lanes and what is held, later or dead stay', async () => {
  const store = await clockedStore()
  const drop = (name: string, bytes: number, most = 100) =>
    runScript(store.redis, dropScript, { ...store.ground(), name, bytes, most })
  const [held, ...ids] = await store.send('a', { times: 6 })
  await store.take(1)
  const [later] = await store.send('a', { delayMs: 50 })
  await store.send('b', { times: 2 })
  const { bytes } = (await store.record('a'))!
  expect(await drop('a', 1)).toEqual({ items: 1, bytes: expect.any(Number) })
  expect(await drop('a', bytes, 2)).toMatchObject({ items: 2 })
  expect((await store.peek(9))!.filter((id) => ids.includes(id))).toEqual(ids.slice(3))
  expect(await drop('a', bytes)).toMatchObject({ items: 2 })
  expect(await drop('a', bytes)).toEqual({ items: 0, bytes: 0 })
  expect(await store.counts()).toMatchObject({ waiting: 2, held: 1, dropped: 5 })
  store.pass(60)
  expect((await store.take(9)).ids).toContain(later)
  expect(held).toBeDefined()
})

test('of a store that is not there: nothing', async () => {
  const store = await clockedStore()
  await store.remove()
  const input = { ...store.ground(), name: 'a', bytes: 1, most: 1 }
  expect(await runScript(store.redis, dropScript, input)).toEqual({ items: 0, bytes: 0 })
  expect(await runScript(store.redis, dropLettersScript, input)).toEqual([])
})

test('dead letters: so many bytes or letters, the oldest first, counted by lane', async () => {
  const store = await clockedStore()
  const drop = (bytes: number, most = 100) =>
    runScript(store.redis, dropLettersScript, { ...store.ground(), bytes, most })
  for (const lane of ['a', 'b', 'a', 'c']) {
    store.pass(1)
    await store.send(lane)
    const { token, ids } = await store.take(1)
    await store.settle(token, ids, { kind: 'dead', reason: 'no' })
  }
  const bytes = Number(await store.redis.hget(store.keys.store, 'deadBytes'))
  const dropped = await drop(1_000_000, 3)
  expect(dropped).toMatchObject([
    { lane: 'a', items: 2 },
    { lane: 'b', items: 1 },
  ])
  const freed = dropped.reduce((sum, lane) => sum + lane.bytes, 0)
  expect(await store.redis.hget(store.keys.store, 'deadBytes')).toBe(String(bytes - freed))
  expect(await store.counts()).toEqual({ in: 4, dropped: 3 })
  expect(await store.record('a')).toBeUndefined()
  expect(await drop(1)).toMatchObject([{ lane: 'c', items: 1 }])
  expect(await drop(1)).toEqual([])
  expect((await store.stored()).letters).toEqual([])
})
