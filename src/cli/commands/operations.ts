/** `busbar op`, `ops`, `stats` and `trace`: what became of one operation, of an object's, of a queue's, of an event. */
import type { OfOptions, Operation } from '../../index.ts'
import { readPlace } from '../../operations/operation.ts'
import { exitCodes } from '../exit.ts'
import { operationLines, operationRows, statsLines, traceLines } from '../operation-tables.ts'
import { countOption, durationOption } from '../options.ts'
import type { AddCommand } from '../program.ts'
import type { Session } from '../session.ts'
import { sayWhichVerb } from '../verbs.ts'

export const addOp: AddCommand = (program, run) => {
  const op = program
    .command('op')
    .description('show one operation of a tracked queue')
    .argument('<id>', 'of the operation, as send answers it')
    .option('--wait <duration>', 'until it has ended, or for so long', durationOption('wait'))
    .action(run(showOperation))
  op.command('cancel')
    .description('cancel an operation: queued, it never begins; running, its handler is told')
    .argument('<id>', 'of the operation')
    .action(run(cancelOperation))
  sayWhichVerb(op)
}

export const addOps: AddCommand = (program, run) => {
  program
    .command('ops')
    .description('show the operations of one object, newest first')
    .argument('<key>', 'of the object, such as order:42')
    .option('--tenant <name>', 'whose object it is (default: default)')
    .option('--limit <n>', 'at most this many (default: 20)', countOption('limit', 100_000))
    .option('--no-detail', 'without input, output, error, progress and log')
    .action(run(listOperations))
}

export const addStats: AddCommand = (program, run) => {
  program
    .command('stats')
    .description('count the ended operations of a tracked queue, minute by minute')
    .argument('<queue>', 'its name')
    .option('--last <duration>', 'of so long, at most 24h (default: 1h)', durationOption('last'))
    .action(run(showStats))
}

export const addTrace: AddCommand = (program, run) => {
  program
    .command('trace')
    .description('show where an event went: queues, processors, webhooks, and what became of it there')
    .argument('<id>', 'of the event, or of the operation that it is', eventIdOf)
    .action(run(showTrace))
}

const eventIdOf = (id: string): string => readPlace(id)?.itemId ?? id

async function showOperation({ out, withBus }: Session, id: string, { wait }: { wait?: number }) {
  const operation = await withBus(({ operations }) =>
    wait === undefined ? operations.get(id) : operations.wait(id, { timeout: wait, signal: out.closed }),
  )
  return printOperation(out, operation)
}

async function cancelOperation({ out, withBus }: Session, id: string) {
  const { before, operation } = await withBus(async ({ operations }) => ({
    before: await operations.get(id),
    operation: await operations.cancel(id),
  }))
  await printOperation(out, operation)
  if (out.json) return exitCodes.ok
  if (before.finishedAt !== null) out.note('It had ended before: nothing has changed.')
  else if (operation.cancelling)
    out.note(
      'It runs, and its handler is told: one that ignores its signal goes on until its timeout, or the end of its worker.',
    )
  return exitCodes.ok
}

async function printOperation(out: Session['out'], operation: Operation) {
  if (out.json) await out.printJson(operation)
  else for (const line of operationLines(operation, out)) await out.print(line)
  return exitCodes.ok
}

interface OpsOptions extends Omit<OfOptions, 'detail'> {
  limit?: number
  detail: boolean
}

const defaultLimit = 20

async function listOperations({ out, config, withBus }: Session, key: string, options: OpsOptions) {
  const { limit = defaultLimit, detail, ...ofTenant } = options
  const found = await withBus(async ({ operations }) => {
    const some = []
    const all = detail ? operations.of(key, ofTenant) : operations.of(key, { ...ofTenant, detail })
    for await (const operation of all) {
      if (some.push(operation) === limit) break
    }
    return some
  })
  if (out.json) {
    for (const operation of found) await out.printJson(operation)
    return exitCodes.ok
  }
  if (found.length === 0)
    out.note(
      `No tracked queue knows an operation of it in namespace "${config.namespace}": none in the last 24 hours, or another tenant.`,
    )
  else for (const line of operationRows(found, out)) await out.print(line)
  return exitCodes.ok
}

const defaultLastMs = 3_600_000

async function showStats({ out, withBus }: Session, queue: string, { last = defaultLastMs }: { last?: number }) {
  const stats = await withBus(({ operations }) => operations.stats(queue, { last }))
  if (out.json) await out.printJson(stats)
  else for (const line of statsLines(stats, out)) await out.print(line)
  return exitCodes.ok
}

async function showTrace({ out, withBus }: Session, id: string) {
  const trace = await withBus((bus) => bus.trace(id))
  const { event, places } = trace
  if (out.json) {
    const head = JSON.stringify({ id, places })
    await out.printJsonText(`${head.slice(0, -1)},"event":${event?.toText() ?? null}}`)
    return exitCodes.ok
  }
  const others = places.length === 0 ? ', and nobody else knows it' : ': only what still knows it is shown'
  if (!event) out.note(`The log does not keep it any more, or never had it${others}.`)
  else if (places.length === 0) out.note('It went nowhere: no queue, processor or webhook wants it.')
  if (places.length > 0) for (const line of traceLines(trace, out)) await out.print(line)
  return exitCodes.ok
}
