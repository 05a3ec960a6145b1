/** What fsck finds: each check with the violations planted for it, and no other. */
import { readFileSync } from 'node:fs'
import { describe, expect, test } from 'vitest'
import { type Finding, type FsckCheck, fsckChecks } from '../src/fsck.ts'
import { plainRedis, testBus } from './support/bus.ts'
import { objectsIn, type SpoiledLog, soundLog } from './support/log.ts'
import { envelopeOf } from './support/partition.ts'

type Plant = (log: SpoiledLog) => Promise<Partial<Finding> | Partial<Finding>[]>

/** Plants each violation in a sound log; it must be the only thing that is found. */
function finds(check: FsckCheck, plants: Record<string, Plant>): void {
  describe(check, () => {
    test.each(Object.keys(plants))('%s', async (name) => {
      const log = await soundLog()
      const planted = [await plants[name]!(log)].flat()
      expect(await log.findings()).toEqual(
        planted.map((finding) => ({ check, where: expect.any(String), problem: expect.any(String), ...finding })),
      )
    })
  })
}

const own = objectsIn(0)[0]!
/** Of partition 0, without any event. */
const stranger = objectsIn(0, 100).at(-1)!
const event = (seq: number) => `event 0-${seq}`
const headOf = async ({ redis, keys }: SpoiledLog, object = own) => Number(await redis.hget(keys.heads, object))
const mail = { envelope: envelopeOf('', 'mail') }

test('a sound log has nothing to report', async () => {
  const log = await soundLog()
  expect(await log.findings()).toEqual([])
})

test('a log of many objects is read to its last one', async () => {
  const log = await soundLog(700)
  expect(await log.findings()).toEqual([])
  const object = objectsIn(0, 700).at(-1)!
  await log.redis.hdel(log.keys.heads, object)
  const strangers = objectsIn(0, 740).slice(700)
  const last = await log.meta('last')
  for (const name of strangers) await log.redis.hset(log.keys.heads, name, last)
  const found = (await log.findings()).map(({ where }) => where).sort()
  expect(found).toEqual([object, ...strangers].map((name) => `object "${name}" of partition 0`).sort())
})

test('a namespace of many keys is looked at to its last one', async () => {
  const log = await soundLog()
  const { namespace } = log.bus
  const keys = Array.from({ length: 1_000 }, (_, i) => `${log.keys.oncePrefix}${i}`)
  await log.redis.pipeline(keys.map((key) => ['set', key, '1', 'EX', '600'])).exec()
  const strays = Array.from({ length: 20 }, (_, i) => `${namespace}:stray-${i}`)
  for (const key of strays) await log.redis.set(key, '1')
  const found = (await log.findings()).map(({ where }) => where).sort()
  expect(found).toEqual(strays.map((key) => `key "${key}"`).sort())
})

test('a namespace that was only opened has nothing to report', async () => {
  const bus = testBus({ partitions: 2 })
  await bus.topics()
  const findings = []
  for await (const finding of bus.fsck()) findings.push(finding)
  expect(findings).toEqual([])
})

finds('entry-ids', {
  'an id with a second part': async (log) => {
    const last = (await log.meta('last')) + 10
    await log.append([mail], { id: `${last}-5` })
    return { where: `entry ${last}-5 of partition 0`, problem: expect.stringContaining('<seq>-0') }
  },
  'more events than seqs': async (log) => {
    const last = await log.meta('last')
    await log.append([mail, mail, mail], { id: `${last + 2}-0` })
    return { where: `entry ${last + 2}-0 of partition 0`, problem: expect.stringContaining('3 events do not fit') }
  },
  'something else than a number for a prev': async (log) => {
    const last = await log.append([mail, { ...mail, prev: 'first' }])
    return { where: `entry ${last}-0 of partition 0`, problem: expect.stringContaining('event 2') }
  },
  'more fields than two': async (log) => {
    const last = (await log.meta('last')) + 1
    await log.redis.xadd(log.keys.log, `${last}-0`, '', `\x1e${mail.envelope}`, 'more', 'fields')
    await log.redis.hset(log.keys.meta, 'last', last)
    await log.redis.hincrby(log.keys.meta, 'events', 1)
    await log.redis.hincrby(log.keys.meta, 'bytes', Buffer.byteLength(mail.envelope))
    return { where: `entry ${last}-0 of partition 0`, problem: 'it has 4 fields, not two' }
  },
  'records that do not begin with a separator': async (log) => {
    const last = (await log.meta('last')) + 1
    await log.redis.xadd(log.keys.log, `${last}-0`, '', `x${mail.envelope}`)
    await log.redis.hset(log.keys.meta, 'last', last)
    return { where: `entry ${last}-0 of partition 0`, problem: 'it has 1 prevs for 0 envelopes' }
  },
  'more prevs than envelopes': async (log) => {
    const last = await log.append([{ ...mail, prev: ' ' }])
    return { where: `entry ${last}-0 of partition 0`, problem: 'it has 2 prevs for 1 envelopes' }
  },
})

finds('envelopes', {
  'a header that cannot be read': async (log) => {
    const last = await log.append([mail, { object: stranger, envelope: '{"tenant":"acme"}\n1' }, mail])
    return { where: event(last - 1), problem: expect.stringContaining('begin with type and tenant') }
  },
  'bytes that are not text, also in the names of objects': async (log) => {
    const last = await log.append([{ envelope: Buffer.from([0xff, 0xfe]) }])
    await log.redis.hset(log.keys.heads, Buffer.from([0xff, 0xfe]), last)
    return { where: event(last), problem: expect.stringContaining('UTF-8') }
  },
  'inside a chain: only the envelope is reported, not the chain and the head around it': async (log) => {
    const broken = { envelope: '{}', object: own, prev: String(await headOf(log)) }
    const first = await log.append([broken])
    await log.append([{ envelope: envelopeOf(own), object: own, prev: String(first) }])
    const ended = objectsIn(0)[1]!
    const last = await log.append([{ envelope: '{}', object: ended, prev: String(await headOf(log, ended)) }])
    return [{ where: event(first) }, { where: event(last) }]
  },
})

finds('partition', {
  'an event in the wrong partition, and its head': async (log) => {
    const object = objectsIn(1)[5]!
    const last = await log.append([{ object, envelope: envelopeOf(object) }])
    const problem = expect.stringContaining('belongs into partition 1')
    return [
      { where: event(last), problem },
      { where: `object "${object}" of partition 0`, problem },
    ]
  },
})

finds('chain', {
  'a fork: an event that follows an older one': async (log) => {
    const head = await headOf(log)
    const [{ prev }] = (await log.bus.log.history(own.slice(5), { tenant: 'acme', limit: 1 })) as unknown as [
      { prev: number },
    ]
    const last = await log.append([{ object: own, prev: String(prev), envelope: envelopeOf(own) }])
    return { where: event(last), problem: `its prev is ${prev}, but the object's event before it is ${head}` }
  },
  'a fork: an event that calls itself the first': async (log) => {
    const head = await headOf(log)
    const last = await log.append([{ object: own, envelope: envelopeOf(own) }])
    return { where: event(last), problem: `its prev is null, but the object's event before it is ${head}` }
  },
  'a hole: an event in the middle is gone': async (log) => {
    const [first, second, third] = await log.bus.log.history(own.slice(5), { tenant: 'acme' })
    await log.remove(`${second!.seq}-0`)
    return { where: event(third!.seq), problem: expect.stringContaining(`before it is ${first!.seq}`) }
  },
  'a hole: the first event is neither there nor trimmed': async (log) => {
    const last = await log.meta('last')
    const missing = await log.append([{ object: stranger, envelope: envelopeOf(stranger) }])
    await log.append([{ object: stranger, prev: String(missing), envelope: envelopeOf(stranger) }])
    await log.remove(`${missing}-0`)
    return { where: event(last + 2), problem: `its prev ${missing} is neither an event of the object nor trimmed` }
  },
  'a prev that is not before its event': async (log) => {
    const last = await log.append([
      { object: own, prev: String((await log.meta('last')) + 1), envelope: envelopeOf(own) },
    ])
    return { where: event(last), problem: `its prev ${last} is not before it` }
  },
  'a prev without key': async (log) => {
    const last = await log.append([{ ...mail, prev: String(await log.meta('last')) }])
    return { where: event(last), problem: expect.stringContaining('no key') }
  },
})

finds('heads', {
  'an object without head': async (log) => {
    await log.redis.hdel(log.keys.heads, own)
    return { where: `object "${own}" of partition 0`, problem: expect.stringContaining('no head') }
  },
  'a head that is not the last event': async (log) => {
    const head = await headOf(log)
    const other = await headOf(log, objectsIn(0)[1])
    await log.redis.hset(log.keys.heads, own, other)
    return { where: `object "${own}" of partition 0`, problem: `its head is ${other}, but its last event is ${head}` }
  },
  'a head of no event': async (log) => {
    const last = await log.meta('last')
    await log.redis.hset(log.keys.heads, stranger, last)
    return {
      where: `object "${stranger}" of partition 0`,
      problem: expect.stringContaining(`${last}, but no such event`),
    }
  },
  'a head above the end of the log': async (log) => {
    const above = (await log.meta('last')) + 1
    await log.redis.hset(log.keys.heads, stranger, above)
    return { where: `object "${stranger}" of partition 0`, problem: expect.stringContaining(`${above} is above`) }
  },
  'a head that is no seq, or above the end, of an object with events': async (log) => {
    const above = (await log.meta('last')) + 1
    await log.redis.hset(log.keys.heads, { [own]: 'x', [objectsIn(0)[1]!]: above })
    const problems = [expect.stringContaining('not a seq'), expect.stringContaining(`${above} is above`)]
    return [own, objectsIn(0)[1]!].map((object, i) => ({
      where: `object "${object}" of partition 0`,
      problem: problems[i],
    }))
  },
  'an old generation that publishing does not see': async (log) => {
    const { redis, keys } = log
    await redis.rename(keys.heads, keys.headsOld)
    await redis.hset(keys.heads, await redis.hgetall(keys.headsOld))
    return { where: 'partition 0', problem: expect.stringContaining('headsClosed') }
  },
  'a head in the old generation from after its closing': async (log) => {
    const { redis, keys } = log
    const head = await headOf(log)
    await redis.hset(keys.headsOld, own, head)
    await redis.hset(keys.meta, 'headsClosed', head - 1)
    return { where: `object "${own}" of partition 0`, problem: expect.stringContaining(`closed at ${head - 1}`) }
  },
})

finds('meta', {
  'last below the last entry': async (log) => {
    const last = await log.append([mail])
    await log.redis.hset(log.keys.meta, 'last', last - 1)
    return { where: 'partition 0', problem: `last ${last - 1} is below the last entry ${last}-0` }
  },
  'too many events': async (log) => {
    const events = await log.redis.hincrby(log.keys.meta, 'events', 1)
    return {
      where: 'partition 0',
      problem: expect.stringMatching(`says ${events} events of .* there are ${events - 1} `),
    }
  },
  'too few bytes': async (log) => {
    const bytes = await log.redis.hincrby(log.keys.meta, 'bytes', -1)
    return { where: 'partition 0', problem: expect.stringMatching(`of ${bytes} bytes, .* of ${bytes + 1} bytes`) }
  },
  'trimmed not below the first event': async ({ redis, keys }) => {
    const [[id, fields]] = (await redis.xrange(keys.log, '-', '+', 'COUNT', 1)) as [[string, string[]]]
    const first = Number(id.split('-')[0]) - fields[0]!.split(' ').length + 1
    await redis.hset(keys.meta, 'trimmed', first)
    return { where: 'partition 0', problem: `trimmed ${first} is not below the first event ${first}` }
  },
  'trimmed above last': async ({ redis, other }) => {
    await redis.unlink(other.log, other.heads)
    const last = Number(await redis.hget(other.meta, 'last'))
    await redis.hset(other.meta, { trimmed: last + 1, events: 0, bytes: 0 })
    return { where: 'partition 1', problem: `trimmed ${last + 1} is above last ${last}` }
  },
  'a count that is no number': async ({ redis, keys }) => {
    await redis.hset(keys.meta, 'bytes', '-1')
    return { where: 'partition 0', problem: 'bytes is not a whole number' }
  },
})

finds('keys', {
  'a key that nobody owns': async ({ bus, redis }) => {
    await redis.set(`${bus.namespace}:left-over`, '1')
    return { where: `key "${bus.namespace}:left-over"`, problem: expect.stringContaining('nothing in Busbar owns it') }
  },
  'a key of a partition that there is not': async ({ bus, redis }) => {
    await redis.hset(`${bus.namespace}:{7.1}:meta`, 'last', 1)
    return { where: `key "${bus.namespace}:{7.1}:meta"` }
  },
  'a key under the name of a channel': async ({ redis, keys }) => {
    await redis.set(keys.wake, '1')
    return { where: `key "${keys.wake}"` }
  },
  'a prefix without a name after it': async ({ redis, keys }) => {
    await redis.set(keys.oncePrefix, '1', 'EX', 10)
    return { where: `key "${keys.oncePrefix}"` }
  },
  'a key whose name is not text': async ({ bus, redis }) => {
    await redis.set(Buffer.concat([Buffer.from(`${bus.namespace}:`), Buffer.from([0xff, 0x0a])]), '1')
    return { where: `key "${bus.namespace}:\ufffd\\n"` }
  },
  'a key of the wrong type: its partition cannot be judged': async ({ redis, keys }) => {
    await redis.unlink(keys.heads)
    await redis.set(keys.heads, '1')
    return { where: `key "${keys.heads}"`, problem: 'it is a string, but heads is a hash' }
  },
  'an idempotency key that never expires': async ({ redis, keys }) => {
    await redis.set(`${keys.oncePrefix}abc`, '1')
    return { where: `key "${keys.oncePrefix}abc"`, problem: expect.stringContaining('never expires') }
  },
  'an idempotency key that is kept for too long': async ({ redis, keys }) => {
    await redis.set(`${keys.oncePrefix}abc`, '1', 'EX', 100_000)
    return { where: `key "${keys.oncePrefix}abc"`, problem: expect.stringContaining('24 hours') }
  },
  'a log that will expire': async ({ redis, keys }) => {
    await redis.expire(keys.log, 10_000)
    return { where: `key "${keys.log}"`, problem: expect.stringContaining('log must stay') }
  },
})

finds('holds', {
  'above the end of the log': async (log) => {
    const above = (await log.meta('last')) + 1
    await log.redis.hset(log.keys.holds, { fine: above - 1, search: above })
    return { where: 'hold "search" of partition 0', problem: expect.stringContaining(`${above}, above`) }
  },
  'that is no seq': async ({ redis, keys }) => {
    await redis.hset(keys.holds, 'search', 'x')
    return { where: 'hold "search" of partition 0', problem: 'it is not a seq' }
  },
})

test('several violations are all reported, and reading can stop at the first', async () => {
  const log = await soundLog()
  await log.redis.hset(log.keys.holds, 'search', 'x')
  await log.redis.hincrby(log.other.meta, 'events', 1)
  expect((await log.findings()).map(({ check }) => check)).toEqual(['holds', 'meta'])
  for await (const { check } of log.bus.fsck()) {
    expect(check).toBe('holds')
    break
  }
})

test('another namespace on the same Redis is not looked at', async () => {
  const log = await soundLog()
  const redis = plainRedis()
  await redis.set(`${log.bus.namespace}-2:stray`, '1', 'EX', 60)
  expect(await log.findings()).toEqual([])
})

test('docs/fsck.md lists every check', () => {
  const doc = readFileSync(new URL('../docs/fsck.md', import.meta.url), 'utf8')
  const rows = [...doc.matchAll(/^\| `([a-z-]+)` \| (.*) \|$/gm)].map((row) => row.slice(1))
  expect(rows).toEqual(Object.entries(fsckChecks))
})
