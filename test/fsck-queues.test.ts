/** What fsck finds in queues and routing: each check with the violations planted for it, and no other. */

import { describe, expect, test } from 'vitest'
import type { Bus } from '../src/bus.ts'
import type { Finding, FsckCheck } from '../src/fsck.ts'
import { placeField, readLease } from '../src/lanes/record.ts'
import { operationKeys, queueKeys } from '../src/redis/keys.ts'
import { plainRedis, testBus } from './support/bus.ts'
import { collect } from './support/log.ts'
import { type SpoiledQueue, soundQueue } from './support/spoiled-queue.ts'

type Plant = (queue: SpoiledQueue) => Promise<Partial<Finding> | Partial<Finding>[]>

/** Plants each violation in a sound queue; it must be the only thing that is found. */
function finds(check: FsckCheck, plants: Record<string, Plant>): void {
  describe(`[Q40] ${check}`, () => {
    test.each(Object.keys(plants))('%s', async (name) => {
      const queue = await soundQueue()
      const planted = [await plants[name]!(queue)].flat()
      const found = await queue.findings()
      const expected = planted.map((finding) => ({
        check,
        where: expect.any(String),
        problem: expect.any(String),
        ...finding,
      }))
      expect(found, JSON.stringify(found)).toHaveLength(expected.length)
      expect(found).toEqual(expect.arrayContaining(expected))
    })
  })
}

const lane = (name: string) => `lane "${name}" of queue "mail"`
const item = (id: string) => `item "${id}" of queue "mail"`
const whole = 'queue "mail"'
const header = (id: string, { at = 'acme', priority = 0 } = {}) => `${id} 0 ${at} 0 0 1 ${priority} `
const envelope = (tenant = 'acme') => `{"type":"mail","tenant":"${tenant}"}\n1`
const textOf = (id: string) => `${header(id)}\n${envelope()}`

/** One more item that waits in acme, as its record and the counters say. */
async function addWaiting({ redis, keys, recordOf, rewrite }: SpoiledQueue, text: string): Promise<void> {
  const { tail, bytes } = await recordOf('acme')
  await redis.hset(keys.items, placeField('acme', tail), text)
  await rewrite('acme', { tail: tail + 1, bytes: bytes + text.length })
  for (const name of ['waiting', 'in']) await redis.hincrby(keys.store, name, 1)
  await redis.hincrby(keys.store, 'bytes', text.length)
}

const firstPlace = async ({ recordOf }: SpoiledQueue, name: string) => placeField(name, (await recordOf(name)).head)
const firstOf = async (queue: SpoiledQueue, name: string) =>
  (await queue.redis.hget(queue.keys.items, await firstPlace(queue, name)))!

async function heldAt({ redis, keys, held }: SpoiledQueue) {
  const { items } = readLease((await redis.getBuffer(keys.heldPrefix + held.token))!)
  const { field } = items.find(({ id }) => id === held.id)!
  return { field, text: (await redis.hget(keys.items, field))! }
}

test('[Q40] a tenant that has used some of its rate is sound with nothing in the queue, and with something again', async () => {
  const bus = testBus({ partitions: 2 }) as unknown as Bus
  const queue = bus.queue('mail', { limits: { ratePerTenant: { max: 100, per: '1h' } } })
  await queue.send({ n: 1 }, { tenant: 'acme' })
  await (await queue.claim()).ack()
  expect(await collect(bus.fsck())).toEqual([])
  await queue.send({ n: 2 }, { tenant: 'acme' })
  expect(await collect(bus.fsck())).toEqual([])
})

test('[Q40] a sound queue has nothing to report', async () => {
  expect(await (await soundQueue()).findings()).toEqual([])
})

finds('queue-items', {
  'an item that is held waits too: what is being handled is not also queued': async (queue) => {
    await addWaiting(queue, (await heldAt(queue)).text)
    return { where: item(queue.held.id), problem: 'it is in two places: held and waiting' }
  },
  'an item that waits for a time waits too': async (queue) => {
    await addWaiting(queue, (await queue.redis.hget(queue.keys.laterItems, queue.later))!)
    return { where: item(queue.later), problem: 'it is in two places: later and waiting' }
  },
  'a dead letter is redriven and yet there': async (queue) => {
    await addWaiting(queue, (await queue.redis.hget(queue.keys.dead, queue.dead))!.split('\x1e')[2]!)
    return { where: item(queue.dead), problem: 'it is in two places: dead and waiting' }
  },
  'an item waits twice': async (queue) => {
    await addWaiting(queue, await firstOf(queue, 'acme'))
    return { where: item(queue.waiting[0]!), problem: 'it is in two places: waiting and waiting' }
  },
  'a text that is no item': async (queue) => {
    await addWaiting(queue, 'nonsense')
    return {
      where: expect.stringMatching(/^plain place \d+ of lane "acme" of queue "mail"$/),
      problem: 'it cannot be read as an item',
    }
  },
  'an item without an envelope': async (queue) => {
    await addWaiting(queue, `${header('x')}\n{"tenant":"acme"}\n1`)
    return { where: item('x'), problem: expect.stringContaining('no envelope') }
  },
  'an item without data': async (queue) => {
    await addWaiting(queue, `${header('x')}\n{"type":"mail","tenant":"acme"}`)
    return { where: item('x'), problem: expect.stringContaining('no envelope') }
  },
  "an item of another tenant's event": async (queue) => {
    await addWaiting(queue, `${header('x')}\n${envelope('other')}`)
    return { where: item('x'), problem: expect.stringContaining('of the tenant "other"') }
  },
  'an item in the list of another lane': async (queue) => {
    const [mine, other] = [await firstOf(queue, 'acme'), await firstOf(queue, 'globex')]
    await queue.redis.hset(queue.keys.items, await firstPlace(queue, 'acme'), other)
    await queue.redis.hset(queue.keys.items, await firstPlace(queue, 'globex'), mine)
    const problem = expect.stringContaining('it waits in the lane')
    const [first, second] = [other.split(' ')[0]!, queue.waiting[0]!].map((id) => ({ where: item(id), problem }))
    const [acme, globex] = ['acme', 'globex'].map((name) => ({ check: 'queue-lanes' as const, where: lane(name) }))
    return [first!, acme!, second!, globex!]
  },
  'an item with a priority at a place without one': async (queue) => {
    await addWaiting(queue, `${header('x', { priority: 3 })}\n${envelope()}`)
    return { where: item('x'), problem: 'its priority is 3, but its place is plain' }
  },
  'an item under the id of another': async (queue) => {
    const { field, text } = await heldAt(queue)
    await queue.redis.hset(queue.keys.items, field, text.replace(queue.held.id, 'other'))
    return { where: item('other'), problem: `it is stored under "${queue.held.id}"` }
  },
})

finds('queue-lanes', {
  'nothing at a place that is in use': async (queue) => {
    const place = await firstPlace(queue, 'globex')
    const { bytes } = await queue.recordOf('globex')
    const { length } = await firstOf(queue, 'globex')
    await queue.redis.hdel(queue.keys.items, place)
    await queue.rewrite('globex', { bytes: bytes - length })
    await queue.redis.hincrby(queue.keys.store, 'bytes', -length)
    return [
      { where: lane('globex'), problem: `nothing is at its place ${(await queue.recordOf('globex')).head}` },
      { check: 'queue-counters', where: whole, problem: '6 items wait and 1 are held, but 6 places are in use' },
    ]
  },
  'something at a place that is not in use': async ({ redis, keys }) => {
    await redis.hset(keys.items, placeField('globex', 999), `${header('x', { at: 'globex' })}\n${envelope('globex')}`)
    return { check: 'queue-counters', where: whole, problem: '6 items wait and 1 are held, but 8 places are in use' }
  },
  'places of a lane without a record': async ({ redis, keys }) => {
    await redis.hset(keys.items, placeField('nobody', 0), textOf('x'))
    return { check: 'queue-counters', where: whole, problem: '6 items wait and 1 are held, but 8 places are in use' }
  },
  'a head behind the tail': async ({ rewrite, recordOf }) => {
    const { head } = await recordOf('slow')
    await rewrite('slow', { head: head + 2 })
    return [
      { where: lane('slow'), problem: `its places go from ${head + 2} to before ${head}` },
      { check: 'queue-counters', where: whole, problem: 'its counters say 6 waiting, its lanes 4' },
    ]
  },
  'another number with a priority': async ({ rewrite }) => {
    await rewrite('acme', { ranked: 0 })
    return [
      { where: lane('acme'), problem: 'its record says 0 out of their order, there are 1' },
      { check: 'queue-counters', where: whole, problem: 'its counters say 6 waiting, its lanes 5' },
    ]
  },
  'other bytes': async ({ rewrite, recordOf, redis, keys }) => {
    const { bytes } = await recordOf('acme')
    await rewrite('acme', { bytes: bytes + 1 })
    await redis.hincrby(keys.store, 'bytes', 1)
    return { where: lane('acme'), problem: `its record says ${bytes + 1} bytes, there are ${bytes}` }
  },
  'more held than there is': async ({ rewrite, recordOf, redis, keys }) => {
    const { held } = await recordOf('acme')
    await rewrite('acme', { held: held + 1 })
    for (const name of ['held', 'in']) await redis.hincrby(keys.store, name, 1)
    return [
      { where: lane('acme'), problem: 'its record says 2 held, there are 1' },
      { check: 'queue-counters', where: whole, problem: '6 items wait and 2 are held, but 7 places are in use' },
    ]
  },
  'one that is later, counted as dead': async ({ rewrite }) => {
    await rewrite('acme', { later: 0, dead: 2 })
    return [
      { where: lane('acme'), problem: 'its record says 0 later, there are 1' },
      { check: 'queue-counters', where: whole, problem: 'its counters say 1 later, its lanes 0' },
    ]
  },
  'a lane with items and without a record': async ({ redis, keys }) => {
    const text = `${header('x', { at: 'lost' })}\n${envelope('lost')}`
    await redis.hset(keys.laterItems, 'x', text)
    await redis.zadd(keys.later, 9e15, 'x')
    await redis.hincrby(keys.store, 'in', 1)
    return [
      { where: lane('lost'), problem: 'it has items, but no record' },
      { check: 'queue-counters', where: whole, problem: 'its counters say 2 later, its lanes 1' },
    ]
  },
  'a record of nothing': async ({ redis, keys }) => {
    await redis.hset(keys.lanes, 'empty', Buffer.alloc(65))
    return { where: lane('empty'), problem: 'it has a record, but nothing to count' }
  },
  'a record that cannot be read': async ({ redis, keys }) => {
    await redis.hset(keys.lanes, 'broken', 'x')
    return { where: lane('broken'), problem: 'its record cannot be read' }
  },
})

finds('queue-counters', {
  'more entered than is accounted for': async ({ redis, keys }) => {
    const entered = await redis.hincrby(keys.store, 'in', 1)
    return { where: whole, problem: `${entered} items entered, ${entered - 1} are accounted for` }
  },
  'an ack that was counted twice': async ({ redis, keys }) => {
    await redis.hincrby(keys.store, 'out', 1)
    return { where: whole }
  },
  'more waiting than in its lanes': async ({ redis, keys }) => {
    for (const name of ['waiting', 'in']) await redis.hincrby(keys.store, name, 1)
    return { where: whole, problem: '7 items wait and 1 are held, but 7 places are in use' }
  },
  'more bytes than in its lanes': async ({ redis, keys }) => {
    await redis.hincrby(keys.store, 'bytes', 1)
    return { where: whole, problem: expect.stringMatching(/its counters say \d+ bytes/) }
  },
})

finds('queue-turns', {
  'a lane with something waiting is not in line: nobody will ever come for it': async ({ redis, keys }) => {
    await redis.zrem(keys.turns, 'acme')
    return { where: lane('acme'), problem: expect.stringContaining('it can give, but is not in line') }
  },
  'a lane that has to wait is in line': async ({ redis, keys }) => {
    await redis.zadd(keys.turns, 1, 'slow')
    return { where: lane('slow'), problem: 'it is in line, but cannot give' }
  },
  'a lane without a weight is in line': async ({ redis, keys }) => {
    await redis.hset(keys.weights, 'acme', 0)
    return { where: lane('acme'), problem: 'it is in line, but cannot give' }
  },
  'a lane that there is not is in line': async ({ redis, keys }) => {
    await redis.zadd(keys.turns, 1, 'nobody')
    return { where: lane('nobody'), problem: 'it is in line, but has no record' }
  },
  'weights that nobody looks at': async ({ redis, keys }) => {
    await redis.hset(keys.store, 'weighted', 0)
    return { where: whole, problem: '1 weights are stored, but the store says otherwise' }
  },
})

finds('queue-later', {
  'an item that is never due': async ({ redis, keys, later }) => {
    await redis.zrem(keys.later, later)
    return { where: item(later), problem: 'it waits for a time, but is never due' }
  },
  'a time without an item': async ({ redis, keys }) => {
    await redis.zadd(keys.later, 9e15, 'x')
    return { where: item('x'), problem: 'it is due at some time, but not there' }
  },
  'a lane that has to wait for ever': async ({ redis, keys }) => {
    await redis.zrem(keys.later, '@slow')
    return { where: lane('slow'), problem: 'it has to wait, but is never due' }
  },
  'a lane that is due at another time than it says': async ({ redis, keys }) => {
    await redis.zadd(keys.later, 9e12, '@slow')
    return { where: lane('slow'), problem: expect.stringMatching(/waits until \d+, but is due at 9000000000000/) }
  },
  'a time for a lane that there is not': async ({ redis, keys }) => {
    await redis.zadd(keys.later, 9e15, '@nobody')
    return { where: lane('nobody'), problem: 'it is due at some time, but has no record' }
  },
})

finds('queue-leases', {
  "a lease that never lapses: its items are nobody else's for ever": async ({ redis, keys, held }) => {
    await redis.zrem(keys.leases, held.token)
    return [
      { check: 'queue-lanes', where: lane('acme'), problem: 'its record says 1 held, there are 0' },
      { check: 'queue-keys', where: `key "${keys.heldPrefix}${held.token}"`, problem: 'it is held under no lease' },
    ]
  },
  'a holder of nothing: whoever has the right has the object': async ({ redis, keys }) => {
    await redis.set(`${keys.heldPrefix}token`, 'w s 1')
    await redis.zadd(keys.leases, 9e15, 'token')
    return { where: 'lease "token" of queue "mail"', problem: 'it holds nothing' }
  },
  'a lease that holds what is not there': async (queue) => {
    const { token, id } = queue.held
    await queue.redis.hdel(queue.keys.items, (await heldAt(queue)).field)
    return [
      { where: `lease "${token}" of queue "mail"`, problem: `it holds the item "${id}", which is not there` },
      { check: 'queue-counters', where: whole, problem: '6 items wait and 1 are held, but 6 places are in use' },
      { check: 'queue-lanes', where: lane('acme'), problem: 'its record says 1 held, there are 0' },
    ]
  },
  'a lease without a holder': async ({ redis, keys, held }) => {
    await redis.zadd(keys.leases, 9e15, 'token')
    expect(held.token).not.toBe('token')
    return { where: 'lease "token" of queue "mail"', problem: 'it holds nothing' }
  },
})

finds('queue-dead', {
  'a letter that is not in the order': async ({ redis, keys, dead }) => {
    await redis.zrem(keys.deadOrder, dead)
    return { where: `letter "${dead}" of queue "mail"`, problem: 'it is not in the order' }
  },
  'a place in the order without a letter': async ({ redis, keys }) => {
    await redis.zadd(keys.deadOrder, 1, 'x')
    return { where: 'letter "x" of queue "mail"', problem: 'it is in the order, but not there' }
  },
  'a letter at another time than it says': async ({ redis, keys, dead }) => {
    await redis.zadd(keys.deadOrder, 1, dead)
    return { where: `letter "${dead}" of queue "mail"`, problem: expect.stringContaining('in the order at 1') }
  },
  'a letter that cannot be read': async ({ redis, keys, dead }) => {
    await redis.hset(keys.dead, dead, 'x')
    return [
      { where: `letter "${dead}" of queue "mail"`, problem: 'it cannot be read' },
      { check: 'queue-lanes', where: lane('acme'), problem: 'its record says 1 dead, there are 0' },
      { check: 'queue-counters', where: whole, problem: expect.stringContaining('bytes of dead letters, there are 0') },
    ]
  },
})

finds('queue-remembered', {
  'an idempotency key that is never forgotten': async ({ redis, keys }) => {
    await redis.hset(keys.remembered, 'once:x', 'f id')
    return { where: 'field "once:x" of queue "mail"', problem: 'it is never forgotten' }
  },
  'something to forget that is not there': async ({ redis, keys }) => {
    await redis.zadd(keys.forget, 1, 'call:x')
    return { where: 'field "call:x" of queue "mail"', problem: 'it is to be forgotten, but not there' }
  },
})

finds('queue-keys', {
  'held items without a lease: nobody else may have an event': async ({ redis, keys }) => {
    await redis.set(`${keys.heldPrefix}token`, 'w s 1 x acme place1')
    return { where: `key "${keys.heldPrefix}token"`, problem: 'it is held under no lease' }
  },
  'ranked items of a lane without a record': async ({ redis, keys }) => {
    await redis.zadd(`${keys.rankedPrefix}nobody`, 1, textOf('x'))
    return { where: `key "${keys.rankedPrefix}nobody"`, problem: 'its lane has no record' }
  },
  'keys of a queue that is not registered, reported once': async ({ redis, bus }) => {
    const left = queueKeys(bus.namespace, 'left')
    await redis.hset(left.store, 'revision', 1)
    await redis.hset(left.items, placeField('acme', 0), textOf('x'))
    return { where: 'queue "left"', problem: expect.stringContaining('it is not registered, but has keys') }
  },
})

/** A subscription that was put long ago. */
async function register({ redis, route }: SpoiledQueue, name: string, { revision = 5, born = 5 } = {}): Promise<void> {
  await redis.hset(route.subscriptions, name, `${revision} ${born} {"kind":"queue","match":null,"options":{}}`)
  await redis.zadd(route.changes, revision, name)
}

finds('queue-store', {
  'a registered queue without a store': async (queue) => {
    await register(queue, 'lost')
    return { where: 'queue "lost"', problem: 'it is registered, but has no store' }
  },
  'a store of an earlier subscription of that name': async (queue) => {
    await register(queue, 'again')
    await queue.redis.hset(queueKeys(queue.bus.namespace, 'again').store, { revision: 5, born: 4 })
    return { where: 'queue "again"', problem: expect.stringContaining('of the subscription of revision 4') }
  },
  'a store that is newer than its subscription': async (queue) => {
    await register(queue, 'again')
    await queue.redis.hset(queueKeys(queue.bus.namespace, 'again').store, { revision: 6, born: 5 })
    return { where: 'queue "again"', problem: "its store has revision 6, above the subscription's 5" }
  },
  "events from beyond the log's end": async ({ redis, keys }) => {
    await redis.hset(keys.store, 'applied:1', 9e15)
    return { where: whole, problem: expect.stringContaining('of partition 1, which ends at') }
  },
})

finds('subscriptions', {
  'a definition that cannot be read': async ({ redis, route }) => {
    await redis.hset(route.subscriptions, 'x', '1 1 {')
    return { where: 'subscription "x"', problem: 'its definition cannot be read' }
  },
  'one that routers never hear of': async (queue) => {
    await queue.redis.zrem(queue.route.changes, 'mail')
    return { where: 'subscription "mail"', problem: expect.stringContaining('no change of it is known') }
  },
  'a revision that is not that of its last change': async (queue) => {
    await queue.redis.zadd(queue.route.changes, 7, 'mail')
    return { where: 'subscription "mail"', problem: expect.stringContaining('but its last change is 7') }
  },
  'a revision that was never given out': async ({ redis, route }) => {
    await redis.hset(route.group, 'revision', 7)
    return [
      { where: 'subscription "mail"', problem: expect.stringContaining('above the highest given out, 7') },
      { where: 'subscription "mail"', problem: expect.stringContaining('its last change') },
    ]
  },
  'one that is registered and being removed': async (queue) => {
    await queue.redis.hset(queue.route.removing, 'mail', '1 1 queue')
    return { where: 'subscription "mail"', problem: 'it is registered and being removed' }
  },
  'definitions of one that there is not': async ({ redis, route }) => {
    await redis.hset(route.replaced, 'x', '1:a')
    return { where: 'subscription "x"', problem: expect.stringContaining('it is not registered') }
  },
})

finds('cursors', {
  'an own cursor of a subscription that there is not': async ({ redis, route }) => {
    await redis.hset(route.own, '0 x', '0 1')
    return { where: 'own cursor "0 x"', problem: 'there is no such subscription' }
  },
  'an own cursor under another revision': async ({ redis, route }) => {
    await redis.hset(route.own, '0 mail', '0 1')
    return { where: 'own cursor "0 mail"', problem: expect.stringContaining('it was read for revision 1') }
  },
  'an own cursor of a partition that there is not': async ({ redis, route }) => {
    await redis.hset(route.own, '7 mail', `0 ${(await redis.hget(route.subscriptions, 'mail'))!.split(' ')[0]}`)
    return { where: 'own cursor "7 mail"', problem: 'there is no such partition' }
  },
  'an own cursor above the end of the log': async ({ redis, route }) => {
    await redis.hset(
      route.own,
      '0 mail',
      `9000000000000000 ${(await redis.hget(route.subscriptions, 'mail'))!.split(' ')[0]}`,
    )
    return { where: 'own cursor "0 mail"', problem: expect.stringContaining("above the partition's last") }
  },
  'a main cursor above the end of the log': async ({ redis, route }) => {
    await redis.hset(route.cursors, '1', '9000000000000000')
    return { where: 'main cursor of partition 1', problem: expect.stringContaining("above the partition's last") }
  },
  'a main cursor that is no seq': async ({ redis, route }) => {
    await redis.hset(route.cursors, '1', 'x')
    return { where: 'main cursor of partition 1', problem: 'it is not a seq' }
  },
})

test('a queue with a key of the wrong type cannot be judged; the key is reported', async () => {
  const { redis, keys, findings } = await soundQueue()
  await redis.unlink(keys.lanes)
  await redis.set(keys.lanes, '1')
  expect(await findings()).toMatchObject([{ check: 'keys', where: `key "${keys.lanes}"` }])
})

describe('the order of objects', () => {
  /** order:1 is held and has two behind it; order:2 is parked. */
  async function orderedQueue() {
    const bus = testBus() as Bus
    const queue = bus.queue('mail', { ordered: true, onPoison: 'park', retry: { attempts: 1 }, lease: '1h' })
    const send = (key: string) => queue.send(1, { tenant: 'acme', key })
    for (const key of ['order:1', 'order:2', 'order:1', 'order:1', 'order:3']) await send(key)
    const { items } = await queue.claim({ max: 2 })
    await items[1]!.dead('poison')
    return { bus, queue, redis: plainRedis(), keys: queueKeys(bus.namespace, 'mail') }
  }
  const field = (key: string) => `acme ${encodeURIComponent(key)}`

  test('is sound', async () => {
    const { bus } = await orderedQueue()
    expect(await collect(bus.fsck())).toEqual([])
  })

  test.each([
    [
      'two owners',
      async ({ redis, keys }) => {
        const [text] = Object.values(await redis.hgetall(keys.parked))
        const item = text!.split('\x1e')[2]!
        await redis.hset(keys.laterItems, 'mail.second', item.replace(/^\S+ /, 'mail.second '))
        await redis.zadd(keys.later, Date.now() + 3_600_000, 'mail.second')
      },
      'it has 2 owners',
    ],
    ['none', ({ redis, keys }) => redis.hdel(keys.parked, field('order:2')), 'it has no owner'],
    ['an object that is not there', ({ redis, keys }) => redis.hdel(keys.objects, field('order:1')), 'is not there'],
    [
      'a gap',
      async ({ redis, keys }) => {
        const [first] = await redis.hkeysBuffer(keys.behind)
        await redis.hdel(keys.behind, first!)
      },
      'there are 1',
    ],
  ] as [string, (queue: Awaited<ReturnType<typeof orderedQueue>>) => Promise<unknown>, string][])(
    '[Q40] queue-order finds %s',
    async (_, spoil, problem) => {
      const queue = await orderedQueue()
      await spoil(queue)
      const findings = await collect(queue.bus.fsck())
      expect(findings.filter(({ check }) => check === 'queue-order').map((finding) => finding.problem)).toContainEqual(
        expect.stringContaining(problem),
      )
    },
  )
})

describe('the operations of a tracked queue', () => {
  /** One of each state, all of the object acme/k. */
  async function trackedQueue() {
    const bus = testBus() as Bus
    const queue = bus.queue('mail', { track: true, lease: '1h' })
    const send = async () => (await queue.send(1, { tenant: 'acme', key: 'k' })).id
    const ids = { succeeded: await send(), failed: await send(), running: await send() }
    const { items } = await queue.claim({ max: 3 })
    await items[0]!.ack()
    await items[1]!.dead('poison')
    const [queued, cancelled] = [await send(), await send()]
    await bus.operations.cancel(cancelled)
    const nameOf = (id: string) => id.slice('mail.'.length)
    const ops = operationKeys(bus.namespace, 'mail')
    const redis = plainRedis()
    /** Another state in its record; one that has only entered has that of the running one. */
    const says = async (id: string, state: number) => {
      const record = ((await redis.hgetBuffer(ops.ops, nameOf(id))) ??
        (await redis.hgetBuffer(ops.ops, nameOf(ids.running))))!
      record[0] = state
      await redis.hset(ops.ops, nameOf(id), record)
    }
    return { bus, redis, ops, nameOf, says, ...ids, queued, cancelled }
  }

  test('[Q40] are sound in every state', async () => {
    const { bus } = await trackedQueue()
    expect(await collect(bus.fsck())).toEqual([])
  })

  type Tracked = Awaited<ReturnType<typeof trackedQueue>>
  const plants: [what: string, check: FsckCheck, plant: (queue: Tracked) => Promise<unknown>, problem: string][] = [
    [
      'runs, but nobody holds it',
      'operations',
      ({ says, queued }) => says(queued, 2),
      'it is running, but its item is waiting',
    ],
    ['waits, but is held', 'operations', ({ says, running }) => says(running, 1), 'it is queued, but its item is held'],
    [
      'is there of an item that is gone',
      'operations',
      async ({ redis, ops, nameOf, queued }) =>
        redis.hset(ops.opItems, 'ghost', (await redis.hget(ops.opItems, nameOf(queued)))!),
      'it is queued, but its item is gone',
    ],
    [
      'is no state',
      'operations',
      ({ says, queued }) => says(queued, 9),
      'its record, or what it is about, cannot be read',
    ],
    [
      'cannot be read',
      'operations',
      ({ redis, ops, nameOf, queued }) => redis.hset(ops.ops, nameOf(queued), 'x'),
      'cannot be read',
    ],
    ['is never forgotten', 'operations', ({ redis, ops }) => redis.del(ops.opsEnded), 'never forgotten'],
    [
      'is not there, but has lines',
      'operations',
      ({ redis, ops }) => redis.hset(ops.opNotes, 'x', '1\x1e'),
      'it is not there',
    ],
    [
      'is about something that cannot be read',
      'operations',
      ({ redis, ops }) => redis.hset(ops.opItems, 'x', 'y'),
      'cannot be read',
    ],
    [
      'is about nothing',
      'operations',
      ({ redis, ops, nameOf, running }) => redis.hdel(ops.opItems, nameOf(running)),
      'cannot be read',
    ],
    [
      'waits, and nothing is known of it',
      'operation-index',
      ({ redis, ops, nameOf, queued }) => redis.hdel(ops.opItems, nameOf(queued)),
      'which is not there',
    ],
    [
      'stands elsewhere in the index',
      'operation-index',
      ({ redis, ops, nameOf, queued }) => redis.zadd(ops.opsOf, '0', `6 acme/l d1234 ${nameOf(queued)}`),
      'which is not there',
    ],
    [
      'has ended before it began',
      'operations',
      async ({ redis, ops, nameOf, succeeded }) => {
        const record = (await redis.hgetBuffer(ops.ops, nameOf(succeeded)))!
        record.writeUIntBE(1, 15, 6)
        await redis.hset(ops.ops, nameOf(succeeded), record)
      },
      'and ended at 1',
    ],
    [
      'is in no index',
      'operation-index',
      async ({ redis, ops, nameOf, queued }) => {
        const [object, lines] = Object.entries(await redis.hgetall(ops.opsLast)).find(([, text]) =>
          text.includes(nameOf(queued)),
        )!
        const others = lines.split('\n').filter((line) => !line.endsWith(nameOf(queued)))
        await redis.hset(ops.opsLast, object, others.join('\n'))
      },
      'it does not stand in the index',
    ],
    [
      'is among the last of an object, but not there',
      'operation-index',
      ({ redis, ops }) => redis.hset(ops.opsLast, '6 acme/k ', 'd1234 nothing'),
      'which is not there',
    ],
    [
      'is in an index, but not there',
      'operation-index',
      ({ redis, ops }) => redis.zadd(ops.opsOf, '0', '6 acme/k d1234 nothing'),
      'which is not there',
    ],
    [
      'is kept, but not counted as such',
      'operation-counts',
      ({ redis, ops }) => redis.hset(ops.opCounts, 'kept', 1),
      '1 have ended and are kept by their count, 3 by their list',
    ],
    [
      'was counted in its minute only',
      'operation-counts',
      ({ redis, ops }) => redis.hset(ops.opCounts, 'total', '0 0 0'),
      'all time has 0, 0, 0',
    ],
  ]

  test.each(plants)('[Q40] one that %s is found by %s', async (_, check, plant, problem) => {
    const queue = await trackedQueue()
    await plant(queue)
    expect(await collect(queue.bus.fsck())).toContainEqual({
      ...{ check, where: expect.any(String), problem: expect.stringContaining(problem) },
    })
  })
})
