/** Where one event went: from the log, then from each way to consume. */
import { checkId, parseId } from '../event.ts'
import type { LogView } from '../log/view.ts'
import type { Trace, TracedSink } from '../traced.ts'

/** EVENT_NOT_FOUND is no answer here: an event that retention has passed may still be in a queue. */
export async function traceEvent(log: LogView, sinks: readonly TracedSink[], id: string): Promise<Trace> {
  const { partition, seq } = parseId(checkId('id', id))!
  const event = await log.get(id)
  const places = await Promise.all(sinks.map((sink) => sink.trace({ id, partition, seq, event })))
  return { id, event, places: places.flat() }
}
