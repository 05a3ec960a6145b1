/** Tells of the webhooks of a shard that were disabled: each time one is, once. What cannot be told now stays in `announced`. */
import type { Telemetry } from '../../runtime/telemetry.ts'
import { announcedScript } from './scripts.ts'
import type { Shard } from './shard.ts'

export interface AnnounceContext {
  telemetry: Telemetry
  /** Tells that a webhook was disabled, once however often it is asked to. */
  announce(name: string, why: string, atMs: number): Promise<void>
}

export class Announcements {
  readonly #context: AnnounceContext
  readonly #shard: Shard
  #isTelling = false

  constructor(context: AnnounceContext, shard: Shard) {
    this.#context = context
    this.#shard = shard
  }

  /** One after the other; each claim says again that there is something to tell. */
  async tell(): Promise<void> {
    if (this.#isTelling) return
    this.#isTelling = true
    try {
      for (const name of await this.#shard.announced()) await this.#tellOf(name)
    } catch {
      // Publishing is refused, or Redis is away: after a later claim.
    } finally {
      this.#isTelling = false
    }
  }

  async #tellOf(name: string): Promise<void> {
    const { announce, telemetry } = this.#context
    const { why, at } = await this.#shard.disabled(name)
    if (why && at) {
      await announce(name, why, Number(at))
      telemetry.emit('webhook.disabled', { webhook: name, why })
    }
    await this.#shard.run(announcedScript, { name, disabledAt: at ?? '' })
  }
}
