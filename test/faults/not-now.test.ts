/** A Redis that is there and says "not now": publishes wait and go on. One that is full: a coded error, nothing stored. */
import { mkdir, rmdir } from 'node:fs/promises'
import { join } from 'node:path'
import { Redis } from 'ioredis'
import { describe, expect, onTestFinished, test } from 'vitest'
import { type Clock, systemClock } from '../../src/runtime/clock.ts'
import { eventually } from '../support/eventually.ts'
import { freePort } from '../support/ports.ts'
import type { Decision } from '../support/proxy.ts'
import { Ledger } from './ledger.ts'
import { type FaultyPlace, faultyPlace, isPublish, publishAtRandom, randomFrom } from './storm.ts'

interface Refusal {
  /** What Redis answers with. */
  code: string
  begin(place: FaultyPlace): Promise<unknown>
  end(place: FaultyPlace): Promise<unknown>
}

const refusals: Refusal[] = [
  {
    code: 'READONLY',
    begin: async ({ redis }) => redis.replicaof('127.0.0.1', await freePort()),
    end: ({ redis }) => redis.replicaof('NO', 'ONE'),
  },
  {
    code: 'NOREPLICAS',
    begin: ({ redis }) => redis.config('SET', 'min-replicas-to-write', '1'),
    end: ({ redis }) => redis.config('SET', 'min-replicas-to-write', '0'),
  },
  {
    code: 'MISCONF',
    async begin({ redis, server }) {
      // A folder where the dump belongs: saving fails, and Redis takes no more writes until it works again.
      await mkdir(join(server.dir, 'dump.rdb'))
      await redis.config('SET', 'save', '3600 1')
      await redis.bgsave()
      await eventually(async () => (await redis.info('persistence')).includes('rdb_last_bgsave_status:err'))
    },
    async end({ redis, server }) {
      await rmdir(join(server.dir, 'dump.rdb'))
      await redis.bgsave()
      await eventually(async () => (await redis.info('persistence')).includes('rdb_last_bgsave_status:ok'))
    },
  },
  {
    code: 'BUSY',
    async begin({ redis, server }) {
      await redis.config('SET', 'busy-reply-threshold', '1')
      const busy = new Redis(server.url, { maxRetriesPerRequest: 0 })
      onTestFinished(() => busy.disconnect())
      busy.eval('while true do end', 0).catch(() => undefined)
      await eventually(() =>
        redis.get('any').then(
          () => false,
          ({ message }) => message.startsWith('BUSY'),
        ),
      )
    },
    end: ({ redis }) => redis.script('KILL'),
  },
]

describe('not now', () => {
  test.each(refusals)(
    '[P25] Redis answers $code: publishes wait until it takes them again',
    async ({ code, begin, end }) => {
      const place = await faultyPlace()
      const bus = place.bus({ publish: { timeout: '20s' } })
      await bus.publish('warm.up')
      await begin(place)
      await expect(place.redis.set('any', 'thing')).rejects.toThrow(code)
      const ledger = new Ledger()
      const calls = Array.from({ length: 20 }, (_, n) =>
        ledger.call('one', [`order:${n % 4}`], async ([data]) => [
          await bus.publish('order.paid', data, { key: `order:${n % 4}` }),
        ]),
      )
      await eventually(() => (bus.telemetry.counts().get('publish.repeated') ?? 0) > 8)
      expect(ledger.open).toBe(20)
      await end(place)
      await Promise.all(calls)
      expect(ledger.count('stored')).toBe(20)
      ledger.expectToMatch((await place.log()).filter(({ type }) => type !== 'warm.up'))
    },
  )

  test('[P25] refusals and lost connections in turn, under load: no event twice, none lost, order kept', async () => {
    const place = await faultyPlace()
    const ledger = new Ledger()
    const random = randomFrom(7)
    let done = false
    const storms = Array.from({ length: 8 }, (_, n) => {
      const bus = place.bus({ publish: { timeout: '30s' } })
      return publishAtRandom({ bus, name: `bus${n}`, ledger, random: randomFrom(n), enough: () => done })
    })
    for (let turns = 0; turns < 20; turns += 1) {
      await place.redis.config('SET', 'min-replicas-to-write', '1')
      // Within the pause before a repeat, so that the new connection and the pause both ask for one.
      await new Promise((resolve) => setTimeout(resolve, random.below(40)))
      place.proxy.cut()
      await new Promise((resolve) => setTimeout(resolve, random.below(80)))
      await place.redis.config('SET', 'min-replicas-to-write', '0')
      const before = ledger.count('stored')
      await eventually(() => ledger.count('stored') > before + 50)
    }
    done = true
    await Promise.all(storms)
    ledger.expectToMatch(await place.log())
    expect(ledger.count('unknown') + ledger.count('refused')).toBe(0)
  })

  test('[P29] a flush that was sent twice is answered twice: the second answer ends nothing that came after it', async () => {
    const place = await faultyPlace({ partitions: 1 })
    const pauses: (() => void)[] = []
    // The pauses before a repeat and before a look for passed deadlines end when the test says so.
    const after: Clock['after'] = (ms, fn) => {
      if (ms !== 50) return systemClock.after(ms, fn)
      pauses.push(fn)
      return { cancel: () => undefined }
    }
    const bus = place.bus({ clock: { ...systemClock, after } })
    // A key of its own each: a plain event that comes again asks a second script, and is not one command.
    const publish = (data: string) => bus.publish('order.paid', data, { key: 'order:1', idempotencyKey: data })
    const decisions: Decision[] = ['forward', 'forward', 'forward', 'hold', 'hold', 'cut-before']
    place.proxy.onCommand((command) => (isPublish(command) && decisions.shift()) || 'forward')
    const arrived = () => 6 - decisions.length
    await publish('first')

    // Refused, and refused again on a new connection: each refusal leaves a pause behind.
    await place.redis.config('SET', 'min-replicas-to-write', '1')
    const twice = publish('twice')
    const before = pauses.length
    await eventually(() => pauses.length === before + 1)
    place.proxy.cut()
    await eventually(() => pauses.length === before + 2)
    await place.redis.config('SET', 'min-replicas-to-write', '0')
    for (const end of pauses.slice(before)) end()

    const second = publish('second')
    await eventually(() => arrived() === 4)
    place.proxy.release()
    await twice
    await eventually(() => arrived() === 5)
    const third = publish('third')
    place.proxy.release()
    await eventually(() => arrived() === 6)
    let answered = 0
    for (const one of [second, third]) void one.then(() => (answered += 1))
    await eventually(() => answered === 2)
    expect((await place.log()).map(({ json }) => JSON.parse(json))).toEqual(['first', 'twice', 'second', 'third'])
  })

  test('[P12] [P25] Redis is loading its data: publishes and reads wait until it is there', async () => {
    // 400 keys at 2 ms each: loading takes most of a second.
    const place = await faultyPlace({ args: ['--appendonly', 'no', '--key-load-delay', '2000'] })
    const bus = place.bus()
    const first = await bus.publish('order.paid', 1, { key: 'order:1' })
    const filled = place.redis.pipeline()
    for (let n = 0; n < 400; n += 1) filled.set(`filling:${n}`, n)
    await filled.exec()
    await place.redis.save()
    await place.server.kill()
    const restarting = place.server.restart()
    const second = bus.publish('order.paid', 2, { key: 'order:1' })
    const read = bus.log.get(first.id)
    await restarting
    expect((await second).prev).toBe(first.seq)
    expect((await read)?.data).toBe(1)
  })
})

describe('full', () => {
  test('[P25] Redis is out of memory: a coded, retryable error, nothing stored; it works again when there is room', async () => {
    const place = await faultyPlace()
    const bus = place.bus()
    const first = await bus.publish('order.paid', 'before', { key: 'order:1' })
    await place.redis.config('SET', 'maxmemory', '1')
    const error = await bus.publish('order.paid', 'full', { key: 'order:1' }).catch((refusal) => refusal)
    expect(error).toMatchObject({ code: 'REDIS_OUT_OF_MEMORY', status: 503, retryable: true })
    await expect(bus.commit('order:1', [['order.paid', 'full']], { state: 1 })).rejects.toMatchObject({
      code: 'REDIS_OUT_OF_MEMORY',
    })
    expect((await bus.log.get(first.id))?.data).toBe('before')

    // One that is made meanwhile opens, and is refused only what it writes.
    const second = place.bus()
    await expect(second.publish('order.paid', 'full')).rejects.toMatchObject({ code: 'REDIS_OUT_OF_MEMORY' })
    await place.redis.config('SET', 'maxmemory', '0')
    expect((await bus.publish('order.paid', 'after', { key: 'order:1' })).prev).toBe(first.seq)
    await second.publish('order.paid', 'after', { key: 'order:1' })
    expect((await place.log()).map(({ json }) => JSON.parse(json))).toEqual(['before', 'after', 'after'])
    expect(await bus.state('order:1')).toBeNull()
  })

  test('[P25] a bus that is the first of its namespace opens on a full Redis, and publishes when there is room', async () => {
    const place = await faultyPlace()
    await place.redis.config('SET', 'maxmemory', '1')
    const bus = place.bus()
    await expect(bus.publish('order.paid', 'full')).rejects.toMatchObject({ code: 'REDIS_OUT_OF_MEMORY' })
    await place.redis.config('SET', 'maxmemory', '0')
    expect(await bus.publish('order.paid', 'after')).toMatchObject({ duplicate: false })
  })
})
