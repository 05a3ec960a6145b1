/** An operation as people see it. */
import type { Header } from '../envelope.ts'
import { BusbarError, shown } from '../errors.ts'
import type { OperationRow, OperationState } from '../lanes/operation.ts'

export interface OperationSummary {
  /** "<queue>.<random>", or "<queue>.<event id>" of an event that was routed. */
  id: string
  queue: string
  status: OperationState
  /** Whether a person asked for it, and by which request. */
  kind: 'manual' | 'automatic'
  requestId: string | null
  /** The trigger that started it. */
  trigger: string | null
  tenant: string
  key: string | null
  /** Of the event; of what was sent, the queue's name. */
  type: string
  /** The event that it is; null for what was sent. */
  event: string | null
  /** ms, by the server's clock. `startedAt` is of the last attempt. */
  queuedAt: number
  startedAt: number | null
  finishedAt: number | null
  /** It is queued, and waits until then: it was sent for later, or is to be tried again. */
  dueAt: number | null
  /** Those that have begun. */
  attempts: number
  /** Who has it, or had it last. */
  worker: string | null
  /** It runs, and someone wants it cancelled. */
  cancelling: boolean
}

export interface Operation extends OperationSummary {
  input: unknown
  output: unknown
  /** Why it failed, or why its last attempt did. */
  error: string | null
  progress: unknown
  log: readonly string[]
}

const eventShape = /^\d+-\d+$/
const idShape = /^([a-z0-9][a-z0-9_-]{0,63})\.([\w-]{1,64})$/

export interface OperationPlace {
  queue: string
  /** As its store knows it. */
  name: string
  /** Of its item. */
  itemId: string
}

/** OPERATION_NOT_FOUND for what cannot be an id: nobody was ever given it. */
export function placeOf(id: string): OperationPlace {
  const place = readPlace(id)
  if (!place) throw notFound(id)
  return place
}

/** Undefined for what cannot be an id. */
export function readPlace(id: string): OperationPlace | undefined {
  const [, queue, name] = idShape.exec(String(id)) ?? []
  return queue === undefined || name === undefined
    ? undefined
    : { queue, name, itemId: eventShape.test(name) ? name : id }
}

export const notFound = (id: unknown, because?: string): BusbarError =>
  BusbarError.of('OPERATION_NOT_FOUND', { id: shown(id), because })

export function summaryOf(queue: string, row: OperationRow): OperationSummary {
  const { name, state, version: _, attempts, queuedMs, beganMs, endedMs, dueMs, worker, isCancelAsked } = row
  const {
    kind = 'automatic',
    request = null,
    trigger = null,
    tenant,
    key = null,
    type,
  } = JSON.parse(row.header) as Header
  return {
    ...{ id: `${queue}.${name}`, queue, status: state, kind, requestId: request, trigger, tenant, key, type },
    event: eventShape.test(name) ? name : null,
    ...{ queuedAt: queuedMs, startedAt: beganMs || null, finishedAt: endedMs || null },
    ...{ dueAt: dueMs || null, attempts },
    ...{ worker: worker === '-' ? null : worker, cancelling: state === 'running' && isCancelAsked },
  }
}

export function operationOf(queue: string, row: OperationRow): Operation {
  const { input, result, progress, lines } = row.detail!
  const isDone = row.state === 'succeeded'
  return {
    ...summaryOf(queue, row),
    ...{ input: parsed(input), output: isDone ? parsed(result) : null, progress: parsed(progress) },
    ...{ error: isDone || result === '' ? null : result, log: lines },
  }
}

/** Data of other publishers may be anything. */
function parsed(json: string): unknown {
  if (json === '') return null
  try {
    return JSON.parse(json)
  } catch {
    return { omitted: 'input that is not JSON' }
  }
}
