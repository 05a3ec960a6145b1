/** How a command ends: what a script can tell from the exit code, and what is said about an error. */
import { CommanderError } from 'commander'
import { describeSettings } from '../config.ts'
import { didYouMean } from '../did-you-mean.ts'
import { BusbarError, type ErrorCode } from '../errors.ts'

export const exitCodes = {
  ok: 0,
  /** The work failed, or a check found something. */
  failed: 1,
  /** The command line or a setting is wrong: the same command fails again. */
  usage: 2,
  /** Redis did not answer or had no room: the same command may succeed later. */
  unavailable: 3,
} as const

export type ExitCode = (typeof exitCodes)[keyof typeof exitCodes]

export interface Failure {
  exitCode: ExitCode
  code: ErrorCode | 'USAGE'
  message: string
  retryable: boolean
}

const mistakes: readonly ErrorCode[] = [
  'SETTING_INVALID',
  'PARAMETER_INVALID',
  'PATTERN_INVALID',
  'CURSOR_INVALID',
  'WEBHOOK_URL_REFUSED',
  'WEBHOOK_HEADERS_INVALID',
  'PARTITIONS_MISMATCH',
  'NOT_DECLARED',
  'MODULE_NOT_FOUND',
  'BUS_NOT_EXPORTED',
]

export function describeFailure(error: unknown): Failure {
  if (isBusbarError(error)) {
    const { code, message, retryable } = error
    return { exitCode: exitCodeOf(error), code, message, retryable }
  }
  if (error instanceof CommanderError) {
    return { exitCode: exitCodes.usage, code: 'USAGE', message: usageMessage(error), retryable: false }
  }
  const message = error instanceof Error ? error.message : String(error)
  return { exitCode: exitCodes.failed, code: 'INTERNAL', message, retryable: false }
}

/** Also one of another copy of this package: a worker's bus may come from there. */
function isBusbarError(error: unknown): error is BusbarError {
  return error instanceof BusbarError || (error instanceof Error && error.name === 'BusbarError' && 'code' in error)
}

/** Commander itself looks for what was meant only among the flags that its help shows. */
function usageMessage(error: CommanderError): string {
  const message = error.message.replace(/^error: /, '').replace(/\n/g, ' ')
  const flag = error.code === 'commander.unknownOption' && /'(--[^']+)'$/.exec(message)?.[1]
  const meant = flag && didYouMean(flag, ['--json', ...describeSettings().map((setting) => setting.flag)])
  return meant ? `${message} (Did you mean ${meant}?)` : message
}

function exitCodeOf({ code, retryable }: BusbarError): ExitCode {
  if (mistakes.includes(code)) return exitCodes.usage
  return retryable ? exitCodes.unavailable : exitCodes.failed
}

/** Help and version end the parsing like errors do; help that nobody asked for says that a command is missing. */
export function exitCodeOfHelp(error: unknown): ExitCode | undefined {
  if (!(error instanceof CommanderError)) return undefined
  if (error.exitCode === 0) return exitCodes.ok
  return error.code === 'commander.help' ? exitCodes.usage : undefined
}
