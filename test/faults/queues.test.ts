/** A connection that breaks while a queue is used: what may be repeated is repeated, and what may not ends with an error of ours. */
import { describe, expect, test } from 'vitest'
import type { BusOptions } from '../../src/bus-options.ts'
import { workScript } from '../../src/lanes/acts.ts'
import { enterScript, extendScript, makeScript, removeScript } from '../../src/lanes/scripts.ts'
import { queueKeys } from '../../src/redis/keys.ts'
import type { Script } from '../../src/redis/script.ts'
import { eventually } from '../support/eventually.ts'
import type { Command, Decision } from '../support/proxy.ts'
import { type FaultyPlace, faultyPlace } from './storm.ts'

/** Decides about the next call of this script only; answers whether it has come. */
async function next(
  { proxy, redis }: FaultyPlace,
  { sha, source }: Script<never, unknown>,
  decision: Decision,
): Promise<() => boolean> {
  // So that it meets a call that runs, and not one that is unknown to the server.
  await redis.script('LOAD', source)
  let decided = false
  proxy.onCommand(({ name, args: [which] }) => {
    const isIt = /^EVAL(SHA)?$/.test(name) && [sha, source].includes(String(which))
    if (decided || !isIt) return 'forward'
    decided = true
    return decision
  })
  return () => decided
}

describe.each(['cut-before', 'drop-reply'] as const)('%s', (decision) => {
  test('of the making of a queue: its first use goes on', async () => {
    const place = await faultyPlace()
    const struck = await next(place, makeScript, decision)
    const { id } = await place.bus().queue('mail').send({ to: 'a@b.c' })
    expect(struck()).toBe(true)
    expect((await place.bus().queues.peek('mail')).map((event) => event.id)).toEqual([id])
  })

  test('of the taking away of a queue: it is gone', async () => {
    const place = await faultyPlace()
    const bus = place.bus()
    await bus.queue('mail').send({})
    const struck = await next(place, removeScript, decision)
    await bus.queues.remove('mail')
    expect(struck()).toBe(true)
    expect(await place.redis.keys('*{queue.mail}*')).toEqual([])
  })

  test('of the first word of a worker that has a name: it starts', async () => {
    const place = await faultyPlace()
    const bus = place.bus({ worker: 'w1' })
    const handled: string[] = []
    bus.queue('mail').work(({ id }) => void handled.push(id))
    const struck = await next(place, enterScript, decision)
    await bus.run({ signals: false })
    expect(struck()).toBe(true)
    const { id } = await place.bus().queue('mail').send({})
    await eventually(() => handled.includes(id))
  })

  test('of a claim by hand: it answers what it was given', async () => {
    const place = await faultyPlace()
    const mail = place.bus().queue('mail')
    const { id } = await mail.send({})
    const struck = await next(place, workScript, decision)
    const { items } = await mail.claim()
    expect(struck()).toBe(true)
    expect(items.map((item) => item.id)).toEqual([id])
    expect(await items[0]!.ack()).toBe('settled')
  })

  test('of an extension: it holds', async () => {
    const place = await faultyPlace()
    const mail = place.bus().queue('mail')
    await mail.send({})
    const { items } = await mail.claim()
    const struck = await next(place, extendScript, decision)
    expect(await items[0]!.extend('1m')).toBe('settled')
    expect(struck()).toBe(true)
    expect(await items[0]!.ack()).toBe('settled')
  })

  test('of a pop: an error of ours, because what it took is not given again', async () => {
    const place = await faultyPlace()
    const mail = place.bus().queue('mail')
    await mail.send({})
    await next(place, workScript, decision)
    await expect(mail.pop()).rejects.toMatchObject({ code: 'REDIS_UNAVAILABLE' })
  })
})

describe('a worker over two queues whose connection breaks when it knows the one and not yet the other', () => {
  const names = ['mail', 'bills']

  async function worksOn(place: FaultyPlace, options: BusOptions) {
    const handled: string[] = []
    const bus = place.bus(options)
    const queues = names.map((name) => bus.queue(name))
    bus.work(queues, ({ id }) => void handled.push(id))
    await bus.run({ signals: false })
    const sent = await Promise.all(queues.map((queue) => queue.send({})))
    await eventually(() => sent.every(({ id }) => handled.includes(id)))
    await bus.close()
  }

  test('begins with both', async () => {
    const place = await faultyPlace()
    const { proxy } = place
    await worksOn(place, {})
    let looks = 0
    const isLook = ({ name, args: [key] }: Command) => name === 'HGET' && String(key).endsWith(':subscriptions')
    proxy.onCommand((command) => {
      looks += isLook(command) ? 1 : 0
      return 'forward'
    })
    await worksOn(place, {})
    let left = looks
    proxy.onCommand((command) => {
      left -= isLook(command) ? 1 : 0
      // The last one is of the second queue.
      return isLook(command) && left === 0 ? 'cut-before' : 'forward'
    })
    await worksOn(place, {})
    expect(left).toBeLessThanOrEqual(0)
  })

  test('under a name that it had before, takes over in both before it claims', async () => {
    const place = await faultyPlace()
    await worksOn(place, { worker: 'w1' })
    for (const name of names)
      await place.redis.hset(queueKeys(place.namespace, name).store, 'worker:w1', 'its earlier self')
    let enters = 0
    place.proxy.onCommand(({ args: [which] }) => {
      if (String(which) !== enterScript.sha) return 'forward'
      enters += 1
      return enters === 2 ? 'cut-before' : 'forward'
    })
    await worksOn(place, { worker: 'w1' })
    expect(enters).toBeGreaterThan(2)
  })
})
