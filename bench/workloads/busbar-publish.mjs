/**
 * Busbar's publish. Keeps seq and prev of every answer, so that the parent can hold the log against what was acknowledged.
 */
import { busbar } from '../../dist/index.js'
import { eventSource } from '../harness/events.mjs'

// Room for 4 s at 1,000,000 events a second; untouched pages of it cost nothing.
const maxEvents = 4_000_000

export async function open({ redis, keys, busOptions }) {
  const bus = busbar({ redis: redis.url, namespace: 'bench', ...busOptions })
  const nextEvent = eventSource(keys)
  const seqs = new Float64Array(maxEvents)
  const prevs = new Float64Array(maxEvents)

  return {
    call(i) {
      const { key, data } = nextEvent(i)
      return bus.publish('order.paid', data, { tenant: 'acme', key }).then((answer) => {
        seqs[i] = answer.seq
        prevs[i] = answer.prev ?? 0
      })
    },
    report: (calls) => ({ seqs: seqs.slice(0, calls), prevs: prevs.slice(0, calls) }),
    close: () => bus.close(),
  }
}
