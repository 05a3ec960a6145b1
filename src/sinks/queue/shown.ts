/** What becomes of an item, as a tracked queue may keep it: with its output, and without what is not to be shown. */
import type { Outcome } from '../../lanes/acts.ts'
import { storedReason } from '../../lanes/item.ts'
import { redactorOf } from '../../operations/redact.ts'
import type { QueueSettings } from './options.ts'

const done: Outcome = { kind: 'ack' }

/** For what it was looked through. */
const listOf = ({ track, redact }: QueueSettings): string => (track === false ? '' : redactorOf(redact).list)

/** What a handler's answer makes of its item. */
export const doneWith = (settings: QueueSettings, output: unknown): Outcome =>
  settings.track === false
    ? done
    : { kind: 'done', output: redactorOf(settings.redact).output(output), list: listOf(settings) }

export const shownText = ({ track, redact }: QueueSettings, text: string): string =>
  track === false ? text : redactorOf(redact).text(text)

/** Its reason is cut here, and not before: half a secret would not be recognised. */
export function shownOutcome(settings: QueueSettings, outcome: Outcome): Outcome {
  if (!('reason' in outcome)) return outcome
  const reason = storedReason(shownText(settings, outcome.reason))
  return { ...outcome, reason, list: listOf(settings) }
}
