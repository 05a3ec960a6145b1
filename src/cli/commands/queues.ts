/** `busbar queues` and `busbar queue NAME`: what waits for whom, and stopping, going on, taking away. Making is in queue-put.ts. */

import { canAsk, confirm } from '../confirm.ts'
import { eventTable } from '../event-row.ts'
import { exitCodes } from '../exit.ts'
import { commandLine } from '../invocation.ts'
import { countOption } from '../options.ts'
import { printable } from '../printable.ts'
import type { AddCommand } from '../program.ts'
import { queueFactLines, queueLines, tenantLines } from '../queue-tables.ts'
import { isRouted, sayUnrouted } from '../routed.ts'
import type { Session } from '../session.ts'
import { countOf } from '../stream-tables.ts'
import { sayWhichVerb } from '../verbs.ts'
import { addQueuePut } from './queue-put.ts'

export const addQueues: AddCommand = (program, run) => {
  program.command('queues').description('show the queues: what waits, is held and was given up').action(run(listQueues))
}

interface ShowOptions {
  limit?: number
  peek?: number
}

export const addQueue: AddCommand = (program, run) => {
  const queue = program
    .command('queue')
    .description('show one queue, and the tenants that wait in it')
    .argument('<name>', 'of the queue')
    .option('--limit <n>', 'at most this many tenants (default: 20)', countOption('limit', 10_000))
    .option('--peek <n>', 'also the events that would be given next', countOption('peek', 1_000))
    .action(run(showQueue))
  addQueuePut(queue, run)
  const add = (verb: string, description: string) =>
    queue.command(verb).description(description).argument('<name>', 'of the queue')
  add('pause', 'give nothing out until it is resumed; what comes meanwhile waits')
    .option('--tenant <tenant>', 'only of this tenant')
    .action(run((session, name: string, options: OfTenant) => setPaused(session, name, options, true)))
  add('resume', 'go on giving')
    .option('--tenant <tenant>', 'only of this tenant')
    .action(run((session, name: string, options: OfTenant) => setPaused(session, name, options, false)))
  add('rm', 'take a queue away, and everything in it').option('--yes', 'do it without asking').action(run(removeQueue))
  sayWhichVerb(queue)
}

async function listQueues(session: Session) {
  const { out, withBus, config } = session
  const { queues, routed } = await withBus(async (bus) => ({
    queues: await bus.queues.list(),
    routed: await isRouted(bus),
  }))
  if (out.json) {
    for (const queue of queues) await out.printJson(queue)
    return exitCodes.ok
  }
  if (queues.length === 0) {
    const make = commandLine(session, "queue put mail --match 'mail.*'")
    out.note(`There is no queue in namespace ${config.namespace} yet; --namespace names another one.`)
    out.note(`\`${make}\` makes one.`)
    return exitCodes.ok
  }
  for (const line of queueLines(queues, out)) await out.print(line)
  if (!routed && queues.some(({ match }) => match !== null)) sayUnrouted(session)
  return exitCodes.ok
}

async function showQueue(session: Session, name: string, { limit, peek }: ShowOptions) {
  const { out, withBus } = session
  const { facts, tenants, next, routed } = await withBus(async (bus) => ({
    facts: await bus.queues.get(name),
    tenants: await bus.queues.tenants(name, limit === undefined ? {} : { limit }),
    next: peek === undefined ? undefined : await bus.queues.peek(name, { max: peek }),
    routed: await isRouted(bus),
  }))
  if (out.json) {
    const text = JSON.stringify({ ...facts, byTenant: tenants })
    const more = next ? `,"next":[${next.map((event) => event.toText()).join(',')}]` : ''
    await out.printJsonText(`${text.slice(0, -1)}${more}}`)
    return exitCodes.ok
  }
  for (const line of queueFactLines(facts, out)) await out.print(line)
  await out.print('')
  if (tenants.length === 0) out.note('Nothing is in it.')
  else for (const line of tenantLines(tenants, out)) await out.print(line)
  if (facts.tenants > tenants.length)
    out.note(`${countOf(facts.tenants - tenants.length, 'more tenant')}: --limit shows more.`)
  if (next) {
    await out.print('')
    if (next.length === 0) out.note('Nothing can be given now.')
    else for (const line of eventTable(next, out)) await out.print(line)
  }
  if (!routed && facts.match !== null) sayUnrouted(session)
  return exitCodes.ok
}

interface OfTenant {
  tenant?: string
}

async function setPaused({ out, withBus }: Session, name: string, { tenant }: OfTenant, paused: boolean) {
  const only = tenant === undefined ? {} : { tenant }
  await withBus(({ queues }) => (paused ? queues.pause(name, only) : queues.resume(name, only)))
  const what = tenant === undefined ? name : `Tenant ${printable(tenant)} of ${name}`
  if (out.json) await out.printJson({ name, ...only, paused })
  else await out.print(paused ? `${what} is paused.` : `${what} goes on.`)
  return exitCodes.ok
}

async function removeQueue({ out, io, withBus }: Session, name: string, { yes = false }: { yes?: boolean }) {
  return withBus(async ({ queues }) => {
    const { waiting, later, held, dead } = await queues.get(name)
    const items = waiting + later + held + dead
    if (!yes && items > 0) {
      out.note(`${name} has ${countOf(items, 'item')}: ${waiting} waiting, ${later} later, ${held} held, ${dead} dead.`)
      if (out.json || !canAsk(io)) {
        out.note('Nothing was changed. Add --yes to take it away with everything in it.')
        return exitCodes.usage
      }
      if (!(await confirm(io, `Take ${name} away?`))) {
        out.note('Nothing was changed.')
        return exitCodes.failed
      }
    }
    await queues.remove(name)
    await (out.json ? out.printJson({ removed: name }) : out.print(`${name} is removed.`))
    return exitCodes.ok
  })
}
