/** The dead letters of a queue: look, group by reason, put back in line, give up. */
import { type AnyLetter, chosenIds, type DeadChoice, type DeadView, pageOf, reasonsOf } from '../../dead-letters.ts'
import { readLetter } from '../../lanes/item.ts'
import { discardScript, redriveScript } from '../../lanes/scripts.ts'
import { runScript } from '../../redis/script.ts'
import { eventOf } from './held.ts'
import type { AskQueue, KnownQueue } from './view.ts'

export interface QueueLetter extends AnyLetter {
  enqueuedAt: number
}

/** A letter that is redriven begins anew, as if never tried. */
export type QueueDeadView = DeadView<QueueLetter>

const perPage = 500

export function createDeadView(ask: AskQueue): QueueDeadView {
  const settle = (name: string, which: DeadChoice, script: typeof redriveScript) =>
    ask(name, async (queue) => {
      const ids = await chosenIds(() => letters(queue), which)
      let settled = 0
      for (let at = 0; at < ids.length; at += perPage) {
        const input = { ...queue.store.ground, ids: ids.slice(at, at + perPage) }
        settled += await runScript(queue.redis, script, input)
      }
      return settled
    })
  return {
    list: (name, options = {}) => ask(name, (queue) => pageOf(letters(queue), options)),
    reasons: (name, filter = {}) => ask(name, (queue) => reasonsOf(letters(queue), filter)),
    redrive: (name, which) => settle(name, which, redriveScript),
    discard: (name, which) => settle(name, which, discardScript as typeof redriveScript),
  }
}

/** Oldest first. One that is taken away meanwhile is not seen; none is seen twice, as letters only ever join at the end. */
async function* letters({ redis, keys }: KnownQueue): AsyncGenerator<QueueLetter> {
  const ids = await redis.zrange(keys.deadOrder, '0', '-1')
  for (let at = 0; at < ids.length; at += perPage) {
    const texts = await redis.hmget(keys.dead, ...ids.slice(at, at + perPage))
    for (const text of texts) if (text !== null) yield letterOf(text)
  }
}

function letterOf(text: string): QueueLetter {
  const { diedMs, reason, item } = readLetter(text)
  const { id, attempts, enqueuedMs } = item
  return { id, event: eventOf(item), error: reason, attempts, enqueuedAt: enqueuedMs, at: diedMs }
}
