/** The dead letters of a queue: look, group by reason, put back in line, give up. */
import type { Event } from '../../event.ts'
import { readLetter } from '../../lanes/item.ts'
import { discardScript, redriveScript } from '../../lanes/scripts.ts'
import { runScript } from '../../redis/script.ts'
import { eventOf } from './held.ts'
import type { AskQueue, KnownQueue } from './view.ts'

export interface QueueLetter {
  id: string
  event: Event
  /** Why it was given up. */
  error: string
  attempts: number
  enqueuedAt: number
  /** When it became a dead letter: ms. */
  at: number
}

/** Letters that have all of these; none means all letters. */
export interface DeadFilter {
  ids?: readonly string[]
  tenant?: string
  type?: string
  /** Part of why it was given up. */
  reason?: string
  /** Older than this, ms since the epoch. */
  before?: number
}

export interface DeadReason {
  reason: string
  letters: number
  oldestAt: number
  newestAt: number
}

export interface DeadView {
  /** Oldest first. */
  list(name: string, options?: DeadFilter & { limit?: number; offset?: number }): Promise<QueueLetter[]>
  /** Those with the most letters first. */
  reasons(name: string): Promise<DeadReason[]>
  /** Puts them back in line, as if never tried. Answers how many. */
  redrive(name: string, which: DeadFilter | 'all'): Promise<number>
  discard(name: string, which: DeadFilter | 'all'): Promise<number>
}

const defaultLimit = 100
const perPage = 500

export function createDeadView(ask: AskQueue): DeadView {
  const settle = (name: string, which: DeadFilter | 'all', script: typeof redriveScript) =>
    ask(name, async (queue) => {
      const ids: string[] = []
      // All are chosen before the first one moves: what comes back while it runs is not taken again.
      for await (const letter of letters(queue)) if (which === 'all' || fits(letter, which)) ids.push(letter.id)
      let settled = 0
      for (let at = 0; at < ids.length; at += perPage) {
        const input = { ...queue.store.ground, ids: ids.slice(at, at + perPage) }
        settled += await runScript(queue.redis, script, input)
      }
      return settled
    })
  return {
    list: (name, { limit = defaultLimit, offset = 0, ...filter } = {}) =>
      ask(name, async (queue) => {
        const found: QueueLetter[] = []
        let passed = 0
        for await (const letter of letters(queue)) {
          if (found.length === limit) break
          if (!fits(letter, filter)) continue
          passed += 1
          if (passed > offset) found.push(letter)
        }
        return found
      }),
    reasons: (name) => ask(name, reasonsOf),
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

const fits = ({ id, event, error, at }: QueueLetter, { ids, tenant, type, reason, before }: DeadFilter): boolean =>
  (!ids || ids.includes(id)) &&
  (tenant === undefined || event.tenant === tenant) &&
  (type === undefined || event.type === type) &&
  (reason === undefined || error.includes(reason)) &&
  (before === undefined || at < before)

async function reasonsOf(queue: KnownQueue): Promise<DeadReason[]> {
  const reasons = new Map<string, DeadReason>()
  for await (const { error, at } of letters(queue)) {
    const known = reasons.get(error) ?? { reason: error, letters: 0, oldestAt: at, newestAt: at }
    reasons.set(error, { ...known, letters: known.letters + 1, newestAt: at })
  }
  return [...reasons.values()].sort((a, b) => b.letters - a.letters)
}
