/** `busbar match TENANT TYPE`: who would get such an event, and why not. */
import { exitCodes } from '../exit.ts'
import type { AddCommand } from '../program.ts'
import { matchLines } from '../queue-tables.ts'
import type { Session } from '../session.ts'

export const addMatch: AddCommand = (program, run) => {
  program
    .command('match')
    .description('show which subscriptions would get an event, and why others would not')
    .argument('<tenant>', 'whose event it would be')
    .argument('<type>', 'what would have happened, such as order.paid')
    .option('--name <name>', 'only this subscription')
    .action(run(match))
}

async function match({ out, withBus, config }: Session, tenant: string, type: string, { name }: { name?: string }) {
  const matches = await withBus((bus) => bus.subscriptions.match(tenant, type, name))
  if (out.json) for (const facts of matches) await out.printJson(facts)
  else if (matches.length === 0) out.note(`There is no subscription in namespace ${config.namespace} yet.`)
  else for (const line of matchLines(matches, out)) await out.print(line)
  // Whoever names one wants to know whether it does.
  return name === undefined || matches.every((facts) => facts.matches) ? exitCodes.ok : exitCodes.failed
}
