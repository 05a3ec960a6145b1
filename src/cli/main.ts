#!/usr/bin/env node
/** Runs the command line. Whatever goes wrong in any command is said here, once, and becomes the exit code. */
import { realpathSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import type { Command } from 'commander'
import { describeFailure, type ExitCode, exitCodeOfHelp, exitCodes } from './exit.ts'
import { createOutput, type Io, type Output } from './output.ts'
import { printable } from './printable.ts'
import { createProgram, type Runner } from './program.ts'
import { createSession, type Session } from './session.ts'

export async function main(io: Io): Promise<ExitCode> {
  const out = createOutput(io, { json: ownWords(io.argv).includes('--json') })
  let session: Session | undefined
  let exitCode: ExitCode = exitCodes.ok

  const run: Runner =
    (work) =>
    async (...given) => {
      const command = given.at(-1) as Command
      session = createSession(io, out, command.optsWithGlobals())
      exitCode = await work(session, ...(given.slice(0, -1) as never))
    }

  try {
    await createProgram(run, io).parseAsync(io.argv, { from: 'user' })
    return exitCode
  } catch (error) {
    return exitCodeOfHelp(error) ?? sayFailure(error, out, session)
  }
}

function sayFailure(error: unknown, out: Output, session: Session | undefined): ExitCode {
  const { exitCode, code, message, retryable } = describeFailure(error)
  const cause = retryable ? session?.redisProblem : undefined
  const stack = session?.config.log.level === 'debug' && error instanceof Error ? stackOf(error) : undefined
  if (out.json) {
    out.noteJson({ error: { code, message, retryable, cause, stack } })
    return exitCode
  }
  const lines = message.split('\n').map(printable).join('\n')
  out.note(`${out.errorColors.red(`error ${code}:`)} ${lines}`)
  if (cause) out.note(`The last attempt to reach Redis ended with: ${printable(cause)}`)
  if (stack) out.note(stack.split('\n').map(printable).join('\n'))
  return exitCode
}

/** What comes after `--` is a command of someone else's. */
function ownWords(argv: readonly string[]): readonly string[] {
  const end = argv.indexOf('--')
  return end === -1 ? argv : argv.slice(0, end)
}

/** Of what was wrong in the first place: in a module that was to be loaded, say. */
const stackOf = (error: Error): string | undefined => (error.cause instanceof Error ? error.cause : error).stack

// Not when a test imports it. npm's link in node_modules/.bin leads here too.
if (process.argv[1] && realpathSync(process.argv[1]) === fileURLToPath(import.meta.url)) {
  process.exitCode = await main({
    argv: process.argv.slice(2),
    env: process.env,
    cwd: process.cwd(),
    stdin: process.stdin,
    stdout: process.stdout,
    stderr: process.stderr,
  })
}
