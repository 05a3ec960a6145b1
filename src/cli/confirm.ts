/** A question to the person at the terminal. Whoever is not at one is not asked, and has to have said --yes. */
import { createInterface } from 'node:readline'
import { type ExitCode, exitCodes } from './exit.ts'
import type { Io } from './output.ts'
import type { Session } from './session.ts'

export interface Asked {
  /** What is at stake, where it is not said yet. */
  said?: string
  question: string
  /** Ends "Add --yes to …". */
  toDoIt: string
}

/** How the command ends if it may not go on; undefined after a yes. */
export async function refusal({ out, io }: Session, { said, question, toDoIt }: Asked): Promise<ExitCode | undefined> {
  if (said !== undefined) out.note(said)
  if (out.json || !canAsk(io)) {
    out.note(`Nothing was changed. Add --yes to ${toDoIt}.`)
    return exitCodes.usage
  }
  if (await confirm(io, question)) return undefined
  out.note('Nothing was changed.')
  return exitCodes.failed
}

const canAsk = ({ stdin, stderr }: Io): boolean => Boolean(stdin.isTTY && stderr.isTTY)

/** Anything but a yes is a no, the end of the input too. */
async function confirm({ stdin, stderr }: Io, question: string): Promise<boolean> {
  const lines = createInterface({ input: stdin, terminal: false })
  stderr.write(`${question} [y/N] `)
  const answer = await new Promise<string>((resolve) => {
    lines.once('line', resolve)
    lines.once('close', () => resolve(''))
  })
  lines.close()
  return /^y(es)?$/i.test(answer.trim())
}
