/** `busbar topics`: how many events each topic has had. */
import { exitCodes } from '../exit.ts'
import type { AddCommand } from '../program.ts'
import { tableLines } from '../table.ts'

export const addTopics: AddCommand = (program, run) => {
  program
    .command('topics')
    .description('show how many events each topic has had')
    .action(
      run(async ({ out, withBus }) => {
        const topics = await withBus((bus) => bus.topics())
        if (out.json) {
          for (const [topic, events] of topics) await out.printJson({ topic, events })
          return exitCodes.ok
        }
        if (topics.size === 0) out.note('No events have been published yet.')
        const rows = [...topics].map(([topic, events]) => [topic, events.toLocaleString('en-US')])
        const columns = [{ title: 'topic' }, { title: 'events', side: 'right' as const }]
        if (rows.length > 0) for (const line of tableLines(columns, rows, out.colors.bold)) await out.print(line)
        return exitCodes.ok
      }),
    )
}
