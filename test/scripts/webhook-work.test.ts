/** The script that dispatchers call: what is given, what becomes of it, what is known of a webhook afterwards. */
import { describe, expect, test } from 'vitest'
import { forever } from '../../src/lanes/record.ts'
import { type ClockedShard, clockedShard } from '../webhook-store/clocked.ts'

const texts = (n: number, from = 1): string[] => Array.from({ length: n }, (_, i) => `${from + i}`)
const someBatch = async (shard: ClockedShard, events = 3) => {
  await shard.make('h')
  await shard.accept('h', texts(events))
  return (await shard.take()).batches[0]!
}

describe('a claim', () => {
  test('of a shard that is not there gets nothing and leaves nothing', async () => {
    const shard = await clockedShard()
    expect((await shard.work([], shard.claim(3))).claimed).toEqual({ kind: 'gone' })
    expect(await shard.keysLeft()).toEqual([])
  })

  test('gives webhooks their turns, one batch of a sequence at a time, with what is known of them', async () => {
    const shard = await clockedShard()
    await shard.make('h', { definition: '{"h":1}' })
    await shard.make('g', { definition: '{"g":1}', sequences: 2, secret: 'mine' })
    await shard.accept('h', texts(6))
    await shard.accept('g', [...texts(6), ...texts(3, 7).map((text) => ({ text, sequence: 1 }))])
    const { batches, hooks, hasAnnouncements } = await shard.take()
    expect(batches.map(({ subscription, sequence, body }) => `${subscription} ${sequence} ${body}`)).toEqual([
      'h 0 [1,2,3]',
      'g 0 [1,2,3]',
      'g 1 [7,8,9]',
    ])
    expect([...hooks.values()]).toEqual([
      { name: 'h', stored: '0 made\n{"h":1}', failures: 0, failingSince: undefined },
      { name: 'g', stored: '0 mine\n{"g":1}', failures: 0, failingSince: undefined },
    ])
    expect(hasAnnouncements).toBe(false)
    expect((await shard.take()).batches).toEqual([])
  })

  test('under a token that holds something answers what it holds', async () => {
    const shard = await clockedShard()
    const held = await someBatch(shard)
    const again = await shard.take(10, { token: held.token })
    expect(again.batches.map(({ id }) => id)).toEqual([held.id])
    expect(again.hooks.get('h')).toMatchObject({ stored: expect.stringMatching(/^0 made\n/) })
  })

  test('hears when the first of all things is due: a lease, a batch for later, an open batch', async () => {
    const shard = await clockedShard()
    await shard.make('h', { maxWaitMs: 5_000 })
    expect((await shard.take()).claimed.dueInMs).toBeUndefined()
    await shard.accept('h', texts(4))
    const { batches, claimed } = await shard.take()
    expect(claimed.dueInMs).toBe(5_000)
    await shard.end(batches[0]!, 'failed')
    expect((await shard.take()).claimed.dueInMs).toBe(50)
    shard.pass(50)
    expect((await shard.take(1, { leaseMs: 10 })).claimed).toMatchObject({ items: { length: 1 }, dueInMs: 4_950 })
    expect((await shard.take()).claimed.dueInMs).toBe(10)
  })

  test('[W24] seals up to 100 of what is due, and says that there is more', async () => {
    const shard = await clockedShard()
    await shard.make('h', { sequences: 64 })
    await shard.make('g', { sequences: 64 })
    const events = Array.from({ length: 60 }, (_, sequence) => ({ text: '1', sequence }))
    await shard.deliver([shard.gathered('h', events), shard.gathered('g', events)])
    shard.pass(60_000)
    const first = await shard.take(500)
    expect(first.batches).toHaveLength(100)
    expect(first.claimed.dueInMs).toBe(0)
    expect((await shard.take(500)).batches).toHaveLength(20)
  })

  test('a deadline of a webhook that is gone is passed over', async () => {
    const shard = await clockedShard()
    await shard.make('h')
    await shard.redis.zadd(shard.keys.deadlines, 5, 'gone 0')
    expect((await shard.take()).batches).toEqual([])
    expect(await shard.redis.exists(shard.keys.deadlines)).toBe(0)
  })

  test('what it seals itself wakes nobody; what is left of it does', async () => {
    const shard = await clockedShard()
    await shard.make('h', { sequences: 3 })
    await shard.take(1, { idleName: 'x' })
    await shard.accept(
      'h',
      [0, 1, 2].map((sequence) => ({ text: '1', sequence })),
    )
    shard.pass(100)
    const heard = await shard.listen()
    expect((await shard.take(3)).batches).toHaveLength(3)
    expect(await heard()).toEqual([])
    await shard.take(1, { idleName: 'x' })
    await shard.accept(
      'h',
      [3, 4].map((sequence) => ({ text: '1', sequence })),
      { from: 4 },
    )
    shard.pass(100)
    await heard()
    expect((await shard.take(1)).batches).toHaveLength(1)
    expect(await heard()).toEqual(['x'])
  })
})

describe('a batch', () => {
  test('delivered is gone, with every reference to it', async () => {
    const shard = await clockedShard()
    await shard.make('h')
    const before = await shard.keysLeft()
    await shard.accept('h', texts(3))
    const [batch] = (await shard.take()).batches
    expect(await shard.end(batch!, 'delivered')).toEqual({ kind: 'settled', stale: [] })
    expect(await shard.keysLeft()).toEqual(before)
    expect(await shard.counts('h')).toEqual({ in: 3, delivered: 3, batches: 1 })
    expect(await shard.fields('h')).toMatchObject({ deliveredAt: `${shard.now()}` })
    expect(await shard.redis.hgetall(shard.keys.store)).toMatchObject({ in: '1', out: '1', held: '0', waiting: '0' })
  })

  test('failed is tried again later, one attempt further, and keeps the others of its sequence behind it', async () => {
    const shard = await clockedShard()
    await shard.make('h')
    await shard.accept('h', texts(6))
    const first = await shard.take()
    const since = shard.now()
    await shard.end(first.batches[0]!, 'failed')
    expect(await shard.record('h')).toMatchObject({ later: 1, behind: 1, waiting: 0, held: 0 })
    expect(await shard.fields('h')).toMatchObject({
      ...{ 'later:0': first.batches[0]!.id, failures: '1', failingSince: `${since}` },
    })
    shard.pass(49)
    expect((await shard.take()).batches).toEqual([])
    shard.pass(1)
    const second = await shard.take()
    expect(second.batches).toMatchObject([{ id: first.batches[0]!.id, attempts: 1, body: first.batches[0]!.body }])
    expect(second.hooks.get('h')).toMatchObject({ failures: 1, failingSince: since })
    await shard.end(second.batches[0]!, 'failed')
    expect(await shard.fields('h')).toMatchObject({ failures: '2', failingSince: `${since}` })
    shard.pass(50)
    const third = await shard.take()
    expect(third.batches).toMatchObject([{ attempts: 2 }])
    await shard.end(third.batches[0]!, 'delivered')
    const healed = await shard.fields('h')
    expect(healed.failures).toBeUndefined()
    expect(healed.failingSince).toBeUndefined()
    expect(healed['later:0']).toBeUndefined()
    expect((await shard.take()).batches.map(({ body }) => body)).toEqual(['[4,5,6]'])
  })

  test('dead is a letter, and the next of its sequence goes on', async () => {
    const shard = await clockedShard()
    await shard.make('h')
    await shard.accept('h', texts(6))
    const [batch] = (await shard.take()).batches
    const { claimed } = await shard.work([shard.ending(batch!, 'dead')], shard.claim(1))
    expect(claimed).toMatchObject({ items: [expect.stringContaining('\n[4,5,6]')] })
    expect(await shard.dead()).toEqual([batch!.id])
    expect(await shard.redis.hget(shard.keys.dead, batch!.id)).toMatch(
      new RegExp(`^${shard.now()}\x1eit answered 500\x1e${batch!.id} 0 h 1 `),
    )
    expect(await shard.counts('h')).toEqual({ in: 6, dead: 3, backlog: 3, batches: 2 })
    expect(await shard.fields('h')).toMatchObject({ failures: '1', failingSince: `${shard.now()}` })
  })

  test('[W21] throttled goes back without an attempt; its webhook waits, and that is counted', async () => {
    const shard = await clockedShard()
    const batch = await someBatch(shard)
    await shard.end(batch, 'throttled')
    expect(await shard.record('h')).toMatchObject({ waiting: 1, held: 0, notBefore: shard.now() + 50 })
    expect((await shard.take()).batches).toEqual([])
    shard.pass(50)
    expect((await shard.take()).batches).toMatchObject([{ id: batch.id, attempts: 0 }])
    expect(await shard.counts('h')).toEqual({ in: 3, backlog: 3, batches: 1, throttled: 1 })
  })

  test('handed back is given again at once, without an attempt', async () => {
    const shard = await clockedShard()
    const batch = await someBatch(shard)
    await shard.end(batch, 'back')
    expect((await shard.take()).batches).toMatchObject([{ id: batch.id, attempts: 0 }])
    expect(await shard.counts('h')).toEqual({ in: 3, backlog: 3, batches: 1 })
  })

  test('[W07] 410: it is handed back and its webhook disabled, which is to be announced', async () => {
    const shard = await clockedShard()
    await shard.make('g')
    const batch = await someBatch(shard)
    const ended = shard.ending(batch, 'back', { disable: 'it answered 410 Gone', attempt: '{"status":410}' })
    const reply = await shard.work([ended], shard.claim(5))
    expect(reply).toMatchObject({ claimed: { items: [] }, hasAnnouncements: true })
    expect(await shard.fields('h')).toMatchObject({ disabled: 'it answered 410 Gone', disabledAt: `${shard.now()}` })
    expect(await shard.redis.smembers(shard.keys.announced)).toEqual(['h'])
    expect(await shard.record('h')).toMatchObject({ waiting: 1, notBefore: forever })
    expect(await shard.inLine()).toEqual([])
    // Others go on.
    await shard.accept('g', texts(3))
    expect((await shard.take()).batches).toMatchObject([{ subscription: 'g' }])
  })

  test('a throttle that ends later does not wake a webhook that was disabled meanwhile', async () => {
    const shard = await clockedShard()
    await shard.make('h', { sequences: 2 })
    await shard.accept('h', [...texts(3), ...texts(3).map((text) => ({ text, sequence: 1 }))])
    const { batches } = await shard.take()
    await shard.end(batches[0]!, 'throttled')
    await shard.end(batches[1]!, 'back', { disable: 'gone' })
    shard.pass(1_000)
    expect((await shard.take()).batches).toEqual([])
    expect(await shard.redis.exists(shard.keys.later)).toBe(0)
  })

  test('[W09] of a lapsed lease is given to another one, an attempt further; what its holder says then is stale', async () => {
    const shard = await clockedShard()
    await shard.make('h')
    await shard.accept('h', texts(6))
    const [lost] = (await shard.take(1, { leaseMs: 20 })).batches
    shard.pass(20)
    const [batch] = (await shard.take()).batches
    expect(batch).toMatchObject({ id: lost!.id, attempts: 1, body: lost!.body })
    const ended = shard.ending(lost!, 'delivered', { attempt: '{"late":1}' })
    const { settled, claimed } = await shard.work([ended], shard.claim(5))
    expect(settled).toEqual({ kind: 'settled', stale: [0] })
    expect(claimed).toMatchObject({ items: [] })
    // The attempt was made, and counts for people.
    expect(await shard.counts('h')).toEqual({ in: 6, backlog: 6, batches: 2, attempts: 1, stale: 1 })
    expect(await shard.redis.lrange(`${shard.keys.attemptsPrefix}h`, 0, -1)).toEqual(['{"late":1}'])
    await shard.end(batch!, 'delivered')
    expect(await shard.counts('h')).toMatchObject({ delivered: 3, backlog: 3 })
  })

  test('settled twice is settled once', async () => {
    const shard = await clockedShard()
    const batch = await someBatch(shard)
    const twice = [shard.ending(batch, 'delivered'), shard.ending(batch, 'dead')]
    expect((await shard.work(twice, undefined)).settled).toEqual({ kind: 'settled', stale: [1] })
    expect(await shard.end(batch, 'failed')).toEqual({ kind: 'settled', stale: [0] })
    expect(await shard.counts('h')).toEqual({ in: 3, delivered: 3, batches: 1 })
    expect(await shard.dead()).toEqual([])
  })

  test.each(['delivered', 'failed', 'dead', 'back'] as const)(
    'said again after a lost answer (%s) is logged and counted once',
    async (became) => {
      const shard = await clockedShard()
      const batch = await someBatch(shard)
      const ended = [shard.ending(batch, became, { attempt: '{"once":1}' })]
      await shard.work(ended, undefined)
      const before = await shard.fields('h')
      await shard.work(ended, undefined)
      expect(await shard.fields('h')).toEqual(before)
      expect(await shard.redis.lrange(`${shard.keys.attemptsPrefix}h`, 0, -1)).toEqual(['{"once":1}'])
    },
  )

  test('several of several webhooks are settled by one call, each as it says', async () => {
    const shard = await clockedShard()
    await shard.make('h')
    await shard.make('g')
    await shard.make('f')
    for (const name of ['h', 'g', 'f']) await shard.accept(name, texts(3))
    const { batches } = await shard.take()
    const ended = [
      shard.ending(batches[0]!, 'failed'),
      shard.ending({ ...batches[1]!, token: 'other' }, 'delivered'),
      shard.ending(batches[2]!, 'delivered'),
    ]
    expect((await shard.work(ended, undefined)).settled).toEqual({ kind: 'settled', stale: [1] })
    expect(await shard.counts('h')).toEqual({ in: 3, backlog: 3, batches: 1 })
    expect(await shard.counts('g')).toEqual({ in: 3, backlog: 3, batches: 1 })
    expect(await shard.counts('f')).toEqual({ in: 3, delivered: 3, batches: 1 })
  })

  test('that failed is known to the claim of the same call, and one that was delivered behind it heals', async () => {
    const shard = await clockedShard()
    await shard.make('h', { sequences: 3 })
    const of = (sequence: number) => texts(3).map((text) => ({ text, sequence }))
    await shard.accept('h', [...of(0), ...of(1), ...of(2)])
    const { batches } = await shard.take(2)
    const failed = await shard.work([shard.ending(batches[0]!, 'failed')], shard.claim(1))
    expect(failed.hooks.get('h')).toMatchObject({ failures: 1, failingSince: shard.now() })
    shard.pass(50)
    const [again] = (await shard.take(1)).batches
    await shard.work([shard.ending(again!, 'dead'), shard.ending(batches[1]!, 'delivered')], undefined)
    const fields = await shard.fields('h')
    expect([fields.failures, fields.failingSince]).toEqual([undefined, undefined])
  })

  test('of a shard that is gone changes nothing, and makes nothing', async () => {
    const shard = await clockedShard()
    const batch = await someBatch(shard)
    await shard.remove('h')
    expect(await shard.end(batch, 'failed', { attempt: '{}', disable: 'why' })).toEqual({ kind: 'gone' })
    expect(await shard.keysLeft()).toEqual([])
  })

  test('of a webhook that is gone changes nothing of the others', async () => {
    const shard = await clockedShard()
    await shard.make('g')
    const batch = await someBatch(shard)
    await shard.remove('h')
    const before = await shard.keysLeft()
    expect(await shard.end(batch, 'failed', { attempt: '{}' })).toEqual({ kind: 'settled', stale: [0] })
    expect(await shard.keysLeft()).toEqual(before)
  })

  test('may be kept longer by renewing its lease', async () => {
    const shard = await clockedShard()
    await shard.make('h')
    await shard.accept('h', texts(3))
    const { token } = await shard.take(1, { leaseMs: 20 })
    shard.pass(19)
    expect(await shard.renew([token, 'none'], 20)).toEqual(['none'])
    shard.pass(19)
    expect((await shard.take()).batches).toEqual([])
  })
})

test('[W16] the last 100 attempts of a webhook are kept, the newest first, for 30 days', async () => {
  const shard = await clockedShard()
  await shard.make('h', { sequences: 8, maxEvents: 1 })
  for (let round = 0; round < 15; round += 1) {
    await shard.accept(
      'h',
      Array.from({ length: 8 }, (_, sequence) => ({ text: '1', sequence })),
      { from: 1 + 8 * round },
    )
    const { batches } = await shard.take()
    expect(batches).toHaveLength(8)
    const attempts = batches.map((batch, i) => shard.ending(batch, 'delivered', { attempt: `${8 * round + i}` }))
    await shard.work(attempts, undefined)
  }
  const key = `${shard.keys.attemptsPrefix}h`
  expect(await shard.redis.lrange(key, 0, -1)).toEqual(Array.from({ length: 100 }, (_, i) => `${119 - i}`))
  expect(await shard.redis.pttl(key)).toBeGreaterThan(2_591_000_000)
  expect(await shard.counts('h')).toMatchObject({ attempts: 120 })
})
