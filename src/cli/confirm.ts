/** A question to the person at the terminal. Whoever is not at one is not asked. */
import { createInterface } from 'node:readline'
import type { Io } from './output.ts'

export const canAsk = ({ stdin, stderr }: Io): boolean => Boolean(stdin.isTTY && stderr.isTTY)

/** Anything but a yes is a no, the end of the input too. */
export async function confirm({ stdin, stderr }: Io, question: string): Promise<boolean> {
  const lines = createInterface({ input: stdin, terminal: false })
  stderr.write(`${question} [y/N] `)
  const answer = await new Promise<string>((resolve) => {
    lines.once('line', resolve)
    lines.once('close', () => resolve(''))
  })
  lines.close()
  return /^y(es)?$/i.test(answer.trim())
}
