/** `busbar tail PATTERN…`: follows the log until it is ended, has its number of events, or nobody reads on. */
import { parseDuration } from '../../duration.ts'
import { BusbarError, shown } from '../../errors.ts'
import type { TelemetryListener } from '../../runtime/telemetry.ts'
import { readTime } from '../../time.ts'
import { createEventRows, timeText } from '../event-row.ts'
import { exitCodes } from '../exit.ts'
import { type Followed, follow } from '../follow.ts'
import { createLog } from '../log-lines.ts'
import { countOption } from '../options.ts'
import type { Output } from '../output.ts'
import type { AddCommand } from '../program.ts'
import { reachRedis, type Session } from '../session.ts'
import { onEndRequest } from '../signals.ts'

interface Options {
  since: string
  limit?: number
}

export const addTail: AddCommand = (program, run) => {
  program
    .command('tail')
    .description('follow events as they are published')
    .argument('[patterns...]', "which ones: order.paid 'order.*' 'acme:order.>' '/regex/' (default: every event)")
    .option('--since <when>', 'now, beginning, a time (ms or ISO date), a duration ago (10m), or a cursor', 'now')
    .option('--limit <n>', 'end after this many events', countOption('limit'))
    .action(run(tail))
}

async function tail(session: Session, patterns: string[], { since, limit }: Options) {
  const { out } = session
  using end = onEndRequest()
  const bus = session.openBus(tailLog(session))
  try {
    const events = follow(bus, patterns.length > 0 ? patterns : ['>'], {
      since: readSince(since, Date.now()),
      signal: AbortSignal.any([end.asked, out.closed]),
      onGap: (gap) => sayGap(gap, out),
    })
    await Promise.race([reachRedis(bus), end.whenAsked])
    const cursor = await printEvents(events, limit, out).catch((error) => {
      throw sinceError(error, since)
    })
    if (cursor !== undefined && !out.closed.aborted) sayCursor(cursor, out)
  } finally {
    await bus.close()
  }
  return exitCodes.ok
}

/** What is no cursor was not always meant to be one: here there are more choices than the library has. */
function sinceError(error: unknown, since: string): unknown {
  if (!(error instanceof BusbarError) || error.details.problem !== 'is not a cursor') return error
  const problem = 'must be now, beginning, a time (ms or ISO date), a duration ago such as 10m, or a cursor of tail'
  return BusbarError.of('PARAMETER_INVALID', { name: 'since', value: shown(since), problem }, error)
}

/** Answers where to go on after the last printed event. */
async function printEvents(
  events: AsyncIterable<Followed>,
  limit: number | undefined,
  out: Output,
): Promise<string | undefined> {
  const row = createEventRows(out)
  let count = 0
  let last: string | undefined
  for await (const { event, cursor } of events) {
    last = cursor()
    await (out.json ? out.printJsonText(event.toText()) : out.print(row(event)))
    count += 1
    if (count === limit) break
  }
  return last
}

/** Times and durations as numbers; anything else is for the reader to judge. */
export function readSince(since: string, now: number): string | number {
  const ago = /^\d+(ms|s|m|h|d)$/.test(since) ? parseDuration(since) : undefined
  if (ago?.ok) return Math.max(0, now - ago.value)
  return readTime(since) ?? since
}

function tailLog(session: Session): TelemetryListener {
  const { out } = session
  const log = createLog({ json: out.json, from: session.logLevel('warn'), colors: out.errorColors, write: out.note })
  return (event) => {
    // Said in other words, by sayGap.
    if (event.name !== 'live.gap') log(event)
  }
}

function sayGap(gap: { partition: number; from: number; to: number }, out: Output): void {
  if (out.json) return out.note(JSON.stringify({ gap }))
  const upTo = timeText(Math.floor(gap.to / 1000))
  out.note(out.errorColors.yellow(`gap: events of partition ${gap.partition} up to ${upTo} are no longer kept`))
}

function sayCursor(cursor: string, out: Output): void {
  if (out.json) out.note(JSON.stringify({ cursor }))
  else out.note(out.errorColors.dim(`To go on after the last event: --since ${cursor}`))
}
