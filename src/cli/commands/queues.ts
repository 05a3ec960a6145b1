/** `busbar queues` and `busbar queue NAME`: what waits for whom, and stopping, going on, taking away. Making is in queue-put.ts. */

import type { QueueFacts } from '../../index.ts'
import { refusal } from '../confirm.ts'
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
import { addQueueParked, type ObjectOptions, objectOptions, resumeObjects } from './queue-parked.ts'
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
  objectOptions(add('resume', 'go on giving; or let parked objects go on'))
    .option('--tenant <tenant>', 'only of this tenant; beside --object its key is enough')
    .action(run(resume))
  addQueueParked(queue, run)
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
  else for (const line of tenantLines(facts, tenants, out)) await out.print(line)
  if (facts.tenants > tenants.length)
    out.note(`${countOf(facts.tenants - tenants.length, 'more tenant')}: --limit shows more.`)
  if (next) {
    await out.print('')
    if (next.length === 0) out.note('Nothing can be given now.')
    else for (const line of eventTable(next, out)) await out.print(line)
  }
  sayParked(session, facts)
  if (!routed && facts.match !== null) sayUnrouted(session)
  return exitCodes.ok
}

interface OfTenant {
  tenant?: string
}

async function resume(session: Session, name: string, options: ObjectOptions) {
  if (options.object !== undefined || options.parked) return resumeObjects(session, name, options)
  return setPaused(session, name, options, false)
}

/** What is set aside goes on only when someone says so. */
function sayParked(session: Session, { name, parked }: QueueFacts): void {
  if (parked === 0) return
  const shows = commandLine(session, `queue parked ${name}`)
  session.out.note(`${countOf(parked, 'object')} ${parked === 1 ? 'is' : 'are'} parked: \`${shows}\` shows why.`)
}

/** Whoever lets a tenant go on wants to know what else is in its way. */
function sayStillHeld(session: Session, { name, paused, weights }: QueueFacts, tenant: string): void {
  if (weights[tenant] === 0)
    session.out.note('Nothing of it is given all the same: its weight is 0, as the definition of the queue says.')
  if (paused)
    session.out.note(
      `Nothing of it is given yet: all of ${name} is paused. \`${commandLine(session, `queue resume ${name}`)}\` lets it go on.`,
    )
}

async function setPaused(session: Session, name: string, { tenant }: OfTenant, paused: boolean) {
  const { out, withBus } = session
  const only = tenant === undefined ? {} : { tenant }
  const facts = await withBus(async ({ queues }) => {
    await (paused ? queues.pause(name, only) : queues.resume(name, only))
    return queues.get(name)
  })
  const what = tenant === undefined ? name : `Tenant ${printable(tenant)} of ${name}`
  if (out.json) await out.printJson({ name, ...only, paused })
  else await out.print(paused ? `${what} is paused.` : `${what} goes on.`)
  if (!out.json && !paused) {
    if (tenant === undefined) sayParked(session, facts)
    else sayStillHeld(session, facts, tenant)
  }
  return exitCodes.ok
}

async function removeQueue(session: Session, name: string, { yes = false }: { yes?: boolean }) {
  const { out, withBus } = session
  return withBus(async ({ queues }) => {
    const said = stakeOf(await queues.get(name))
    if (!yes && said !== undefined) {
      const question = `Take ${name} away?`
      const refused = await refusal(session, { said, question, toDoIt: 'take it away with everything in it' })
      if (refused !== undefined) return refused
    }
    await queues.remove(name)
    await (out.json ? out.printJson({ removed: name }) : out.print(`${name} is removed.`))
    return exitCodes.ok
  })
}

/** What would be lost; undefined for nothing. */
function stakeOf({ name, ordered, waiting, later, held, dead, behind, parked }: QueueFacts): string | undefined {
  const items = waiting + later + held + dead + behind + parked
  if (items === 0) return undefined
  const counts = `${waiting} waiting, ${later} later, ${held} held, ${dead} dead`
  return `${name} has ${countOf(items, 'item')}: ${counts}${ordered ? `, ${behind} behind, ${parked} parked` : ''}.`
}
