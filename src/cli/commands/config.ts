/** `busbar config`: the settings as they came out, and where each comes from. */
import { describeConfig } from '../../config.ts'
import { exitCodes } from '../exit.ts'
import { printable } from '../printable.ts'
import type { AddCommand } from '../program.ts'
import { tableLines } from '../table.ts'

export const addConfig: AddCommand = (program, run) => {
  program
    .command('config')
    .description('show the settings as they came out and where each comes from; secrets are hidden')
    .action(
      run(async ({ config, out }) => {
        const settings = describeConfig(config)
        if (out.json) {
          for (const setting of settings) await out.printJson(setting)
          return exitCodes.ok
        }
        const { bold, dim, cyan } = out.colors
        const columns = [
          { title: 'setting' },
          { title: 'source', paint: (text: string) => (text.startsWith('default') ? dim(text) : cyan(text)) },
          { title: 'value' },
        ]
        const rows = settings.map(({ name, source, value }) => [name, source, printable(value)])
        for (const line of tableLines(columns, rows, bold)) await out.print(line)
        return exitCodes.ok
      }),
    )
}
