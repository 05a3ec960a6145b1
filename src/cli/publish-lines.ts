/**
 * Publishes the lines of a file, in their order per key, with a bounded number in flight.
 *
 *   reading    lines are published as long as there is room; a line that is wrong fails alone
 *   stopping   the end of the file, an interruption, the first failure with `strict`, or an error that is not a line's
 *              fault (Redis is gone): nothing more is read, what is in flight is waited for
 */

import { lineFault, readEventLine } from './event-line.ts'
import { type Line, readLines } from './lines.ts'
import type { CliBus } from './session.ts'

export interface LineFailure {
  line: number
  code: string
  message: string
}

export interface Tally {
  published: number
  /** Of those published: stored by an earlier call with the same idempotency key. */
  duplicates: number
  failed: number
  bytesRead: number
}

export interface PublishLinesOptions {
  bus: CliBus
  source: AsyncIterable<Uint8Array>
  maxLineBytes: number
  maxInFlight: number
  maxBytesInFlight: number
  strict: boolean
  /** Asks to stop before the end of the file. */
  signal: AbortSignal
  failed(failure: LineFailure): void
  progressed(tally: Tally): void
}

export interface PublishLinesEnd extends Tally {
  /** Something else than the end of the file ended it: the rest was not read. */
  stopped: boolean
  /** What ended it that was no line's fault, and the lines that have no answer because of it. */
  fault?: { error: unknown; lines: number[] }
}

export async function publishLines(options: PublishLinesOptions): Promise<PublishLinesEnd> {
  const run = new Run(options)
  const lines = readLines(options.source, { maxBytes: options.maxLineBytes, signal: run.stop })
  for await (const batch of lines) {
    await run.publishEach(batch)
    options.progressed(run.tally)
  }
  const stopped = run.stop.aborted
  await run.room.empty()
  return { ...run.tally, stopped, ...(run.fault ? { fault: run.fault } : {}) }
}

class Run {
  readonly tally: Tally = { published: 0, duplicates: 0, failed: 0, bytesRead: 0 }
  readonly room: Room
  readonly stop: AbortSignal
  fault: PublishLinesEnd['fault']
  readonly #own = new AbortController()
  readonly #options: PublishLinesOptions

  constructor(options: PublishLinesOptions) {
    this.#options = options
    this.room = createRoom(options.maxInFlight, options.maxBytesInFlight)
    this.stop = AbortSignal.any([this.#own.signal, options.signal])
  }

  async publishEach(batch: readonly Line[]): Promise<void> {
    for (const line of batch) {
      if (this.room.isFull()) await this.room.free()
      if (this.stop.aborted) return
      this.tally.bytesRead += line.bytes + 1
      if ('text' in line) this.room.take(line.bytes, this.#publish(line))
      else this.#fail(line, { code: 'EVENT_INVALID', message: `The line ${line.problem}.` })
    }
  }

  async #publish(line: Line & { text: string }): Promise<void> {
    try {
      const { type, data, options } = readEventLine(line.text)
      const { duplicate } = await this.#options.bus.publish(type, data, options)
      this.tally.published += 1
      if (duplicate) this.tally.duplicates += 1
    } catch (error) {
      const found = lineFault(error)
      if (found) this.#fail(line, found)
      else this.#failBlameless(line, error)
    }
  }

  #fail(line: Line, found: { code: string; message: string }): void {
    this.tally.failed += 1
    this.#options.failed({ line: line.number, ...found })
    if (this.#options.strict) this.#own.abort()
  }

  #failBlameless(line: Line, error: unknown): void {
    this.tally.failed += 1
    this.fault ??= { error, lines: [] }
    this.fault.lines.push(line.number)
    this.#own.abort()
  }
}

interface Room {
  isFull(): boolean
  take(size: number, work: Promise<void>): void
  /** Resolves when there is room again. */
  free(): Promise<void>
  /** Resolves when nothing is in flight. */
  empty(): Promise<void>
}

/** Counts what is in flight. */
function createRoom(maxCalls: number, maxBytes: number): Room {
  let calls = 0
  let bytes = 0
  let changed: (() => void) | undefined
  const change = () =>
    new Promise<void>((resolve) => {
      changed = resolve
    })
  const isFull = () => calls >= maxCalls || bytes >= maxBytes
  return {
    isFull,
    take(size, work) {
      calls += 1
      bytes += size
      void work.finally(() => {
        calls -= 1
        bytes -= size
        changed?.()
      })
    },
    async free() {
      while (isFull()) await change()
    },
    async empty() {
      while (calls > 0) await change()
    },
  }
}

/** `[1, 2, 3, 7]` as `1-3, 7`. */
export function ranges(numbers: readonly number[]): string {
  const runs: [number, number][] = []
  for (const number of [...numbers].sort((a, b) => a - b)) {
    const run = runs.at(-1)
    if (run && number === run[1] + 1) run[1] = number
    else runs.push([number, number])
  }
  return runs.map(([first, last]) => (first === last ? `${first}` : `${first}-${last}`)).join(', ')
}
