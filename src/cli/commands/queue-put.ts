/** `busbar queue put NAME`: registers a queue, or changes its definition, as bus.queues.put() and the HTTP door do. */
import type { Command } from 'commander'
import { BusbarError, shown } from '../../errors.ts'
import type { QueueOptions } from '../../index.ts'
import { readStart, startForms } from '../../sinks/queue/start.ts'
import { exitCodes } from '../exit.ts'
import type { Runner } from '../program.ts'
import { definitionLines } from '../queue-tables.ts'
import { isRouted, sayUnrouted } from '../routed.ts'
import type { Session } from '../session.ts'

interface Options {
  match?: string[]
  weight?: [tenant: string, weight: number][]
  attempts?: number
  backoff?: [first: string, most: string]
  lease?: string
  from?: 'beginning' | 'now' | number
  force?: boolean
}

export function addQueuePut(queue: Command, run: Runner): void {
  queue
    .command('put')
    .description('make a queue, or change its definition; what is not said is as by default')
    .argument('<name>', 'of the queue')
    .option('--match <pattern>', 'events that enter by themselves; may be repeated (default: none)', collect(asIs))
    .option('--weight <tenant=n>', 'items per turn of a tenant, 0 pauses it; may be repeated', collect(readWeight))
    .option('--attempts <n>', 'how often an item is tried in all, or Infinity (default: 5)', readAttempts)
    .option('--backoff <first,most>', 'the first wait before a retry and the longest (default: 1s,5m)', readBackoff)
    .option('--lease <duration>', "for how long a claimed item is its claimer's (default: 10s)")
    .option('--from <start>', `where a new queue begins: ${startForms} (default: now)`, readStart)
    .option('--force', 'also if this definition was replaced less than ten minutes ago')
    .action(run(putQueue))
}

async function putQueue(session: Session, name: string, options: Options) {
  const { out, withBus } = session
  const { put, routed } = await withBus(async (bus) => ({
    put: await bus.queues.put(name, definitionOf(options)),
    routed: await isRouted(bus),
  }))
  if (out.json) {
    await out.printJson(put)
    return exitCodes.ok
  }
  await out.print(put.change === 'same' ? `${name} is as it was.` : `${name} is ${put.change}.`)
  for (const line of definitionLines(put, out)) await out.print(line)
  if (put.match !== null && !routed) sayUnrouted(session)
  return exitCodes.ok
}

/** Which patterns, weights and durations are right is the bus's to say. */
function definitionOf({ match, weight, attempts, backoff, lease, from, force }: Options): QueueOptions {
  const retry = { ...(attempts === undefined ? {} : { attempts }), ...(backoff === undefined ? {} : { backoff }) }
  const definition = {
    ...(match === undefined ? {} : { match: match.length === 1 ? match[0] : match }),
    ...(weight === undefined ? {} : { weights: Object.fromEntries(weight) }),
    ...{ retry, lease, from, force },
  }
  return definition as QueueOptions
}

const collect =
  <T>(read: (value: string) => T) =>
  (value: string, before: readonly T[] = []): T[] => [...before, read(value)]

const asIs = (value: string): string => value

function readWeight(value: string): [tenant: string, weight: number] {
  const [, tenant, weight] = /^(.+)=(-?\d{1,15})$/.exec(value) ?? []
  if (tenant !== undefined) return [tenant, Number(weight)]
  throw invalid('weight', value, 'must be a tenant and its items per turn, as in acme=3')
}

function readAttempts(value: string): number {
  if (value === 'Infinity' || /^-?\d{1,15}$/.test(value)) return Number(value)
  throw invalid('attempts', value, 'must be a whole number, or Infinity')
}

function readBackoff(value: string): [first: string, most: string] {
  const [first, most, ...more] = value.split(',')
  if (first && most && more.length === 0) return [first, most]
  throw invalid('backoff', value, 'must be two durations, as in 1s,5m')
}

const invalid = (name: string, value: string, problem: string): BusbarError =>
  BusbarError.of('PARAMETER_INVALID', { name, value: shown(value), problem })
