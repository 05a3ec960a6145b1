/** The dead letters of a processor: look, group by reason, put back in line, give up. */
import { chosenIds, type DeadView, pageOf, reasonsOf } from '../../dead-letters.ts'
import { BusbarError } from '../../errors.ts'
import { runScript } from '../../redis/script.ts'
import { discardScript, keepLimits, redriveScript } from './scripts.ts'
import { type DeadLetter, readLetter, shelfText } from './set-aside.ts'
import type { Ask, Known } from './view.ts'

/** Letters that are redriven are handled in order per object, and before what is newer of it. */
export type StreamDeadView = DeadView<DeadLetter>

const perPage = 500

export function createDeadView(ask: Ask): StreamDeadView {
  return {
    list: (name, options = {}) => ask(name, (known) => pageOf(letters(known), options)),
    reasons: (name, filter = {}) => ask(name, (known) => reasonsOf(letters(known), filter)),
    redrive: (name, which) =>
      ask(name, async (known) => redrive(name, known, await chosenIds(() => letters(known), which))),
    discard: (name, which) =>
      ask(name, async (known) => {
        const { redis, keys } = known
        const ids = await chosenIds(() => letters(known), which)
        return ids.length === 0 ? 0 : runScript(redis, discardScript, { keys, scope: 'letters', which: ids })
      }),
  }
}

/** Oldest first. */
async function* letters(known: Known): AsyncGenerator<DeadLetter> {
  const ids = await known.redis.zrange(known.keys.deadOrder, '0', '-1')
  for (let at = 0; at < ids.length; at += perPage) yield* await lettersOf(known, ids.slice(at, at + perPage))
}

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
  for (const [object, some] of byObject) {
    some.sort((a, b) => a.event.seq - b.event.seq)
    const { partition } = some[0]!
    const lines = some.map(({ id, event }) => ({ id, event: shelfText(event) }))
    const redriven = await runScript(redis, redriveScript, { keys, partition, object, letters: lines })
    if (redriven === 'full') throw BusbarError.of('SHELVES_FULL', { name, ...keepLimits })
    total += redriven
  }
  return total
}
