/** `busbar queue put NAME`: registers a queue, or changes its definition, as bus.queues.put() and the HTTP door do. */
import type { Command } from 'commander'
import { parseDuration } from '../../duration.ts'
import { BusbarError, shown } from '../../errors.ts'
import type { LimitOptions, QueueOptions, RateOption } from '../../index.ts'
import { readStart, startForms } from '../../sinks/queue/start.ts'
import { exitCodes } from '../exit.ts'
import { backoffOption, choiceOption, collect, countOption, kebab } from '../options.ts'
import type { Runner } from '../program.ts'
import { definitionLines } from '../queue-tables.ts'
import { isRouted, sayUnrouted } from '../routed.ts'
import type { Session } from '../session.ts'
import { takenAway } from '../taken-away.ts'

interface Options extends LimitOptions {
  match?: string[]
  weight?: [tenant: string, weight: number][]
  attempts?: number
  backoff?: [first: string, most: string]
  lease?: string
  ordered?: boolean
  onPoison?: 'skip' | 'park'
  track?: 'all' | 'failures'
  redact?: string[]
  from?: 'beginning' | 'now' | number
  force?: boolean
}

export function addQueuePut(queue: Command, run: Runner): void {
  const put = queue
    .command('put')
    .description('make a queue, or change its definition; what is not said is as by default')
    .argument('<name>', 'of the queue')
    .option('--match <pattern>', 'events that enter by themselves; may be repeated (default: none)', collect(String))
    .option('--weight <tenant=n>', 'items per turn of a tenant, 0 pauses it; may be repeated', collect(readWeight))
    .option('--attempts <n>', 'how often an item is tried in all, or Infinity (default: 5)', readAttempts)
    .option('--backoff <first,most>', 'the first wait before a retry and the longest (default: 1s,5m)', backoffOption)
    .option('--lease <duration>', "for how long a claimed item is its claimer's (default: 10s)")
    .option('--ordered', 'of the items of a tenant with the same key one at a time, in order; cannot be changed later')
    .option(
      '--on-poison <what>',
      'after the last attempt of an item: skip (a dead letter), or with --ordered park (its object is set aside) (default: skip)',
      choiceOption('on-poison', ['skip', 'park']),
    )
  addLimits(put)
    .option(
      '--track <what>',
      'keep what became of its items for 24 hours: all, or failures only (default: not at all)',
      choiceOption('track', ['all', 'failures']),
    )
    .option(
      '--redact <field>',
      'never shown of tracked items; may be repeated; replaces the default list (password, token and the like)',
      collect(String),
    )
    .option('--from <start>', `where a new queue begins: ${startForms} (default: now)`, readStart)
    .option('--force', 'also if this definition was replaced less than ten minutes ago')
    .action(run(putQueue))
}

const mostCount = 1_000_000_000

function addLimits(put: Command): Command {
  const rate = (name: string) => readRate.bind(undefined, name)
  return put
    .option('--in-flight <n>', 'items held at once, by all workers together', countOption('in-flight', mostCount))
    .option('--in-flight-per-tenant <n>', 'the same, of one tenant', countOption('in-flight-per-tenant', mostCount))
    .option('--max-share <share>', 'of what is held, by one tenant while others wait: 0.01 to 1', readShare)
    .option('--rate <n/time>', 'items given in a time, such as 100/s or 5/10m', rate('rate'))
    .option('--rate-per-tenant <n/time>', 'the same, of one tenant', rate('rate-per-tenant'))
    .option(
      '--backlog <n>',
      'items of one tenant that may wait; then send is refused',
      countOption('backlog', mostCount),
    )
    .option(
      '--overflow <what>',
      'events beyond the backlog: hold (in the log), drop-oldest or dead (default: hold)',
      choiceOption('overflow', ['hold', 'drop-oldest', 'dead']),
    )
}

async function putQueue(session: Session, name: string, options: Options) {
  const { out, withBus } = session
  const { before, put, routed } = await withBus(async (bus) => ({
    before: await bus.queues.get(name).catch(() => undefined),
    put: await bus.queues.put(name, definitionOf(options)).catch(inFlags),
    routed: await isRouted(bus),
  }))
  const gone = before === undefined ? [] : takenAway(before, put)
  if (out.json) {
    await out.printJson(put)
    if (gone.length > 0) out.noteJson({ noLonger: gone })
    return exitCodes.ok
  }
  await out.print(put.change === 'same' ? `${name} is as it was.` : `${name} is ${put.change}.`)
  for (const line of definitionLines(put, out)) await out.print(line)
  if (gone.length > 0)
    out.note(`No longer: ${gone.join(', ')}. A definition is put as a whole: what is not said is as by default.`)
  if (put.match !== null && !routed) sayUnrouted(session)
  return exitCodes.ok
}

/** Which patterns, weights and durations are right is the bus's to say. */
function definitionOf({ match, weight, attempts, backoff, ...rest }: Options): QueueOptions {
  const { lease, from, force, ordered, onPoison, track, redact, ...limits } = rest
  const retry = { ...(attempts === undefined ? {} : { attempts }), ...(backoff === undefined ? {} : { backoff }) }
  const definition = {
    ...(match === undefined ? {} : { match: match.length === 1 ? match[0] : match }),
    ...(weight === undefined ? {} : { weights: Object.fromEntries(weight) }),
    ...{ retry, lease, from, force, ordered, onPoison, limits, redact },
    ...(track === undefined ? {} : { track: track === 'all' ? true : track }),
  }
  return definition as QueueOptions
}

/** The bus speaks of its options: whoever has typed flags is told of flags. */
function inFlags(error: unknown): never {
  if (!(error instanceof BusbarError) || error.code !== 'SETTING_INVALID') throw error
  const { problems } = error.details as { problems: string[] }
  throw BusbarError.of('SETTING_INVALID', { problems: problems.map(problemInFlags) }, error)
}

const problemInFlags = (problem: string): string =>
  problem
    .replace(/^weights\.(?=\S)/, '--weight ')
    .replace(/^retry\.(attempts|backoff)/, '--$1')
    .replace(/^(lease|from) /, '--$1 ')
    .replace(/^onPoison: 'park'/, '--on-poison park')
    .replace(/\bordered: true\b/, '--ordered')
    .replace('leave out ordered', 'leave out --ordered')
    .replace(/^limits\.(\w+)\.(max|per)\b/, (_, name: string, part: string) =>
      part === 'max' ? `the items of --${kebab(name)}` : `the time of --${kebab(name)}`,
    )
    .replace(/\blimits\.(\w+)/g, (_, name: string) => `--${kebab(name)}`)

function readWeight(value: string): [tenant: string, weight: number] {
  const [, tenant, weight] = /^(.+)=(-?\d{1,15})$/.exec(value) ?? []
  if (tenant !== undefined) return [tenant, Number(weight)]
  throw invalid('weight', value, 'must be a tenant and its items per turn, as in acme=3')
}

function readAttempts(value: string): number {
  if (value === 'Infinity' || /^-?\d{1,15}$/.test(value)) return Number(value)
  throw invalid('attempts', value, 'must be a whole number, or Infinity')
}

function readShare(value: string): number {
  if (/^\d*\.?\d+$/.test(value)) return Number(value)
  throw invalid('max-share', value, 'must be a number from 0.01 to 1, as in 0.5')
}

function readRate(name: string, value: string): RateOption {
  const [, max, per = ''] = /^(\d{1,15})\/([\d.]*[a-z]+)$/i.exec(value) ?? []
  const parsed = parseDuration(/^\d/.test(per) ? per : `1${per}`)
  if (max !== undefined && parsed.ok) return { max: Number(max), per: parsed.value }
  throw invalid(name, value, 'must be items and a time, as in 100/s or 5/10m')
}

const invalid = (name: string, value: string, problem: string): BusbarError =>
  BusbarError.of('PARAMETER_INVALID', { name, value: shown(value), problem })
