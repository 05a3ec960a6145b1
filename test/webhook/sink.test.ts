/** How the events of a stretch are brought to a shard. */
import { expect, onTestFinished, test, vi } from 'vitest'
import type { Connection } from '../../src/redis/connection.ts'
import { systemClock, systemRandomness } from '../../src/runtime/clock.ts'
import { createTelemetry } from '../../src/runtime/telemetry.ts'
import { checkWebhook } from '../../src/sinks/webhook/options.ts'
import { Shard, Shards, shardOf } from '../../src/sinks/webhook/shard.ts'
import { WebhookSink } from '../../src/sinks/webhook/sink.ts'
import { freshNamespace, keysOf, plainRedis } from '../support/bus.ts'

const names = Array.from({ length: 999 }, (_, n) => `hook-${n}`).filter((name) => shardOf(name) === 3)

test('many webhooks of a shard are served by as few calls as their events fit into, a long one alone', async () => {
  const redis = plainRedis()
  const namespace = freshNamespace()
  onTestFinished(async () => {
    await redis.unlink(...(await keysOf(redis, namespace)))
  })
  const [clock, randomness] = [systemClock, systemRandomness]
  const shards = new Shards({ namespace, connection: { redis } as Connection, clock, randomness })
  const sink = new WebhookSink(async () => ({ shards, clock, telemetry: createTelemetry(Date.now) }))
  const { match, settings } = checkWebhook({ url: 'https://example.com', match: 'order.>' })
  const envelope = '{"type":"order.paid","tenant":"t"}\n{}'
  // 200 events each: two fit into a call.
  const deliveries = names.slice(0, 7).map((name, i) => ({
    subscription: { name, kind: 'webhook' as const, revision: 1, born: 1, match, options: { ...settings } },
    events: Array.from({ length: i === 2 ? 1_200 : 200 }, (_, n) => ({ seq: n + 1, tenant: 't', prev: '', envelope })),
  }))
  for (const { subscription } of deliveries) await sink.make(subscription, [0])
  const run = vi.spyOn(Shard.prototype, 'run')
  onTestFinished(() => run.mockRestore())
  expect(await Promise.all(sink.accept(0, deliveries))).toEqual(deliveries.map(() => 'accepted'))
  // 2, the long one in 3 pieces, 2, 2.
  expect(run.mock.calls).toHaveLength(6)
  for (const { subscription, events } of deliveries)
    expect((await shards.at(3).backlog(subscription.name)).events).toBe(events.length)
})
