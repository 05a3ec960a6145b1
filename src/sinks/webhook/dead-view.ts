/** The dead letters of a webhook, each a whole batch: look, group by reason, put back in line, give up. */
import { type AnyLetter, chosenIds, type DeadChoice, type DeadView, pageOf, reasonsOf } from '../../dead-letters.ts'
import { Event } from '../../event.ts'
import { readLetter } from '../../lanes/item.ts'
import { batchOf } from './batch.ts'
import { lettersScript } from './scripts.ts'
import type { Shard } from './shard.ts'
import type { AskWebhook } from './view.ts'

/** Its event is the batch: of the type busbar.batch, of the tenant that has the webhook's name, with the body as its data. */
export interface WebhookLetter extends AnyLetter {
  /** How many are in it. */
  events: number
  /** Of its events. */
  ids: readonly string[]
  sealedAt: number
}

/** A batch that is redriven goes behind what waits, as if never tried. */
export type WebhookDeadView = DeadView<WebhookLetter>

// Bodies are up to a MiB each.
const perPage = 20

export function createDeadView(ask: AskWebhook): WebhookDeadView {
  const settle = (name: string, which: DeadChoice, act: 'redrive' | 'discard') =>
    ask(name, async (webhook) => {
      const { shard, subscription } = webhook
      const chosen = await chosenIds(() => lettersOf(shard, subscription.name), which)
      let settled = 0
      for (let at = 0; at < chosen.length; at += perPage) {
        const page = chosen.slice(at, at + perPage)
        const texts = await shard.dead(page)
        // Ids that someone names may be another webhook's: they lie in the same shard.
        const ids = page.filter((_, i) => texts[i] && readLetter(texts[i]).item.lane === subscription.name)
        settled += await shard.run(lettersScript, { act, ids })
      }
      return settled
    })
  return {
    list: (name, options = {}) =>
      ask(name, (webhook) => pageOf(lettersOf(webhook.shard, webhook.subscription.name), options)),
    reasons: (name, filter = {}) =>
      ask(name, (webhook) => reasonsOf(lettersOf(webhook.shard, webhook.subscription.name), filter)),
    redrive: (name, which) => settle(name, which, 'redrive'),
    discard: (name, which) => settle(name, which, 'discard'),
  }
}

/** Oldest first. */
export async function* lettersOf(shard: Shard, name: string): AsyncGenerator<WebhookLetter> {
  const ids = await shard.deadIds()
  for (let at = 0; at < ids.length; at += perPage)
    for (const text of await shard.dead(ids.slice(at, at + perPage))) {
      const letter = text === null ? undefined : letterOf(text)
      if (letter?.event.tenant === name) yield letter
    }
}

function letterOf(text: string): WebhookLetter {
  const { diedMs, reason, item } = readLetter(text)
  const { id, attempts, events, ids, sealedMs } = batchOf(item)
  const event = new Event(0, sealedMs * 1000, '', item.envelope)
  return { id, event, error: reason, attempts, events, ids, sealedAt: sealedMs, at: diedMs }
}
