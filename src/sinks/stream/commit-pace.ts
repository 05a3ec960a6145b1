/**
 * When the owner of a partition says how far it is.
 *
 *   each       with every event, without waiting
 *   batch      with every batch, and when there is nothing else to do
 *   interval   every so often; Commits keeps that time
 *
 * Except for the interval no more than a hundred events are handled and not in Redis: every fifty a commit goes out, and the
 * one before it has to have arrived before more is handed out. A turn of the event loop in between lets its answer in.
 */
import { setImmediate as nextTurn } from 'node:timers/promises'
import type { Commits, Tell } from '../../group/commits.ts'
import type { ProcessorSettings } from './options.ts'

const maxUncommitted = 100

export interface PaceOptions {
  commits: Commits
  partition: number
  epoch: number
  commit: ProcessorSettings['commit']
  cursor(): number
}

export class CommitPace {
  readonly #options: PaceOptions
  /** Since it was last said, and since a commit went out that will be waited for. */
  #handled = 0
  #uncommitted = 0
  #isNoted = false
  #half: Promise<void> | undefined

  constructor(options: PaceOptions) {
    this.#options = options
  }

  /** So many events were handled at once. Answers what has to be waited for before the next. */
  done(events: number, isLast: boolean): Promise<unknown> | undefined {
    const { commit } = this.#options
    this.#handled += events
    this.#uncommitted += events
    if (typeof commit !== 'object' && this.#uncommitted >= maxUncommitted / 2) return this.#goOut()
    if (commit !== 'batch' || events > 1 || isLast) this.note()
    return undefined
  }

  /** The cursor has moved. */
  note(): void {
    const { commits, partition, epoch } = this.#options
    if (this.#isNoted) return
    this.#isNoted = true
    commits.note(partition, epoch, this.#tell)
  }

  /** Resolves when Redis has it. */
  now({ release }: { release: boolean }): Promise<void> {
    const { commits, partition, epoch } = this.#options
    return commits.now(partition, epoch, this.#tell, { release })
  }

  #goOut(): Promise<unknown> {
    this.#uncommitted = 0
    const before = this.#half
    this.#half = this.now({ release: false })
    return Promise.all([before, nextTurn()])
  }

  /** Asked when the commit goes out: how far it is by then. */
  readonly #tell: Tell = () => {
    const handled = this.#handled
    this.#handled = 0
    this.#isNoted = false
    return { cursor: this.#options.cursor(), handled }
  }
}
