/**
 * Busbar's processor as the only worker. It is connected before the clock starts; joining the group and getting the
 * partitions is part of what is measured. It ends when the cursors in Redis, read on a connection of their own, have
 * reached the last event of every partition.
 */
import { Redis } from 'ioredis'
import { busbar } from '../../dist/index.js'
import { CommitLag } from '../harness/commit-lag.mjs'
import { committedUpTo, lastSeqs, processorName } from '../harness/group.mjs'
import { Tally, unlessStalled } from '../harness/tally.mjs'

export async function open({ redis, count }) {
  const bus = busbar({ redis: redis.url, namespace: 'bench', worker: 'w1' })
  const control = new Redis({ host: redis.host, port: redis.port })
  const tally = new Tally(count)
  const lag = new CommitLag(control, 100)
  let allHandled
  const done = new Promise((resolve) => {
    allHandled = resolve
  })
  bus.processor(processorName, { match: '>', from: 'beginning', commit: 'each' }, async (events, { partition }) => {
    for await (const event of events) {
      lag.saw(partition, event.seq)
      if (tally.saw(event.data)) allHandled()
    }
  })
  await bus.topics() // connects
  const lasts = await lastSeqs(control)

  return {
    async work() {
      const startedAt = performance.now()
      await bus.run({ signals: false })
      await unlessStalled(tally, done)
      await committedUpTo(control, lasts)
      const seconds = (performance.now() - startedAt) / 1000
      return { perSecond: count / seconds, problems: [...tally.problems(), ...(await lag.problems())] }
    },
    async close() {
      await bus.close()
      await control.quit()
    },
  }
}
