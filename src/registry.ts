/**
 * The optional event registry: which types there are, what their data looks like, whose event it is.
 *
 * A schema is anything that speaks Standard Schema (zod, valibot, …). It must answer at once: publishes of one object
 * keep the order of their calls, and a schema that waits would let a later call overtake.
 */
import type { StandardSchemaV1 } from '@standard-schema/spec'
import { BusbarError } from './errors.ts'
import { RawJson } from './event.ts'
import { writeJson } from './event-checks.ts'
import type { EventPlace } from './publish/written-event.ts'

export interface EventDefinition<Schema extends StandardSchemaV1 = StandardSchemaV1> {
  schema: Schema
  key?: (data: StandardSchemaV1.InferOutput<Schema>) => string
  tenant?: (data: StandardSchemaV1.InferOutput<Schema>) => string
}

/** Declares the data of one event type; key and tenant may follow from it. */
export const event = <Schema extends StandardSchemaV1>(
  schema: Schema,
  derive: Omit<EventDefinition<Schema>, 'schema'> = {},
): EventDefinition<Schema> => ({ schema, ...derive })

// biome-ignore lint/suspicious/noExplicitAny: a registry holds definitions of any schema; their types are kept per entry.
export type Registry = Readonly<Record<string, EventDefinition<any>>>

export type DataIn<R extends Registry, Type extends string> = Type extends keyof R
  ? StandardSchemaV1.InferInput<R[Type]['schema']>
  : unknown

export type DataOut<R extends Registry, Type extends string> = Type extends keyof R
  ? StandardSchemaV1.InferOutput<R[Type]['schema']>
  : unknown

/** Checks the data against its schema and fills in key and tenant; what the caller gave wins. */
export function applyRegistry(
  registry: ReadonlyMap<string, EventDefinition>,
  type: string,
  data: unknown,
  place: EventPlace,
): { data: unknown; place: EventPlace } {
  const definition = registry.get(type)
  if (!definition) return { data, place }
  const raw = data instanceof RawJson
  const value = validated(definition, type, raw ? parsed(data) : data)
  return {
    data: raw ? data : value,
    place: {
      ...place,
      key: place.key ?? derived(type, 'key', definition, value),
      tenant: place.tenant ?? derived(type, 'tenant', definition, value),
    },
  }
}

/** Its size is checked first: what is too large is refused without being read into values. */
const parsed = (raw: RawJson): unknown => JSON.parse(writeJson(raw))

function validated(definition: EventDefinition, type: string, data: unknown): unknown {
  const result = attempted(type, 'its schema failed', () => definition.schema['~standard'].validate(data))
  if (result instanceof Promise) {
    // Nobody waits for it, so nobody else would hear of its failure.
    result.catch(() => undefined)
    throw BusbarError.of('SETTING_INVALID', {
      problems: [`events["${type}"]: its schema is asynchronous; use one that answers at once`],
    })
  }
  if (result.issues)
    throw BusbarError.of('SCHEMA_VIOLATION', { type, issues: result.issues.slice(0, 10).map(issueText) })
  return result.value
}

function derived(type: string, field: 'key' | 'tenant', definition: EventDefinition, value: unknown) {
  return attempted(type, `its ${field} cannot be derived`, () => definition[field]?.(value))
}

/** Schemas and what derives from data are the user's code: what they throw is about this event alone. */
function attempted<T>(type: string, problem: string, run: () => T): T {
  try {
    return run()
  } catch (error) {
    throw BusbarError.of('SCHEMA_VIOLATION', { type, issues: [`${problem}: ${String(error).slice(0, 200)}`] }, error)
  }
}

function issueText({ message, path }: StandardSchemaV1.Issue): string {
  const at = path
    ?.map((part) => (typeof part === 'object' ? part.key : part))
    .map(String)
    .join('.')
  return at ? `${at}: ${message}` : message
}
