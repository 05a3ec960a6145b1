/**
 * A process full of live readers that wait for events which the measured publisher never sends. After the measurement
 * each of them must still get an event of its own, so that it is certain that they were really listening.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { busbar } from '../../dist/index.js'

const readers = 1_000
const probeTimeoutMs = 30_000

export async function open({ redis }) {
  const bus = busbar({ redis: redis.url, namespace: 'bench' })
  const lives = Array.from({ length: readers }, (_, n) => bus.live(`nothing${n}.*`))
  const heard = new Set()
  const ends = lives.map((live, n) => listen(live, () => heard.add(n)))
  await Promise.all(lives.map((live) => live.ready()))

  return {
    async report() {
      await Promise.all(lives.map((_, n) => bus.publish(`nothing${n}.probe`, {}, { tenant: 'probe' })))
      const deadline = Date.now() + probeTimeoutMs
      while (heard.size < readers && Date.now() < deadline) await sleep(20)
      if (heard.size < readers) throw new Error(`${readers - heard.size} of ${readers} live readers heard nothing`)
    },
    async close() {
      await bus.close()
      await Promise.allSettled(ends)
    },
  }
}

async function listen(live, onEvent) {
  for await (const _event of live) onEvent()
}
