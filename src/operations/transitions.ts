/**
 * What an operation can be, and what makes what of it. The scripts of lanes/ do it, where they move the item; this table says what they may.
 *
 *   queued      its item waits: in line, behind another of its object, or for a time
 *   running     its item is held under a lease
 *   succeeded   its item was acked
 *   failed      its item was given up: a dead letter, parked, expired, or dropped for newer ones
 *   cancelled   someone did not want it any more
 *
 * The last three are the end, but for one: a dead letter that is redriven, or a parked object that is resumed, begins anew, and its next end
 * counts as well.
 */
import type { OperationState } from '../lanes/operation.ts'

export type OperationCause =
  | 'entered'
  | 'claimed'
  | 'done'
  | 'retried'
  | 'handed-back'
  | 'lapsed'
  | 'given-up'
  | 'expired'
  | 'dropped'
  | 'cancelled'
  | 'discarded'
  | 'redriven'

/** `none`: there is no such operation yet. */
export const transitions = {
  none: { entered: 'queued' },
  queued: {
    claimed: 'running',
    expired: 'failed',
    dropped: 'failed',
    'given-up': 'failed',
    cancelled: 'cancelled',
    discarded: 'cancelled',
  },
  running: {
    done: 'succeeded',
    retried: 'queued',
    'handed-back': 'queued',
    lapsed: 'queued',
    'given-up': 'failed',
    cancelled: 'cancelled',
  },
  succeeded: {},
  failed: { redriven: 'queued' },
  cancelled: {},
} as const satisfies Record<OperationState | 'none', Partial<Record<OperationCause, OperationState>>>

export type OperationEnd = 'succeeded' | 'failed' | 'cancelled'

export const isEnd = (state: OperationState): state is OperationEnd =>
  state === 'succeeded' || state === 'failed' || state === 'cancelled'

/** Whether one can follow the other in so many steps. */
export function canFollow(from: OperationState | 'none', to: OperationState, steps: number): boolean {
  if (steps <= 0) return steps === 0 && from === to
  return Object.values(transitions[from]).some((next) => canFollow(next, to, steps - 1))
}
