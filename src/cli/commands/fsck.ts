/** `busbar fsck`: checks log, subscriptions and queues against their rules while they are in use. */
import { exitCodes } from '../exit.ts'
import { printable } from '../printable.ts'
import type { AddCommand } from '../program.ts'
import { createProgress } from '../progress.ts'
import type { Session } from '../session.ts'
import { columnGap, growingColumns } from '../table.ts'

export const addFsck: AddCommand = (program, run) => {
  program.command('fsck').description('check that everything stored keeps its rules').action(run(fsck))
}

async function fsck({ out, io, withBus }: Session) {
  const began = performance.now()
  const seconds = () => ((performance.now() - began) / 1000).toFixed(1)
  const pad = growingColumns([30, 50])
  let findings = 0
  using progress = createProgress(io, out, () => `checking  ${seconds()} s  ${findings} findings`)
  progress.update()
  await withBus(async (bus) => {
    for await (const { check, where, problem } of bus.fsck()) {
      findings += 1
      progress.clear()
      if (out.json) await out.printJson({ check, where, problem })
      else {
        if (findings === 1) await out.print(out.colors.bold([...pad(['check', 'where']), 'problem'].join(columnGap)))
        const [shownCheck, shownWhere] = pad([check, where].map(printable)) as [string, string]
        await out.print([out.colors.red(shownCheck), shownWhere, printable(problem)].join(columnGap))
      }
    }
  })
  progress.clear()
  if (out.json) await out.printJson({ findings, tookMs: Math.round(performance.now() - began) })
  else if (findings === 0)
    await out.print(`${out.colors.green('clean')}: everything stored keeps its rules (${seconds()} s)`)
  else await out.print(`${findings} ${findings === 1 ? 'finding' : 'findings'} (${seconds()} s)`)
  return findings === 0 ? exitCodes.ok : exitCodes.failed
}
