/** Checks the queues against the table of subscriptions: each has its store, and no key is left of one that there is not. */
import type { Redis } from 'ioredis'
import { shown } from '../../errors.ts'
import { type Finding, lookTwice } from '../../fsck-checks.ts'
import { checkStore } from '../../lanes/fsck.ts'
import { fsckScript } from '../../lanes/scripts.ts'
import type { Namespace } from '../../log/namespace.ts'
import { readLasts } from '../../log/read.ts'
import type { LogSource } from '../../log/view.ts'
import { type QueueKeyParts, queueKeyParts, queueKeys, queuesPattern, routeKeys } from '../../redis/keys.ts'
import { runScript } from '../../redis/script.ts'
import { readable, storeProblems } from '../../route/store-fsck.ts'

const keysPerStep = 500

export async function* checkQueues(source: LogSource, mistyped: ReadonlySet<string>): AsyncGenerator<Finding> {
  const namespace = await source.read(async (_, opened) => opened)
  const route = routeKeys(namespace.name)
  if (Object.values(route).some((key) => mistyped.has(key))) return
  // A key of the wrong type cannot be read; it is reported.
  const unreadable = new Set([...mistyped].map((key) => queueKeyParts(namespace.name, key)?.queue))
  const names = await source.read((redis) => redis.hkeys(route.subscriptions))
  for (const name of names.sort()) {
    if (unreadable.has(name)) continue
    yield* lookTwice(() => source.read((redis) => lookAtRegistered(redis, namespace, name)))
    yield* checkStore(name, (most, asks) =>
      source.read((redis) => runScript(redis, fsckScript, { keys: queueKeys(namespace.name, name), most, asks })),
    )
  }
  yield* checkQueueKeys(source, namespace, unreadable)
}

/** The store first: what it is judged by can only have grown since. */
async function lookAtRegistered(redis: Redis, namespace: Namespace, name: string): Promise<Finding[]> {
  const stored = await redis.hgetall(queueKeys(namespace.name, name).store)
  const [text, [seconds], lasts] = await Promise.all([
    redis.hget(routeKeys(namespace.name).subscriptions, name),
    redis.time(),
    readLasts(redis, namespace),
  ])
  const subscription = text === null ? undefined : readable(name, text)
  if (subscription?.kind !== 'queue') return []
  const ageMs = seconds! * 1000 - subscription.revision / 1000
  return storeProblems(stored, subscription, ageMs, lasts).map((problem) => ({
    ...{ check: 'queue-store' as const, where: `queue ${shown(name)}`, problem },
  }))
}

/** Keys of queues that are not registered; ranked items without a record; held items without a lease. */
async function* checkQueueKeys(
  source: LogSource,
  namespace: Namespace,
  unreadable: ReadonlySet<string | undefined>,
): AsyncGenerator<Finding> {
  const reported = new Set<string>()
  let cursor = '0'
  do {
    const [next, keys] = await source.read((redis) =>
      redis.scan(cursor, 'MATCH', queuesPattern(namespace.name), 'COUNT', keysPerStep),
    )
    cursor = next
    for (const [queue, parts] of byQueue(namespace.name, keys)) {
      if (unreadable.has(queue)) continue
      for await (const finding of lookTwice(() =>
        source.read((redis) => lookAtKeys(redis, namespace.name, queue, parts)),
      )) {
        // SCAN may name a key twice, and keys of one queue come with several pages.
        if (reported.has(finding.where)) continue
        reported.add(finding.where)
        yield finding
      }
    }
  } while (cursor !== '0')
}

function byQueue(ns: string, keys: readonly string[]): Map<string, QueueKeyParts[]> {
  const found = new Map<string, QueueKeyParts[]>()
  for (const key of keys) {
    const parts = queueKeyParts(ns, key)
    if (!parts) continue
    const others = found.get(parts.queue)
    if (others) others.push(parts)
    else found.set(parts.queue, [parts])
  }
  return found
}

async function lookAtKeys(
  redis: Redis,
  ns: string,
  queue: string,
  parts: readonly QueueKeyParts[],
): Promise<Finding[]> {
  const there = await redis.exists(...parts.map(({ key }) => key))
  // After the keys: a queue that is removed meanwhile keeps its mark until they are gone.
  const { subscriptions, removing } = routeKeys(ns)
  const [isRegistered, isRemoved] = await Promise.all([
    redis.hexists(subscriptions, queue),
    redis.hexists(removing, queue),
  ])
  const check = 'queue-keys'
  if (isRemoved === 1) return []
  if (isRegistered === 0) {
    const problem = `it is not registered, but has keys, such as ${shown(parts[0]!.key)}`
    return there === 0 ? [] : [{ check, where: `queue ${shown(queue)}`, problem }]
  }
  const owned = parts.filter(({ name }) => name !== undefined)
  if (owned.length === 0) return []
  const asks = owned.map(({ what, name }) => ({ what, from: '0', name: name! }))
  const seen = await runScript(redis, fsckScript, { keys: queueKeys(ns, queue), most: 1, asks })
  return (seen?.answers ?? []).flatMap(({ rows }, i): Finding[] => {
    const { key, what } = owned[i]!
    if (rows.length === 0) return []
    const problem = what === 'held' ? 'it is held under no lease' : 'its lane has no record'
    return [{ check: 'queue-keys', where: `key ${shown(key)}`, problem }]
  })
}
