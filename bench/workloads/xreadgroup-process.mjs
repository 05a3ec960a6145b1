/**
 * What one would write by hand: a consumer group over 16 streams, 100 events of each per read, one XACK per stream of a
 * reply.
 *
 * The next read is sent before a reply is handled, so that Redis works meanwhile; the acknowledgements therefore have a
 * connection of their own, because behind a blocked read they would wait. On one connection, acknowledgements and next
 * read sent together, it was slower in most rounds; auto-pipelining gained nothing.
 */
import { Redis } from 'ioredis'
import { Tally, unlessStalled } from '../harness/tally.mjs'
import { streams } from './ioredis-xadd-streams.mjs'

const group = 'bench'
const readCommand = ['GROUP', group, 'w1', 'COUNT', 100, 'BLOCK', 0, 'STREAMS', ...streams, ...streams.map(() => '>')]

export async function open({ redis, count }) {
  const reads = new Redis({ host: redis.host, port: redis.port })
  const acks = new Redis({ host: redis.host, port: redis.port })
  for (const stream of streams) await acks.xgroup('CREATE', stream, group, '0', 'MKSTREAM')
  await reads.ping()
  const tally = new Tally(count)

  function handle(reply) {
    const acknowledged = []
    let isLast = false
    for (const [stream, entries] of reply) {
      const ids = []
      for (const [id, [, text]] of entries) {
        isLast = tally.saw(JSON.parse(text))
        ids.push(id)
      }
      acknowledged.push(acks.xack(stream, group, ...ids))
    }
    return { isLast, acknowledged: Promise.all(acknowledged) }
  }

  async function readAll() {
    for (let next = read(reads); ; ) {
      const reply = await next
      next = read(reads)
      const { isLast, acknowledged } = handle(reply)
      if (isLast) return await acknowledged
    }
  }

  return {
    async work() {
      const startedAt = performance.now()
      await unlessStalled(tally, readAll())
      const seconds = (performance.now() - startedAt) / 1000
      return { perSecond: count / seconds, problems: [...tally.problems(), ...(await pendingProblems(acks))] }
    },
    close() {
      reads.disconnect() // a read is still blocked
      return acks.quit()
    },
  }
}

function read(client) {
  const reply = client.xreadgroup(...readCommand)
  reply.catch(() => {}) // the last one ends with the connection; any other is awaited
  return reply
}

async function pendingProblems(client) {
  const pending = await Promise.all(streams.map((stream) => client.xpending(stream, group)))
  const left = pending.reduce((sum, [number]) => sum + Number(number), 0)
  return left > 0 ? [`${left} events handled but not acknowledged`] : []
}
