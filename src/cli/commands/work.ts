/**
 * `busbar work QUEUE -- COMMAND`: runs a command for each item.
 *
 *   starting   the command is looked for, Redis is reached, the queue is found
 *   working    so many commands at once; with --drain until nothing is left
 *   stopping   asked to end: what has not begun goes back at once, what runs has a while to end, then goes back too
 *
 * What the commands print is the result; what this says of the run goes to stderr.
 */

import { CommanderError } from 'commander'
import type { Event, Left, WorkContext } from '../../index.ts'
import { sayDrained, tallyLine } from '../drained.ts'
import { exitCodes } from '../exit.ts'
import { checkStartable, ItemCommand } from '../item-command.ts'
import { createLog } from '../log-lines.ts'
import { countOption, durationOption } from '../options.ts'
import type { AddCommand } from '../program.ts'
import { reachRedis, type Session } from '../session.ts'
import { onEndRequest, whenAborted } from '../signals.ts'
import { Tally } from '../tally.ts'

interface Options {
  concurrency?: number
  timeout?: number
  grace?: number
  drain?: boolean
}

export const addWork: AddCommand = (program, run) => {
  program
    .command('work')
    .description('run a command for each item of a queue')
    .argument('<queue>', 'its name')
    .argument('<command...>', 'after --: gets the item as JSON on stdin; exit code 0 is done, any other tries it again')
    .option('--concurrency <n>', 'commands at once (default: 1)', countOption('concurrency', 1_000))
    .option(
      '--timeout <duration>',
      'end a command that takes longer, and try its item again',
      durationOption('timeout'),
    )
    .option(
      '--grace <duration>',
      'when asked to end, how long commands may go on before their items go back (default: 10s)',
      durationOption('grace'),
    )
    .option('--drain', 'end when nothing is left to do')
    .exitOverride(sayExample)
    .action(run(work))
}

/** Where a command goes on such a line is not what most others do. */
function sayExample(error: CommanderError): never {
  if (error.code !== 'commander.missingArgument') throw error
  throw new CommanderError(error.exitCode, error.code, `${error.message}, as in: busbar work mail -- ./send-mail.sh`)
}

async function sayEnd(session: Session, queue: string, left: readonly Left[], { counts }: Tally) {
  const exitCode = await sayDrained(session, left, counts)
  if (!session.out.json) session.out.note(tallyLine(session, queue, left, counts))
  return exitCode
}

const closeTimeoutMs = 10_000

async function work(session: Session, queue: string, words: string[], options: Options) {
  const { out, io } = session
  const { concurrency = 1, timeout, grace = closeTimeoutMs, drain = false } = options
  checkStartable(words, io)
  using end = onEndRequest()
  const log = createLog({ json: out.json, from: session.logLevel('warn'), colors: out.errorColors, write: out.note })
  const tally = new Tally()
  const bus = session.openBus((event) => {
    tally.listener(event)
    log(event)
  })
  const command = new ItemCommand(words, io)
  const limit = timeout === undefined ? {} : { timeout }
  const handle = async (event: Event, context: WorkContext) => {
    await command.run(event, context)
    // Too late, it is not done: it is tried again.
    if (!context.signal.aborted) tally.done(event.id)
  }
  const worker = bus.work([{ name: queue }], handle, { concurrency, ...limit })
  let graceMs = grace
  try {
    await reachRedis(bus)
    // QUEUE_NOT_FOUND, with the one that was probably meant.
    await bus.queues.get(queue)
    await bus.run({ signals: false })
    if (!out.json) out.note(out.errorColors.dim(`Working on ${queue}; Ctrl-C stops it.`))
    const asked = Promise.race([end.whenAsked, whenAborted(out.closed), command.failed])
    const left = await Promise.race([drain ? bus.drained() : asked, asked])
    if (left) return await sayEnd(session, queue, left, tally)
    if (!out.json) out.note(out.errorColors.dim('Stopping; once more to stop at once.'))
    return exitCodes.ok
  } catch (error) {
    // Nothing runs that could be waited for.
    graceMs = 0
    throw error
  } finally {
    await worker.close({ timeout: graceMs })
    command.end()
    await bus.close({ timeout: closeTimeoutMs })
  }
}
