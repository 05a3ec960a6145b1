/** Looks at the group in Redis, past every worker: cursors and owners, again and again, for the checker. */
import { processorKeys } from '../../dist/redis/keys.js'
import { nowUs } from './clock.mjs'

const everyMs = 100

export function startSampler({ redis, namespace, processor, history }) {
  const keys = processorKeys(namespace, processor)
  let stopped = false

  async function look() {
    const t = nowUs()
    // Both in one transaction: a cursor and the epoch under which it stands belong together.
    const [[, cursors], [, owners]] = await redis.multi().hgetall(keys.cursors).hgetall(keys.owners).exec()
    const answeredAt = nowUs()
    return Object.entries(owners).map(([partition, text]) => {
      const [owner, epoch] = text.split(' ')
      const cursor = Number(cursors[partition] ?? 0)
      return { t, answeredAt, partition: Number(partition), owner, epoch: Number(epoch), cursor }
    })
  }

  const running = (async () => {
    while (!stopped) {
      // Redis is away: the next look tells.
      for (const sample of await look().catch(() => [])) history.add('sample', sample)
      await new Promise((resolve) => setTimeout(resolve, everyMs))
    }
  })()
  return {
    look,
    async stop() {
      stopped = true
      await running
    },
  }
}
