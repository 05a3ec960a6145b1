/** Whether events reach queues and webhooks: only a running process of the namespace brings what is published into them. */
import { commandLine } from './invocation.ts'
import type { CliBus, Session } from './session.ts'

/** Every running process routes. */
export async function isRouted(bus: CliBus): Promise<boolean> {
  return (await bus.workers()).workers.length > 0
}

/** Without this a queue with a pattern, or a webhook, just stays empty, and nobody knows why. */
export function sayUnrouted(session: Session): void {
  const { out, config } = session
  out.note(
    `Nothing runs in namespace ${config.namespace}: what is published reaches no queue and no webhook until a process does. ` +
      `\`${commandLine(session, 'up')}\` starts one.`,
  )
}
