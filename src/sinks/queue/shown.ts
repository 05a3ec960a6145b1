/** What becomes of an item, as a tracked queue may keep it: with its output, and without what is not to be shown. */
import type { Outcome } from '../../lanes/acts.ts'
import { storedReason } from '../../lanes/item.ts'
import { redactorOf } from '../../operations/redact.ts'
import type { QueueSettings } from './options.ts'

const done: Outcome = { kind: 'ack' }

/** What a handler's answer makes of its item. */
export const doneWith = ({ track, redact }: QueueSettings, output: unknown): Outcome =>
  track === false ? done : { kind: 'done', output: redactorOf(redact).output(output) }

export const shownText = ({ track, redact }: QueueSettings, text: string): string =>
  track === false ? text : redactorOf(redact).text(text)

/** Its reason is cut here, and not before: half a secret would not be recognised. */
export const shownOutcome = (settings: QueueSettings, outcome: Outcome): Outcome =>
  'reason' in outcome ? { ...outcome, reason: storedReason(shownText(settings, outcome.reason)) } : outcome
