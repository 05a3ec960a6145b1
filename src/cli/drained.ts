/** What `--drain` says at its end. */
import type { Left } from '../index.ts'
import { type ExitCode, exitCodes } from './exit.ts'
import { commandLine } from './invocation.ts'
import { leftLines } from './queue-tables.ts'
import type { Session } from './session.ts'
import type { Tallied } from './tally.ts'

/** Done, unless something waits that cannot be given. */
export async function sayDrained({ out }: Session, left: readonly Left[], tallied?: Tallied): Promise<ExitCode> {
  if (out.json) await out.printJson({ drained: true, ...tallied, left })
  else for (const line of leftLines(left)) out.note(line)
  return left.some(({ waiting }) => waiting > 0) ? exitCodes.failed : exitCodes.ok
}

/** The last line of `busbar work --drain`: what became of the items of its queue. */
export function tallyLine(session: Session, queue: string, left: readonly Left[], tallied: Tallied): string {
  const { done, failed, dead, parked } = tallied
  if (done + failed + dead + parked === 0)
    return left.some(({ waiting }) => waiting > 0) ? 'drained: nothing could be given' : 'drained: nothing was waiting'
  const counts = `drained: ${done} done, ${failed} failed, ${dead} dead${parked === 0 ? '' : `, ${parked} parked`}`
  const shows = [...(dead === 0 ? [] : [`dead ls ${queue}`]), ...(parked === 0 ? [] : [`queue parked ${queue}`])]
  const commands = shows.map((command) => `\`${commandLine(session, command)}\``)
  return shows.length === 0
    ? counts
    : `${counts}; ${commands.join(' and ')} ${shows.length === 1 ? 'shows' : 'show'} why`
}
