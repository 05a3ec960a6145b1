/** What becomes of an item, as a tracked queue may keep it: with its output, and without what is not to be shown. */
import type { Outcome } from '../../lanes/acts.ts'
import { redactorOf } from '../../operations/redact.ts'
import type { QueueSettings } from './options.ts'

const done: Outcome = { kind: 'ack' }

/** What a handler's answer makes of its item. */
export const doneWith = ({ track, redact }: QueueSettings, output: unknown): Outcome =>
  track === false ? done : { kind: 'done', output: redactorOf(redact).output(output) }

export const shownOutcome = ({ track, redact }: QueueSettings, outcome: Outcome): Outcome =>
  track !== false && 'reason' in outcome ? { ...outcome, reason: redactorOf(redact).text(outcome.reason) } : outcome
