/**
 * The verifier finds each kind of loss: a judge that never says no is worth nothing. Needs redis-server.
 * Run with `npm test` in bench/.
 */
import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { Redis } from 'ioredis'
import { eventSource } from './events.mjs'
import { startRedis, stopServers } from './servers.mjs'
import { verifyLog } from './verify.mjs'

const count = 2_000
const keys = 50
const eventsPerEntry = 7
let redis

before(async () => {
  const { host, port } = await startRedis()
  redis = new Redis({ host, port })
})
after(() => {
  redis.disconnect()
  stopServers()
})

test('a log as acknowledged has no problems', async () => {
  const { problems, events, envelopeBytes } = await verifyPlanted(() => {})
  assert.deepEqual(problems, [])
  assert.equal(events, count)
  assert.ok(envelopeBytes / count > 200 && envelopeBytes / count < 300)
})

const violations = {
  'a lost event': [(log) => log.pop(), /not in the log/],
  'an event stored twice': [
    (log) => log.push({ ...log.at(-1), seq: log.at(-1).seq + 1, prev: log.at(-1).seq }),
    /twice|follows n/,
  ],
  'two events of a key out of order': [(log) => swapEnvelopes(log, 100), /follows n/],
  'a hole in the chain': [(log) => Object.assign(log[500], { prev: 5 }), /has prev 5/],
  'changed data': [
    (log) => Object.assign(log[9], { envelope: log[9].envelope.replace('"n":1', '"n":2') }),
    /never published so/,
  ],
  'an answer with another seq': [(_, answers) => (answers.seqs[7] += 1), /acknowledged as/],
  'an answer with another prev': [(_, answers) => (answers.prevs[700] += 1), /acknowledged as/],
}
for (const [name, [plant, expected]] of Object.entries(violations))
  test(`${name} is found`, async () => {
    const { problems } = await verifyPlanted(plant)
    assert.match(problems.join('\n'), expected)
  })

/** Writes a faultless log, plants something in it, and verifies. */
async function verifyPlanted(plant) {
  await redis.flushall()
  const nextEvent = eventSource(keys)
  const heads = new Map()
  const answers = { seqs: new Float64Array(count), prevs: new Float64Array(count) }
  const log = Array.from({ length: count }, (_, i) => {
    const { key, data } = nextEvent(i)
    const seq = 1_700_000_000_000_001 + i
    const prev = heads.get(key) ?? 0
    heads.set(key, seq)
    answers.seqs[i] = seq
    answers.prevs[i] = prev
    const header = JSON.stringify({ type: 'order.paid', tenant: 'acme', key })
    return { seq, prev: prev || '', envelope: `${header}\n${JSON.stringify(data)}` }
  })
  plant(log, answers)
  for (let first = 0; first < log.length; first += eventsPerEntry) {
    const entry = log.slice(first, first + eventsPerEntry)
    await redis.xadd(
      'bench:{0}:log',
      `${entry.at(-1).seq}-0`,
      entry.map(({ prev }) => prev).join(' '),
      entry.map(({ envelope }) => `\x1e${envelope}`).join(''),
    )
  }
  return verifyLog(redis, { namespace: 'bench', tenant: 'acme', keys, acknowledged: answers })
}

function swapEnvelopes(log, at) {
  const keyOf = ({ envelope }) => JSON.parse(envelope.split('\n', 1)[0]).key
  const later = log.findIndex((event, n) => n > at && keyOf(event) === keyOf(log[at]))
  const [one, other] = [log[at].envelope, log[later].envelope]
  log[at].envelope = other
  log[later].envelope = one
}
