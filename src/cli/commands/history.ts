/** `busbar history KEY`: the events of one object, in order. */
import { shown } from '../../errors.ts'
import { defaultTenant } from '../../event.ts'
import { createEventRows } from '../event-row.ts'
import { exitCodes } from '../exit.ts'
import { countOption } from '../options.ts'
import type { AddCommand } from '../program.ts'

interface Options {
  tenant?: string
  before?: string
  limit?: number
}

export const addHistory: AddCommand = (program, run) => {
  program
    .command('history')
    .description('show the events of one object, oldest first')
    .argument('<key>', 'what the events are about, such as order:42')
    .option('--tenant <name>', 'whose object it is (default: default)')
    .option('--before <id>', 'only events before this one')
    .option('--limit <n>', 'at most this many, the newest ones, up to 1000 (default: 100)', countOption('limit', 1_000))
    .action(
      run(async ({ out, config, withBus }, key: string, options: Options) => {
        const events = await withBus((bus) => bus.log.history(key, options))
        const row = createEventRows(out)
        if (events.length === 0 && !out.json)
          out.note(
            `No event of ${shown(key)} of tenant ${shown(options.tenant ?? defaultTenant)} is kept in namespace ${config.namespace}; --tenant names another.`,
          )
        for (const event of events) await (out.json ? out.printJsonText(event.toText()) : out.print(row(event)))
        return exitCodes.ok
      }),
    )
}
