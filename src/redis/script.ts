/**
 * Lua scripts: one file = one atomic operation, declared once beside it with its keys, arguments and reply.
 *
 * A script is called by hash. A server that does not know it (restarted, SCRIPT FLUSH) answers NOSCRIPT without running
 * anything, so sending the source then is safe, also when others were sent right behind it.
 */
import { createHash } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { Command, type Redis } from 'ioredis'

export type ScriptArg = string | number | WrittenArgs

/** Arguments already in the form they have on the wire: a long list is written as it grows and never walked again. */
export interface WrittenArgs {
  readonly text: string
  readonly count: number
}

export const writeArg = (arg: string | number): string =>
  typeof arg === 'number' ? writeNumber(String(arg)) : `$${Buffer.byteLength(arg)}\r\n${arg}\r\n`

const writeNumber = (digits: string): string => `$${digits.length}\r\n${digits}\r\n`

export function writeArgs(args: readonly ScriptArg[]): WrittenArgs {
  let text = ''
  let count = 0
  for (const arg of args) {
    const isWritten = typeof arg === 'object'
    text += isWritten ? arg.text : writeArg(arg)
    count += isWritten ? arg.count : 1
  }
  return { text, count }
}

export interface Script<Input, Reply> {
  readonly name: string
  readonly source: string
  readonly sha: string
  keys(input: Input): readonly string[]
  writtenKeys(input: Input): WrittenArgs
  args(input: Input): readonly ScriptArg[]
  reply(raw: never): Reply
}

/**
 * `within`, and the script itself, are within a function: Lua looks for each variable that a function takes from around it, one by one
 * through all that others have taken, unless it lies two functions further out. For a lone item that was a third of a call's time.
 */
export interface ScriptParts {
  around: readonly URL[]
  within: readonly URL[]
}

export function defineScript<Input, Raw, Reply>(definition: {
  file: URL
  /** What scripts that work on the same keys begin with, put behind this one's first line. */
  parts?: ScriptParts
  keys: (input: Input) => readonly string[]
  /** What alone the keys follow from. Those of a script that is called all the time are written once for each. */
  keysFrom?: (input: Input) => object
  args: (input: Input) => readonly ScriptArg[]
  reply: (raw: Raw) => Reply
}): Script<Input, Reply> {
  // Now, not when it is first called: an upgrade may take the files away from a process that runs, or give it those of another version.
  const source = joined(definition.file, definition.parts)
  // A process calls few of all scripts, and hashing takes longer than reading.
  let sha: string | undefined
  const known = new WeakMap<object, WrittenArgs>()
  return {
    name: definition.file.pathname.split('/').at(-1)!.replace('.lua', ''),
    source,
    get sha() {
      sha ??= createHash('sha1').update(source).digest('hex')
      return sha
    },
    keys: definition.keys,
    writtenKeys(input) {
      const from = definition.keysFrom?.(input)
      const before = from && known.get(from)
      if (before) return before
      const written = writeArgs(definition.keys(input))
      if (from) known.set(from, written)
      return written
    },
    args: definition.args,
    reply: definition.reply as (raw: never) => Reply,
  }
}

/** Those that are parts of many scripts are read once. */
const read = new Map<string, string>()

function textOf(file: URL): string {
  const text = read.get(file.href) ?? readFileSync(file, 'utf8')
  read.set(file.href, text)
  return text
}

/** The first line says how Redis is to run it: it stays the first. */
function joined(file: URL, parts: ScriptParts | undefined): string {
  const own = textOf(file)
  if (!parts) return own
  const end = own.indexOf('\n') + 1
  const [around, within] = [parts.around, parts.within].map((files) => files.map(textOf).join(''))
  return `${own.slice(0, end)}${around}\nlocal function run()\n${within}${own.slice(end)}\nend\nreturn run()\n`
}

const isNoScript = (error: unknown): boolean => error instanceof Error && error.message.startsWith('NOSCRIPT')

/** A call of a script as it goes over the wire. ioredis copies and looks at each argument several times. */
class WrittenCall extends Command {
  readonly #text: string

  constructor(name: string, which: string, keys: WrittenArgs, args: WrittenArgs) {
    super(name, [], { replyEncoding: 'utf8' })
    const start = writeArg(name) + writeArg(which) + writeArg(keys.count)
    this.#text = `*${3 + keys.count + args.count}\r\n${start}${keys.text}${args.text}`
  }

  override toWritable(): string {
    return this.#text
  }
}

export async function runScript<Input, Reply>(
  redis: Redis,
  script: Script<Input, Reply>,
  input: Input,
): Promise<Reply> {
  const keys = script.writtenKeys(input)
  const args = writeArgs(script.args(input))
  const send = (name: string, which: string) =>
    redis.sendCommand(new WrittenCall(name, which, keys, args)) as Promise<unknown>
  let raw: unknown
  try {
    raw = await send('evalsha', script.sha)
  } catch (error) {
    if (!isNoScript(error)) throw error
    raw = await send('eval', script.source)
  }
  return script.reply(raw as never)
}

/** The same script for several inputs, sent together; throws the first error there is. */
export async function runScripts<Input, Reply>(
  redis: Redis,
  script: Script<Input, Reply>,
  inputs: readonly Input[],
): Promise<Reply[]> {
  const replies = inTheSameWrite(redis, () => inputs.map((input) => runScript(redis, script, input)))
  return Promise.all(replies)
}

/** What `send` sends leaves in one write to the socket. */
export function inTheSameWrite<T>({ stream }: Redis, send: () => T): T {
  stream?.cork()
  try {
    return send()
  } finally {
    stream?.uncork()
  }
}
