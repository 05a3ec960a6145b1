/**
 * The shortest way through a consumer group: XADD on one connection, a blocked XREADGROUP on another, both in one
 * process. One stream, not 16: nothing is faster.
 */
import { Redis } from 'ioredis'
import { IdleMeter } from '../harness/idle.mjs'

const stream = 'bench:stream'
const group = 'bench'

export async function open({ redis, events: count }) {
  const writes = new Redis({ host: redis.host, port: redis.port })
  const reads = new Redis({ host: redis.host, port: redis.port })
  await writes.xgroup('CREATE', stream, group, '0', 'MKSTREAM')
  const meter = new IdleMeter(count)
  let isOpen = true

  async function readAll() {
    while (isOpen) {
      const reply = await reads.xreadgroup('GROUP', group, 'w1', 'COUNT', 100, 'BLOCK', 0, 'STREAMS', stream, '>')
      const [[, entries]] = reply
      for (const [id, [, text]] of entries) {
        meter.handled(JSON.parse(text))
        writes.xack(stream, group, id)
      }
    }
  }
  const reading = readAll()
  reading.catch(() => {}) // ends with the connection; before that, an event that does not arrive says so

  return {
    work: () => meter.run(({ data }) => writes.xadd(stream, '*', 'data', JSON.stringify(data))),
    close() {
      isOpen = false
      reads.disconnect()
      return writes.quit()
    },
  }
}
