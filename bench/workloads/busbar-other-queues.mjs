/** Registers queues that match nothing that is published, each with a pattern of its own, and leaves them there. */
import { busbar } from '../../dist/index.js'

export async function open({ redis, queues }) {
  const bus = busbar({ redis: redis.url, namespace: 'bench', worker: 'other' })
  for (let n = 0; n < queues; n += 1) bus.queue(`other-${n}`, { match: `nothing${n}.*` })
  return {
    async work() {
      await bus.run({ signals: false })
      const listed = await bus.subscriptions.list()
      return { problems: listed.length === queues ? [] : [`${listed.length} of ${queues} queues are registered`] }
    },
    close: () => bus.close(),
  }
}
