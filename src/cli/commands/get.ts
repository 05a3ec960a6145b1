/** `busbar get ID`: one event as it is stored. */
import { BusbarError } from '../../errors.ts'
import { checkId } from '../../event.ts'
import { eventLines } from '../event-row.ts'
import { exitCodes } from '../exit.ts'
import type { AddCommand } from '../program.ts'

export const addGet: AddCommand = (program, run) => {
  program
    .command('get')
    .description('show one event')
    .argument('<id>', 'its id, as publish answered it')
    .action(
      run(async ({ out, withBus }, id: string) => {
        const event = await withBus((bus) => bus.log.get(checkId('id', id)))
        if (!event) throw BusbarError.of('EVENT_NOT_FOUND', { id })
        if (out.json) await out.printJsonText(event.toText())
        else for (const line of eventLines(event, out)) await out.print(line)
        return exitCodes.ok
      }),
    )
}
