/** Checks the webhooks: their shards as stores of lanes, their batches, and both against the table of subscriptions. */
import type { Redis } from 'ioredis'
import { shown } from '../../errors.ts'
import { type Finding, lookTwice } from '../../fsck-checks.ts'
import { checkStore } from '../../lanes/fsck.ts'
import { fsckScript } from '../../lanes/scripts.ts'
import type { Namespace } from '../../log/namespace.ts'
import { readLasts } from '../../log/read.ts'
import type { LogSource } from '../../log/view.ts'
import { routeKeys, webhookKeyParts, webhookKeys, webhookShards, webhooksPattern } from '../../redis/keys.ts'
import { runScript } from '../../redis/script.ts'
import { readable, storeProblems } from '../../route/store-fsck.ts'
import { inspectScript, type SeenHook } from './scripts.ts'
import { shardOf } from './shard.ts'

const keysPerStep = 500
// Of a webhook with more batches its events are not counted.
const mostBatches = 10_000

export async function* checkWebhooks(source: LogSource, mistyped: ReadonlySet<string>): AsyncGenerator<Finding> {
  const namespace = await source.read(async (_, opened) => opened)
  const route = routeKeys(namespace.name)
  if (Object.values(route).some((key) => mistyped.has(key))) return
  // A key of the wrong type cannot be read; it is reported.
  const unreadable = new Set([...mistyped].map((key) => webhookKeyParts(namespace.name, key)?.shard))
  for (let shard = 0; shard < webhookShards; shard += 1) {
    if (unreadable.has(shard)) continue
    const keys = webhookKeys(namespace.name, shard)
    yield* checkStore(`webhooks ${shard}`, (most, asks) =>
      source.read((redis) => runScript(redis, fsckScript, { keys, most, asks })),
    )
  }
  const names = await source.read((redis) => redis.hkeys(route.subscriptions))
  for (const name of names.sort())
    if (!unreadable.has(shardOf(name)))
      yield* lookTwice(() => source.read((redis) => lookAtRegistered(redis, namespace, name)))
  yield* checkShardKeys(source, namespace, unreadable)
}

/** The record first: what it is judged by can only have grown since. */
async function lookAtRegistered(redis: Redis, namespace: Namespace, name: string): Promise<Finding[]> {
  const keys = webhookKeys(namespace.name, shardOf(name))
  const seen = await runScript(redis, inspectScript, { keys, seed: '', name, most: mostBatches })
  const [text, [seconds], lasts] = await Promise.all([
    redis.hget(routeKeys(namespace.name).subscriptions, name),
    redis.time(),
    readLasts(redis, namespace),
  ])
  const subscription = text === null ? undefined : readable(name, text)
  if (subscription?.kind !== 'webhook') return []
  const where = `webhook ${shown(name)}`
  const ageMs = seconds! * 1000 - subscription.revision / 1000
  const ofStore = storeProblems(seen?.fields ?? {}, subscription, ageMs, lasts)
  return [
    ...ofStore.map((problem) => ({ check: 'webhook-store' as const, where, problem })),
    ...(seen ? batchProblems(seen) : []).map((problem) => ({ check: 'webhook-batches' as const, where, problem })),
  ]
}

function batchProblems({ fields, open, sealed }: SeenHook): string[] {
  const problems: string[] = []
  let events = 0
  for (const { sequence, dueMs, events: there } of open) {
    const counted = Number(fields[`open:${sequence}`]?.split(' ')[1] ?? 0)
    events += there
    if (dueMs === undefined) problems.push(`its open batch of sequence ${sequence} has no deadline`)
    if (counted !== there)
      problems.push(`its open batch of sequence ${sequence} has ${there} events, but counts ${counted}`)
  }
  for (const field of Object.keys(fields))
    if (/^open:/.test(field) && !open.some(({ sequence }) => field === `open:${sequence}`))
      problems.push(`it counts an open batch of sequence ${field.slice(5)} that is not there`)
  const retried = Object.keys(fields).filter((field) => field.startsWith('later:')).length
  if (retried !== Number(fields.retrying ?? 0))
    problems.push(`it counts ${fields.retrying ?? 0} batches that were tried in vain, ${retried} are known`)
  if (sealed.length === mostBatches) return problems
  for (const { headers } of sealed) events += Number(/"events":(\d+)/.exec(headers)?.[1] ?? 0)
  if (events !== Number(fields.backlog ?? 0))
    problems.push(`it counts ${fields.backlog ?? 0} events, its batches have ${events}`)
  return problems
}

/** Keys of webhooks that are not registered, or lie in another shard; and of shards that have no store. */
async function* checkShardKeys(
  source: LogSource,
  namespace: Namespace,
  unreadable: ReadonlySet<number | undefined>,
): AsyncGenerator<Finding> {
  const reported = new Set<string>()
  let cursor = '0'
  do {
    const [next, keys] = await source.read((redis) =>
      redis.scan(cursor, 'MATCH', webhooksPattern(namespace.name), 'COUNT', keysPerStep),
    )
    cursor = next
    for (const key of keys) {
      const parts = webhookKeyParts(namespace.name, key)
      if (!parts || unreadable.has(parts.shard) || reported.has(key)) continue
      reported.add(key)
      yield* lookTwice(() => source.read((redis) => lookAtKey(redis, namespace.name, key, parts)))
    }
  } while (cursor !== '0')
}

async function lookAtKey(
  redis: Redis,
  ns: string,
  key: string,
  { shard, webhook }: { shard: number; webhook: string | undefined },
): Promise<Finding[]> {
  const { subscriptions, removing } = routeKeys(ns)
  const found = (problem: string): Finding[] => [{ check: 'webhook-keys', where: `key ${shown(key)}`, problem }]
  if ((await redis.exists(key)) === 0) return []
  if (webhook === undefined)
    return (await redis.exists(webhookKeys(ns, shard).store)) === 1 ? [] : found('its shard has no webhook')
  // After the key: a webhook that is removed meanwhile keeps its mark until its keys are gone.
  const [isRegistered, isRemoved] = await Promise.all([
    redis.hexists(subscriptions, webhook),
    redis.hexists(removing, webhook),
  ])
  if (isRemoved === 1) return []
  if (isRegistered === 0) return found(`webhook ${shown(webhook)} is not registered`)
  return shardOf(webhook) === shard ? [] : found(`webhook ${shown(webhook)} lies in shard ${shardOf(webhook)}`)
}
