/** What only a running process of the namespace does: it brings what is published into queues and webhooks; `busbar up` is its HTTP door. */
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

/** Also true where that cannot be told: the secret is there already, and whoever has it must not lose it over a question. */
export async function hasDoor(bus: CliBus): Promise<boolean> {
  const facts = await bus.workers().catch(() => undefined)
  return facts === undefined || facts.workers.some(({ role }) => role === 'server')
}

export function sayNoDoor(session: Session): void {
  const { out, config } = session
  out.note(
    `No HTTP door is open in namespace ${config.namespace}: the path leads nowhere until one is. \`${commandLine(session, 'up')}\` opens one.`,
  )
}
