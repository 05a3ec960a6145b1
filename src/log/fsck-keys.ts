/** Checks that every key of the namespace is one of ours, of the right type, and expires if and only if it should. */
import type { Redis } from 'ioredis'
import type { Finding } from '../fsck-checks.ts'
import { type KeyName, keyRecogniser, keyTable, namespacePattern, timeToLiveMs } from '../redis/keys.ts'
import { atOneInstant } from './fsck-read.ts'
import type { LogSource } from './view.ts'

interface Facts {
  type: string
  /** -1: stays for ever; -2: it is gone. */
  ttlMs: number
}

// Looking at 500 keys takes Redis about 1 ms. TODO: SCAN sees one node; ask each of them when clusters are supported.
const keysPerStep = 500

/** Answers the keys that hold another type than they should: commands on them would fail. */
export async function* checkKeys(source: LogSource): AsyncGenerator<Finding, ReadonlySet<string>> {
  const { name, partitions } = await source.read(async (_, namespace) => namespace)
  const recognise = keyRecogniser(name, partitions)
  const reported = new Set<string>()
  const mistyped = new Set<string>()
  let cursor = '0'
  do {
    const page = await source.read((redis) => readKeyPage(redis, namespacePattern(name), cursor))
    for (const [key, facts] of page.keys) {
      const spelled = key.toString()
      const owner = recognise(spelled)
      // SCAN may name a key twice.
      if (!keyProblem(owner, facts) || reported.has(spelled)) continue
      const again = await source.read((redis) => readFacts(redis, key))
      const problem = keyProblem(owner, again)
      if (!problem) continue
      reported.add(spelled)
      if (owner && again.type !== keyTable[owner][0]) mistyped.add(spelled)
      yield { check: 'keys', where: `key ${shownKey(spelled)}`, problem }
    }
    cursor = page.next
  } while (cursor !== '0')
  return mistyped
}

function keyProblem(owner: KeyName | undefined, { type, ttlMs }: Facts): string | undefined {
  if (ttlMs === -2) return undefined
  if (!owner) return `nothing in Busbar owns it: a ${type} that docs/keys.md does not name`
  if (type !== keyTable[owner][0]) return `it is a ${type}, but ${owner} is a ${keyTable[owner][0]}`
  const limitMs = timeToLiveMs[owner]
  if (limitMs === undefined) return ttlMs === -1 ? undefined : `it expires in ${ttlMs} ms, but ${owner} must stay`
  if (ttlMs === -1) return `it never expires, but ${owner} is kept for ${keyTable[owner][1]}`
  return ttlMs > limitMs ? `it expires in ${ttlMs} ms, but ${owner} is kept for ${keyTable[owner][1]}` : undefined
}

async function readKeyPage(
  redis: Redis,
  pattern: string,
  cursor: string,
): Promise<{ next: string; keys: [key: Buffer, facts: Facts][] }> {
  const [next, keys] = await redis.scanBuffer(cursor, 'MATCH', pattern, 'COUNT', keysPerStep)
  const pipeline = redis.pipeline()
  for (const key of keys) pipeline.type(key).pttl(key)
  const answers = (await pipeline.exec()) ?? []
  const failed = answers.find(([error]) => error)
  if (failed) throw failed[0]
  const facts = (i: number): Facts => ({ type: String(answers[2 * i]![1]), ttlMs: Number(answers[2 * i + 1]![1]) })
  return { next: next.toString(), keys: keys.map((key, i) => [key, facts(i)]) }
}

async function readFacts(redis: Redis, key: Buffer): Promise<Facts> {
  const [type, ttlMs] = await atOneInstant<[string, number]>(redis, (transaction) => transaction.type(key).pttl(key))
  return { type, ttlMs }
}

const shownKey = (key: string): string => JSON.stringify(key.length > 200 ? `${key.slice(0, 200)}…` : key)
