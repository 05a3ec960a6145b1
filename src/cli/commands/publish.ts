/** `busbar publish`: one event from the command line, or those of a file with `--file`. */
import type { Command } from 'commander'
import type { Duration } from '../../duration.ts'
import { BusbarError, shown } from '../../errors.ts'
import { RawJson } from '../../event.ts'
import type { Delayed, Published } from '../../index.ts'
import { timeForms } from '../../time.ts'
import { quotingError, readStdin } from '../data-argument.ts'
import { type ExitCode, exitCodes } from '../exit.ts'
import { timeOption } from '../options.ts'
import type { Colors } from '../output.ts'
import type { AddCommand } from '../program.ts'
import { publishFile } from '../publish-file.ts'
import type { Session } from '../session.ts'

interface Options {
  tenant?: string
  key?: string
  time?: number
  trace?: string
  idempotencyKey?: string
  expectPrev?: string
  delay?: string
  at?: number
  file?: string
  strict?: boolean
}

export const addPublish: AddCommand = (program, run) => {
  const command: Command = program
    .command('publish')
    .description('publish one event, or those of a file')
    .argument('[type]', 'what happened, such as order.paid')
    .argument('[data]', 'JSON, published byte for byte; - reads it from stdin (default: null)')
    .option('--tenant <name>', 'whose event it is (default: default)')
    .option('--key <key>', 'what it is about, such as order:42; events of one key stay in order')
    .option('--time <time>', timeForms, timeOption('time'))
    .option('--trace <text>', 'goes along with the event')
    .option('--idempotency-key <key>', 'the same one again within 24 hours stores nothing')
    .option('--expect-prev <seq>', 'refuse unless this is the last seq of the key; none for its first')
    .option(
      '--delay <duration>',
      'not visible before that long from now, such as 5m; needs a process that runs in the same namespace',
    )
    .option('--at <time>', `not visible before then: ${timeForms}`, timeOption('at'))
    .option(
      '--file <path>',
      'one JSON object per line: type, data, tenant, key, time, trace, idempotencyKey; - is stdin',
    )
    .option('--strict', 'with --file: stop at the first line that fails')
    .action(
      run((session, type: string | undefined, data: string | undefined, options: Options): Promise<ExitCode> => {
        if (options.file !== undefined) {
          if (type !== undefined) command.error('give either a type or --file, not both')
          return publishFile(session, options.file, { strict: options.strict ?? false })
        }
        if (type === undefined) return command.error('give the type of the event, or --file')
        return publishOne(session, type, data, options)
      }),
    )
}

async function publishOne(session: Session, type: string, given: string | undefined, options: Options) {
  const { out, io } = session
  const data = given === '-' ? await readStdin(io.stdin) : given
  const { file, strict, expectPrev, delay, at, ...more } = options
  const call = expectPrev === undefined ? more : { ...more, expectPrev: readPrev(expectPrev) }
  const json = data === undefined ? undefined : new RawJson(data)
  const answer = await session
    .withBus<Published | Delayed>((bus) =>
      delay === undefined && at === undefined
        ? bus.publish(type, json, call)
        : bus.publish(type, json, { ...call, delay: delay as Duration | undefined, at }),
    )
    .catch((error) => {
      throw given === '-' ? flagError(error) : quotingError(flagError(error))
    })
  if (out.json) await out.printJson(answer)
  else await out.print(answerLine(answer, out.colors))
  return exitCodes.ok
}

/** Which times an event may wait for is the bus's to say; on a command line a wrong one is a wrong flag. */
function flagError(error: unknown): unknown {
  if (!(error instanceof BusbarError) || error.code !== 'EVENT_INVALID') return error
  const { field, value, problem } = error.details as { field: string; value: string; problem: string }
  if (field !== 'delay' && field !== 'at') return error
  return BusbarError.of('PARAMETER_INVALID', { name: field, value, problem }, error)
}

function answerLine(answer: Published | Delayed, { bold, dim }: Colors): string {
  const place =
    'due' in answer
      ? `${dim('due')} ${new Date(answer.due).toISOString()}`
      : `${dim('seq')} ${answer.seq}  ${dim('prev')} ${answer.prev ?? 'none'}`
  const note = answer.duplicate ? `  ${dim('(was there already)')}` : ''
  return `${dim('id')} ${bold(answer.id)}  ${place}${note}`
}

function readPrev(value: string): number | null {
  if (value === 'none' || value === 'null') return null
  if (/^[1-9]\d{0,15}$/.test(value)) return Number(value)
  const problem = 'must be a seq, or none'
  throw BusbarError.of('PARAMETER_INVALID', { name: 'expect-prev', value: shown(value), problem })
}
