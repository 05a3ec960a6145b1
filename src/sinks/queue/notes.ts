/**
 * What handlers say of their operations while they run: how far they are, and lines for people.
 *
 *   quiet     nothing to say
 *   saying    a call is under way; what is said meanwhile goes with the next one, of progress only the last
 *
 * It is for people who look: what a lost Redis keeps from being said is lost. Before its item is settled everything has been said: afterwards
 * it would be too late.
 */
import { storedLine } from '../../lanes/operation.ts'
import type { NoteInput } from '../../lanes/scripts.ts'
import type { LaneStore } from '../../lanes/store.ts'
import type { Redactor } from '../../operations/redact.ts'
import type { Held } from './held.ts'

interface Said {
  /** For which all of it was looked through. */
  list: string
  progress: string
  lines: string[]
  /** The call under way. */
  saying: Promise<void> | undefined
}

// As many as are kept.
const mostLines = 100
const lineLength = 1_000

export class Notes {
  readonly #store: LaneStore
  readonly #said = new Map<Held, Said>()

  constructor(store: LaneStore) {
    this.#store = store
  }

  say(held: Held, { progress, line }: { progress?: unknown; line?: string }, redactor: Redactor): void {
    const said = this.#said.get(held) ?? { list: '', progress: '', lines: [], saying: undefined }
    this.#said.set(held, said)
    // What waits to be said was looked through for less, or for something else.
    if (said.list !== redactor.list) Object.assign(said, { list: redactor.list, progress: '', lines: [] })
    if (progress !== undefined) said.progress = redactor.output(progress)
    if (line !== undefined) said.lines.push(storedLine(redactor.text(line), lineLength))
    if (said.lines.length > mostLines) said.lines.shift()
    if (!said.saying) this.#send(held, said)
  }

  /** Resolves when all that was said of it has been told, or could not be; undefined when nothing was. */
  finish(held: Held): Promise<void> | undefined {
    const said = this.#said.get(held)
    return said && this.#finish(held, said)
  }

  /** Resolves when nothing is under way. */
  async quiet(): Promise<void> {
    await Promise.all([...this.#said.keys()].map((held) => this.finish(held)))
  }

  async #finish(held: Held, said: Said): Promise<void> {
    while (said.saying) await said.saying
    this.#said.delete(held)
  }

  #send(held: Held, said: Said): void {
    const { list, progress, lines } = said
    said.progress = ''
    said.lines = []
    said.saying = this.#tell(held, { list, progress, lines }).then(() => {
      said.saying = undefined
      if (said.progress !== '' || said.lines.length > 0) this.#send(held, said)
    })
  }

  async #tell(held: Held, note: Pick<NoteInput, 'list' | 'progress' | 'lines'>): Promise<void> {
    try {
      await this.#store.note({ token: held.lease.token, id: held.item.id, ...note })
    } catch {
      // Redis is away: whoever settles the item hears of it too.
    }
  }
}
