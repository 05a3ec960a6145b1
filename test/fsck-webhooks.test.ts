/** What fsck finds in webhooks: each check with the violations planted for it, and no other. */
import type { Redis } from 'ioredis'
import { describe, expect, test } from 'vitest'
import type { Bus } from '../src/bus.ts'
import type { Finding, FsckCheck } from '../src/fsck.ts'
import { routeKeys, type WebhookKeys, webhookKeys } from '../src/redis/keys.ts'
import { shardOf } from '../src/sinks/webhook/shard.ts'
import { plainRedis, testBus } from './support/bus.ts'
import { eventually } from './support/eventually.ts'
import { collect } from './support/log.ts'
import { startReceiver, toLoopback } from './support/receiver.ts'
import { setTallies } from './support/tallies.ts'

interface Sound {
  bus: Bus
  redis: Redis
  keys: WebhookKeys
  hook: string
}

/** One webhook that nobody serves: a batch that waits to be tried again, one behind it, an open one. */
async function soundWebhook(): Promise<Sound> {
  const receiver = await startReceiver()
  receiver.otherwise = 500
  const bus = testBus({ partitions: 2, webhooks: toLoopback }) as Bus
  bus.webhook('erp', {
    ...{ url: receiver.url, match: 'order.*', batch: { maxEvents: 2, maxWait: '1h' } },
    retry: { backoff: ['1h', '1h'] },
  })
  await bus.run({ signals: false })
  for (let n = 0; n < 5; n += 1) await bus.publish('order.paid', { n }, { key: 'o' })
  await eventually(async () => (await bus.webhooks.batches('erp')).open.length === 1)
  await eventually(async () => (await bus.webhooks.get('erp')).state === 'failing')
  const keys = webhookKeys(bus.namespace, shardOf('erp'))
  return { bus, redis: plainRedis(), keys, hook: `${keys.hookPrefix}erp` }
}

type Plant = (sound: Sound) => Promise<unknown>

function finds(check: FsckCheck, plants: Record<string, [plant: Plant, problem: RegExp]>): void {
  describe(`[Q40] ${check}`, () => {
    test.each(Object.keys(plants))('%s', async (name) => {
      const sound = await soundWebhook()
      const [plant, problem] = plants[name]!
      await plant(sound)
      const found: Finding[] = await collect(sound.bus.fsck())
      expect(found, JSON.stringify(found)).toHaveLength(1)
      expect(found[0]).toMatchObject({ check, problem: expect.stringMatching(problem) })
    })
  })
}

test('[Q40] of a sound webhook nothing', async () => {
  const { bus } = await soundWebhook()
  expect(await collect(bus.fsck())).toEqual([])
})

test('[Q40] an open batch may have more than a definition that came later allows', async () => {
  const { bus } = await soundWebhook()
  const { url, match } = await bus.webhooks.get('erp')
  await bus.webhooks.put('erp', { url, match, batch: { maxEvents: 1, maxWait: '1h' } })
  expect(await bus.webhooks.batches('erp')).toMatchObject({ open: [{ events: 1 }] })
  expect(await collect(bus.fsck())).toEqual([])
})

finds('webhook-store', {
  'it is of another life': [({ redis, hook }) => age(redis, hook, 'born', 1), /created with/],
  'it is newer than its definition': [
    ({ redis, hook }) => redis.hset(hook, 'revision', '9007199254740000'),
    /above the subscription/,
  ],
  'it has taken what there is not': [
    ({ redis, hook }) => redis.hset(hook, 'applied:0', '9007199254740000'),
    /which ends at/,
  ],
})

finds('webhook-batches', {
  'an open batch without a deadline': [({ redis, keys }) => redis.zrem(keys.deadlines, 'erp 0'), /has no deadline/],
  'one that counts an event more': [
    async ({ redis, hook }) => {
      const [opened, , bytes] = (await redis.hget(hook, 'open:0'))!.split(' ')
      await redis.hset(hook, 'open:0', `${opened} 2 ${bytes}`)
    },
    /has 1 events, but counts 2/,
  ],
  'one that is counted and not there': [({ redis, hook }) => redis.hset(hook, 'open:7', '1 1 1'), /that is not there/],
  'a backlog that is miscounted': [
    ({ redis, keys }) => setTallies(redis, keys, 'erp', ({ backlog }) => ({ backlog: backlog + 1 })),
    /counts 6 events, its batches have 5/,
  ],
  'what was tried in vain is miscounted': [
    ({ redis, keys }) => setTallies(redis, keys, 'erp', () => ({ retrying: 0 })),
    /counts 0 batches that were tried in vain, 1 are known/,
  ],
})

finds('webhook-keys', {
  'of a webhook that is not registered': [
    ({ redis, keys }) => redis.hset(`${keys.hookPrefix}ghost`, 'born', '1'),
    /is not registered/,
  ],
  'in another shard': [
    ({ bus, redis }) =>
      redis
        .rpush(`${webhookKeys(bus.namespace, (shardOf('erp') + 1) % 16).attemptsPrefix}erp`, '{}')
        .then(() =>
          redis.pexpire(`${webhookKeys(bus.namespace, (shardOf('erp') + 1) % 16).attemptsPrefix}erp`, 60_000),
        ),
    /lies in shard/,
  ],
  'of a shard without a webhook': [
    ({ bus, redis }) => redis.sadd(webhookKeys(bus.namespace, (shardOf('erp') + 1) % 16).announced, 'x'),
    /has no webhook/,
  ],
})

/** Whoever puts a webhook makes its record right after: only what is older than that is judged. */
async function age(redis: Redis, hook: string, field: string, value: number): Promise<void> {
  const ns = hook.slice(0, hook.indexOf(':'))
  const { subscriptions } = routeKeys(ns)
  const [revision, born, ...rest] = (await redis.hget(subscriptions, 'erp'))!.split(' ')
  const older = Number(revision) - 20_000_000
  await redis.hset(subscriptions, 'erp', [older, Number(born) - 20_000_000, ...rest].join(' '))
  await redis.zadd(routeKeys(ns).changes, older, 'erp')
  await redis.hset(hook, { revision: older, defined: older, [field]: value })
}
