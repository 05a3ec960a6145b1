/** What `--drain` says at its end. */
import type { Left } from '../index.ts'
import { type ExitCode, exitCodes } from './exit.ts'
import { leftLines } from './queue-tables.ts'
import type { Session } from './session.ts'

/** Done, unless something waits that cannot be given. */
export async function sayDrained({ out }: Session, left: readonly Left[]): Promise<ExitCode> {
  if (out.json) await out.printJson({ drained: true, left })
  else for (const line of leftLines(left)) out.note(line)
  return left.some(({ waiting }) => waiting > 0) ? exitCodes.failed : exitCodes.ok
}
