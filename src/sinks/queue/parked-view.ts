/** The objects that an ordered queue has set aside: look, let go on, give up. */
import type { Event } from '../../event.ts'
import { keyWord, readLetter } from '../../lanes/item.ts'
import { parkedScript } from '../../lanes/scripts.ts'
import { runScript } from '../../redis/script.ts'
import { invalid } from './checks.ts'
import { eventOf } from './held.ts'
import type { AskQueue, KnownQueue } from './view.ts'

export interface ParkedQueueObject {
  /** "<tenant>/<key>" */
  object: string
  /** The item that failed. */
  event: Event
  error: string
  attempts: number
  at: number
  /** Items that wait behind it. */
  behind: number
}

export interface QueueParkedView {
  /** Those that were set aside first come first; at most 10,000 there are. */
  list(name: string): Promise<ParkedQueueObject[]>
  /** Tries the item that failed anew, then what waits behind it, in order. Answers whether it was parked. */
  resume(name: string, object: string): Promise<boolean>
  /** Gives up the item that failed and all that waits behind it; what comes later is handled. Answers how many items. */
  discard(name: string, object: string): Promise<number>
}

/** As it is stored: a tenant has no slash in it. None for what cannot be an object. */
function fieldsOf(object: string): string[] {
  if (typeof object !== 'string')
    throw invalid('object', object, 'must be text, "<tenant>/<key>" as parked.list() has it')
  const slash = object.indexOf('/')
  if (slash < 1 || !object.isWellFormed()) return []
  return [`${object.slice(0, slash)} ${keyWord(object.slice(slash + 1))}`]
}

export function createParkedView(ask: AskQueue): QueueParkedView {
  const act = ({ redis, store }: KnownQueue, what: 'resume' | 'discard', object: string) =>
    runScript(redis, parkedScript, { ...store.ground, act: what, objects: fieldsOf(object) })
  return {
    list: (name) => ask(name, parkedIn),
    resume: (name, object) => ask(name, async (queue) => (await act(queue, 'resume', object)).objects === 1),
    discard: (name, object) =>
      ask(name, async (queue) => {
        let discarded = 0
        for (let isMore = true; isMore; ) {
          const step = await act(queue, 'discard', object)
          discarded += step.items
          isMore = step.isMore
        }
        return discarded
      }),
  }
}

async function parkedIn({ redis, keys }: KnownQueue): Promise<ParkedQueueObject[]> {
  const letters = Object.entries(await redis.hgetall(keys.parked))
  if (letters.length === 0) return []
  const places = await redis.hmgetBuffer(keys.objects, ...letters.map(([field]) => field))
  const objects = letters.map(([, text], i): ParkedQueueObject => {
    const { diedMs, reason, item } = readLetter(text)
    const behind = places[i] ? places[i].readUIntBE(6, 6) - places[i].readUIntBE(0, 6) : 0
    const object = `${item.lane}/${item.key}`
    return { object, event: eventOf(item), error: reason, attempts: item.attempts, at: diedMs, behind }
  })
  return objects.sort((a, b) => a.at - b.at || (a.object < b.object ? -1 : 1))
}
