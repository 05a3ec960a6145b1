/**
 * What goes wrong in a fair queue of facets, each as a named promise: a facet that is never listed, a pull on an empty queue,
 * a message that dies with its worker, a message announced before it can be had, names that are cut at a sign, keys that
 * nobody declared.
 */
import { expect, onTestFinished, test } from 'vitest'
import { readItem } from '../../src/lanes/item.ts'
import type { Track } from '../../src/lanes/operation.ts'
import { operationKeys } from '../../src/redis/keys.ts'
import { keysOf, plainRedis } from '../support/bus.ts'
import { startRedis } from '../support/redis.ts'
import { type ClockedStore, clockedStore, idsOf, lanesOf } from './clocked.ts'

const inLine = ({ redis, keys }: ClockedStore) => redis.zrange(keys.turns, '0', '-1')

test('facet-registered-on-first-event: by accept and by send, and again after it was empty', async () => {
  const store = await clockedStore()
  await store.accept(['a'])
  await store.send('b')
  expect(await inLine(store)).toEqual(['a', 'b'])
  const { token, ids } = await store.take(5)
  expect(await inLine(store)).toEqual([])
  await store.settle(token, ids, { kind: 'ack' })
  await store.accept(['a'], { from: 2 })
  await store.send('b')
  expect(lanesOf((await store.take(5)).items)).toBe('ab')
})

test('facet-listed-once: however many events it has and however they come', async () => {
  const store = await clockedStore()
  for (let from = 1; from < 10; from += 1) await store.accept(['a'], { from })
  await store.send('a', { times: 5 })
  const { token, ids } = await store.take(4)
  await store.settle(token, ids.slice(0, 2), { kind: 'back' })
  await store.settle(token, ids.slice(2), { kind: 'retry', afterMs: 0, reason: 'r' })
  expect(await inLine(store)).toEqual(['a'])
  expect((await store.take(50)).ids).toHaveLength(14)
})

test('one-per-environment-before-the-loop: a busy one does not back up the queue for everyone else', async () => {
  const store = await clockedStore()
  await store.send('a', { times: 1_000 })
  for (const quiet of ['b', 'c', 'd']) await store.send(quiet, { times: 2 })
  let served = ''
  for (let i = 0; i < 10; i += 1) served += lanesOf((await store.take(1)).items)
  expect(served).toBe('abcdabcdaa')
})

test('pull-empty: a pull on an empty queue gets nothing, errs not, and leaves nothing', async () => {
  const store = await clockedStore()
  const before = await keysOf(store.redis, store.namespace)
  for (const token of ['t', undefined])
    expect(await store.claim(3, { token })).toMatchObject({ kind: 'claimed', items: [], dueInMs: undefined })
  expect(await store.peek(3)).toEqual([])
  expect(await keysOf(store.redis, store.namespace)).toEqual(before)
  await store.send('a')
  await store.claim(1, { token: undefined })
  expect(await store.claim(1, { token: undefined })).toMatchObject({ items: [] })
})

test('pull-false: a message that says false, nothing or 0 is a message', async () => {
  const store = await clockedStore()
  const said = ['false', '', '0', 'nil', '\n', ' ']
  await store.sendAll(said.map((envelope) => store.item('a', { envelope })))
  expect((await store.take(9)).items.map((item) => readItem(item).envelope)).toEqual(said)
})

test('pull-crash-redelivers: what a worker held when it died comes back, and its late word changes nothing', async () => {
  const store = await clockedStore()
  await store.send('a', { times: 3 })
  const died = await store.take(2, { leaseMs: 1_000 })
  expect((await store.take(5)).ids).toHaveLength(1)
  store.pass(1_000)
  const again = await store.take(5)
  expect(again.ids).toEqual(died.ids)
  expect(await store.settle(died.token, died.ids, { kind: 'ack' })).toEqual({ kind: 'settled', stale: [0, 1] })
  expect(await store.settle(again.token, again.ids, { kind: 'ack' })).toEqual({ kind: 'settled', stale: [] })
})

test('pull-answer-lost: the claim is repeated, and nobody else gets what it was given', async () => {
  const store = await clockedStore()
  const sent = await store.send('a', { times: 4 })
  await store.claim(2, { token: 'lost' })
  expect((await store.take(1)).ids).toEqual(sent.slice(2, 3))
  expect((await store.take(2, { token: 'lost' })).ids).toEqual(sent.slice(0, 2))
})

test('queued-before-announced: who hears of an event can claim it', async () => {
  const store = await clockedStore()
  const listener = plainRedis()
  await listener.subscribe(store.keys.laneWake)
  for (let from = 1; from <= 20; from += 1) {
    await store.take(1, { idleName: 'x' })
    const claimed = new Promise<string[]>((resolve) => {
      listener.once('message', async () => resolve((await store.take(1)).ids))
    })
    await store.accept(['a'], { from })
    expect(await claimed).toEqual([`0-${from}`])
  }
})

test('name-with-pipe: no sign in the name of a lane cuts it or joins it to another', async () => {
  const store = await clockedStore()
  const names = ['a|b', 'a', 'b', '|', 'a|', '|b', '.*', '%d+', 'a:b', 'a-b']
  for (const [i, name] of names.entries()) await store.send(name, { envelope: String(i) })
  const { items } = await store.take(20)
  expect(items.map(readItem).map(({ lane, envelope }) => [lane, envelope])).toEqual(
    names.map((name, i) => [name, String(i)]),
  )
})

test('changed-pattern-is-one-registration: the old one takes nothing in any more, the new one nothing twice', async () => {
  const store = await clockedStore()
  await store.accept(['a', 'a'])
  await store.make(2)
  expect(await store.accept(['a'], { from: 3, revision: 1 })).toEqual({ kind: 'outdated' })
  expect(await store.accept(['a', 'a', 'b'], { from: 1, revision: 2 })).toEqual({ kind: 'accepted', items: 1 })
  expect((await store.take(9)).ids).toEqual(['0-1', '0-3', '0-2'])
})

/** Names of the keys in a command of a script. */
function keysIn([name = '', ...args]: readonly string[]): readonly string[] {
  if (['unlink', 'del', 'exists'].includes(name.toLowerCase())) return args
  return name.toLowerCase() === 'time' ? [] : args.slice(0, 1)
}

test.each<[string, Track | undefined]>([
  ['', undefined],
  [' of a tracked queue', { mode: 'all', hides: '0' }],
])(
  'keys-declared: a script%s touches the keys that it was given, those that begin with a prefix that it was given, and those of operations beside its store',
  async (_, track) => {
    const server = await startRedis()
    onTestFinished(() => server.stop())
    const store = await clockedStore({ url: server.url, ...(track ? { track } : {}) })
    const watcher = await plainRedis(server.url).monitor()
    onTestFinished(() => watcher.disconnect())
    const touched: string[][] = []
    watcher.on('monitor', (_, command: string[], source: string) => {
      if (source === 'lua') touched.push(command)
    })
    await everyScript(store)
    await expect.poll(() => touched.some(([name, key]) => name === 'UNLINK' && key === store.keys.turns)).toBe(true)
    const { rankedPrefix, heldPrefix, ...whole } = store.keys
    const ofOperations = operationKeys(store.namespace, 'mail')
    const known = new Set<string>([...Object.values(whole), ...Object.values(ofOperations)])
    const prefixes = [rankedPrefix, heldPrefix]
    const isKnown = (key: string) => known.has(key) || prefixes.some((prefix) => key.startsWith(prefix))
    expect(touched.length).toBeGreaterThan(100)
    expect(touched.filter((command) => !keysIn(command).every(isKnown))).toEqual([])
    const tags = touched.flatMap(keysIn).map((key) => /\{([^}]*)\}/.exec(key)?.[1])
    expect(new Set(tags)).toEqual(new Set(['queue.mail']))
  },
)

async function everyScript(store: ClockedStore): Promise<void> {
  await store.make(2, { weights: { a: 2, b: 0 } })
  await store.accept(['a', 'b', 'c'], { revision: 2 })
  await store.send('a', { priority: 1, ttlMs: 10, once: 'k' })
  await store.send('a', { delayMs: 10, once: 'k2' })
  await store.enter('w', 's')
  const { token, ids } = await store.take(3, { idleName: 'x', leaseMs: 5 })
  await store.renew([token])
  await store.extend(token, ids[0]!, 5, 'own')
  await store.settle(token, ids.slice(1, 2), { kind: 'dead', reason: 'r' })
  await store.settle(token, ids.slice(2), { kind: 'throttle', forMs: 5 })
  await store.redrive(...ids)
  await store.pause('pause')
  await store.pause('resume')
  await store.peek(9)
  store.pass(20_000)
  const again = await store.take(9, { idleName: 'x' })
  await store.settle(again.token, again.ids.slice(0, 1), { kind: 'dead', reason: 'r' })
  await store.discard(...again.ids)
  await store.extend(again.token, again.ids.at(-1)!, 0, 'own')
  await store.enter('w', 's2')
  await store.enter('w', 's2', 'leave')
  expect(idsOf((await store.take(1)).items)).toHaveLength(1)
  while ((await store.remove()) === 'more');
  expect(await keysOf(store.redis, store.namespace)).toEqual([])
}
