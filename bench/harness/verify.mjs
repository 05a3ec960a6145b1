/**
 * Holds Busbar's log against what publish acknowledged: every acknowledged event is there exactly once, with the seq
 * and prev that the answer named; each object's chain of prevs has no hole and no fork; each key is in call order.
 *
 * It reads the streams themselves, not Busbar's readers: a mistake that writing and reading share would not be seen.
 */
import { expectedEvents, numberOf } from './events.mjs'

const entriesPerRead = 200
const maxProblems = 10

/**
 * @param {import('ioredis').Redis} redis
 * @param {{ namespace: string, tenant: string, keys?: number, acknowledged: { seqs: Float64Array, prevs: Float64Array } }} options
 * @returns {Promise<{ problems: string[], events: number, envelopeBytes: number }>} events of other tenants are only
 *   checked for their chain
 */
export async function verifyLog(redis, { namespace, tenant, keys, acknowledged }) {
  const { seqs, prevs } = acknowledged
  const expected = expectedEvents(seqs.length, keys)
  const found = new Uint8Array(seqs.length)
  const heads = new Map()
  const problems = []
  let events = 0
  let envelopeBytes = 0
  const complain = (problem) => problems.length < maxProblems && problems.push(problem)

  const logs = await logStreams(redis, namespace)
  for (const [partition, log] of logs.entries()) {
    let last = 0
    for await (const event of readLog(redis, log)) {
      const { seq, prev, header, data } = event
      if (seq <= last) complain(`${log}: seq ${seq} follows ${last}`)
      last = seq

      if (header.key === undefined) continue
      const object = `${header.tenant}/${header.key}`
      const head = heads.get(object)
      if (prev !== (head?.seq ?? 0))
        complain(`${object}: event ${seq} has prev ${prev}, the one before is ${head?.seq}`)
      heads.set(object, { seq, n: data.n })
      if (header.tenant !== tenant) continue

      if (head && data.n !== head.n + 1) complain(`${object}: n ${data.n} at ${seq} follows n ${head.n}`)
      const i = numberOf(data)
      if (expected[i]?.key !== header.key || expected[i]?.n !== data.n)
        complain(`${object}: event ${i} was never published so`)
      else if (found[i] === 1) complain(`event ${i} is in the log twice, again at ${seq}`)
      else if (seqs[i] !== seq || prevs[i] !== prev)
        complain(`event ${i} was acknowledged as ${seqs[i]} after ${prevs[i]}, stored as ${seq} after ${prev}`)
      found[i] = 1
      events += 1
      envelopeBytes += jsonEnvelopeBytes(partition, event)
    }
  }
  const missing = found.indexOf(0)
  if (missing !== -1) complain(`event ${missing} was acknowledged as ${seqs[missing]} but is not in the log`)
  return { problems, events, envelopeBytes }
}

/** What the event takes as plain JSON, the measure for Redis memory. */
function jsonEnvelopeBytes(partition, { seq, prev, header, dataText }) {
  const { type, tenant, key, time = Math.floor(seq / 1000) } = header
  const rest = JSON.stringify({ id: `${partition}-${seq}`, seq, prev: prev || null, type, tenant, key, time })
  return Buffer.byteLength(rest) + Buffer.byteLength(dataText) + ',"data":'.length
}

export async function logStreams(redis, namespace) {
  const names = []
  for await (const page of redis.scanStream({ match: `${namespace}:*:log`, type: 'stream', count: 1000 }))
    names.push(...page)
  return [...new Set(names)].sort()
}

async function* readLog(redis, log) {
  for (let from = '-'; ; ) {
    const entries = await redis.xrange(log, from, '+', 'COUNT', entriesPerRead)
    for (const [id, fields] of entries) yield* eventsOf(log, id, fields)
    if (entries.length < entriesPerRead) return
    from = `(${entries.at(-1)[0]}`
  }
}

function* eventsOf(log, id, fields) {
  const [lastSeq, zero] = id.split('-')
  if (zero !== '0' || fields.length !== 2) throw new Error(`${log}: entry ${id} is not of the documented form`)
  const prevs = fields[0].split(' ')
  const envelopes = fields[1].split('\x1e').slice(1)
  const count = prevs.length
  if (envelopes.length !== count)
    throw new Error(`${log}: entry ${id} has ${count} prevs and ${envelopes.length} envelopes`)
  for (let n = 0; n < count; n += 1) {
    const envelope = envelopes[n]
    const lineEnd = envelope.indexOf('\n')
    const dataText = envelope.slice(lineEnd + 1)
    yield {
      seq: Number(lastSeq) - count + n + 1,
      prev: Number(prevs[n]),
      header: JSON.parse(envelope.slice(0, lineEnd)),
      data: JSON.parse(dataText),
      dataText,
    }
  }
}
