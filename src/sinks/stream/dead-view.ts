/** The dead letters of a processor: look, put back in line, give up. */
import { BusbarError } from '../../errors.ts'
import { runScript } from '../../redis/script.ts'
import { discardScript, keepLimits, redriveScript } from './scripts.ts'
import { type DeadLetter, readLetter, shelfText } from './set-aside.ts'
import type { Ask, Known } from './view.ts'

export interface DeadView {
  /** Oldest first. */
  list(name: string, options?: { limit?: number; offset?: number }): Promise<DeadLetter[]>
  /** Handles them again, in order per object and before what is newer of it. Answers how many. */
  redrive(name: string, ids: readonly string[] | 'all'): Promise<number>
  discard(name: string, ids: readonly string[] | 'all'): Promise<number>
}

const defaultLimit = 100

export function createDeadView(ask: Ask): DeadView {
  return {
    list: (name, { limit = defaultLimit, offset = 0 } = {}) =>
      ask(name, async (known) => {
        // A number below zero would count from the end.
        const first = Math.max(0, offset)
        const last = first + Math.max(1, limit) - 1
        const ids = await known.redis.zrange(known.keys.deadOrder, String(first), String(last))
        return lettersOf(known, ids)
      }),
    redrive: (name, ids) => ask(name, async (known) => redrive(name, known, await idsOf(known, ids))),
    discard: (name, ids) =>
      ask(name, async (known) => {
        const { redis, keys } = known
        const which = await idsOf(known, ids)
        return which.length === 0 ? 0 : runScript(redis, discardScript, { keys, scope: 'letters', which })
      }),
  }
}

const idsOf = async ({ redis, keys }: Known, ids: readonly string[] | 'all'): Promise<readonly string[]> =>
  ids === 'all' ? redis.zrange(keys.deadOrder, '0', '-1') : ids

async function lettersOf({ redis, keys }: Known, ids: readonly string[]): Promise<DeadLetter[]> {
  if (ids.length === 0) return []
  const texts = await redis.hmget(keys.dead, ...ids)
  return texts.filter((text) => text !== null).map(readLetter)
}

async function redrive(name: string, known: Known, ids: readonly string[]): Promise<number> {
  const { redis, keys } = known
  const byObject = new Map<string, DeadLetter[]>()
  for (const letter of await lettersOf(known, ids))
    byObject.set(letter.object, [...(byObject.get(letter.object) ?? []), letter])
  let total = 0
  for (const [object, letters] of byObject) {
    letters.sort((a, b) => a.event.seq - b.event.seq)
    const { partition } = letters[0]!
    const lines = letters.map(({ id, event }) => ({ id, event: shelfText(event) }))
    const redriven = await runScript(redis, redriveScript, { keys, partition, object, letters: lines })
    if (redriven === 'full') throw BusbarError.of('SHELVES_FULL', { name, ...keepLimits })
    total += redriven
  }
  return total
}
