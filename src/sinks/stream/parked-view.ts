/** The objects that a processor has set aside: look, let go on, give up. */
import { runScript } from '../../redis/script.ts'
import { discardScript, resumeScript, shelfKey } from './scripts.ts'
import { type Reason, readShelf } from './set-aside.ts'
import type { Ask } from './view.ts'

export interface ParkedObject {
  /** "<tenant>/<key>", or "#<event id>" for an event without key. */
  object: string
  partition: number
  /** 'released' while the owner works it off. */
  state: 'parked' | 'released'
  /** Events that wait. */
  events: number
  reason: Partial<Reason>
}

export interface ParkedView {
  list(name: string): Promise<ParkedObject[]>
  /** Handles what waits of this object, in order; then it is as any other. Answers whether it was parked. */
  resume(name: string, object: string): Promise<boolean>
  /** Gives up all that waits of this object; what comes later is handled. Answers how many events. */
  discard(name: string, object: string): Promise<number>
}

export function createParkedView(ask: Ask): ParkedView {
  return {
    list: (name) =>
      ask(name, async ({ redis, keys }) => {
        const all = Object.entries(await redis.hgetall(keys.shelves)).map(([object, text]) => readShelf(object, text))
        return Promise.all(
          all.map(async ({ object, partition, state, reason }) => ({
            object,
            partition,
            state,
            events: await redis.llen(shelfKey(keys, object)),
            reason,
          })),
        )
      }),
    resume: (name, object) =>
      ask(name, async ({ redis, keys }) => {
        const { objects } = await runScript(redis, resumeScript, { keys, scope: 'objects', which: [object] })
        return objects === 1
      }),
    discard: (name, object) =>
      ask(name, ({ redis, keys }) => runScript(redis, discardScript, { keys, scope: 'objects', which: [object] })),
  }
}
