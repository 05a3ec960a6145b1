/** What lies in Redis, read with plain commands and none of Busbar's own readers: the oracle of the journeys. */
import type { Redis } from 'ioredis'
import { expect } from 'vitest'
import { keysOf } from './bus.ts'

export interface StoredEvent {
  id: string
  partition: number
  seq: number
  prev: number | null
  type: string
  tenant: string
  key: string | undefined
  json: string
}

/** The hash tags of a namespace's partitions, as its record says. */
export async function tagsOf(redis: Redis, namespace: string): Promise<string[]> {
  const tags = await redis.hget(`${namespace}:{namespace}:namespace`, 'tags')
  return tags ? tags.split(',') : []
}

/** Every event of the log, in order per partition. */
export async function storedEvents(redis: Redis, namespace: string): Promise<StoredEvent[]> {
  const events: StoredEvent[] = []
  for (const [partition, tag] of (await tagsOf(redis, namespace)).entries()) {
    for (const [id, fields] of await redis.xrange(`${namespace}:{${tag}}:log`, '-', '+')) {
      const last = Number(id.split('-')[0])
      const prevs = fields[0]!.split(' ')
      const envelopes = fields[1]!.split('\x1e').slice(1)
      for (const [i, envelope] of envelopes.entries()) {
        const seq = last - envelopes.length + i + 1
        events.push({ partition, seq, id: `${partition}-${seq}`, ...readFields(prevs[i]!, envelope) })
      }
    }
  }
  return events
}

function readFields(prev: string, envelope: string) {
  const end = envelope.indexOf('\n')
  const { type, tenant, key } = JSON.parse(envelope.slice(0, end))
  return { prev: prev === '' ? null : Number(prev), type, tenant, key, json: envelope.slice(end + 1) }
}

/** The events of each object with a key, by `"<tenant>/<key>"`. */
export function chainsOf(events: readonly StoredEvent[]): Map<string, StoredEvent[]> {
  const chains = new Map<string, StoredEvent[]>()
  for (const event of events) {
    if (event.key === undefined) continue
    const object = `${event.tenant}/${event.key}`
    const chain = chains.get(object)
    if (chain) chain.push(event)
    else chains.set(object, [event])
  }
  return chains
}

/** First prev null, each prev the seq before it, seq grows, one partition: no fork, no hole. */
export function expectUnbrokenChains(events: readonly StoredEvent[]): void {
  const broken: string[] = []
  for (const [object, chain] of chainsOf(events)) {
    let before: StoredEvent | undefined
    for (const event of chain) {
      if (event.prev !== (before?.seq ?? null)) broken.push(`${object}: ${event.id} says prev ${event.prev}`)
      if (before && event.seq <= before.seq) broken.push(`${object}: ${event.id} is not above ${before.id}`)
      if (before && event.partition !== before.partition)
        broken.push(`${object}: ${event.id} is not beside ${before.id}`)
      before = event
    }
  }
  expect(broken).toEqual([])
}

/**
 * Every key of a namespace with its value. The memory of a process's last flush is left out: it changes with each flush,
 * also with one that stores nothing.
 */
export async function contentsOf(redis: Redis, namespace: string): Promise<Map<string, unknown>> {
  const keys = (await keysOf(redis, namespace)).filter((key) => !key.includes(':call:'))
  const values = await Promise.all(keys.map((key) => contentOf(redis, key)))
  return new Map(keys.map((key, i) => [key, values[i]]))
}

async function contentOf(redis: Redis, key: string): Promise<unknown> {
  if ((await redis.type(key)) !== 'hash') return (await redis.dumpBuffer(key))?.toString('base64')
  const fields = Object.entries(await redis.hgetall(key))
  return new Map(fields.filter(([name]) => !name.startsWith('call:')).sort())
}

/** How often the server has run a command so far, inside scripts too. */
export async function callsOf(redis: Redis, ...commands: string[]): Promise<number> {
  const stats = await redis.info('commandstats')
  return commands.reduce((sum, name) => {
    const found = new RegExp(`^cmdstat_${name}:calls=(\\d+)`, 'm').exec(stats)
    return sum + Number(found?.[1] ?? 0)
  }, 0)
}
