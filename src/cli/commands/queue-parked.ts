/** `busbar queue parked`, `resume --object` and `discard`: the objects that an ordered queue has set aside, and what to do about them. */
import type { Command } from 'commander'
import { letterJson } from '../../dead-letters.ts'
import { BusbarError, shown } from '../../errors.ts'
import type { ParkedQueueObject, QueueFacts } from '../../index.ts'
import { refusal } from '../confirm.ts'
import { type ExitCode, exitCodes } from '../exit.ts'
import { commandLine, shellWord } from '../invocation.ts'
import { notParked } from '../parked.ts'
import { printable } from '../printable.ts'
import type { Runner } from '../program.ts'
import { parkedObjectLines } from '../queue-tables.ts'
import type { Session } from '../session.ts'
import { countOf, countText } from '../stream-tables.ts'

/** Which objects are meant: one, or all of them; of one tenant where that is said. */
export interface ObjectOptions {
  tenant?: string
  object?: string
  parked?: boolean
}

interface DiscardOptions extends ObjectOptions {
  yes?: boolean
}

export function objectOptions(command: Command): Command {
  return command
    .option('--object <object>', 'one parked object: tenant/key, as `busbar queue parked` lists it')
    .option('--parked', 'every parked object')
}

export function addQueueParked(queue: Command, run: Runner): void {
  queue
    .command('parked')
    .description('show the objects that are set aside, and why')
    .argument('<name>', 'of the queue')
    .option('--tenant <tenant>', 'only those of this tenant')
    .action(run(listParked))
  const discard = queue
    .command('discard')
    .description('give parked objects up, with all that waits behind them')
    .argument('<name>', 'of the queue')
  objectOptions(discard)
    .option('--tenant <tenant>', 'with --parked only those of this tenant; with --object its key is enough')
    .option('--yes', 'do it without asking')
    .action(run(discardObjects))
}

async function listParked(session: Session, name: string, { tenant }: { tenant?: string }): Promise<ExitCode> {
  const { out, withBus } = session
  const { facts, all } = await withBus(async ({ queues }) => ({
    facts: await queues.get(name),
    all: await queues.parked.list(name),
  }))
  const parked = tenant === undefined ? all : all.filter(isOf(tenant))
  if (out.json) for (const object of parked) await out.printJsonText(letterJson(object))
  else if (parked.length === 0) out.note(nothingParked(facts, tenant))
  else {
    for (const line of parkedObjectLines(parked, out)) await out.print(line)
    out.note(whatToDo(session, name, parked[0]!))
  }
  return exitCodes.ok
}

function nothingParked({ name, onPoison }: QueueFacts, tenant: string | undefined): string {
  if (onPoison === 'skip')
    return `${name} parks nothing: what fails for good is a dead letter. --ordered --on-poison park makes a queue that does.`
  return noneOf(tenant)
}

const noneOf = (tenant: string | undefined): string =>
  tenant === undefined ? 'Nothing is parked.' : `Nothing of tenant ${printable(tenant)} is parked.`

function whatToDo(session: Session, name: string, { object }: ParkedQueueObject): string {
  const resume = commandLine(session, `queue resume ${name} --object ${shellWord(printable(object))}`)
  return `\`${resume}\` tries it anew, \`queue discard\` gives it up; --parked means all of them.`
}

const isOf =
  (tenant: string) =>
  ({ object }: ParkedQueueObject): boolean =>
    object.startsWith(`${tenant}/`)

/** Those that are meant. One that was named comes alone, or not at all. */
function chosenOf(parked: readonly ParkedQueueObject[], options: ObjectOptions): ParkedQueueObject[] {
  const { tenant } = options
  const named = namedOf(options)
  if (named !== undefined) return parked.filter(({ object }) => object === named)
  return tenant === undefined ? [...parked] : parked.filter(isOf(tenant))
}

/** With the tenant said beside it, an object's key is enough. */
function namedOf({ object, tenant }: ObjectOptions): string | undefined {
  if (object === undefined || tenant === undefined || object.startsWith(`${tenant}/`)) return object
  return `${tenant}/${object}`
}

function checkChoice({ object, parked = false }: ObjectOptions): void {
  if (object !== undefined && parked)
    throw BusbarError.of('PARAMETER_INVALID', {
      ...{ name: 'object', value: shown(object) },
      problem: 'cannot be given together with --parked: leave out one of them',
    })
  if (object === undefined && !parked)
    throw BusbarError.of('PARAMETER_INVALID', {
      name: 'object',
      problem: 'is missing: name one as `busbar queue parked` lists it, or give --parked for all of them',
    })
}

/** `busbar queue resume` with --object or --parked. */
export async function resumeObjects(session: Session, name: string, options: ObjectOptions): Promise<ExitCode> {
  checkChoice(options)
  const { out, withBus } = session
  return withBus(async ({ queues: { parked } }) => {
    const all = await parked.list(name)
    const resumed = await countOfEach(chosenOf(all, options), async ({ object }) =>
      (await parked.resume(name, object)) ? 1 : 0,
    )
    if (out.json) await out.printJson({ name, objects: resumed })
    else if (resumed > 0)
      await out.print(`${countOf(resumed, 'object')} of ${name} ${resumed === 1 ? 'goes' : 'go'} on.`)
    return resumed > 0 ? exitCodes.ok : noneThere(session, name, all, options)
  })
}

async function discardObjects(session: Session, name: string, options: DiscardOptions): Promise<ExitCode> {
  checkChoice(options)
  const { out, withBus } = session
  return withBus(async ({ queues: { parked } }) => {
    const all = await parked.list(name)
    const chosen = chosenOf(all, options)
    if (chosen.length > 0 && !options.yes) {
      const refused = await refusal(session, {
        said: stakeOf(chosen),
        question: 'Give them up?',
        toDoIt: 'give them up',
      })
      if (refused !== undefined) return refused
    }
    const discarded = await countOfEach(chosen, ({ object }) => parked.discard(name, object))
    if (out.json) await out.printJson({ discarded })
    else if (discarded > 0) await out.print(`${countOf(discarded, 'item')} given up.`)
    return discarded > 0 ? exitCodes.ok : noneThere(session, name, all, options)
  })
}

/** What would be lost. */
function stakeOf(chosen: readonly ParkedQueueObject[]): string {
  const behind = chosen.reduce((sum, object) => sum + object.behind, 0)
  const failed = chosen.length === 1 ? printable(chosen[0]!.object) : countOf(chosen.length, 'object')
  const [has, they] = chosen.length === 1 ? ['has', 'it'] : ['have', 'them']
  return `${failed} ${has} ${countOf(chosen.length, 'item')} that failed and ${countText(behind)} behind ${they}.`
}

const atOnce = 100

async function countOfEach<T>(all: readonly T[], act: (one: T) => Promise<number>): Promise<number> {
  let count = 0
  for (let at = 0; at < all.length; at += atOnce)
    for (const done of await Promise.all(all.slice(at, at + atOnce).map(act))) count += done
  return count
}

/** Whoever names something wants to know when it is not there; of all there are, none is no failure. */
function noneThere(
  session: Session,
  name: string,
  parked: readonly ParkedQueueObject[],
  options: ObjectOptions,
): ExitCode {
  const named = namedOf(options)
  const objects = parked.map(({ object }) => object)
  const list = commandLine(session, `queue parked ${name}`)
  if (!session.out.json)
    session.out.note(named === undefined ? noneOf(options.tenant) : notParked(objects, named, list))
  return named === undefined ? exitCodes.ok : exitCodes.failed
}
