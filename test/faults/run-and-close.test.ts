/** A bus that is run again, told what to run, or closed while it starts, while a task works, or while Redis is away. */

import { setTimeout as sleep } from 'node:timers/promises'
import { expect, onTestFinished, test } from 'vitest'
import { groupKeys, processorKeys, taskGroup, workersKeys } from '../../src/redis/keys.ts'
import { testBus as clockedBus } from '../../src/testing.ts'
import { freshNamespace, plainRedis, redisUrl, testBus } from '../support/bus.ts'
import { eventually } from '../support/eventually.ts'
import { startRedis } from '../support/redis.ts'
import { quickGroup } from '../support/workers.ts'

test('run() again after a failed run() starts what was declared', async () => {
  const bus = testBus({ group: quickGroup, partitions: 1 })
  const seen: string[] = []
  bus.processor('all', { match: '>' }, async (events) => {
    for await (const event of events) seen.push(event.json)
  })
  bus.schedule('s', '0 0 * * *', { type: 'a.b' })
  await bus.topics()
  const redis = plainRedis()
  const { schedules } = workersKeys(bus.namespace)
  for (let i = 0; i < 1_000; i += 1) await redis.hset(schedules, `x${i}`, '0 {}')
  await expect(bus.run({ signals: false })).rejects.toThrow()
  await redis.del(schedules)
  await bus.run({ signals: false })
  await bus.publish('a.b', 1)
  await eventually(() => expect(seen).toEqual(['1']))
})

test('run() again after a failed run() starts the worker of a queue that was not there, and lets nobody wait for it', async () => {
  const bus = testBus({ group: quickGroup, partitions: 1 })
  const seen: unknown[] = []
  await bus.queues.put('a', {})
  await bus.queues.put('b', {})
  const [a, b] = [await bus.queues.open('a'), await bus.queues.open('b')]
  bus.work([{ name: 'b' }, { name: 'a' }], ({ data }) => void seen.push(data))
  await a.send(1)
  await bus.queues.remove('b')
  await expect(bus.run({ signals: false })).rejects.toMatchObject({ code: 'SUBSCRIPTION_NOT_FOUND' })
  await eventually(() => expect(seen).toEqual([1]))
  await bus.queues.put('b', {})
  await bus.run({ signals: false })
  await b.send(2)
  await eventually(() => expect(seen).toEqual([1, 2]))
})

test('only: nothing else that was declared is started', async () => {
  const bus = testBus({ group: quickGroup, partitions: 1 })
  let ran = 0
  bus.processor('p', { match: '>' }, async (events) => {
    for await (const _ of events) {
      /* */
    }
  })
  bus.task('t', { on: 'each' }, () => {
    ran += 1
  })
  await bus.run({ signals: false, only: ['p'] })
  await sleep(300)
  expect({ ran, declared: bus.declared() }).toEqual({ ran: 0, declared: ['p', 't'] })
})

test('close() while run() starts, with a task that takes its time', async () => {
  const redis = plainRedis()
  const found: Record<string, string[]> = {}
  for (const delay of [4, 10]) {
    const events: string[] = []
    const bus = testBus({
      group: quickGroup,
      partitions: 1,
      onTelemetry: ({ name, fields }) => events.push(`${name} ${fields.loop ?? ''}`),
    })
    bus.task('slow', { on: 'each' }, () => sleep(500))
    for (let i = 0; i < 8; i += 1)
      bus.processor(`p${i}`, { match: '>' }, async (all) => {
        for await (const _ of all) {
          /* */
        }
      })
    await bus.topics()
    const running = bus.run({ signals: false }).then(
      () => 'resolved',
      (e) => String(e),
    )
    await sleep(delay)
    await bus.close()
    const outcome = await running
    events.length = 0
    const members: string[] = []
    for (let i = 0; i < 8; i += 1)
      if ((await redis.hlen(processorKeys(bus.namespace, `p${i}`).members)) > 0) members.push(`member of p${i}`)
    await sleep(1_500)
    const all = [...new Set([...events, ...members])]
    if (all.length > 0) found[delay] = [outcome, ...all]
  }
  expect(found).toEqual({})
})

test('close({ timeout }) ends by its timeout while Redis is paused', async () => {
  const server = await startRedis()
  onTestFinished(() => server.stop())
  const bus = testBus({ redis: server.url, namespace: freshNamespace(), group: quickGroup, partitions: 1 })
  bus.processor('p', { match: '>' }, async (events) => {
    for await (const _ of events) {
      /* */
    }
  })
  await bus.run({ signals: false })
  await eventually(async () => (await bus.streams.get('p')).partitions[0]!.owner !== null)
  server.pause()
  onTestFinished(() => server.resume())
  const began = performance.now()
  await bus.close({ timeout: '500ms' })
  const took = performance.now() - began
  expect(took).toBeLessThan(1_500)
})

test('close({ timeout }) ends by its timeout while Redis is paused and a task does not end', async () => {
  const server = await startRedis()
  onTestFinished(() => server.stop())
  const bus = testBus({ redis: server.url, namespace: freshNamespace(), group: quickGroup, partitions: 1 })
  let begun = false
  bus.task('hangs', {}, () => {
    begun = true
    return new Promise(() => undefined)
  })
  await bus.run({ signals: false })
  await eventually(() => begun)
  server.pause()
  onTestFinished(() => server.resume())
  const startedAt = performance.now()
  await bus.close({ timeout: '800ms' })
  // Once, and not once more for each part that has something to end.
  expect(performance.now() - startedAt).toBeLessThan(1_500)
})

test('a task every hour runs', async () => {
  const bus = await clockedBus({ redis: redisUrl() })
  onTestFinished(() => bus.close())
  let hourly = 0
  let tenMinutes = 0
  bus.task('hourly', { every: '1h', on: 'each' }, () => {
    hourly += 1
  })
  bus.task('ten', { every: '10m', on: 'each' }, () => {
    tenMinutes += 1
  })
  await bus.run({ signals: false })
  await bus.advance('6h')
  expect({ hourly, tenMinutes }).toEqual({ hourly: 6, tenMinutes: 36 })
})

test('a startup task for one process runs each time it is gained', async () => {
  const redis = plainRedis()
  const told: string[] = []
  const bus = testBus({ worker: 'w', group: quickGroup, partitions: 1, onTelemetry: ({ name }) => told.push(name) })
  const runs: string[] = []
  bus.task('follow', {}, async ({ signal }) => {
    runs.push('begun')
    await new Promise((resolve) => signal.addEventListener('abort', resolve))
    await sleep(50) // lets go of what it holds
    runs.push('ended')
  })
  await bus.run({ signals: false })
  await eventually(() => runs.length === 1)
  const { owners } = groupKeys(bus.namespace, taskGroup('follow'))
  const [owner, epoch, release, wanted] = (await redis.hget(owners, '0'))!.split(' ')
  await redis.hset(owners, '0', `${owner} ${Number(epoch) + 1} ${release} ${wanted}`) // lost and gained: as after an absence of Redis
  await eventually(() => told.filter((name) => name === 'task.gained').length === 2)
  await eventually(() => runs.length === 3)
  expect({ runs, skipped: told.includes('task.skipped') }).toEqual({
    runs: ['begun', 'ended', 'begun'],
    skipped: false,
  })
})
