/**
 * Publishes the lines of a file, in their order per key, with a bounded number in flight.
 *
 *   reading    lines are published as long as there is room; a line that is wrong fails alone
 *   stopping   the end of the file, an interruption, the first failure with `strict`, or an error that is not a line's
 *              fault (Redis is gone): nothing more is read, what is in flight is waited for
 */

import { lineFault, readEventLine } from './event-line.ts'
import type { Line } from './lines.ts'
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
  lines: AsyncIterable<Line[]>
  maxInFlight: number
  maxBytesInFlight: number
  strict: boolean
  signal: AbortSignal
  failed(failure: LineFailure): void
  progressed(tally: Tally): void
}

export interface PublishLinesEnd extends Tally {
  /** Neither the end of the file nor an error. */
  interrupted: boolean
  /** What ended it that was no line's fault, and the lines that were in flight then and have no answer. */
  fault?: { error: unknown; lines: number[] }
}

export async function publishLines(options: PublishLinesOptions): Promise<PublishLinesEnd> {
  const { bus, lines, strict, signal } = options
  const tally: Tally = { published: 0, duplicates: 0, failed: 0, bytesRead: 0 }
  const room = createRoom(options.maxInFlight, options.maxBytesInFlight)
  let fault: PublishLinesEnd['fault']
  let complete = false

  const isStopping = () => signal.aborted || fault !== undefined || (strict && tally.failed > 0)

  function fail(line: Line, error: unknown): void {
    const found = lineFault(error)
    tally.failed += 1
    if (found) return options.failed({ line: line.number, ...found })
    fault ??= { error, lines: [] }
    fault.lines.push(line.number)
  }

  async function publish(line: Line & { text: string }): Promise<void> {
    try {
      const { type, data, options: more } = readEventLine(line.text)
      const { duplicate } = await bus.publish(type, data, more)
      tally.published += 1
      if (duplicate) tally.duplicates += 1
    } catch (error) {
      fail(line, error)
    }
  }

  async function publishEach(batch: readonly Line[]): Promise<void> {
    for (const line of batch) {
      if (room.isFull) await room.free()
      if (isStopping()) return
      tally.bytesRead += line.bytes + 1
      if ('problem' in line) {
        tally.failed += 1
        options.failed({ line: line.number, code: 'EVENT_INVALID', message: `The line ${line.problem}.` })
      } else room.take(line.bytes, publish(line))
    }
  }

  for await (const batch of lines) {
    await publishEach(batch)
    options.progressed(tally)
    if (isStopping()) break
  }
  complete = !isStopping()
  await room.empty()
  return { ...tally, interrupted: signal.aborted && !complete, ...(fault ? { fault } : {}) }
}

/** Counts what is in flight. */
function createRoom(maxCalls: number, maxBytes: number) {
  let calls = 0
  let bytes = 0
  let changed: (() => void) | undefined
  const change = () =>
    new Promise<void>((resolve) => {
      changed = resolve
    })
  const isFull = () => calls >= maxCalls || bytes >= maxBytes
  return {
    get isFull() {
      return isFull()
    },
    take(size: number, work: Promise<void>): void {
      calls += 1
      bytes += size
      void work.finally(() => {
        calls -= 1
        bytes -= size
        changed?.()
      })
    },
    async free(): Promise<void> {
      while (isFull()) await change()
    },
    async empty(): Promise<void> {
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
