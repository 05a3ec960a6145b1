/**
 * A process full of live readers that wait for events which the measured publisher never sends. Before and after the
 * measurement each of them gets one event of its own, so that it is certain that they were really listening.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { busbar } from '../../dist/index.js'

const probeTimeoutMs = 30_000

export async function open({ redis, readers = 1_000 }) {
  const bus = busbar({ redis: redis.url, namespace: 'bench' })
  const seen = new Array(readers).fill(0)
  const ends = seen.map((_, reader) => listen(bus, reader, seen))

  const probeAll = async (least) => {
    const deadline = Date.now() + probeTimeoutMs
    for (;;) {
      const waiting = [...seen.keys()].filter((reader) => seen[reader] < least)
      if (waiting.length === 0) return
      if (Date.now() > deadline) throw new Error(`${waiting.length} of ${readers} live readers hear nothing`)
      await Promise.all(waiting.map((reader) => bus.publish(`nothing${reader}.probe`, {}, { tenant: 'probe' })))
      await sleep(500)
    }
  }
  await probeAll(1)
  const before = [...seen]

  return {
    report: () => probeAll(Math.max(...before) + 1),
    async close() {
      await bus.close()
      await Promise.allSettled(ends)
    },
  }
}

async function listen(bus, reader, seen) {
  for await (const _event of bus.live(`nothing${reader}.*`)) seen[reader] += 1
}
