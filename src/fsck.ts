/**
 * Checks that everything stored is as it must be, while it is in use: the keys, the log, the table of subscriptions, the queues, the webhooks.
 *
 * Nothing here writes, and nothing sound is reported: what is judged is read at one instant, or only judged when nothing changed
 * meanwhile, and what looks wrong is looked at again. Redis is asked in bounded steps.
 */
import type { Finding } from './fsck-checks.ts'
import { checkLog } from './log/fsck.ts'
import { checkKeys } from './log/fsck-keys.ts'
import type { LogSource } from './log/view.ts'
import { checkRoutes } from './route/fsck.ts'
import { checkQueues } from './sinks/queue/fsck.ts'
import { checkWebhooks } from './sinks/webhook/fsck.ts'

export { type Finding, type FsckCheck, fsckChecks } from './fsck-checks.ts'

/** Everything that is wrong, found one by one. Where all is well: nothing. */
export async function* fsck(source: LogSource): AsyncGenerator<Finding, void, undefined> {
  const mistyped = yield* checkKeys(source)
  yield* checkLog(source, mistyped)
  yield* checkRoutes(source, mistyped)
  yield* checkQueues(source, mistyped)
  yield* checkWebhooks(source, mistyped)
}
