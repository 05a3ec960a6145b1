/** `busbar streams reset`: says what it means, asks, does it. Nothing is changed before a yes. */
import type { ResetFacts, ResetTo } from '../index.ts'
import { refusal } from './confirm.ts'
import { type ExitCode, exitCodes } from './exit.ts'
import type { Session } from './session.ts'
import { resetLines } from './stream-tables.ts'

export interface ResetOptions {
  to: ResetTo
  preview?: boolean
  yes?: boolean
}

export async function resetStream(session: Session, name: string, options: ResetOptions): Promise<ExitCode> {
  const { out, withBus } = session
  const { to, preview = false, yes = false } = options
  return withBus(async ({ streams }) => {
    const meant = await streams.reset(name, to, { preview: true })
    if (preview || !yes) await say(session, meant, false)
    if (preview) return exitCodes.ok
    const refused = yes ? undefined : await refusal(session, { question: `Reset ${name}?`, toDoIt: 'do it' })
    if (refused !== undefined) return refused
    const done = await streams.reset(name, to)
    if (yes) await say(session, done, true)
    if (!out.json) await out.print(`${name} goes on from there.`)
    return exitCodes.ok
  })
}

async function say({ out }: Session, facts: ResetFacts, done: boolean): Promise<void> {
  if (out.json) await out.printJson({ done, ...facts })
  else for (const line of resetLines(facts, out)) await out.print(line)
}
