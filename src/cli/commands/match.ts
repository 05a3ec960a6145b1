/** `busbar match TENANT TYPE`: who would get such an event, and why not. */

import type { MatchFacts } from '../../index.ts'
import { exitCodes } from '../exit.ts'
import { commandLine } from '../invocation.ts'
import type { AddCommand } from '../program.ts'
import { matchLines } from '../queue-tables.ts'
import { isRouted, sayUnrouted } from '../routed.ts'
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

async function match(session: Session, tenant: string, type: string, { name }: { name?: string }) {
  const { matches, routed } = await session.withBus(async (bus) => ({
    matches: await bus.subscriptions.match(tenant, type, name),
    routed: await isRouted(bus),
  }))
  if (session.out.json) for (const facts of matches) await session.out.printJson(facts)
  else await sayMatches(session, matches, routed)
  // Whoever names one wants to know whether it does.
  return name === undefined || matches.every((facts) => facts.matches) ? exitCodes.ok : exitCodes.failed
}

async function sayMatches(session: Session, matches: readonly MatchFacts[], routed: boolean): Promise<void> {
  const { out, config } = session
  if (matches.length === 0) {
    const make = commandLine(session, "queue put mail --match 'mail.*'")
    return out.note(`There is no subscription in namespace ${config.namespace} yet. \`${make}\` makes one.`)
  }
  for (const line of matchLines(matches, out)) await out.print(line)
  if (!routed) sayUnrouted(session)
}
