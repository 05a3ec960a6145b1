/** Processors where several things happen at once: nothing is lost, passed or reordered. */

import { setTimeout as sleep } from 'node:timers/promises'
import { expect, onTestFinished, test } from 'vitest'
import { Event } from '../../src/event.ts'
import { heartbeatScript } from '../../src/group/scripts.ts'
import { partitionTags } from '../../src/log/partition.ts'
import { publishScript } from '../../src/publish/scripts.ts'
import { groupKeys, partitionKeys, processorKeys } from '../../src/redis/keys.ts'
import { runScript, writeArg } from '../../src/redis/script.ts'
import { systemClock } from '../../src/runtime/clock.ts'
import { Aside } from '../../src/sinks/stream/aside.ts'
import { shelfKey } from '../../src/sinks/stream/scripts.ts'
import { objectOf } from '../../src/sinks/stream/set-aside.ts'
import { freshNamespace, keysOf, plainRedis, testBus } from '../support/bus.ts'
import { eventually } from '../support/eventually.ts'
import { startRedis } from '../support/redis.ts'
import { quickGroup } from '../support/workers.ts'

test('redrive keeps the order of an object whose next event waits', async () => {
  const bus = testBus({ group: quickGroup, partitions: 1 })
  const seen: string[] = []
  let broken = true
  let busy = false
  let letGo: () => void = () => undefined
  const gate = new Promise<void>((resolve) => {
    letGo = resolve
  })
  bus.processor('mail', { match: '>', retry: { attempts: 1 }, onPoison: 'skip' }, async (events) => {
    for await (const event of events) {
      if (event.type === 'mail.slow') {
        busy = true
        await gate
      }
      if (broken && event.type === 'mail.bad') throw new Error('no')
      seen.push(`${event.key} ${event.json}`)
    }
  })
  await bus.run({ signals: false })
  await bus.publish('mail.bad', 1, { key: 'a' })
  await eventually(async () => (await bus.streams.dead.list('mail')).length === 1)
  broken = false
  await bus.publish('mail.slow', 0, { key: 'z' })
  await eventually(() => busy)
  await bus.publish('mail.good', 2, { key: 'a' }) // read ahead, waits
  const shelved = async (events: number) => (await bus.streams.parked.list('mail'))[0]?.events === events
  expect(await bus.streams.dead.redrive('mail', 'all')).toBe(1)
  await eventually(() => shelved(2)) // the owner has heard of it, and put what waits behind it
  await bus.publish('mail.good', 3, { key: 'a' })
  await eventually(() => shelved(3))
  letGo()
  await eventually(() => seen.length === 4)
  expect(seen.filter((s) => s.startsWith('a'))).toEqual(['a 1', 'a 2', 'a 3'])
})

test('an event whose kinds are unknown, as docs/wire.md allows, reaches a processor', async () => {
  const bus = testBus({ group: quickGroup, partitions: 1 })
  const seen: string[] = []
  bus.processor('all', { match: '>' }, async (events) => {
    for await (const event of events) seen.push(event.json)
  })
  await bus.run({ signals: false })
  const redis = plainRedis()
  const keys = partitionKeys(bus.namespace, partitionTags(1)[0]!)
  for (const n of [1, 2, 3]) {
    const reply = await runScript(redis, publishScript, {
      keys,
      process: 'other',
      n,
      floor: 0,
      kinds: '',
      live: '',
      options: '',
      records: `\x1e{"type":"a.b","tenant":"default","key":"k"}\n${n}`,
      objects: { text: writeArg('default/k'), count: 1 },
    })
    expect(reply.kind).toBe('stored')
    // Before the next: a processor that waits is the one that takes the event from its hint.
    await eventually(() => seen.length === n)
  }
  expect(seen).toEqual(['1', '2', '3'])
})

test('skip: the cursor passes an event only when its letter is stored', async () => {
  const server = await startRedis()
  onTestFinished(() => server.stop())
  const group = { heartbeat: '100ms', expiry: '600ms', grace: '900ms', joinDelay: '60ms' } as const
  const told: string[] = []
  const bus = testBus({ redis: server.url, group, partitions: 1, onTelemetry: ({ name }) => told.push(name) })
  let calls = 0
  let down: () => void = () => undefined
  const isDown = new Promise<void>((resolve) => {
    down = resolve
  })
  bus.processor('mail', { match: '>', retry: { attempts: 1 }, onPoison: 'skip' }, async (events, { signal }) => {
    for await (const _ of events) {
      calls += 1
      if (calls === 1) {
        await isDown
        throw new Error('no')
      }
      await new Promise((resolve) => signal.addEventListener('abort', resolve))
      throw new Error('aborted')
    }
  })
  await bus.run({ signals: false })
  const { seq } = await bus.publish('mail.bad', 1, { key: 'a' })
  await eventually(() => calls === 1)
  await server.kill()
  down()
  await eventually(() => told.includes('stream.lost'))
  await server.restart()
  await eventually(() => calls === 2)
  // A heartbeat and a commit have gone through since: what would have been said has been said.
  await bus.publish('mail.good', 2, { key: 'b' })
  await eventually(async () => (await bus.streams.get('mail')).lag === 2)
  const { partitions } = await bus.streams.get('mail')
  const letters = await bus.streams.dead.list('mail')
  expect({ passed: partitions[0]!.cursor >= seq, letters: letters.length }).toEqual({ passed: false, letters: 0 })
  // Nor is it said to be buried.
  expect(told).not.toContain('stream.buried')
})

test('reset to the beginning handles all events again, also of a parked object', async () => {
  const bus = testBus({ group: quickGroup, partitions: 1 })
  const seen: string[] = []
  bus.processor('mail', { match: '>', retry: { attempts: 1 }, onPoison: 'park' }, async (events) => {
    for await (const event of events) {
      if (event.type === 'mail.bad') throw new Error('no')
      seen.push(event.json)
    }
  })
  await bus.run({ signals: false })
  await bus.publish('mail.good', 1, { key: 'a' })
  await bus.publish('mail.good', 2, { key: 'a' })
  await bus.publish('mail.bad', 3, { key: 'a' })
  await eventually(async () => (await bus.streams.parked.list('mail')).length === 1)
  await eventually(async () => (await bus.streams.get('mail')).lag === 0)
  seen.length = 0
  const facts = await bus.streams.reset('mail', 'beginning')
  await eventually(() => expect(seen).toEqual(['1', '2']))
  expect(facts.again).toBe(3)
  await eventually(async () => (await bus.streams.parked.list('mail'))[0]?.events === 1)
})

test('a server whose clock steps back by an hour: a dead member still expires', async () => {
  const redis = plainRedis()
  const keys = groupKeys(freshNamespace(), 'stream.search')
  onTestFinished(async () => void (await redis.unlink(keys.group, keys.members, keys.owners, keys.cursors)))
  const timing = { heartbeatMs: 1_000, expiryMs: 5_000, graceMs: 8_000, joinDelayMs: 0 }
  let nowMs = 10_000_000
  const beat = async (name: string, act: 'join' | 'beat' = 'beat') => {
    const reply = await runScript(redis, heartbeatScript, {
      keys,
      nowUs: nowMs * 1000,
      act,
      name,
      start: `${name}1`,
      partitions: 4,
      timing,
      about: '{}',
    })
    return reply.kind === 'member' ? reply.grants.length : -1
  }
  await beat('a', 'join')
  await beat('b', 'join')
  // a is asked to hand over two and dies; then the clock steps back by an hour (a failover)
  nowMs -= 3_600_000
  let held = 0
  for (let i = 0; i < 300; i += 1) {
    nowMs += 1_000
    held = await beat('b')
  }
  expect(held).toBe(4)
})

test('after a rollback a reader waits and does not ask again and again', async () => {
  // Of its own: the commands of all its clients are counted.
  const server = await startRedis()
  onTestFinished(() => server.stop())
  const bus = testBus({ redis: server.url, group: quickGroup, partitions: 1 })
  const seen: string[] = []
  bus.processor('all', { match: '>' }, async (events) => {
    for await (const e of events) seen.push(e.json)
  })
  await bus.run({ signals: false })
  const first = await bus.publish('a.b', 1, { key: 'k' })
  const second = await bus.publish('a.b', 2, { key: 'k' })
  await eventually(() => seen.length === 2)
  await eventually(async () => (await bus.streams.get('all')).lag === 0)
  const redis = plainRedis(server.url)
  const keys = partitionKeys(bus.namespace, partitionTags(1)[0]!)
  // Redis has lost its tail: the last event and the cursor that passed it
  await redis.xdel(keys.log, `${second.seq}-0`)
  const calls = async () => Number(/cmdstat_xrange:calls=(\d+)/.exec(await redis.info('commandstats'))?.[1] ?? 0)
  await bus.streams.reset('all', Math.floor(first.seq / 1000)) // stands for the rolled-back cursor with a new owner
  await eventually(() => seen.length === 3)
  await sleep(300)
  const before = await calls()
  await sleep(1_000)
  expect((await calls()) - before).toBeLessThan(10)
})

test('two shelvings of one object under way at once lose nothing', async () => {
  const redis = plainRedis()
  const namespace = freshNamespace()
  const keys = processorKeys(namespace, 'p')
  onTestFinished(async () => void (await redis.unlink(...(await keysOf(redis, namespace)))))
  await redis.hset(keys.owners, '0', 'w 7 0 w')
  let fail = 0
  const flaky = new Proxy(redis, {
    get(target, name) {
      const value = Reflect.get(target, name)
      if (name === 'sendCommand')
        return (c: never) => (fail-- > 0 ? Promise.reject(new Error('Connection is closed.')) : target.sendCommand(c))
      return typeof value === 'function' ? value.bind(target) : value
    },
  })
  const aside = new Aside(
    {
      redis: flaky,
      keys,
      clock: systemClock,
      network: systemClock,
      telemetry: { emit: () => undefined } as never,
      stale: () => undefined,
    },
    {
      processor: 'p',
      partition: 0,
      epoch: 7,
      cursor: () => 0,
      isHeld: () => true,
      changed: () => undefined,
      takeWaiting: () => [],
      owe: () => undefined,
    },
  )
  const event = (seq: number) => new Event(0, seq, '', `{"type":"a.b","tenant":"default","key":"k"}\n${seq}`)
  const object = objectOf(event(1))
  expect(await aside.park(object, [event(9)], { id: '0-9', error: 'e', attempts: 1, at: 0 }, () => [])).toBe('settled')
  fail = 1 // the connection breaks under the first
  const late = aside.shelve([event(10)]) // #park: what has come in meanwhile
  await sleep(10)
  await aside.shelve([event(11)]) // Supply: the next page
  await late
  const shelf = await redis.lrange(shelfKey(keys, object), 0, -1)
  expect(shelf.map((text) => JSON.parse(text).seq)).toEqual([9, 10, 11])
})

test('a handler that stops because it was told to has not handled its event', async () => {
  const namespace = freshNamespace()
  const handled: string[] = []
  const bus = testBus({ namespace, group: quickGroup, partitions: 1 })
  let began = false
  bus.processor('p', { match: '>' }, async (events, { signal }) => {
    for await (const event of events) {
      began = true
      await new Promise((resolve) => signal.addEventListener('abort', resolve))
      if (signal.aborted) return
      handled.push(event.json)
    }
  })
  await bus.run({ signals: false })
  await bus.publish('a.b', 1)
  await eventually(() => began)
  await bus.close({ timeout: '1s' })
  const next = testBus({ namespace, group: quickGroup, partitions: 1 })
  next.processor('p', { match: '>' }, async (events) => {
    for await (const event of events) handled.push(event.json)
  })
  await next.run({ signals: false })
  await eventually(() => expect(handled).toEqual(['1']))
})

test('a handler that hangs: it is said, and after the grace its partition goes on', async () => {
  const namespace = freshNamespace()
  const told: string[] = []
  const handled: string[] = []
  const make = () => {
    const bus = testBus({
      namespace,
      group: quickGroup,
      partitions: 1,
      onTelemetry: ({ name, level }) => {
        if (level === 'warn' || level === 'error') told.push(name)
      },
    })
    bus.processor('p', { match: '>', from: 'beginning' }, async (events) => {
      for await (const event of events) {
        if (event.json === '1') await new Promise(() => undefined)
        handled.push(event.json)
      }
    })
    return bus
  }
  const a = make()
  await a.run({ signals: false })
  await a.publish('a.b', 1)
  await eventually(async () => (await a.streams.get('p')).lag === 1)
  await a.streams.reset('p', 'now')
  await a.publish('a.b', 2)
  await eventually(() => expect({ handled, told }).toMatchObject({ handled: ['2'], told: ['stream.stuck'] }))
})
