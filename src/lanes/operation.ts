/** An operation as a store has it: what becomes of one item of a tracked queue. operations.part.lua writes it. */

import { keyOf } from '../envelope.ts'

/** How a queue is tracked. `hides`: the list of what is not to be shown (Redactor.list); what was not looked through for it is not kept. */
export interface Track {
  mode: 'all' | 'failures'
  hides: string
}

/** '' when it is not. */
export const trackWords = (track: Track | undefined): string => (track ? `${track.mode} ${track.hides}` : '')

/** In the order of their numbers in a record, from 1 on. */
export const operationStates = ['queued', 'running', 'succeeded', 'failed', 'cancelled'] as const
export type OperationState = (typeof operationStates)[number]

export interface OperationRow {
  name: string
  state: OperationState
  /** Rises with every change. */
  version: number
  /** Those that have begun. */
  attempts: number
  queuedMs: number
  /** 0: it has not begun, or not ended. */
  beganMs: number
  endedMs: number
  /** It waits for this time; 0: for none. */
  dueMs: number
  /** Who has, or had it last; '-' for nobody. */
  worker: string
  isCancelAsked: boolean
  /** Header line of its envelope. */
  header: string
  detail: OperationDetail | undefined
}

export interface OperationDetail {
  /** JSON; '' when it is not kept. */
  input: string
  /** Output as JSON, or the error. */
  result: string
  /** JSON; '' when nothing was said. */
  progress: string
  lines: readonly string[]
}

const separator = '\x1e'

export function readRow(row: readonly string[]): OperationRow {
  const [name, state, version, attempts, queued, began, ended, due, worker, asked, header, input, result, notes] = row
  return {
    ...{
      name: name!,
      state: operationStates[Number(state) - 1]!,
      version: Number(version),
      attempts: Number(attempts),
    },
    ...{ queuedMs: Number(queued), beganMs: Number(began), endedMs: Number(ended), dueMs: Number(due) },
    ...{ worker: worker!, isCancelAsked: asked === '1', header: header! },
    detail: input === undefined ? undefined : { input, result: result!, ...readNotes(notes!) },
  }
}

/** "<progress>\30<line>\30…" */
function readNotes(notes: string): { progress: string; lines: string[] } {
  const [progress = '', ...lines] = notes.split(separator)
  return { progress, lines: lines.slice(0, -1) }
}

/** A line as it may be stored, on its own between separators. */
export const storedLine = (line: string, most: number): string =>
  line.slice(0, most).toWellFormed().replaceAll(separator, ' ')

/** An operation is named by its item: the event that it is, or what is behind the dot of its id. */
export const operationName = (itemId: string): string => itemId.slice(itemId.indexOf('.') + 1)

const keyStart = '","key":"'

/** The key of an item's envelope; undefined without one. */
function keyIn(item: string): string | undefined {
  const headerAt = item.indexOf('\n') + 1
  const start = item.indexOf(keyStart, headerAt)
  if (start === -1 || start > item.indexOf('\n', headerAt)) return undefined
  const key = item.slice(start + keyStart.length, item.indexOf('"', start + keyStart.length))
  if (!key.includes('\\')) return key
  const escaped = keyOf(item.slice(headerAt))
  // Scripts do not read half of a surrogate pair.
  return escaped?.isWellFormed() ? escaped : undefined
}

/**
 * Of an item that comes by its route, which nobody has tried: its operation, and where that stands in the index (operation-index.part.lua); nowhere
 * without a key.
 */
export function routedOperation(
  lane: string,
  item: string,
): { name: string; object: string; entry: string } | { name: string; object?: undefined; entry?: undefined } {
  const idEnd = item.indexOf(' ')
  const name = operationName(item.slice(0, idEnd))
  const key = keyIn(item)
  if (key === undefined) return { name }
  const object = `${lane}/${key}`
  const msAt = idEnd + `0 ${lane} 0 0 `.length + 1
  const ms = item.slice(msAt, item.indexOf(' ', msAt))
  const hasItsTime = name.slice(name.indexOf('-') + 1, -3) === ms
  const entry = hasItsTime ? name : `${String.fromCharCode(96 + ms.length)}${ms} ${name}`
  return { name, object: `${Buffer.byteLength(object)} ${object} `, entry }
}

/** Ended operations are kept for so long; inputs and outputs up to this size. */
export const operationLimits = {
  keepMs: 86_400_000,
  inputBytes: 16_384,
  outputBytes: 16_384,
} as const
