/** What a worker leaves, and what waits for a time, is ready for the next worker although none lives: the leader sees to it. */
import { describe, expect, test } from 'vitest'
import type { Bus } from '../../src/bus.ts'
import type { Connection } from '../../src/redis/connection.ts'
import { queueKeys } from '../../src/redis/keys.ts'
import { systemRandomness } from '../../src/runtime/clock.ts'
import { createTelemetry } from '../../src/runtime/telemetry.ts'
import { sweepDuty } from '../../src/sinks/queue/sweep.ts'
import { createTestClock } from '../../src/testing/clock.ts'
import { testBus as clockedBus } from '../../src/testing.ts'
import { plainRedis, redisUrl, testBus } from '../support/bus.ts'
import { eventually } from '../support/eventually.ts'
import { spawnNode } from '../support/process.ts'

const factsOf = async (bus: Bus, name = 'mail') => {
  const { waiting, later, held, dead } = await bus.queues.get(name)
  return { waiting, later, held, dead }
}

test('items of a worker that was killed wait again, with no worker living', async () => {
  const bus = testBus() as unknown as Bus
  const queue = bus.queue('mail', { lease: '1s' })
  for (let i = 0; i < 3; i += 1) await queue.send({ i }, { tenant: `t${i}` })
  const child = spawnNode('holder.mjs', {
    args: [JSON.stringify({ redis: redisUrl(), namespace: bus.namespace, lease: '1s' })],
  })
  for (let i = 0; i < 3; i += 1) await child.waitForLine(/held/)
  child.kill()
  await child.exited
  expect(await factsOf(bus)).toMatchObject({ waiting: 0, held: 3 })
  await bus.run()
  // The dead one leads for as long as a member may be silent.
  await eventually(async () => expect(await factsOf(bus)).toMatchObject({ waiting: 3, held: 0 }), { timeoutMs: 20_000 })
})

describe('by the clock', () => {
  test('what was claimed and never settled waits again, and is given up after its last attempt', async () => {
    const bus = await clockedBus({ redis: redisUrl() })
    try {
      const queue = bus.queue('mail', { lease: '10s', retry: { attempts: 2 } })
      await queue.send(1)
      await queue.claim()
      await bus.run()
      await bus.advance('9s')
      expect(await factsOf(bus as unknown as Bus)).toMatchObject({ waiting: 0, held: 1 })
      await bus.advance('2s')
      expect(await factsOf(bus as unknown as Bus)).toMatchObject({ waiting: 1, held: 0 })
      await queue.claim()
      await bus.advance('2m')
      expect(await factsOf(bus as unknown as Bus)).toMatchObject({ waiting: 0, held: 0, dead: 1 })
    } finally {
      await bus.close()
    }
  })

  test('what was delayed is ready when it is due, also what came after the last look', async () => {
    const bus = await clockedBus({ redis: redisUrl() })
    try {
      const queue = bus.queue('mail')
      await queue.send(1, { delay: '30s' })
      await bus.run()
      await bus.advance('29s')
      expect(await factsOf(bus as unknown as Bus)).toMatchObject({ waiting: 0, later: 1 })
      await bus.advance('1s')
      expect(await factsOf(bus as unknown as Bus)).toMatchObject({ waiting: 1, later: 0 })
      await queue.send(1, { delay: '5s' })
      await bus.advance('65s')
      expect(await factsOf(bus as unknown as Bus)).toMatchObject({ waiting: 2, later: 0 })
    } finally {
      await bus.close()
    }
  })

  test('a queue that is registered while the leader leads is looked after too', async () => {
    const bus = await clockedBus({ redis: redisUrl() })
    try {
      await bus.run()
      const queue = bus.queue('mail')
      await queue.send(1, { delay: '30s' })
      // The table is looked at every ten seconds of real time.
      await eventually(
        async () => {
          await bus.advance('10s')
          expect(await factsOf(bus as unknown as Bus)).toMatchObject({ waiting: 1, later: 0 })
        },
        { timeoutMs: 15_000, everyMs: 500 },
      )
    } finally {
      await bus.close()
    }
  })
})

describe('many queues', () => {
  /** The duty by itself, how many queues it looks at, and at how many of them more closely. */
  async function sweptNamespace(queues: number) {
    const bus = testBus({ partitions: 1 }) as unknown as Bus
    const doors = Array.from({ length: queues }, (_, i) => bus.queue(`q${i}`))
    await Promise.all(doors.map((door) => door.pop()))
    const redis = plainRedis()
    const counted = { looks: 0, claims: 0 }
    const send = redis.sendCommand.bind(redis)
    redis.sendCommand = (command, stream) => {
      if (command.name === 'exists') counted.looks += 1
      if (command.name === 'evalsha') counted.claims += 1
      return send(command, stream)
    }
    const clock = createTestClock()
    const events: string[] = []
    const telemetry = createTelemetry(Date.now, [({ name, fields }) => events.push(`${name} ${fields.queue}`)])
    const context = { namespace: bus.namespace, connection: { redis } as Connection, clock, telemetry }
    const duty = sweepDuty({ ...context, randomness: systemRandomness })
    const looksOfTurn = async () => {
      Object.assign(counted, { looks: 0, claims: 0 })
      const inMs = await duty.turn()
      return { ...counted, inMs }
    }
    return { bus, doors, redis, clock, events, looksOfTurn }
  }

  test('are looked at some at a time, then once a minute while there is nothing', async () => {
    const { clock, looksOfTurn } = await sweptNamespace(450)
    expect([await looksOfTurn(), await looksOfTurn()]).toEqual([
      { looks: 200, claims: 0, inMs: 100 },
      { looks: 200, claims: 0, inMs: 100 },
    ])
    const last = await looksOfTurn()
    expect(last.looks).toBe(50)
    expect(last.inMs).toBeGreaterThan(40_000)
    expect(await looksOfTurn()).toMatchObject({ looks: 0 })
    await clock.advance(60_000, async () => undefined)
    expect(await looksOfTurn()).toEqual({ looks: 200, claims: 0, inMs: 100 })
  })

  test('one that has something held is looked at every 5 s, one with a time when it is due', async () => {
    const { doors, clock, looksOfTurn } = await sweptNamespace(3)
    await doors[0]!.send(1)
    await doors[0]!.claim({ lease: '1h' })
    await doors[1]!.send(1, { delay: '2m' })
    expect(await looksOfTurn()).toEqual({ looks: 3, claims: 2, inMs: 5_000 })
    await clock.advance(5_000, async () => undefined)
    expect(await looksOfTurn()).toEqual({ looks: 2, claims: 2, inMs: 5_000 })
  })

  test('one that cannot be read is said, and keeps none of the others', async () => {
    const { bus, redis, events, looksOfTurn } = await sweptNamespace(3)
    const { later } = queueKeys(bus.namespace, 'q1')
    await redis.set(later, 'x')
    expect(await looksOfTurn()).toEqual({ looks: 3, claims: 1, inMs: 5_000 })
    expect(events).toEqual(['queue.stuck q1'])
  })

  test('of a queue with much to bring back, all of it comes back', async () => {
    const { bus, doors, clock, looksOfTurn } = await sweptNamespace(1)
    await Promise.all(Array.from({ length: 350 }, () => doors[0]!.send(1)))
    for (let i = 0; i < 7; i += 1) await doors[0]!.claim({ max: 50, lease: '10s' })
    expect(await looksOfTurn()).toMatchObject({ claims: 1 })
    expect(await factsOf(bus, 'q0')).toMatchObject({ waiting: 0, held: 350 })
    await clock.advance(60_000, async () => undefined)
    expect(await looksOfTurn()).toMatchObject({ looks: 1, claims: 4 })
    expect(await factsOf(bus, 'q0')).toMatchObject({ waiting: 350, held: 0 })
  })
})
