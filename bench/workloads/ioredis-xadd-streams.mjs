/** One XADD per event into 16 streams by a hash of the key, so that the events of one key stay in one stream, in order. */
import { createHash } from 'node:crypto'
import { Redis } from 'ioredis'
import { eventSource } from '../harness/events.mjs'

export const streams = Array.from({ length: 16 }, (_, n) => `bench:stream:${n}`)

export async function open({ redis, keys }) {
  const client = new Redis({ host: redis.host, port: redis.port, enableAutoPipelining: true })
  const nextEvent = eventSource(keys)
  return {
    call(i) {
      const { key, data } = nextEvent(i)
      return client.xadd(streamOf(key), '*', 'data', JSON.stringify(data))
    },
    async stored() {
      const lengths = await Promise.all(streams.map((stream) => client.xlen(stream)))
      return lengths.reduce((sum, length) => sum + length, 0)
    },
    close: () => client.quit(),
  }
}

const streamOf = (key) => streams[createHash('md5').update(key).digest()[0] % streams.length]
