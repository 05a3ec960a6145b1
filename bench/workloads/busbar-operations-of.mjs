/** What the operations of one object cost when there are many others: the median of one call after the other. */
import { busbar } from '../../dist/index.js'
import { median } from '../harness/numbers.mjs'

const perKey = 10
const calls = 2_000

/** @param {{ count: number }} options  operations there are, ten of each key */
export async function open({ redis, count }) {
  const bus = busbar({ redis: redis.url, namespace: 'bench', worker: 'w1' })
  await bus.topics() // connects
  const keys = Math.floor(count / perKey)
  const ask = (i) => bus.operations.page(`order:${(i * 7919) % keys}`, { tenant: 'tenant-0', detail: true })
  return {
    async work() {
      for (let i = 0; i < 200; i += 1) await ask(i)
      const times = []
      let found = 0
      for (let i = 0; i < calls; i += 1) {
        const startedAt = performance.now()
        found += (await ask(i)).operations.length
        times.push(performance.now() - startedAt)
      }
      const each = found / calls
      const problems = each > perKey / 2 && each < perKey * 2 ? [] : [`${each} operations per key`]
      return { p50Ms: median(times), problems }
    },
    close: () => bus.close(),
  }
}
