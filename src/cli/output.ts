/**
 * Where a command says things: results on stdout, everything about the run on stderr.
 *
 *   open     lines are written, as fast as the reader takes them
 *   closed   the reader has gone (`| head`): nothing is written any more, and `closed` tells who would go on for ever
 */
import { once } from 'node:events'
import type { Readable } from 'node:stream'
import pc from 'picocolors'
import { oneLine, printableJson } from './printable.ts'

export type Colors = ReturnType<typeof pc.createColors>
export type Terminal = NodeJS.WritableStream & { isTTY?: boolean; columns?: number }

/** What of the process a command may use. */
export interface Io {
  readonly argv: readonly string[]
  readonly env: Readonly<Record<string, string | undefined>>
  readonly cwd: string
  readonly stdin: Readable & { readonly isTTY?: boolean }
  readonly stdout: Terminal
  readonly stderr: Terminal
}

export interface Output {
  readonly json: boolean
  readonly colors: Colors
  readonly errorColors: Colors
  /** Columns of the terminal; undefined when the results go elsewhere. */
  readonly columns: number | undefined
  /** Aborted when nobody reads the results any more. */
  readonly closed: AbortSignal
  /** A line of the result. */
  print(line: string): Promise<void>
  /** A result as one line of JSON. */
  printJson(value: unknown): Promise<void>
  /** A result that is JSON text already. */
  printJsonText(text: string): Promise<void>
  /** A line about the run. */
  note(line: string): void
  /** The same as one line of JSON. */
  noteJson(value: unknown): void
}

export function createOutput({ stdout, stderr, env }: Io, { json }: { json: boolean }): Output {
  const closed = new AbortController()
  stdout.on('error', (error: NodeJS.ErrnoException) => {
    if (error.code !== 'EPIPE') throw error
    closed.abort()
  })
  // Whoever closed stderr does not want to hear about the run.
  stderr.on('error', () => {})

  async function print(line: string): Promise<void> {
    if (closed.signal.aborted || stdout.write(`${line}\n`)) return
    await once(stdout, 'drain', { signal: closed.signal }).catch(() => {})
  }

  return {
    json,
    colors: colorsFor(stdout, env),
    errorColors: colorsFor(stderr, env),
    get columns() {
      return stdout.isTTY ? stdout.columns : undefined
    },
    closed: closed.signal,
    print,
    printJson: (value) => print(terminalJson(JSON.stringify(value))),
    printJsonText: (text) => print(terminalJson(text)),
    note: (line) => void stderr.write(`${line}\n`),
    noteJson: (value) => void stderr.write(`${printableJson(JSON.stringify(value))}\n`),
  }

  function terminalJson(text: string): string {
    return stdout.isTTY ? printableJson(text) : oneLine(text)
  }
}

/** Only on a terminal, and never against NO_COLOR. */
export function colorsFor(stream: Terminal, env: Io['env']): Colors {
  return pc.createColors(Boolean(stream.isTTY) && !env.NO_COLOR && env.TERM !== 'dumb')
}
