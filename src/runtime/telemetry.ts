/**
 * Named events about Busbar itself. Each becomes one log line and one count; nothing else is logged.
 *
 * The table names every event with its level and a sentence for docs/telemetry.md, where a test holds them together.
 */

export type Level = 'debug' | 'info' | 'warn' | 'error'
export type Fields = Readonly<Record<string, string | number | boolean | null | undefined>>

export const telemetryTable = {
  'bus.started': ['info', 'A bus began to run: namespace, partitions, process.'],
  'bus.closed': ['info', 'A bus was closed.'],
  'redis.connected': ['debug', 'A connection became ready.'],
  'redis.lost': ['warn', 'A connection was lost; it is retried until the bus is closed.'],
  'redis.embedded-started': ['info', 'The embedded Redis was started by this process.'],
  'redis.embedded-shared': ['info', 'The embedded Redis of the data folder was already running and is shared.'],
  'redis.embedded-stopped': ['info', 'This process was the last user of the embedded Redis and stopped it.'],
  'loop.failed': ['error', 'One turn of a background loop threw; it backs off and goes on.'],
  'publish.repeated': ['warn', 'A flush had no answer and was sent again under its number.'],
  'publish.unknown': ['warn', 'A call ended with its outcome unknown.'],
  'log.rolled-back': ['error', 'The log ends before a position already read: Redis lost its tail.'],
  'log.trimmed': ['info', 'Retention removed events from a partition.'],
  'log.lost-unread': ['error', 'The hard cap removed events that a registered cursor had not passed.'],
  'live.gap': ['warn', 'Retention passed a live reader: events between two positions were not delivered.'],
  'live.cut': ['warn', 'A live reader did not take its events and was cut.'],
  'leader.gained': ['info', 'This process leads from now on.'],
  'leader.lost': ['info', 'This process does not lead any more.'],
  'task.gained': ['info', 'Of the processes that declare a task this one runs it from now on.'],
  'task.lost': ['info', 'Another process runs the task from now on, or none.'],
  'task.failed': ['error', 'A task threw; its schedule goes on.'],
  'task.skipped': ['warn', 'A task was due while it still ran: this tick was left out.'],
  'schedule.fired': ['debug', 'A tick of a schedule was published.'],
  'schedule.failed': ['error', 'A schedule could not be fired; it is tried again.'],
  'schedule.missed': [
    'warn',
    'Ticks of a schedule were older than the idempotency window when a leader came: they are left out.',
  ],
  'delayed.appended': ['debug', 'Delayed events that were due went into the log.'],
  'group.replaced': [
    'error',
    'Another process has joined a group under the same name: this one stopped working in it.',
  ],
  'stream.gained': ['debug', 'A processor was given a partition: from this cursor on, under this epoch.'],
  'stream.lost': ['debug', 'A processor has let a partition go, or lost it.'],
  'stream.stale': ['warn', 'A commit came too late: the partition has another epoch by now. Nothing was written.'],
  'stream.failed': ['warn', 'A handler threw; its events are tried again, or given up.'],
  'stream.buried': ['error', 'An event became a dead letter after its last attempt.'],
  'stream.parked': ['error', "An object was set aside after its event's last attempt."],
  'stream.blocked': ['error', 'A partition was blocked: it goes on when someone resumes it.'],
  'stream.stuck': ['error', 'Something unexpected keeps a partition from going on; it is tried again.'],
  'stream.gap': ['error', 'Retention passed a processor: events between two positions were not handled.'],
  'route.gained': ['debug', 'A router was given a partition: from this cursor on, under this epoch.'],
  'route.lost': ['debug', 'A router has let a partition go, or lost it.'],
  'route.failed': ['error', 'Something unexpected keeps a partition from being routed; it is tried again.'],
  'route.gap': ['error', 'Retention passed a subscription: events between two positions were not routed.'],
  'route.unroutable': [
    'error',
    'A record of the log is not what an event must be: no queue and no webhook gets it. Said of the first; `fsck` finds all.',
  ],
  'sink.behind': ['warn', 'A store refused events or did not answer: it is tried by itself, the others go on.'],
  'sink.caught-up': ['info', 'A store that was behind has everything again.'],
  'sink.remade': ['error', 'The store of a subscription was not there: it was made again, empty.'],
  'subscription.changed': ['info', 'A subscription was created, changed or removed by this process.'],
  'queue.failed': ['warn', 'A handler threw or took too long; its item is tried again, or given up.'],
  'queue.buried': ['error', 'An item became a dead letter after its last attempt.'],
  'queue.parked': ['error', "An object was set aside after its item's last attempt."],
  'queue.stale': ['warn', 'What became of an item was said too late: its lease had lapsed. Nothing was changed.'],
  'queue.stuck': ['error', 'Something unexpected keeps a queue from going on; it is tried again.'],
  'queue.gone': ['warn', 'A worker draws from a queue that is not registered any more; it looks again every second.'],
  'queue.replaced': ['error', 'Another process works under the same name: this one claims nothing more.'],
  'memory.closed': ['error', 'Redis was nearly full: nothing is published for some seconds, or until there is room.'],
  'memory.forgotten': ['warn', 'Redis was nearly full: ended operations of a tracked queue were forgotten early.'],
  'memory.dropped': [
    'error',
    'Redis was nearly full: dead letters, or waiting items of the largest backlog, were dropped.',
  ],
  'memory.stuck': ['error', 'Redis is nearly full, and nothing is left to drop: others fill it, or what is held does.'],
  'memory.untold': [
    'warn',
    'No event could be published of what was dropped; it is tried again unless it never can be.',
  ],
  'webhook.opened': [
    'info',
    'This process posts webhooks to more than public addresses by https: to which, and by http.',
  ],
  'webhook.delivered': ['debug', 'A batch was taken: to which webhook, which attempt, how it was answered.'],
  'webhook.failed': ['warn', 'A batch was not taken: which attempt, how it was answered, what becomes of it.'],
  'webhook.disabled': [
    'error',
    'A webhook was disabled, by its receiver or for failing too long; its events are kept.',
  ],
  'webhook.dropped': ['error', 'A webhook keeps no more events: so many of the oldest that waited were dropped.'],
  'webhook.stuck': ['error', 'Something unexpected keeps webhooks of a shard from going on; it is tried again.'],
  'http.started': ['info', 'The HTTP door listens.'],
  'http.request': ['debug', 'One HTTP request was answered.'],
  'http.failed': ['error', 'A request ended in an unexpected error.'],
} as const satisfies Record<string, readonly [Level, string]>

export type TelemetryName = keyof typeof telemetryTable

export interface TelemetryEvent {
  name: TelemetryName
  level: Level
  time: number
  fields: Fields
}

export type TelemetryListener = (event: TelemetryEvent) => void

export interface Telemetry {
  emit(name: TelemetryName, fields?: Fields): void
  /** From now on the listener gets every event too. */
  listen(listener: TelemetryListener): void
  /** How often each event was emitted since the start. */
  counts(): ReadonlyMap<TelemetryName, number>
}

/** Whoever listens must not break what it listens to. */
function tell(listener: TelemetryListener, event: TelemetryEvent): void {
  try {
    listener(event)
  } catch (error) {
    process.emitWarning(`A listener of telemetry threw at ${event.name}: ${String(error)}`, 'BusbarWarning')
  }
}

export function createTelemetry(now: () => number, first: readonly TelemetryListener[] = []): Telemetry {
  const listeners = [...first]
  const counts = new Map<TelemetryName, number>()
  return {
    emit(name, fields = {}) {
      counts.set(name, (counts.get(name) ?? 0) + 1)
      const event: TelemetryEvent = { name, level: telemetryTable[name][0], time: now(), fields }
      for (const listener of listeners) tell(listener, event)
    },
    listen: (listener) => void listeners.push(listener),
    counts: () => counts,
  }
}

const levels: readonly Level[] = ['debug', 'info', 'warn', 'error']

/** One JSON object per line, as log collectors expect it. */
export function jsonLines(write: (line: string) => void, from: Level = 'info'): TelemetryListener {
  const least = levels.indexOf(from)
  return ({ name, level, time, fields }) => {
    if (levels.indexOf(level) < least) return
    write(`${JSON.stringify({ time: new Date(time).toISOString(), level, event: name, ...fields })}\n`)
  }
}
