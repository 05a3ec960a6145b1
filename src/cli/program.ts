/** The command line: its commands, its flags, its help. What a command does is in commands/. */
import { Command, Option } from 'commander'
import { describeSettings } from '../config.ts'
import { addConfig } from './commands/config.ts'
import { addDead } from './commands/dead.ts'
import { addDoctor } from './commands/doctor.ts'
import { addFsck } from './commands/fsck.ts'
import { addGet } from './commands/get.ts'
import { addHistory } from './commands/history.ts'
import { addMatch } from './commands/match.ts'
import { addOp, addOps, addStats, addTrace } from './commands/operations.ts'
import { addPublish } from './commands/publish.ts'
import { addQueue, addQueues } from './commands/queues.ts'
import { addSend } from './commands/send.ts'
import { addStreams } from './commands/streams.ts'
import { addTail } from './commands/tail.ts'
import { addTopics } from './commands/topics.ts'
import { addTriggers } from './commands/triggers.ts'
import { addUp } from './commands/up.ts'
import { addWebhook } from './commands/webhook.ts'
import { addWebhooks } from './commands/webhooks.ts'
import { addWork } from './commands/work.ts'
import { addWorker } from './commands/worker.ts'
import { addWorkers } from './commands/workers.ts'
import type { ExitCode } from './exit.ts'
import type { Io } from './output.ts'
import type { Session } from './session.ts'
import { version } from './version.ts'

/** Runs a command's work with a session; the arguments are those of commander without the command. */
export type Runner = <Args extends unknown[]>(
  work: (session: Session, ...args: Args) => Promise<ExitCode>,
) => (...given: unknown[]) => Promise<void>

export type AddCommand = (program: Command, run: Runner) => void

// In the order of the help.
const commands: readonly AddCommand[] = [
  addUp,
  addWorker,
  addPublish,
  addTail,
  addTopics,
  addGet,
  addHistory,
  addStreams,
  addQueues,
  addQueue,
  addSend,
  addWork,
  addWebhooks,
  addWebhook,
  addDead,
  addOp,
  addOps,
  addStats,
  addTrace,
  addTriggers,
  addMatch,
  addWorkers,
  addDoctor,
  addFsck,
  addConfig,
]

const plainColumns = 80

const examples = `
Examples:
  busbar up
  busbar publish order.paid '{"total":42}' --tenant acme --key order:42
  busbar worker ./app.ts './jobs/*.ts' --only billing,search
  busbar publish --file events.jsonl
  busbar work mail --drain -- ./send-mail.sh
  busbar tail 'order.*' --since beginning --limit 10
  busbar topics --json

Exit codes:
  0  done
  1  the work failed, or a check found something
  2  the command line or a setting is wrong
  3  Redis did not answer or had no room; the same command may succeed later`

export function createProgram(run: Runner, { stdout, stderr }: Pick<Io, 'stdout' | 'stderr'>): Command {
  const program = new Command('busbar')
    .description('One event backbone on Redis: publish an event once, in order; consume it in any way.')
    .version(version)
    .option('--json', 'answer in JSON, one object per line')
    .configureHelp({ sortSubcommands: false, showGlobalOptions: false })
    .addHelpText('after', examples)
    .configureOutput({
      writeOut: (text) => stdout.write(text),
      writeErr: (text) => stderr.write(text),
      getOutHelpWidth: () => stdout.columns ?? plainColumns,
      getErrHelpWidth: () => stderr.columns ?? plainColumns,
      // Errors are main.ts's to say, and the exit code is its to set.
      outputError: () => {},
    })
    .exitOverride()
  addSettings(program)
  for (const add of commands) add(program, run)
  for (const command of program.commands.flatMap((one) => [one, ...one.commands])) {
    command.addHelpText('after', '\nEvery command also takes --json and the settings: see busbar --help.')
  }
  return program
}

/** Flags of every command. In the help they come last: there are more of them than of anything else. */
function addSettings(program: Command): void {
  const options = describeSettings().map(({ flag, placeholder, sentence, variable, default: fallback }) =>
    new Option(`${flag} ${placeholder}`, `${sentence} (${variable}; default: ${fallback})`).hideHelp(),
  )
  for (const option of options) program.addOption(option)
  program.addHelpText('after', ({ error }) => settingsHelp(program, options, error))
}

function settingsHelp(program: Command, options: readonly Option[], error: boolean): string {
  const help = program.createHelp()
  const { getErrHelpWidth, getOutHelpWidth } = program.configureOutput()
  help.prepareContext({ helpWidth: (error ? getErrHelpWidth : getOutHelpWidth)?.() ?? plainColumns })
  const termWidth = Math.max(...options.map(({ flags }) => flags.length))
  const items = options.map(({ flags, description }) => help.formatItem(flags, termWidth, description, help))
  return ['\nSettings, as flags of every command:', ...items].join('\n')
}
