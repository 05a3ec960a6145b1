/**
 * Every error that leaves Busbar: one class, one table of codes.
 *
 * A message says what was wrong, with the value and the limit, and what to do about it.
 * `status` is what the HTTP door answers; `retryable` means the same call may succeed later.
 * Expected endings (an empty claim, a duplicate) are values, not errors.
 */

interface Row<Details> {
  status: number
  retryable: boolean
  message: (details: Details) => string
}

const row = <Details>(status: number, retryable: boolean, message: (details: Details) => string): Row<Details> => ({
  status,
  retryable,
  message,
})

export const errorTable = {
  EVENT_INVALID: row(
    400,
    false,
    (e: { field: string; value: string; problem: string }) => `Event field "${e.field}" ${e.problem}; got ${e.value}.`,
  ),
  EVENT_TOO_LARGE: row(
    413,
    false,
    (e: { field?: string; bytes: number; maxBytes: number }) =>
      `Event field "${e.field ?? 'data'}" is ${e.bytes} bytes; the limit is ${e.maxBytes}. Publish a reference to the data instead.`,
  ),
  DATA_UNSERIALISABLE: row(400, false, (e: { field?: string; problem: string; isText?: boolean }) =>
    e.isText
      ? `Event field "${e.field ?? 'data'}" is not JSON: ${e.problem}.`
      : `Event field "${e.field ?? 'data'}" cannot be written as JSON: ${e.problem}. Pass plain JSON values.`,
  ),
  CALL_TOO_LARGE: row(
    413,
    false,
    (e: { events?: number; maxEvents: number; bytes?: number; maxBytes: number }) =>
      `One call carries ${e.events === undefined ? `${e.bytes} bytes` : `${e.events} events`}; the limit is ${e.maxEvents} events and ${e.maxBytes} bytes. Split it into several calls.`,
  ),
  SCHEMA_VIOLATION: row(
    422,
    false,
    (e: { type: string; issues: string[] }) =>
      `Data of "${e.type}" does not fit its schema: ${e.issues.join('; ')}. Correct the data, or change the schema in the event registry.`,
  ),
  CONFLICT: row(
    409,
    false,
    (e: { key: string; expectPrev: number | null; head: number | null }) =>
      `expectPrev of key ${e.key} is ${e.expectPrev}, its head is ${e.head}. Read the object again and decide anew.`,
  ),
  IDEMPOTENCY_KEY_REUSED: row(
    409,
    false,
    (e: { idempotencyKey: string }) =>
      `Idempotency key ${e.idempotencyKey} was used for another body within the last 24 hours. Use a new key for a new event.`,
  ),
  BACKLOG_FULL: row(
    429,
    true,
    (e: { queue: string; tenant: string; most: number }) =>
      `Tenant "${e.tenant}" has ${e.most} ${e.most === 1 ? 'item' : 'items'} waiting in queue "${e.queue}"; that is the limit (limits.backlog). Send again when some of them are done, or raise it.`,
  ),
  BUSY: row(
    503,
    true,
    (e: { waiting: number; waitingBytes: number; maxWaiting: number; maxWaitingBytes: number }) =>
      `${e.waiting} calls (${e.waitingBytes} bytes) already wait to be published; the limit is ${e.maxWaiting} calls and ${e.maxWaitingBytes} bytes. Nothing of this call was stored; try again later.`,
  ),
  NOT_STORED: row(
    503,
    true,
    (e: { timeoutMs: number; problem: string }) =>
      `Nothing was stored within ${e.timeoutMs} ms: ${e.problem}. It is safe to publish again.`,
  ),
  OUTCOME_UNKNOWN: row(
    504,
    true,
    (e: { timeoutMs: number }) =>
      `No answer within ${e.timeoutMs} ms after the events were sent: they may be stored or not. Publish again with the same idempotencyKey to be sure of exactly one.`,
  ),
  REDIS_OUT_OF_MEMORY: row(
    503,
    true,
    () =>
      'Redis has reached its maxmemory and refused the write; nothing was stored. Raise maxmemory or lower the retention.',
  ),
  PUBLISHING_CLOSED: row(
    503,
    true,
    () =>
      'Redis is nearly full, so publishing is closed until there is room; nothing was stored. Work off what waits, raise maxmemory or lower the retention, and try again.',
  ),
  REDIS_UNAVAILABLE: row(
    503,
    true,
    (e: { problem: string }) =>
      `Redis cannot be reached: ${e.problem}. Check the server and the redis setting; the connection is retried.`,
  ),
  REDIS_UNSUITABLE: row(
    500,
    false,
    (e: { problem: string; remedy: string }) => `This Redis cannot carry Busbar: ${e.problem}. ${e.remedy}`,
  ),
  REDIS_NOT_INSTALLED: row(
    500,
    false,
    (e: { remedy: string }) =>
      `Neither redis-server nor valkey-server (7.0 or newer) was found on this machine. ${e.remedy}`,
  ),
  REDIS_NOT_STARTED: row(
    500,
    true,
    (e: { problem: string; log: string }) => `The embedded Redis did not start: ${e.problem}. Its log is ${e.log}.`,
  ),
  WRITE_REFUSED: row(
    500,
    false,
    (e: { problem: string }) => `Redis refused the write and stored nothing: ${e.problem}. Run "busbar doctor".`,
  ),
  PARTITIONS_MISMATCH: row(
    409,
    false,
    (e: { namespace: string; stored: number; asked: number }) =>
      `Namespace "${e.namespace}" has ${e.stored} partitions, but ${e.asked} were asked for. The count is fixed when a namespace is created: use ${e.stored}, or a new namespace.`,
  ),
  PATTERN_INVALID: row(400, false, (e: { pattern: string; problem: string }) => `Pattern ${e.pattern} ${e.problem}.`),
  CURSOR_INVALID: row(
    400,
    false,
    (e: { value: string; problem: string }) =>
      `Cursor ${e.value} ${e.problem}. Use a cursor that a live reader gave, a time in ms, "beginning" or "now".`,
  ),
  STREAM_NOT_FOUND: row(
    404,
    false,
    (e: { name: string; namespace: string; meant?: string | undefined }) =>
      `There is no processor ${e.name} in namespace "${e.namespace}".${e.meant ? ` Did you mean ${e.meant}?` : ''} \`busbar streams --namespace ${e.namespace}\` lists those there are.`,
  ),
  WEBHOOK_NOT_FOUND: row(
    404,
    false,
    (e: { name: string; meant: string | undefined }) =>
      `There is no webhook ${e.name}, or it was removed.${e.meant ? ` Did you mean ${e.meant}?` : ''} \`busbar webhooks\` lists those there are, \`busbar webhooks put\` makes one.`,
  ),
  WEBHOOK_CHANGED: row(
    409,
    true,
    (e: { name: string; events: number }) =>
      `Webhook ${e.name} was changed or removed while it was replayed to; ${e.events} events had been sent. Replay again from there, or from the start: receivers know repeated events by their ids.`,
  ),
  WEBHOOK_FULL: row(
    409,
    true,
    (e: { name: string; waiting: number; events: number }) =>
      `Webhook ${e.name} is paused or disabled, and has ${e.waiting} events waiting: more would push those out. ${e.events} events had been sent. Resume it, or raise its keep, and replay again from there.`,
  ),
  QUEUE_NOT_FOUND: row(
    404,
    false,
    (e: { name: string; namespace?: string; meant?: string | undefined; orOther?: boolean; isTracked?: boolean }) =>
      `There is no ${e.isTracked ? 'tracked ' : ''}queue${e.orOther ? ', processor or webhook' : ''} ${e.name}${e.namespace ? ` in namespace "${e.namespace}"` : ''}, or it was removed.${e.meant ? ` Did you mean ${e.meant}?` : ''} \`busbar queues\`${e.orOther ? ', `busbar streams` and `busbar webhooks` list' : ' lists'} those there are${e.meant ? '' : e.isTracked ? '. To track one, put its whole definition again with `--track all`: what `busbar queue put` is not told it takes away' : ', `busbar queue put` makes a queue'}.`,
  ),
  LEASE_LOST: row(
    409,
    false,
    (e: { queue: string; id: string }) =>
      `The lease of item ${e.id} of queue ${e.queue} has lapsed: someone else may have it by now. Stop working on it.`,
  ),
  STREAM_IN_USE: row(
    409,
    false,
    (e: { name: string; workers: string[] }) =>
      `Processor "${e.name}" is run by ${e.workers.join(', ')}. Stop these workers before you remove it.`,
  ),
  SHELVES_FULL: row(
    409,
    true,
    (e: { name: string; shelves: number; shelved: number }) =>
      `Processor "${e.name}" has set aside all it may: ${e.shelves} objects, ${e.shelved} events. Resume or discard some first.`,
  ),
  HANDLER_TOOK_NOTHING: row(
    500,
    false,
    (e: { name: string }) =>
      `The handler of "${e.name}" returned without taking an event. Iterate over its first argument, or declare \`concurrency\` to get single events.`,
  ),
  SUBSCRIPTION_NOT_FOUND: row(
    404,
    false,
    (e: { name: string; namespace: string; meant?: string | undefined }) =>
      `There is no subscription ${e.name} in namespace "${e.namespace}".${e.meant ? ` Did you mean ${e.meant}?` : ''}`,
  ),
  SUBSCRIPTION_CHANGED_ELSEWHERE: row(
    409,
    true,
    (e: { name: string; minutes: number }) =>
      `Subscription ${e.name} had this definition before, and another one replaced it less than ${e.minutes} minutes ago: a process that was not deployed anew would undo that change. Deploy the new definition here too, or put this one all the same: \`force: true\` in code and over HTTP, \`busbar queue put --force\` or \`busbar webhooks put --force\` on the command line.`,
  ),
  WEBHOOK_URL_REFUSED: row(
    400,
    false,
    (e: { url: string; problem: string; remedy: string }) =>
      `Webhook URL ${e.url} is refused: ${e.problem}. ${e.remedy}`,
  ),
  WEBHOOK_HOST_UNRESOLVED: row(
    422,
    true,
    (e: { host: string; problem: string }) =>
      `No address is known of webhook host ${e.host}: ${e.problem}. Check the name, or try again later.`,
  ),
  WEBHOOK_HEADERS_INVALID: row(
    400,
    false,
    (e: { problems: string[] }) =>
      `${e.problems.length === 1 ? 'A header of the webhook is' : `${e.problems.length} things of the webhook's headers are`} not usable:\n${e.problems.map((p) => `  - ${p}`).join('\n')}`,
  ),
  SETTING_INVALID: row(
    400,
    false,
    (e: { problems: string[] }) =>
      `${e.problems.length === 1 ? 'A setting is' : `${e.problems.length} settings are`} not usable:\n${e.problems.map((p) => `  - ${p}`).join('\n')}`,
  ),
  NOT_DECLARED: row(
    400,
    false,
    (e: { names: string[]; declared: string[]; meant?: string }) =>
      `Nothing is declared under ${e.names.join(', ')}; there is ${e.declared.length === 0 ? 'nothing at all' : e.declared.join(', ')}.${e.meant ? ` Did you mean ${e.meant}?` : ''}`,
  ),
  NOT_DRAINED: row(
    504,
    true,
    (e: { timeoutMs: number; busy: string[] }) =>
      `Not everything published was handled within ${e.timeoutMs} ms: ${e.busy.join(', ')} had more to do. What waits for a time, such as a retry, needs advance(); a handler that takes longer needs a longer timeout.`,
  ),
  OPERATION_NOT_FOUND: row(
    404,
    false,
    (e: { id: string; because?: string | undefined }) =>
      `There is no operation ${e.id} in this namespace: ${e.because ?? 'it was never started in a tracked queue, or ended more than 24 hours ago'}.`,
  ),
  OPERATION_CANCELLED: row(409, false, (e: { id: string }) => `Operation ${e.id} was cancelled. Stop working on it.`),
  TRIGGER_NOT_FOUND: row(404, false, (e: { name?: string; meant?: string | undefined }) =>
    e.name === undefined
      ? 'There is no such trigger: its secret was replaced, it was removed, or it is of another namespace than this server serves.'
      : `There is no trigger ${e.name} in this namespace.${e.meant ? ` Did you mean ${e.meant}?` : ''} \`busbar triggers\` lists those there are.`,
  ),
  TRIGGER_DISABLED: row(
    400,
    false,
    (e: { name: string }) =>
      `Trigger ${e.name} is disabled. \`busbar triggers enable ${e.name}\` lets it start operations again.`,
  ),
  // For whoever has the URL: what it starts is nobody else's business.
  TRIGGER_BROKEN: row(
    409,
    false,
    () =>
      'This trigger can start nothing: what it started is not there any more, or is not followed to its end. `busbar triggers` says why.',
  ),
  TRIGGER_EXISTS: row(
    409,
    false,
    (e: { name: string }) => `There is a trigger ${e.name} already. Rotate its secret, or remove it first.`,
  ),
  TRIGGERS_FULL: row(
    409,
    false,
    (e: { most: number }) => `There are ${e.most} triggers, and there may be no more. Remove those that nobody needs.`,
  ),
  MODULE_NOT_FOUND: row(
    404,
    false,
    (e: { path: string; folder: string }) =>
      `No module is named, or fits, ${e.path}, looked for from ${e.folder}. Give the path of a .ts, .mts, .js, .mjs or .cjs file, or a pattern like 'jobs/*.ts'.`,
  ),
  MODULE_FAILED: row(
    500,
    false,
    (e: { file: string; problem: string }) => `Module ${e.file} cannot be loaded: ${e.problem}`,
  ),
  BUS_NOT_EXPORTED: row(
    400,
    false,
    (e: { files: string[] }) =>
      `No bus is exported from ${e.files.join(', ')}. Export what busbar() answers, as in: export const bus = busbar({ namespace: 'shop' })`,
  ),
  EVENT_NOT_FOUND: row(
    404,
    false,
    (e: { id: string }) => `No event ${e.id} is kept: it was never published, or retention has passed it.`,
  ),
  TASK_INVALID: row(
    400,
    false,
    (e: { name: string; problem: string }) => `Task ${e.name} cannot be declared: ${e.problem}.`,
  ),
  SCHEDULE_INVALID: row(
    400,
    false,
    (e: { name: string; problem: string }) => `Schedule ${e.name} cannot be declared: ${e.problem}.`,
  ),
  DELAYED_FULL: row(
    503,
    true,
    (e: { waiting: number; maxWaiting: number }) =>
      `${e.waiting} delayed events already wait in this event's partition; the limit is ${e.maxWaiting}. Nothing was stored: try again when some of them are due, or cancel some.`,
  ),
  BODY_INVALID: row(400, false, (e: { problem: string }) => `The request body ${e.problem}.`),
  BODY_TOO_LARGE: row(
    413,
    false,
    (e: { maxBytes: number }) =>
      `The request body is over the limit of ${e.maxBytes} bytes. Send fewer events per request.`,
  ),
  BODY_ALREADY_READ: row(
    500,
    false,
    () =>
      'The request body was read before the receiver could verify its bytes. Put the receiver before express.json() and the like, or give its route express.raw({ type: () => true }).',
  ),
  MEDIA_TYPE_UNSUPPORTED: row(
    415,
    false,
    (e: { given: string; accepted: string[] }) =>
      `Content type ${e.given} is not accepted here. Send ${e.accepted.join(' or ')}.`,
  ),
  PARAMETER_INVALID: row(
    400,
    false,
    (e: { name: string; value?: string; problem: string }) =>
      `Parameter "${e.name}" ${e.problem}${e.value === undefined ? '' : `; got ${e.value}`}.`,
  ),
  UNAUTHENTICATED: row(
    401,
    false,
    (e: { isGiven: boolean }) =>
      `${e.isGiven ? 'This token is not known' : 'This route needs a token: send "Authorization: Bearer <token>"'}. The root token is in the data folder, file root-token.`,
  ),
  WEBHOOK_UNSIGNED: row(
    401,
    false,
    (e: { missing: string[] }) =>
      `This request is not signed: ${e.missing.join(', ')} ${e.missing.length === 1 ? 'is' : 'are'} missing. Only what Busbar, or another sender by Standard Webhooks, has signed is taken here.`,
  ),
  WEBHOOK_TIMESTAMP_REFUSED: row(
    401,
    false,
    (e: { timestamp: string; offSeconds: number; toleranceSeconds: number }) =>
      `webhook-timestamp must be seconds since the epoch, at most ${e.toleranceSeconds} s from now; got ${e.timestamp}${Number.isNaN(e.offSeconds) ? '' : `, which is ${Math.abs(e.offSeconds)} s ${e.offSeconds > 0 ? 'ago' : 'ahead'}`}. Check the clocks of both sides.`,
  ),
  WEBHOOK_SIGNATURE_REFUSED: row(
    401,
    false,
    (e: { signatures: number }) =>
      `${e.signatures === 1 ? 'The signature is not' : `None of the ${e.signatures} signatures is`} by a secret that is known here. Check that the receiver has the subscription's secret, and that it verifies the body's bytes as they came, not parsed and written again.`,
  ),
  WEBHOOK_NOT_HANDLED: row(
    500,
    true,
    (e: { what: string }) =>
      `The receiver failed at ${e.what}. Send the batch again: what it has handled is not handled twice.`,
  ),
  WEBHOOK_TOO_EARLY: row(
    503,
    true,
    (e: { id: string; prev: number | null }) =>
      `Event ${e.id} comes too early: event ${e.prev} of its object, which comes before it, has not been handled. Send the batch again later.`,
  ),
  ROUTE_NOT_FOUND: row(404, false, (e: { method: string; path: string }) => `There is no route ${e.method} ${e.path}.`),
  INTERNAL: row(500, false, () => 'Something broke inside Busbar. The log has the details.'),
  BUS_CLOSED: row(503, false, () => 'The bus is closed. Make a new one to go on.'),
} as const

export type ErrorCode = keyof typeof errorTable
export type ErrorDetails<C extends ErrorCode> = Parameters<(typeof errorTable)[C]['message']>[0]

/** The only error class. `details` carries the values the message was made of. */
export class BusbarError extends Error {
  override readonly name = 'BusbarError'
  readonly code: ErrorCode
  readonly status: number
  readonly retryable: boolean
  readonly details: Readonly<Record<string, unknown>>

  private constructor(code: ErrorCode, details: Record<string, unknown>, cause?: unknown) {
    const entry = errorTable[code] as Row<Record<string, unknown>>
    super(entry.message(details), cause === undefined ? undefined : { cause })
    this.code = code
    this.status = entry.status
    this.retryable = entry.retryable
    this.details = details
  }

  static of<C extends ErrorCode>(
    code: C,
    ...[details, cause]: unknown extends ErrorDetails<C>
      ? [details?: undefined, cause?: unknown]
      : [details: ErrorDetails<C>, cause?: unknown]
  ): BusbarError {
    return new BusbarError(code, (details ?? {}) as Record<string, unknown>, cause)
  }
}

// What JSON leaves as it is, but a terminal or a log viewer does not: control signs, line separators, changes of direction.
const unprintable = /[\p{Cc}\p{Zl}\p{Zp}\p{Bidi_Control}\ufeff]/gu

/** A value as it may stand in a message: JSON, shortened, never raw user text. */
export function shown(value: unknown): string {
  if (typeof value === 'number' || typeof value === 'bigint' || value === undefined) return String(value)
  let text: string | undefined
  try {
    text = JSON.stringify(value)
  } catch {
    text = undefined
  }
  if (text === undefined) return `a ${typeof value}`
  const short = text.length > 80 ? `${text.slice(0, 77).toWellFormed()}…` : text
  return short.replace(unprintable, (sign) => `\\u${sign.charCodeAt(0).toString(16).padStart(4, '0')}`)
}

const maxErrorLength = 1_000
const maxReadLength = 65_536

/** What people are told of an error: its message, on one line, cut short. `shown`: what of the text they may know. */
export const errorText = (error: unknown, shown = (text: string): string => text): string =>
  shown(textOf(error).slice(0, maxReadLength)).replace(/\s+/g, ' ').slice(0, maxErrorLength)

/** Anything may be thrown, also what cannot be made a text. */
function textOf(error: unknown): string {
  try {
    return error instanceof Error ? `${error.name}: ${error.message}` : String(error)
  } catch {
    return `${shown(error)}, which has no text`
  }
}
