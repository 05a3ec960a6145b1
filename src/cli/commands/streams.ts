/** `busbar streams`: the processors of the namespace, how far they are, and what to do about what they could not handle. */
import { letterJson } from '../../dead-letters.ts'
import { BusbarError, shown } from '../../errors.ts'
import { checkId } from '../../event.ts'
import type { ParkedObject, StreamFacts } from '../../index.ts'
import { readPosition } from '../../sinks/stream/position.ts'
import { timeForms } from '../../time.ts'
import { exitCodes } from '../exit.ts'
import { commandLine } from '../invocation.ts'
import { countOption, numberOption } from '../options.ts'
import { notParked } from '../parked.ts'
import { printable } from '../printable.ts'
import type { AddCommand } from '../program.ts'
import type { Session } from '../session.ts'
import { countOf, deadLines, parkedLines, partitionLines, streamLines } from '../stream-tables.ts'
import { type ResetOptions, resetStream } from '../streams-reset.ts'
import { sayWhatWasMeant } from '../verbs.ts'

export const addStreams: AddCommand = (program, run) => {
  const streams = program
    .command('streams')
    .description('show the processors: who runs them, how far they are, what they could not handle')
    .action(run(listStreams))
  const add = (verb: string, description: string) =>
    streams.command(verb).description(description).argument('<name>', 'of the processor')

  add('show', 'show one processor, partition by partition').action(run(showStream))
  add('reset', 'go on from somewhere else; says first what that means')
    .requiredOption('--to <position>', `beginning, now, or a time: ${timeForms}`, readPosition)
    .option('--preview', 'only say what it means')
    .option('--yes', 'do it without asking')
    .action(run((session, name: string, options: ResetOptions) => resetStream(session, name, options)))
  add('resume', 'let blocked partitions and parked objects go on')
    .option('--partition <n>', 'only this partition', numberOption('partition'))
    .option('--object <object>', 'only this object: tenant/key, as `busbar streams parked` lists it')
    .action(run(resumeStream))
  add('parked', 'show the objects that are set aside').action(run(listParked))
  add('dead', 'show the dead letters, oldest first')
    .option('--limit <n>', 'at most this many (default: 100)', countOption('limit', 10_000))
    .option('--offset <n>', 'pass over this many first', numberOption('offset'))
    .action(run(listDead))
  add('redrive', 'handle dead letters again, in order')
    .argument('[ids...]', 'events, as `busbar streams dead` lists them')
    .option('--all', 'every one of them')
    .action(run(redrive))
  add('discard', 'give up dead letters, or what is parked of an object')
    .argument('[ids...]', 'events, as `busbar streams dead` lists them')
    .option('--all', 'every dead letter')
    .option('--object <object>', 'instead: all that is parked of this object, tenant/key')
    .action(run(discard))
  add('remove', 'forget a processor that nobody runs any more').action(run(removeStream))
  sayWhatWasMeant(streams, 'show')
}

async function listStreams({ out, withBus, config }: Session) {
  const streams = await withBus((bus) => bus.streams.list())
  if (out.json) for (const stream of streams) await out.printJson(stream)
  else if (streams.length === 0)
    out.note(`No processor has run in namespace ${config.namespace} yet. --namespace names another one.`)
  else for (const line of streamLines(streams, out)) await out.print(line)
  return exitCodes.ok
}

async function showStream({ out, withBus }: Session, name: string) {
  const stream = await withBus((bus) => bus.streams.get(name))
  if (out.json) await out.printJson(stream)
  else {
    for (const line of streamLines([stream], out)) await out.print(line)
    await out.print('')
    for (const line of partitionLines(stream, out)) await out.print(line)
  }
  return exitCodes.ok
}

async function resumeStream(
  session: Session,
  name: string,
  { partition, object }: { partition?: number; object?: string },
) {
  if (partition !== undefined && object !== undefined) throw notWith('a partition', object)
  if (object !== undefined) return resumeObject(session, name, object)
  return session.withBus(async ({ streams }) => {
    const resumed = await streams.resume(name, partition === undefined ? {} : { partition })
    await sayResumed(session, resumed)
    if (partition === undefined || resumed.partitions > 0) return exitCodes.ok
    return nothing(session, notBlocked(await streams.get(name), partition))
  })
}

async function resumeObject(session: Session, name: string, object: string) {
  return session.withBus(async ({ streams }) => {
    const isResumed = await streams.parked.resume(name, object)
    await sayResumed(session, { partitions: 0, objects: isResumed ? 1 : 0 })
    return isResumed
      ? exitCodes.ok
      : nothing(session, whyNotResumed(session, await streams.parked.list(name), name, object))
  })
}

async function sayResumed({ out }: Session, resumed: { partitions: number; objects: number }): Promise<void> {
  if (out.json) await out.printJson(resumed)
  else await out.print(`${countOf(resumed.partitions, 'partition')} and ${countOf(resumed.objects, 'object')} go on.`)
}

/** Whoever names something wants to know when it is not there. */
function nothing({ out }: Session, why: string) {
  if (!out.json) out.note(why)
  return exitCodes.failed
}

function notBlocked({ name, partitions }: StreamFacts, partition: number): string {
  if (partition >= partitions.length)
    return `There is no partition ${partition}: they are 0 to ${partitions.length - 1}.`
  const blocked = partitions.filter((one) => one.blocked).map((one) => one.partition)
  return `Partition ${partition} of ${name} is not blocked. Blocked: ${blocked.join(', ') || 'none'}.`
}

function whyNotResumed(session: Session, parked: readonly ParkedObject[], name: string, object: string): string {
  const objects = parked.map((one) => one.object)
  if (objects.includes(object)) return printable(`${shown(object)} goes on already: its events are being worked off.`)
  return notParked(objects, object, commandLine(session, `streams parked ${name}`))
}

async function listParked({ out, withBus }: Session, name: string) {
  const parked = await withBus((bus) => bus.streams.parked.list(name))
  if (out.json) for (const object of parked) await out.printJson(object)
  else if (parked.length === 0) out.note('Nothing is set aside.')
  else for (const line of parkedLines(parked, out)) await out.print(line)
  return exitCodes.ok
}

async function listDead({ out, withBus }: Session, name: string, options: { limit?: number; offset?: number }) {
  const letters = await withBus((bus) => bus.streams.dead.list(name, options))
  if (out.json) for (const letter of letters) await out.printJsonText(letterJson(letter))
  else if (letters.length === 0) out.note('There are no dead letters here.')
  else for (const line of deadLines(letters, out)) await out.print(line)
  return exitCodes.ok
}

const notWith = (other: string, object: string): BusbarError =>
  BusbarError.of('PARAMETER_INVALID', {
    name: 'object',
    value: shown(object),
    problem: `cannot be given together with ${other}`,
  })

interface Chosen {
  all?: boolean
  object?: string
}

function chosenIds(ids: readonly string[], { all = false }: Chosen): readonly string[] | 'all' {
  if (all !== ids.length > 0) return all ? 'all' : ids.map((id) => checkId('ids', id))
  const problem = all
    ? 'cannot be given together with --all: leave out one of them'
    : 'is missing: name dead letters as `busbar streams dead` lists them, or give --all'
  throw BusbarError.of('PARAMETER_INVALID', { name: 'ids', problem })
}

async function redrive(session: Session, name: string, ids: string[], options: Chosen) {
  const chosen = chosenIds(ids, options)
  const redriven = await session.withBus((bus) => bus.streams.dead.redrive(name, chosen))
  await sayHowMany(session, { redriven }, `${countOf(redriven, 'dead letter')} back in line.`)
  return endOf(session, chosen, redriven)
}

async function discard(session: Session, name: string, ids: string[], options: Chosen) {
  const { object, all } = options
  if (object !== undefined) {
    if (all || ids.length > 0) throw notWith('dead letters', object)
    return discardParked(session, name, object)
  }
  const chosen = chosenIds(ids, options)
  const discarded = await session.withBus((bus) => bus.streams.dead.discard(name, chosen))
  await sayHowMany(session, { discarded }, `${countOf(discarded, 'dead letter')} given up.`)
  return endOf(session, chosen, discarded)
}

async function discardParked(session: Session, name: string, object: string) {
  return session.withBus(async ({ streams: { parked } }) => {
    const discarded = await parked.discard(name, object)
    await sayHowMany(session, { discarded }, `${countOf(discarded, 'parked event')} given up.`)
    return discarded > 0
      ? exitCodes.ok
      : nothing(session, whyNotResumed(session, await parked.list(name), name, object))
  })
}

async function sayHowMany({ out }: Session, json: Record<string, number>, text: string): Promise<void> {
  await (out.json ? out.printJson(json) : out.print(text))
}

function endOf(session: Session, chosen: readonly string[] | 'all', done: number) {
  const missing = chosen === 'all' ? 0 : new Set(chosen).size - done
  return missing > 0 ? nothing(session, `${countOf(missing, 'id')} named no dead letter.`) : exitCodes.ok
}

async function removeStream({ out, withBus }: Session, name: string) {
  await withBus((bus) => bus.streams.remove(name))
  await (out.json ? out.printJson({ removed: name }) : out.print(`${name} is removed.`))
  return exitCodes.ok
}
