/**
 * What the operations of one object cost when there are many others, and when there are few: the median of one call after the other. Many and
 * few, which are in a namespace of their own, take turns: they differ by less than the machine does from minute to minute.
 */
import { busbar } from '../../dist/index.js'
import { median } from '../harness/numbers.mjs'
import { open as openFinished } from './busbar-operations-finished.mjs'

const perKey = 10
const calls = 2_000
const warmUps = 200

/** @param {{ many: number, few: number }} options  operations there are, ten of each key; the many are there already */
export async function open({ redis, many, few }) {
  await fill({ redis, namespace: 'few', count: few, keys: few / perKey })
  const those = [await asking(redis, 'bench', many), await asking(redis, 'few', few)]
  return {
    async work() {
      for (let i = -warmUps; i < calls; i += 1)
        for (const one of i % 2 === 0 ? those : those.toReversed()) await one.ask(i)
      const [p50Ms, fewMs] = those.map(({ times }) => median(times))
      return { p50Ms, fewMs, problems: those.flatMap(({ problems }) => problems()) }
    },
    close: () => Promise.all(those.map(({ bus }) => bus.close())),
  }
}

async function fill(options) {
  const filling = await openFinished(options)
  const { problems } = await filling.work()
  await filling.close()
  if (problems.length > 0) throw new Error(problems.join(', '))
}

async function asking(redis, namespace, count) {
  const bus = busbar({ redis: redis.url, namespace, worker: 'w1' })
  await bus.topics() // connects
  const keys = Math.floor(count / perKey)
  const times = []
  let found = 0
  return {
    ...{ bus, times },
    async ask(i) {
      const key = `order:${((i + warmUps) * 7919) % keys}`
      const startedAt = performance.now()
      const { operations } = await bus.operations.page(key, { tenant: 'tenant-0', detail: true })
      if (i < 0) return
      times.push(performance.now() - startedAt)
      found += operations.length
    },
    problems() {
      const each = found / calls
      return each > perKey / 2 && each < perKey * 2 ? [] : [`${each} operations per key`]
    },
  }
}
