/** A connection that breaks while a queue is used: what may be repeated is repeated, and what may not ends with an error of ours. */
import { describe, expect, test } from 'vitest'
import { claimScript, enterScript, extendScript, makeScript, removeScript } from '../../src/lanes/scripts.ts'
import type { Script } from '../../src/redis/script.ts'
import { eventually } from '../support/eventually.ts'
import type { Decision } from '../support/proxy.ts'
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
    const struck = await next(place, claimScript, decision)
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
    await next(place, claimScript, decision)
    await expect(mail.pop()).rejects.toMatchObject({ code: 'REDIS_UNAVAILABLE' })
  })
})
