/**
 * One line of an events file: a JSON object with type, data, tenant, key, time, trace, idempotencyKey.
 *
 * What `busbar tail --json` prints is such a line too: id, seq and prev, which the log will give anew, are passed over.
 * The data goes on as the text that it is.
 */
import type { PublishOptions } from '../bus-types.ts'
import { didYouMean } from '../did-you-mean.ts'
import { BusbarError, shown } from '../errors.ts'
import { RawJson } from '../event.ts'
import { forEachMember, NotJson } from '../json-slices.ts'
import { readTime, timeForms } from '../time.ts'

export interface EventLine {
  type: string
  data: RawJson | undefined
  options: PublishOptions
}

const fields = ['type', 'data', 'tenant', 'key', 'time', 'trace', 'idempotencyKey']
const given = ['id', 'seq', 'prev']

/** Throws NotJson or EVENT_INVALID; the values themselves are for publish to judge. */
export function readEventLine(text: string): EventLine {
  const raws = new Map<string, string>()
  forEachMember(text, (name, raw) => {
    if (raws.has(name)) throw invalid(name, 'is given twice', 'two values')
    raws.set(name, raw)
  })
  for (const name of raws.keys()) if (!fields.includes(name) && !given.includes(name)) throw unknownField(name)
  const value = (name: string): unknown => {
    const raw = raws.get(name)
    return raw === undefined ? undefined : (JSON.parse(raw) ?? undefined)
  }
  const data = raws.get('data')
  const options = {
    tenant: value('tenant'),
    key: value('key'),
    time: eventTime(value('time')),
    trace: value('trace'),
    idempotencyKey: value('idempotencyKey'),
  }
  return {
    type: value('type') as string,
    data: data === undefined ? undefined : new RawJson(data),
    options: options as PublishOptions,
  }
}

function eventTime(time: unknown): unknown {
  if (typeof time !== 'string') return time
  const ms = readTime(time)
  if (ms === undefined) throw invalid('time', `must be ${timeForms}`, shown(time))
  return ms
}

function unknownField(name: string): BusbarError {
  const meant = didYouMean(name, fields)
  const hint = meant ? `did you mean "${meant}"?` : `an event has ${fields.join(', ')}`
  return invalid(name.slice(0, 64), `is unknown (${hint})`, shown(name))
}

function invalid(field: string, problem: string, value: string): BusbarError {
  return BusbarError.of('EVENT_INVALID', { field, value, problem })
}

/** What is wrong with a line, or undefined when the error is not the line's fault. */
export function lineFault(error: unknown): { code: string; message: string } | undefined {
  if (error instanceof NotJson) return { code: 'EVENT_INVALID', message: `The line is not JSON: ${error.message}.` }
  if (!(error instanceof BusbarError) || !faultsOfLines.includes(error.code)) return undefined
  return { code: error.code, message: error.message }
}

const faultsOfLines: readonly string[] = [
  'EVENT_INVALID',
  'EVENT_TOO_LARGE',
  'DATA_UNSERIALISABLE',
  'CALL_TOO_LARGE',
  'SCHEMA_VIOLATION',
  'CONFLICT',
  'IDEMPOTENCY_KEY_REUSED',
]
