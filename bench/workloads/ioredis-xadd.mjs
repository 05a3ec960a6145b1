/** What one would write by hand: one XADD per event into one stream. No keys, no order per object, no numbers, no repeat protection. */
import { Redis } from 'ioredis'
import { eventSource } from '../harness/events.mjs'

export async function open({ redis, keys }) {
  const client = new Redis({ host: redis.host, port: redis.port, enableAutoPipelining: true })
  const nextEvent = eventSource(keys)
  return {
    call: (i) => client.xadd('bench:stream', '*', 'data', JSON.stringify(nextEvent(i).data)),
    stored: () => client.xlen('bench:stream'),
    close: () => client.quit(),
  }
}
