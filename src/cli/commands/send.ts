/** `busbar send QUEUE DATA`: one item straight into a queue. */
import { RawJson } from '../../event.ts'
import type { SendOptions, Sent } from '../../index.ts'
import { quotingError, readStdin } from '../data-argument.ts'
import { timeText } from '../event-row.ts'
import { exitCodes } from '../exit.ts'
import { choiceOption, integerOption } from '../options.ts'
import type { Colors } from '../output.ts'
import type { AddCommand } from '../program.ts'
import type { Session } from '../session.ts'

export const addSend: AddCommand = (program, run) => {
  program
    .command('send')
    .description('put one item straight into a queue')
    .argument('<queue>', 'its name')
    .argument('[data]', 'JSON, handed on byte for byte; - reads it from stdin (default: null)')
    .option('--tenant <name>', 'whose item it is (default: default)')
    .option('--key <key>', 'what it is about, such as order:42')
    .option('--delay <duration>', 'not given to anyone before that long from now, such as 5m')
    .option('--ttl <duration>', 'dropped when nobody has claimed it by then')
    .option('--priority <n>', 'from -100 to 100; of one tenant the higher ones first', integerOption('priority'))
    .option('--idempotency-key <key>', 'the same one again within 24 hours sends nothing')
    .option(
      '--kind <kind>',
      'manual or automatic, for the operation of a tracked queue',
      choiceOption('kind', ['manual', 'automatic']),
    )
    .option('--request-id <id>', 'the same: of the request that it comes from')
    .option('--trace <text>', 'goes along with the item')
    .action(run(send))
}

async function send({ out, io, withBus }: Session, queue: string, given: string | undefined, options: SendOptions) {
  const text = given === '-' ? await readStdin(io.stdin) : given
  const data = text === undefined ? null : new RawJson(text)
  const sent = await withBus(async ({ queues }) => (await queues.open(queue)).send(data, options)).catch((error) => {
    throw given === '-' ? error : quotingError(error)
  })
  if (out.json) await out.printJson(sent)
  else await out.print(sentLine(sent, out.colors))
  return exitCodes.ok
}

function sentLine({ id, due, duplicate }: Sent, { bold, dim }: Colors): string {
  const time = due === undefined ? '' : `  ${dim('due')} ${timeText(due)}`
  return `${dim('id')} ${bold(id)}${time}${duplicate ? `  ${dim('(was there already)')}` : ''}`
}
