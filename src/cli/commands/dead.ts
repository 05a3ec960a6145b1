/** `busbar dead`: what queues, processors and webhooks have given up on, and what to do about it. */
import type { Command } from 'commander'
import { type AnyLetter, type DeadChoice, type DeadFilter, type DeadView, letterJson } from '../../dead-letters.ts'
import { didYouMean } from '../../did-you-mean.ts'
import { BusbarError, shown } from '../../errors.ts'
import type { WebhookLetter } from '../../index.ts'
import { readPlace } from '../../operations/operation.ts'
import { timeForms } from '../../time.ts'
import { exitCodes } from '../exit.ts'
import { choiceOption, countOption, numberOption, timeOption } from '../options.ts'
import type { Output } from '../output.ts'
import type { AddCommand } from '../program.ts'
import type { CliBus, Session } from '../session.ts'
import { countOf, countText, deadLines, reasonLines } from '../stream-tables.ts'
import { tableLines } from '../table.ts'
import { sayWhatWasMeant } from '../verbs.ts'
import { batchLetterLines } from '../webhook-tables.ts'

const kinds = ['queue', 'processor', 'webhook'] as const
type Kind = (typeof kinds)[number]

export interface ChoiceOptions extends Omit<DeadFilter, 'ids'> {
  kind?: Kind
  all?: boolean
}

interface ListOptions extends ChoiceOptions {
  limit?: number
  offset?: number
  byReason?: boolean
}

export const addDead: AddCommand = (program, run) => {
  const dead = program
    .command('dead')
    .description('show where dead letters are: what queues, processors and webhooks have given up on')
    .action(run(listPlaces))
  const add = (verb: string, description: string) =>
    dead.command(verb).description(description).argument('<name>', 'of the queue, processor or webhook')
  filtered(add('ls', 'show the dead letters of one of them, oldest first'))
    .option('--limit <n>', 'at most this many (default: 100)', countOption('limit', 10_000))
    .option('--offset <n>', 'pass over this many first', numberOption('offset'))
    .option('--by-reason', 'count them by why they were given up')
    .action(run(listLetters))
  const ids = ['[ids...]', 'as `busbar dead ls` lists them; of a queue also those of operations'] as const
  filtered(add('redrive', 'put dead letters back in line').argument(...ids))
    .option('--all', 'every one of them')
    .action(run(redrive))
  filtered(add('discard', 'give dead letters up for good').argument(...ids))
    .option('--all', 'every one of them')
    .action(run(discard))
  sayWhatWasMeant(dead, 'ls')
}

function filtered(command: Command): Command {
  return command
    .option(
      '--kind <kind>',
      'queue, processor or webhook, where two of them have this name',
      choiceOption('kind', kinds),
    )
    .option('--tenant <name>', 'only those of this tenant')
    .option('--type <type>', 'only those of this type')
    .option('--reason <text>', 'only those whose error has this in it')
    .option('--before <time>', `only those that are dead since before: ${timeForms}`, timeOption('before'))
}

interface Place {
  name: string
  kind: Kind
  dead: number
}

async function placesIn({ queues, streams, webhooks }: CliBus): Promise<Place[]> {
  const [allQueues, allStreams, allHooks] = await Promise.all([queues.list(), streams.list(), webhooks.list()])
  return [
    ...allQueues.map(({ name, dead }) => ({ name, kind: 'queue' as const, dead })),
    ...allStreams.map(({ name, dead }) => ({ name, kind: 'processor' as const, dead })),
    ...allHooks.map(({ name, letters }) => ({ name, kind: 'webhook' as const, dead: letters })),
  ]
}

async function listPlaces({ out, withBus }: Session) {
  const places = (await withBus(placesIn)).filter(({ dead }) => dead > 0)
  if (out.json) for (const place of places) await out.printJson(place)
  else if (places.length === 0) out.note('There are no dead letters.')
  else {
    const columns = [{ title: 'name' }, { title: 'kind' }, { title: 'dead', side: 'right' as const }]
    const rows = places.map(({ name, kind, dead }) => [name, kind, countText(dead)])
    for (const line of tableLines(columns, rows, out.colors.bold)) await out.print(line)
  }
  return exitCodes.ok
}

/** Whose they are: a processor may have the name of a queue or webhook. */
async function deadOf(bus: CliBus, name: string, kind: Kind | undefined): Promise<DeadView<AnyLetter>> {
  const places = (await placesIn(bus)).filter((place) => kind === undefined || place.kind === kind)
  const found = places.filter((place) => place.name === name)
  if (found.length > 1) {
    const problem = `is a ${found.map((place) => place.kind).join(' and a ')}: say which with --kind`
    throw BusbarError.of('PARAMETER_INVALID', { name: 'name', value: shown(name), problem })
  }
  const names = places.map((place) => place.name)
  const meant = didYouMean(name, names)
  if (!found[0] && kind === 'webhook') throw BusbarError.of('WEBHOOK_NOT_FOUND', { name: shown(name), meant })
  if (!found[0]) throw BusbarError.of('QUEUE_NOT_FOUND', { name: shown(name), meant, orOther: kind !== 'queue' })
  return { queue: bus.queues, processor: bus.streams, webhook: bus.webhooks }[found[0].kind].dead
}

function filterOf({ tenant, type, reason, before }: ChoiceOptions): DeadFilter {
  return Object.fromEntries(Object.entries({ tenant, type, reason, before }).filter(([, value]) => value !== undefined))
}

async function listLetters(session: Session, name: string, options: ListOptions) {
  const { out, withBus } = session
  const { kind, limit, offset, byReason = false } = options
  const filter = filterOf(options)
  if (byReason) return listReasons(session, name, kind, filter)
  const page = { ...(limit === undefined ? {} : { limit }), ...(offset === undefined ? {} : { offset }) }
  const letters = await withBus(async (bus) => (await deadOf(bus, name, kind)).list(name, { ...filter, ...page }))
  if (out.json) for (const letter of letters) await out.printJsonText(letterJson(letter))
  else if (letters.length === 0) out.note('There are no such dead letters here.')
  else for (const line of letterLines(letters, out)) await out.print(line)
  return exitCodes.ok
}

const letterLines = (letters: readonly AnyLetter[], out: Output): string[] =>
  letters.every(isBatch) ? batchLetterLines(letters, out) : deadLines(letters, out)

const isBatch = (letter: AnyLetter): letter is WebhookLetter => 'sealedAt' in letter

async function listReasons({ out, withBus }: Session, name: string, kind: Kind | undefined, filter: DeadFilter) {
  const reasons = await withBus(async (bus) => (await deadOf(bus, name, kind)).reasons(name, filter))
  if (out.json) for (const reason of reasons) await out.printJson(reason)
  else if (reasons.length === 0) out.note('There are no such dead letters here.')
  else for (const line of reasonLines(reasons, out)) await out.print(line)
  return exitCodes.ok
}

function choiceOf(ids: readonly string[], options: ChoiceOptions): DeadChoice {
  const filter = filterOf(options)
  const isFiltered = Object.keys(filter).length > 0
  const { all = false } = options
  if (all && (ids.length > 0 || isFiltered)) {
    const others = [...(ids.length > 0 ? ['the ids'] : []), ...Object.keys(filter).map((name) => `--${name}`)].join(
      ', ',
    )
    throw choiceError('all', `means every dead letter: leave out ${others}, or leave out --all`)
  }
  if (all) return 'all'
  if (ids.length === 0 && !isFiltered)
    throw choiceError(
      'ids',
      'is missing: name dead letters as `busbar dead ls` lists them, or say which by --tenant, --type, --reason or --before, or --all',
    )
  return ids.length === 0 ? filter : { ...filter, ids }
}

const choiceError = (name: string, problem: string): BusbarError =>
  BusbarError.of('PARAMETER_INVALID', { name, problem })

/** Of a queue: a letter is called as its item is, and the operations of its items are known as well. */
function letterIds(name: string, given: readonly string[]): readonly string[] {
  return given.map((id) => {
    const place = readPlace(id)
    return place?.queue === name ? place.itemId : id
  })
}

export async function redrive(session: Session, name: string, given: string[], options: ChoiceOptions) {
  const ids = letterIds(name, given)
  const which = choiceOf(ids, options)
  const redriven = await session.withBus(async (bus) => (await deadOf(bus, name, options.kind)).redrive(name, which))
  return sayHowMany(session, ids, redriven, { redriven }, `${countOf(redriven, 'dead letter')} back in line.`)
}

export async function discard(session: Session, name: string, given: string[], options: ChoiceOptions) {
  const ids = letterIds(name, given)
  const which = choiceOf(ids, options)
  const discarded = await session.withBus(async (bus) => (await deadOf(bus, name, options.kind)).discard(name, which))
  return sayHowMany(session, ids, discarded, { discarded }, `${countOf(discarded, 'dead letter')} given up.`)
}

async function sayHowMany({ out }: Session, ids: readonly string[], done: number, json: object, text: string) {
  await (out.json ? out.printJson(json) : out.print(text))
  const missing = ids.length === 0 ? 0 : new Set(ids).size - done
  if (missing <= 0) return exitCodes.ok
  if (!out.json) out.note(`${countOf(missing, 'id')} named no such dead letter.`)
  return exitCodes.failed
}
