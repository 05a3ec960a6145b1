/** `busbar publish`: one event from the command line, or those of a file with `--file`. */
import type { Command } from 'commander'
import { BusbarError, shown } from '../../errors.ts'
import { limits, RawJson } from '../../event.ts'
import { readTime, timeForms } from '../../time.ts'
import { type ExitCode, exitCodes } from '../exit.ts'
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
    .option('--time <time>', timeForms, timeOption)
    .option('--trace <text>', 'goes along with the event')
    .option('--idempotency-key <key>', 'the same one again within 24 hours stores nothing')
    .option('--expect-prev <seq>', 'refuse unless this is the last seq of the key; none for its first')
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
  const { file, strict, expectPrev, ...more } = options
  const call = expectPrev === undefined ? more : { ...more, expectPrev: readPrev(expectPrev) }
  const answer = await session.withBus((bus) =>
    bus.publish(type, data === undefined ? undefined : new RawJson(data), call),
  )
  if (out.json) await out.printJson(answer)
  else {
    const { id, seq, prev, duplicate } = answer
    const { bold, dim } = out.colors
    const note = duplicate ? `  ${dim('(was there already)')}` : ''
    await out.print(`${dim('id')} ${bold(id)}  ${dim('seq')} ${seq}  ${dim('prev')} ${prev ?? 'none'}${note}`)
  }
  return exitCodes.ok
}

/** White space around the JSON, such as echo's line end, is not part of it. */
async function readStdin(stdin: AsyncIterable<Uint8Array>): Promise<string> {
  const parts: Uint8Array[] = []
  let bytes = 0
  for await (const part of stdin) {
    bytes += part.length
    if (bytes > 2 * limits.dataBytes) throw BusbarError.of('EVENT_TOO_LARGE', { bytes, maxBytes: limits.dataBytes })
    parts.push(part)
  }
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(Buffer.concat(parts)).trim()
  } catch (error) {
    throw BusbarError.of('DATA_UNSERIALISABLE', { problem: 'it is not UTF-8' }, error)
  }
}

function timeOption(value: string): number {
  const time = readTime(value)
  if (time !== undefined) return time
  throw BusbarError.of('PARAMETER_INVALID', { name: 'time', value: shown(value), problem: `must be ${timeForms}` })
}

function readPrev(value: string): number | null {
  if (value === 'none' || value === 'null') return null
  if (/^[1-9]\d{0,15}$/.test(value)) return Number(value)
  const problem = 'must be a seq, or none'
  throw BusbarError.of('PARAMETER_INVALID', { name: 'expect-prev', value: shown(value), problem })
}
